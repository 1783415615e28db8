"""JSON as servers send it, well-formed or nearly so."""

from __future__ import annotations

import functools
import json
from typing import Any

ONCE = ("choices", "message", "content", "finish_reason", "refusal")
"""Names an object must not give twice: of two values a parser takes the first or the last, and only one is meant."""


class GivenTwiceError(ValueError):
    """An answer that says two things."""


def load_json(body: bytes, once: tuple[str, ...] | None = ONCE) -> Any:
    """Any JSON at all, NaN and lone surrogates included. ValueError if it is not JSON to its last byte,
    GivenTwiceError if one object gives one of `once` twice, or any name where it is None."""
    try:
        # Decoded here, as UTF-8: json would also take UTF-16, which is not searched for keys that a server echoes.
        text = body.decode("utf-8-sig", "surrogatepass")
        return json.loads(text, object_pairs_hook=functools.partial(_object, once))
    except RecursionError:
        raise ValueError("nested too deep") from None


def _object(once: tuple[str, ...] | None, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        for name in names if once is None else once:
            if names.count(name) > 1:
                raise GivenTwiceError(f"{name!r} is given twice")
    return found
