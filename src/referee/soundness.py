"""What judges and readers from outside gave, in exactly the types of `records`: otherwise it could not travel between
processes."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec

from referee.records import How, Part, Reason, Unscored, Verdict

_HOWS = frozenset(get_args(How))


def sound(given: object) -> Verdict | Unscored:
    """The same verdict in those types. What is no verdict, or has a number that is not finite, is Unscored."""
    try:
        if _exact(given):
            return given  # type: ignore[return-value]
        if isinstance(given, Verdict):
            given = msgspec.structs.replace(given, score=_number(given.score), value=_number(given.value))
        built = msgspec.to_builtins(given, enc_hook=float)  # float: numpy's numbers
        found: Verdict | Unscored = msgspec.convert(built, Verdict | Unscored)
        if _exact(found):
            return found
        why = "a number that is not finite"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:200]
    return Unscored(reason=Reason.CONFIG, detail=f"the judge returned no sound verdict ({why})")


def _exact(given: object) -> bool:
    if type(given) is Unscored:
        return type(given.reason) is Reason and type(given.detail) is str and _exact_parts(given.parts)
    return (
        type(given) is Verdict
        and type(given.score) is type(given.value) is float
        and math.isfinite(given.score)
        and math.isfinite(given.value)
        and type(given.reason) is str
        and given.how in _HOWS
        and (given.uncertainty is None or type(given.uncertainty) is float)
        and _exact_parts(given.parts)
    )


def _exact_parts(parts: object) -> bool:
    return type(parts) is tuple and (not parts or all(map(_exact_part, parts)))


def _exact_part(part: object) -> bool:
    return (
        type(part) is Part
        and type(part.name) is type(part.text) is type(part.label) is str
        and type(part.weight) is float
        and type(part.good) is bool
        and _exact(part.verdict)
    )


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("a score is a number, not text")
    return float(value)
