"""A provider's error object, in any of its shapes, as one flat record. What to do about it is in `failure`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from referee.wire.scrub import label, scrub
from referee.wire.times import duration

_DEPTH = 4
"""How far down nested wrappers are followed."""


class ErrorBody(Struct, frozen=True):
    """One error, flat."""

    message: str = ""
    code: str = ""
    """The most specific of its labels."""
    labels: frozenset[str] = frozenset()
    """error.code, error.type, error.status and the like, lower case."""
    param: str = ""
    """The request field it names, if it names one."""
    status: int = 0
    """An HTTP status inside the body, where gateways put the real one."""
    retry_delay: float | None = None
    flagged: bool = False
    """The gateway's moderation named reasons."""


NONE = ErrorBody()


def holds_error(data: Any) -> bool:
    """True if decoded JSON is an error object rather than an answer."""
    if isinstance(data, list):
        return bool(data) and holds_error(data[0])
    if not isinstance(data, dict):
        return False
    return bool(data.get("error")) or data.get("object") == "error" or data.get("type") == "error"


def read(data: Any) -> ErrorBody:
    """The error in decoded JSON, as OpenAI, Azure, Anthropic, Gemini, vLLM, llama.cpp, FastAPI or gateways write it."""
    inner = _innermost(data)
    if isinstance(inner, str):
        return ErrorBody(message=inner)
    if not isinstance(inner, dict):
        return NONE
    message, param = _message(inner)
    labels = list(_labels(inner))
    metadata = inner.get("metadata")
    return ErrorBody(
        message=message,
        code=labels[0] if labels else "",
        labels=frozenset(name.lower() for name in labels),
        param=_word(inner.get("param")) or param,
        status=_status(inner),
        retry_delay=_retry_delay(inner.get("details")),
        flagged=isinstance(metadata, dict) and bool(metadata.get("reasons")),
    )


def _innermost(data: Any) -> Any:
    """Unwrap `[{"error": {…}}]`, `{"error": {…}}`, `{"error": "…"}`; FastAPI's `{"detail": {…}}` too."""
    for _ in range(_DEPTH):
        if isinstance(data, list) and data:
            data = data[0]
        elif isinstance(data, dict) and data.get("error") and isinstance(data["error"], dict | str | list):
            data = data["error"]
        elif isinstance(data, dict) and isinstance(data.get("detail"), dict):
            data = data["detail"]
        else:
            break
    return data


def _message(inner: dict[str, Any]) -> tuple[str, str]:
    for name in ("message", "detail", "msg", "error_msg", "error_description"):
        said = inner.get(name)
        if isinstance(said, dict):  # Mistral wraps FastAPI's list once more
            said = said.get("detail")
        if isinstance(said, str) and said:
            return said, ""
        if isinstance(said, list) and said:
            return _validation(said)
    return "", ""


def _validation(items: list[Any]) -> tuple[str, str]:
    """FastAPI's list of {loc, msg}: as one message, and the request field of the first."""
    said, param = [], ""
    for item in items[:5]:
        if not isinstance(item, dict):
            continue
        loc = item.get("loc")
        path = [str(part) for part in loc if part != "body"] if isinstance(loc, list) else []
        param = param or (_word(path[0]) if path else "")
        said.append(f"{'.'.join(path)}: {item.get('msg', '')}")
    return "; ".join(said), param


def _labels(inner: dict[str, Any]) -> Iterator[str]:
    """Code first, then the rest: also Azure's inner code, Anthropic's and Google's details. Bare numbers are left out:
    they repeat the HTTP status."""
    deeper, details = inner.get("innererror"), inner.get("details")
    listed = details if isinstance(details, list) else ()
    for value in (
        inner.get("code"),
        inner.get("type"),
        inner.get("error_type"),
        inner.get("status"),
        inner.get("reason"),
        deeper.get("code") if isinstance(deeper, dict) else None,
        details.get("error_code") if isinstance(details, dict) else None,
        *[item.get("reason") for item in listed[:5] if isinstance(item, dict)],
    ):
        name = _word(value)
        if name and not name.isdecimal() and name != "error":
            yield name


def _word(value: Any) -> str:
    name = label(value) if isinstance(value, str) else ""
    return _unless_secret(name) if name else ""


@functools.lru_cache(maxsize=256)
def _unless_secret(name: str) -> str:
    """A throttled endpoint repeats a few labels in thousands of errors, so the check is cached."""
    return name if scrub(name) == name else ""


def _status(inner: dict[str, Any]) -> int:
    for name in ("status", "code", "status_code", "statusCode"):
        value = inner.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return 0


def _retry_delay(details: Any) -> float | None:
    """Gemini: details holds {"@type": "…RetryInfo", "retryDelay": "34s"}."""
    for item in details if isinstance(details, list) else ():
        delay = item.get("retryDelay") if isinstance(item, dict) else None
        if isinstance(delay, str):
            return duration(delay)
    return None
