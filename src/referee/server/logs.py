"""How `referee serve` logs: text, or one JSON object a line on standard error, whatever writes there."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any

log = logging.getLogger("referee.server")

TEXT = "%(levelname)s %(name)s: %(message)s"


class TextLines(logging.Formatter):
    """A record as text, followed by its fields, if it has any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        shown = (
            f" {name}={value}" for name, value in fields.items() if name not in OF_MESSAGE and value not in ("", 0)
        )
        return super().format(record) + "".join(shown)


class JsonLines(logging.Formatter):
    """A record as one line of JSON: ASCII, whatever stands in the message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        found: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found | getattr(record, "fields", {}), default=str)


OF_MESSAGE = ("method", "path", "status")
"""Fields that the message of an access line has already."""


class Printed(io.TextIOBase):
    """Stands for standard error, and logs what is printed there, line by line."""

    def __init__(self) -> None:
        self._begun = ""

    def write(self, text: str) -> int:
        """Log the lines that are whole."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            logging.getLogger("referee.stderr").warning("%s", line)
        return len(text)


def start_logging(form: str, access: bool) -> None:
    """Log in this form from now on. The service's own lines are shown from INFO on."""
    root = logging.getLogger()
    if form == "json":
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        root.handlers[:] = [handler]
        logging.captureWarnings(True)
        logging.raiseExceptions = False  # what a broken handler prints would come back to it
        sys.stderr = Printed()
        sys.excepthook = lambda kind, error, trace: root.critical("ended by an error", exc_info=(kind, error, trace))
        threading.excepthook = lambda told: root.error("a thread ended by an error", exc_info=told.exc_value)
    for shown_by in root.handlers if form == "text" else ():
        shown_by.setFormatter(TextLines(TEXT))
    for name, shown in (("referee.server", True), ("referee.access", access)):
        logger = logging.getLogger(name)
        if not shown or not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO if shown else logging.WARNING)
