"""Two runs, or two judges, on the same samples: how far they agree and where they do not. Pure, over ledger lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from referee.report.agreement import Order, order
from referee.report.sides import Row, Side, of_judge
from referee.stats import kappa, pearson, spearman, weighted_kappa

CLASSES = 24
"""Different scores up to which they count as classes."""
SAME = 1e-9
DIGITS = re.compile(r"[0-9]{1,12}")
BINS = 10


class Example(Struct, frozen=True, kw_only=True):
    """One sample on which the sides differ."""

    id: str
    step: int | None
    group: str
    a: float | None
    b: float | None
    """Scores on each judge's own scale."""
    difference: float
    """b - a, in [0, 1] terms."""
    prompt: str
    response: str
    why_a: str
    why_b: str


class Level(Struct, frozen=True, kw_only=True):
    """The samples to which a gave about the same score, and what b gave them."""

    a: float
    count: int
    mean_b: float
    """Both in [0, 1]."""


class Diff(Struct, frozen=True, kw_only=True):
    """Everything the comparison says. Differences are b - a, values in [0, 1]."""

    judge_a: str
    judge_b: str
    """Whose verdicts were compared; empty: its only judge's. Several are compared by their weighted mean."""
    rows_a: int
    rows_b: int
    matched: int
    matched_by: dict[str, int]
    """How: id and text, text, id (text not known on a side), id only (the texts differ), position."""
    only_a: int
    only_b: int
    repeated: int
    """Matched pairs beyond the first of the same sample: paired in the order they were judged."""
    both: int
    """Pairs scored on both sides; what follows is about these."""
    unscored_a: int
    unscored_b: int
    """Unscored on that side only."""
    unscored_both: int
    reasons_a: dict[str, int]
    reasons_b: dict[str, int]
    scale: str
    """What `exact` and `within_one` compare: "score" (both judges use one scale) or "value" (in tenths)."""
    exact: float | None
    within_one: float | None
    """Shares of the pairs."""
    pearson: float | None
    spearman: float | None
    kappa: float | None
    kappa_of: str
    """What kappa compares: "score", or "value above 0.5"."""
    weighted_kappa: float | None
    mean_a: float | None
    mean_b: float | None
    mean_difference: float | None
    order: Order
    levels: tuple[Level, ...]
    examples: tuple[Example, ...]
    models_a: dict[str, int]
    models_b: dict[str, int]
    settings: dict[str, tuple[Any, Any]]
    """Settings that differ, by their dotted name."""
    judges: dict[str, Diff] = {}
    """The same for each judge by itself, without examples and settings: of two runs of several, those that both have;
    else each of the one run's against the other."""


Pair = tuple[Row, Row]


def match(a: list[Row], b: list[Row]) -> tuple[list[Pair], dict[str, int], int]:
    """Pairs of the same sample in the order of a, how they were found, and how many were repeats.

    Surest first: id and text, then text alone, then id. Rows that say the same are paired in the order they came.
    """
    partner: list[int | None] = [None] * len(a)
    free = [True] * len(b)
    by: dict[str, int] = {}
    repeated = 0
    for name, key_of in RULES:
        waiting: dict[Hashable, deque[int]] = defaultdict(deque)
        for place, row in enumerate(b):
            key = key_of(row) if free[place] else None
            if key is not None:
                waiting[key].append(place)
        seen: set[Hashable] = set()
        for index, row in enumerate(a):
            key = key_of(row) if partner[index] is None else None
            if key is None or not waiting.get(key):
                continue
            place = waiting[key].popleft()
            partner[index], free[place] = place, False
            how = "id only" if name == "id" and row.text and b[place].text else name
            by[how] = by.get(how, 0) + 1
            repeated += key in seen
            seen.add(key)
    return [(a[index], b[place]) for index, place in enumerate(partner) if place is not None], by, repeated


RULES: list[tuple[str, Callable[[Row], Hashable | None]]] = [
    ("id and text", lambda row: (row.step, row.id, row.text) if row.id and row.text else None),
    ("id and text", lambda row: (row.id, row.text) if row.id and row.text else None),
    ("text", lambda row: (row.step, row.text) if row.text else None),
    ("text", lambda row: row.text or None),
    ("id", lambda row: (row.step, row.id) if row.id else None),
    ("id", lambda row: row.id or None),
]
"""What makes two rows the same sample, the surest first."""


def in_order(a: Side, b: Side) -> list[Pair]:
    """Pairs by position, where a side has neither ids nor texts and both have as many rows in the rollouts' order.

    `referee score` names rollouts without an id by their line, so its record can be put in order.
    """
    found = []
    for given in (a, b):
        numbers = [int(row.id) for row in given.rows if DIGITS.fullmatch(row.id)]
        counted = sorted(numbers) == list(range(1, len(given.rows) + 1))
        if not (given.ordered or counted):
            return []
        found.append(sorted(given.rows, key=lambda row: int(row.id)) if counted else given.rows)
    nameless = [all(not row.id and not row.text for row in rows) for rows in found]
    return list(zip(*found, strict=True)) if any(nameless) and len(found[0]) == len(found[1]) else []


def diff(a: Side, b: Side, examples: int = 5, same_text: bool = False) -> Diff:
    """Compare. `same_text` leaves out pairs that share an id while their texts differ."""
    pairs, by, repeated = match(a.rows, b.rows)
    if not pairs:
        pairs = in_order(a, b)
        by = {"position": len(pairs)} if pairs else {}
    if same_text:
        pairs = [(x, y) for x, y in pairs if not x.text or not y.text or x.text == y.text]
        by.pop("id only", None)
    both = [(x, y) for x, y in pairs if x.value is not None and y.value is not None]
    values_a, values_b = [x.value or 0.0 for x, _ in both], [y.value or 0.0 for _, y in both]
    scale = "score" if a.scale is not None and a.scale == b.scale else "value"
    exact, near = _close(both, scale)
    classes, class_name = _classes(both, scale)
    count = len(both)
    mean_a, mean_b = (sum(values) / count if count else None for values in (values_a, values_b))
    return Diff(
        judge_a=a.judge,
        judge_b=b.judge,
        rows_a=len(a.rows),
        rows_b=len(b.rows),
        matched=len(pairs),
        matched_by=by,
        only_a=len(a.rows) - len(pairs),
        only_b=len(b.rows) - len(pairs),
        repeated=repeated,
        both=count,
        unscored_a=sum(x.value is None and y.value is not None for x, y in pairs),
        unscored_b=sum(x.value is not None and y.value is None for x, y in pairs),
        unscored_both=sum(x.value is None and y.value is None for x, y in pairs),
        reasons_a=dict(Counter(x.unscored for x, _ in pairs if x.value is None).most_common()),
        reasons_b=dict(Counter(y.unscored for _, y in pairs if y.value is None).most_common()),
        scale=scale,
        exact=exact,
        within_one=near,
        pearson=pearson(values_a, values_b),
        spearman=spearman(values_a, values_b),
        kappa=kappa([x for x, _ in classes], [y for _, y in classes]),
        kappa_of=class_name,
        weighted_kappa=weighted_kappa(values_a, values_b),
        mean_a=mean_a,
        mean_b=mean_b,
        mean_difference=None if mean_a is None or mean_b is None else mean_b - mean_a,
        order=order(_groups(both)),
        levels=_levels(values_a, values_b),
        examples=tuple(_example(x, y) for x, y in _widest(both, examples)),
        models_a=a.models,
        models_b=b.models,
        settings=_settings(a.config, b.config),
        judges=_by_judge(a, b, same_text),
    )


def _by_judge(a: Side, b: Side, same_text: bool) -> dict[str, Diff]:
    both = bool(a.judges and b.judges)
    names = [name for name in a.judges if name in b.judges] if both else [*a.judges, *b.judges]
    return {name: replace(diff(of_judge(a, name), of_judge(b, name), 0, same_text), settings={}) for name in names}


def _close(both: list[Pair], scale: str) -> tuple[float | None, float | None]:
    """Shares of the pairs that are equal, and that are at most one apart (one tenth in [0, 1])."""
    if not both:
        return None, None
    unit = 1.0 if scale == "score" else 0.1
    apart = [abs(_number(y, scale) - _number(x, scale)) for x, y in both]
    return sum(d <= SAME for d in apart) / len(apart), sum(d <= unit + SAME for d in apart) / len(apart)


def _number(row: Row, scale: str) -> float:
    found = row.score if scale == "score" and row.score is not None else row.value
    return 0.0 if found is None else found


def _classes(both: list[Pair], scale: str) -> tuple[list[tuple[Hashable, Hashable]], str]:
    """What kappa compares: the scores themselves while they are few and whole, else which side of the middle."""
    pairs = [(_number(x, scale), _number(y, scale)) for x, y in both]
    different = {number for pair in pairs for number in pair}
    if scale == "score" and len(different) <= CLASSES and all(number == int(number) for number in different):
        return [(x, y) for x, y in pairs], "score"
    return [((x.value or 0.0) > 0.5, (y.value or 0.0) > 0.5) for x, y in both], "value above 0.5"


def _groups(both: list[Pair]) -> list[list[tuple[float, float]]]:
    """Values of samples that are siblings on both sides."""
    groups: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for x, y in both:
        if x.siblings and y.siblings:
            groups[x.siblings, y.siblings].append((x.value or 0.0, y.value or 0.0))
    return list(groups.values())


def _levels(a: list[float], b: list[float]) -> tuple[Level, ...]:
    bins: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for x, y in zip(a, b, strict=True):
        bins[min(BINS - 1, int(x * BINS))].append((x, y))
    return tuple(
        Level(
            a=sum(x for x, _ in members) / len(members),
            count=len(members),
            mean_b=sum(y for _, y in members) / len(members),
        )
        for _, members in sorted(bins.items())
    )


def _widest(both: list[Pair], count: int) -> list[Pair]:
    """Pairs furthest apart; the same texts once."""
    found: list[Pair] = []
    seen: set[str] = set()
    for x, y in sorted(both, key=lambda pair: -abs((pair[1].value or 0.0) - (pair[0].value or 0.0))):
        if len(found) >= count or x.value == y.value:
            break
        if not x.text or x.text not in seen:
            seen.add(x.text)
            found.append((x, y))
    return found


def _example(x: Row, y: Row) -> Example:
    return Example(
        id=x.id or y.id,
        step=x.step,
        group=x.group,
        a=x.score,
        b=y.score,
        difference=(y.value or 0.0) - (x.value or 0.0),
        prompt=x.prompt or y.prompt,
        response=x.response or y.response,
        why_a=x.why,
        why_b=y.why,
    )


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs between two configurations, where both are known."""
    if not a or not b:
        return {}
    flat_a, flat_b = dict(flat(a)), dict(flat(b))
    names = [name for name in {**flat_a, **flat_b} if flat_a.get(name) != flat_b.get(name)]
    names = [name for name in names if not name.startswith("ledger.")]  # where a record is kept shapes no verdict
    return {name: (flat_a.get(name), flat_b.get(name)) for name in names}


def flat(data: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """Settings by their dotted name."""
    if isinstance(data, Mapping):
        for key, inner in data.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif name == "judge" and isinstance(data, list | tuple) and len(data) == 1:
        yield from flat(data[0], name)  # as its user wrote it, and as ledgers of 0.1 hold it
    elif isinstance(data, list | tuple):
        for number, inner in enumerate(data):
            yield from flat(inner, f"{name}[{number}]")
    else:
        yield name, data
