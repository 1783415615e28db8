"""Fields of a server's JSON, each read as its type or as absent: what the readers of replies have in common."""

from __future__ import annotations

import math
from typing import Any

from referee.records import TokenChoice

MOST_TOKENS = 10**9
"""A usage figure above this is nonsense and counts as not given."""


def table(value: Any) -> dict[str, Any]:
    """An object; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def tables(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """A string fit to be stored: a lone half of a surrogate pair becomes a question mark."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def ending(value: Any) -> str:
    """How a reply ended. A number or an object is an unknown ending, not an absent one."""
    if isinstance(value, str):
        return text(value)
    return "" if value is None else text(str(value)[:100])


def count(value: Any) -> int:
    """A number of tokens."""
    if type(value) is int or isinstance(value, float):
        return int(value) if 0 <= value <= MOST_TOKENS else 0
    return 0


def tokens(content: Any) -> tuple[TokenChoice, ...]:
    """Log-probabilities in OpenAI's form; empty if one of the tokens cannot be read: a gap would shift the others."""
    found = []
    for item in content if isinstance(content, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("token"), str):
            return ()
        pairs = [
            (text(top["token"]), float(top["logprob"]))
            for top in tables(item.get("top_logprobs"))
            if isinstance(top.get("token"), str) and _finite(top.get("logprob"))
        ]
        found.append(TokenChoice(text(item["token"]), tuple(pairs)))
    return tuple(found)


def _finite(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**53
    return isinstance(value, float) and math.isfinite(value)
