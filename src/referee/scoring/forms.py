"""Whether one judge's questions to one pool of endpoints ask for JSON by schema or for text: learned from what came
back. State only.
"""

from __future__ import annotations

import logging

from referee.judging import Form
from referee.records import Origin, Reason, Unscored

log = logging.getLogger("referee")

SCHEMA_TRIES = 8
"""Schema replies that may all be unreadable before the judge is asked for text instead."""
UNREADABLE = frozenset({Reason.SCHEMA, Reason.NO_VERDICT, Reason.EMPTY})


class LearnedForm:
    """The form of one judge in one pool: schema until that is known to be useless there."""

    __slots__ = ("_auto", "_form", "_read", "_unread")

    def __init__(self, reply: str = "auto") -> None:
        """`reply`: as judge.reply."""
        self._form: Form = "text" if reply == "text" else "schema"
        self._auto = reply == "auto"
        self._read = self._unread = 0

    def now(self, takes_schema: bool) -> Form:
        """The form to ask in. `takes_schema`: no endpoint has refused one."""
        if self._form == "schema" and self._auto:
            useless = self._unread >= SCHEMA_TRIES and not self._read
            if useless:
                log.warning("the judge's first %d schema replies were unreadable; asking for text", SCHEMA_TRIES)
            if useless or not takes_schema:
                self._form = "text"
        return self._form

    def read(self) -> None:
        """A reply in schema form was readable."""
        self._read += 1

    def wants_text(self, why: Unscored, origin: Origin, takes_schema: bool) -> bool:
        """Whether a question in schema form ended in a way that asking in text may fix. Call it once for each."""
        unread = why.reason in UNREADABLE and origin in ("call", "shared")
        self._unread += unread and origin == "call"
        refused = why.reason is Reason.CONFIG and not takes_schema
        return unread or refused
