"""What labels mean against a judge: yes and no, values on its scale, or which of several responses is better. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

from msgspec import Struct

from referee.calibration.labels import WORDS, Label, Row, criteria_named, label_of
from referee.config import JudgeConfig
from referee.errors import InputError
from referee.judging.registry import unit_of
from referee.records import Criterion
from referee.stats.clusters import clusters

Kind = Literal["binary", "ordinal", "preference"]
MOST_LEVELS = 24
"""Levels of a scale up to which scores count as classes."""
MOST_COMPARED = 64
"""Responses of one contest that are compared with each other; of more, the first."""
_BOUND = re.compile(r"(>=|>|<=|<)\s*(-?\d+(?:\.\d+)?)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
}


class Truth(Struct, frozen=True, kw_only=True):
    """What people said, a value for each row; None where they said nothing."""

    kind: Kind
    values: tuple[float | None, ...]
    """In [0, 1], as the judge's; for a preference only their order matters."""
    low: float = 0.0
    high: float = 1.0
    levels: tuple[int, ...] = ()
    """The judge's own scores, where labels are among them."""


class YesRule(Struct, frozen=True):
    """Which labels mean yes: words, or numbers on one side of a bound."""

    words: frozenset[str] = frozenset()
    compare: str = ""
    bound: float = 0.0

    def __call__(self, label: Label) -> bool:
        """Whether this one does."""
        if self.compare:
            if isinstance(label, str):
                raise InputError(f"--yes {self.compare}{self.bound:g}: the label {label[:40]!r} is no number.")
            return _COMPARE[self.compare](float(label), self.bound)
        if isinstance(label, bool):
            return any(WORDS.get(word) is label for word in self.words)
        return _word(label) in self.words


def yes_rule(text: str) -> YesRule | None:
    """From `good,fair` or `>=4`; None of an empty text."""
    if not text.strip():
        return None
    bound = _BOUND.fullmatch(text.strip())
    if bound:
        return YesRule(compare=bound[1], bound=float(bound[2]))
    if text.strip()[0] in "<>=":
        raise InputError(f"--yes {text}: a bound is written like >=4.")
    return YesRule(frozenset(_word(label_) for word in text.split(",") if (label_ := word.strip())))


def _word(label: Label) -> str:
    if isinstance(label, bool):
        return "yes" if label else "no"
    if isinstance(label, float):
        return f"{label:g}"
    try:
        return f"{float(label):g}"
    except ValueError:
        return label.strip().lower()


def truth_of(rows: Sequence[Row], judge: JudgeConfig, yes: YesRule | None = None) -> Truth:
    """What the rows' labels mean against this judge. An error, in one line, where they mean nothing."""
    if any(row.preferred is not None for row in rows):
        values = tuple(None if row.preferred is None else float(row.preferred) for row in rows)
        return Truth(kind="preference", values=values)
    labels = [row.label for row in rows]
    if unit_of(judge) == "group":
        return Truth(kind="preference", values=_placed(labels, lambda given: _ordered(given, judge, yes)))
    low, high = scale_of(judge)
    given = [label for label in labels if label is not None]
    if yes is not None:
        return Truth(kind="binary", values=_placed(labels, lambda all_: [float(yes(one)) for one in all_]))
    numbers = _numbers(given, judge)
    kind, low, high = _fit(numbers, judge, low, high)
    whole = kind == "ordinal" and all(number.is_integer() for number in numbers) and (low, high) != (0.0, 1.0)
    levels = tuple(range(int(low), int(high) + 1)) if whole and high - low < MOST_LEVELS else ()
    values = _placed(labels, lambda all_: [(float(one) - low) / (high - low) for one in all_])
    return Truth(kind=kind, values=values, low=low, high=high, levels=levels)


def scale_of(judge: JudgeConfig) -> tuple[float, float]:
    """The ends of the judge's scale: of its scores if it gives scores, else 0 and 1."""
    if judge.kind in ("score", "integer") or (judge.kind == "rubric" and judge.combine == "implicit"):
        return float(judge.low), float(judge.high)
    scales = {scale_of(inner) for inner in judge.uses} if judge.kind not in ("rubric", "yes_no", "reference") else set()
    return scales.pop() if len(scales) == 1 else (0.0, 1.0)


def _fit(numbers: Sequence[float], judge: JudgeConfig, low: float, high: float) -> tuple[Kind, float, float]:
    """How numbers are meant: 0 and 1 are no and yes, others are on the judge's scale, or between 0 and 1."""
    if all(number in (0.0, 1.0) for number in numbers):
        return "binary", 0.0, 1.0
    fits = all(low <= number <= high for number in numbers)
    shares = all(0.0 <= number <= 1.0 for number in numbers)
    if fits and not (shares and any(not number.is_integer() for number in numbers)):
        return "ordinal", low, high
    if shares:
        return "ordinal", 0.0, 1.0
    scale = "" if (low, high) == (0.0, 1.0) else f"its scale from {low:g} to {high:g} nor to "
    raise InputError(
        f"labels from {min(numbers):g} to {max(numbers):g} fit neither {scale or 'yes and no nor '}0 to 1, as judge "
        f"{judge.name!r} ({judge.kind}) needs. Say which mean yes, such as --yes '>=4', or give them on its scale."
    )


def _numbers(given: Sequence[Label], judge: JudgeConfig) -> list[float]:
    words = list(dict.fromkeys(label for label in given if isinstance(label, str)))
    if words:
        some = ", ".join(map(repr, [word[:30] for word in words[:4]]))
        raise InputError(
            f"labels such as {some} are neither yes nor no nor numbers, as judge {judge.name!r} ({judge.kind}) needs. "
            "Say which mean yes, such as --yes good,fair."
        )
    return [float(label) for label in given]


def _ordered(given: Sequence[Label], judge: JudgeConfig, yes: YesRule | None) -> list[float]:
    return [float(yes(one)) for one in given] if yes else _numbers(given, judge)


def _placed(
    labels: Sequence[Label | None], values_of: Callable[[list[Label]], list[float]]
) -> tuple[float | None, ...]:
    values = iter(values_of([label for label in labels if label is not None]))
    return tuple(None if label is None else next(values) for label in labels)


def criterion_named(name: str, criteria: Sequence[Criterion]) -> Criterion | None:
    """The criterion of this name or sentence."""
    return next(iter(criteria_named(name, criteria)), None)


def criterion_value(label: Label, criterion: Criterion) -> float:
    """What a label of one criterion says, as the judge's verdict on it: 1 if its sentence is true."""
    if not criterion.choices:
        told = label_of(label)
        label = label if told is None else told
        if isinstance(label, str):
            raise InputError(f"the label {label[:40]!r} of criterion {criterion.name!r} is neither yes nor no.")
        if float(label) in (0.0, 1.0):
            return float(label)
        raise InputError(f"the label {label:g} of criterion {criterion.name!r} is neither yes nor no.")
    words = [_word(choice) for choice in criterion.choices]
    if _word(label) not in words:
        offered = ", ".join(criterion.choices)
        raise InputError(f"the label {str(label)[:40]!r} of criterion {criterion.name!r} is none of: {offered}.")
    place = words.index(_word(label))
    return criterion.values[place] if criterion.values else place / (len(criterion.choices) - 1)


def pairs(values: Sequence[float | None], contests: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Every (better, worse) that people tell apart, within each contest."""
    found = []
    for members in clusters(len(contests), contests):
        known = [place for place in members if values[place] is not None][:MOST_COMPARED]
        found += [(i, j) for i in known for j in known if (values[i] or 0.0) > (values[j] or 0.0)]
    return found
