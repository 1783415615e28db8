"""Rate-limit headers as RateHints, in the forms that providers use. The limiter decides what to do with them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from referee.records import RateHints
from referee.wire.times import number, until

# (limit, remaining, reset) of requests and of tokens. The first family with any header counts.
_OPENAI = (
    ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)
_ANTHROPIC = (
    (
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ),
    ("anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)
_NO_TOKENS = ("", "", "")
_DRAFT = (("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"), _NO_TOKENS)
_BARE = (("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"), _NO_TOKENS)

_ITEM = re.compile(r";\s*([rt])\s*=\s*([0-9]{1,15})", re.ASCII)


def hints(headers: Mapping[str, str], wall: float) -> RateHints | None:
    """The limits in these headers, or None if there are none. Header names are lower case."""
    for family in (_OPENAI, _ANTHROPIC, _DRAFT, _BARE):
        requests, tokens = family
        if requests[1] in headers or tokens[1] in headers or requests[0] in headers or tokens[0] in headers:
            found = RateHints(*_triple(headers, requests, wall), *_triple(headers, tokens, wall))
            return found if found != _NOTHING else None
    if "ratelimit" in headers:
        return _structured(headers["ratelimit"])
    return None


_NOTHING = RateHints()


def _triple(
    headers: Mapping[str, str], names: tuple[str, str, str], wall: float
) -> tuple[int | None, int | None, float | None]:
    limit, remaining, reset = names
    when = headers.get(reset)
    return _count(headers.get(limit, "")), _count(headers.get(remaining, "")), until(when, wall) if when else None


def _count(text: str) -> int | None:
    if not text:
        return None
    if text.isdecimal() and text.isascii() and len(text) < 16:
        return int(text)
    # The draft allows "100, 100;w=60". A negative number is how some servers write "no limit".
    found = number(text.partition(",")[0].partition(";")[0])
    return int(found) if found is not None and found < 1e15 else None


def _structured(text: str) -> RateHints | None:
    """The newer draft: `RateLimit: "default";r=50;t=30`: requests left, seconds to the reset, of the first policy."""
    said = dict(_ITEM.findall(text[:200].partition(",")[0]))
    if "r" not in said:
        return None
    return RateHints(remaining_requests=int(said["r"]), reset_requests=float(said["t"]) if "t" in said else None)
