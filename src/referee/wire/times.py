"""Durations and times as servers write them: seconds, 6m0s, 120ms, HTTP dates, ISO dates, epochs."""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_tz

MAX_DELAY = 3600.0
"""Longest delay that is obeyed, in seconds. A larger number is more often a broken header than meant."""

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,15})?(?:[eE]\+?[0-9]{1,3})?", re.ASCII)
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,12})?\s?(?:ms|s|m|h|d))+", re.ASCII)
_PIECE = re.compile(r"([0-9.]+)\s?(ms|s|m|h|d)", re.ASCII)
_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PHRASES = ("try again in ", "retry in ", "retry after ", "try again after ", "resets in ", "reset in ")
_SPOKEN = re.compile(r"[0-9][0-9a-z.]{0,24}(?: (?:s|ms|m|h)\b)?")


def number(text: str) -> float | None:
    """A plain decimal number of at least 0, or None. No sign, no nan, no inf, no digits of other scripts."""
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def duration(text: str) -> float | None:
    """Seconds in "1.5", "1s", "6m0s", "120ms", "1h2m3.5s"; None if it is none of these."""
    text = text.strip()
    if text.endswith("ms"):
        plain, unit = number(text[:-2]), 0.001
    else:
        plain, unit = number(text.removesuffix("s")), 1.0
    if plain is not None:
        return plain * unit
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(amount) * _UNIT[unit] for amount, unit in _PIECE.findall(text))


def date(text: str) -> float | None:
    """Seconds since the epoch in an HTTP or ISO 8601 date; without a zone it is UTC. None if it is no date."""
    text = text.strip()[:64]
    try:
        parts = parsedate_tz(text)
        if parts is not None:
            return float(calendar.timegm((*parts[:6], 0, 0, 0)) - (parts[9] or 0))
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def until(text: str, wall: float) -> float | None:
    """Seconds from `wall` to a reset written as a duration, a date, or an epoch in seconds or milliseconds."""
    seconds = duration(text)
    if seconds is None:
        moment = date(text)
        return None if moment is None else max(0.0, moment - wall)
    if seconds >= 1e12:
        seconds = seconds / 1000 - wall
    elif seconds >= 1e9:
        seconds -= wall
    return max(0.0, seconds) if math.isfinite(seconds) else None


def retry_after(headers: Mapping[str, str], wall: float) -> float | None:
    """Seconds of Retry-After, at most MAX_DELAY; None if it is absent or malformed.

    A date is counted from the server's own Date where it sends one, so that clocks need not agree. A date in the past
    counts as absent: our own back-off is the better guess.
    """
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        milliseconds = number(headers.get(name, ""))
        if milliseconds is not None:
            return min(milliseconds / 1000, MAX_DELAY)
    text = headers.get("retry-after", "")
    if not text:
        return None
    seconds = duration(text)
    if seconds is None:
        moment = date(text)
        if moment is None:
            return None
        sent = date(headers.get("date", ""))
        seconds = moment - (wall if sent is None else sent)
        if seconds <= 0:
            return None
    return min(seconds, MAX_DELAY)


def spoken_delay(message: str) -> float | None:
    """The delay in an error message ("Please try again in 1.2s"), at most MAX_DELAY."""
    low = message[:400].lower()
    for phrase in _PHRASES:
        at = low.find(phrase)
        if at < 0:
            continue
        found = _SPOKEN.match(low, at + len(phrase))
        seconds = duration(found[0].rstrip(".")) if found else None
        return None if seconds is None else min(seconds, MAX_DELAY)
    return None
