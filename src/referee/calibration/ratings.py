"""What judges, and the criteria and jurors inside them, said of labelled rows: a column each, beside the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from referee.calibration.asking import judged
from referee.calibration.labels import Row
from referee.calibration.truth import Truth, YesRule, criterion_named, criterion_value, truth_of
from referee.config import Config, JudgeConfig, MissingConfig, all_judges
from referee.errors import InputError
from referee.records import Criterion, Part, Reward, Sample, Settled, Unscored, Verdict
from referee.referee import Referee

What = Literal["judge", "criterion", "juror"]
COMPARISONS = frozenset({"pairwise", "listwise"})
"""Ways to a verdict whose parts are single comparisons or orders, not opinions that have a name."""
NOT_APPLICABLE = "not applicable"


class Rating(Struct, frozen=True, gc=False):
    """One opinion of one row. No value: why there is none is in `unscored`."""

    value: float | None = None
    unscored: str = ""
    why: str = ""


class Rater(Struct, frozen=True, kw_only=True):
    """A judge, juror or criterion, whose agreement is measured."""

    name: str
    what: What
    judge: str
    """The judge it belongs to, or is."""
    truth: Truth
    said: tuple[Rating, ...]
    keys: tuple[tuple[int, str], ...]
    """Of which row and criterion each value of `truth` and `said` is. Criterion empty: the row as a whole."""


def calibration_config(config: Config) -> Config:
    """The same for judging labelled rows: what rewards become of verdicts does not matter, and nothing may replace a
    verdict that is missing."""
    length = replace(config.shaping.length, enable=False)
    missing = MissingConfig(abort_above=config.missing.abort_above)
    return replace(config, shaping=replace(config.shaping, length=length), missing=missing)


def ask(referee: Referee, rows: Sequence[Row]) -> list[Reward]:
    """Judge all rows. Responses to one prompt are a group, unless the rows name groups themselves."""
    return judged(referee, [grouped(row) for row in rows])


def grouped(row: Row) -> Sample:
    """The sample as it is judged: responses to one prompt are a group, unless the rows name groups themselves."""
    sample = row.sample
    return sample if sample.group and row.preferred is None else replace(sample, group=row.contest)


def raters(
    config: Config, rows: Sequence[Row], rewards: Sequence[Reward], yes: YesRule | None, rename: Callable[[str], str]
) -> Iterator[Rater]:
    """The judges, each followed by its jurors and criteria. `rename`: names of judges as they are shown.

    Where people have judged single criteria only, a judge's own agreement is that of all its criteria together.
    """
    whole = any(row.label is not None or row.preferred is not None for row in rows)
    keys = tuple((place, "") for place in range(len(rows)))
    for place, judge in enumerate(config.judge):
        settled, name = settled_of(place, rewards), rename(judge.name)
        criteria = list(_criteria(name, judge, rows, settled))
        if whole:
            said = tuple(_said(one.verdict) for one in settled)
            truth = truth_of(rows, judge, yes)
            yield Rater(name=name, what="judge", judge=name, truth=truth, said=said, keys=keys)
            yield from _jurors(name, judge, rows, settled, yes)
        elif criteria:
            yield _together(name, criteria)
        yield from criteria


def _together(name: str, criteria: Sequence[Rater]) -> Rater:
    several = any(one.truth.kind == "ordinal" for one in criteria)
    values = tuple(value for one in criteria for value in one.truth.values)
    return Rater(
        name=name,
        what="judge",
        judge=name,
        truth=Truth(kind="ordinal" if several else "binary", values=values),
        said=tuple(said for one in criteria for said in one.said),
        keys=tuple(key for one in criteria for key in one.keys),
    )


def settled_of(place: int, rewards: Sequence[Reward]) -> list[Settled]:
    """What one judge's asking ended in, for every row."""
    return [reward.terms[place].settled for reward in rewards]


def _said(verdict: Verdict | Unscored) -> Rating:
    if isinstance(verdict, Verdict):
        return Rating(verdict.value, "", verdict.reason)
    return Rating(None, verdict.reason.value, verdict.detail)


def _parts(verdict: Verdict | Unscored) -> tuple[Part, ...]:
    return verdict.parts if isinstance(verdict, Unscored) or verdict.how not in COMPARISONS else ()


def _inner(verdict: Verdict | Unscored) -> Iterator[Part]:
    """Parts, then those inside them: a jury may be repeated, or a member of a cascade."""
    level = _parts(verdict)
    while level:
        yield from level
        level = tuple(inner for part in level for inner in _parts(part.verdict))


def _jurors(
    name: str, judge: JudgeConfig, rows: Sequence[Row], settled: Sequence[Settled], yes: YesRule | None
) -> Iterator[Rater]:
    """Members of a jury or a cascade: parts that have the name of a judge inside this one. Of repeated ones, what each
    said first."""
    for member in all_judges(judge.uses):
        parts = ((place, part) for place, one in enumerate(settled) for part in _inner(one.verdict))
        found: dict[int, Part] = {}
        for place, part in parts:
            if part.name == member.name:
                found.setdefault(place, part)
        if found:
            # Of all rows: a member that was asked about few of them must not read their labels on another scale.
            truth = truth_of(rows, member, yes)
            yield Rater(
                name=member.name,
                what="juror",
                judge=name,
                truth=replace(truth, values=tuple(truth.values[place] for place in found)),
                said=tuple(_said(part.verdict) for part in found.values()),
                keys=tuple((place, "") for place in found),
            )


def _criteria(name: str, judge: JudgeConfig, rows: Sequence[Row], settled: Sequence[Settled]) -> Iterator[Rater]:
    """Criteria that rows have labels of, in order of appearance."""
    if judge.kind != "rubric":
        return
    wanted: dict[str, dict[int, Criterion]] = {}
    for place, row in enumerate(rows):
        for given in row.labels:
            criterion = criterion_named(given, (*row.sample.rubric, *judge.criterion))
            if criterion is not None:
                wanted.setdefault(given, {})[place] = criterion
    for given, places in wanted.items():
        labels = [criterion_value(rows[place].labels[given], criterion) for place, criterion in places.items()]
        several = any(criterion.choices for criterion in places.values())
        yield Rater(
            name=given,
            what="criterion",
            judge=name,
            truth=Truth(kind="ordinal" if several else "binary", values=tuple(labels)),
            said=tuple(_of_criterion(settled[place], criterion) for place, criterion in places.items()),
            keys=tuple((place, given) for place in places),
        )


def _of_criterion(settled: Settled, criterion: Criterion) -> Rating:
    part = next((part for part in _parts(settled.verdict) if part.text == criterion.text), None)
    if part is None:  # a gate settled the row, or the whole has no verdict
        whole = _said(settled.verdict)
        return Rating(None, whole.unscored or "not asked", whole.why)
    if part.label == NOT_APPLICABLE and criterion.may_not_apply:
        return Rating(None, NOT_APPLICABLE, _said(part.verdict).why)
    return _said(part.verdict)


def check_labels(config: Config, rows: Sequence[Row], yes: YesRule | None) -> None:
    """Raise, before anything is spent, where labels mean nothing to a judge."""
    labelled = [row for row in rows if row.label is not None or row.preferred is not None]
    for judge in config.judge:
        if labelled:
            truth_of(rows, judge, yes)
    rubrics = [judge for judge in config.judge if judge.kind == "rubric"]
    for row in rows:
        for name, label in row.labels.items():
            found = [criterion_named(name, (*row.sample.rubric, *judge.criterion)) for judge in rubrics]
            known = [criterion for criterion in found if criterion is not None]
            if not known:
                what = "no judge is of kind rubric" if not rubrics else "no rubric of this row has such a criterion"
                raise InputError(f"line {row.line}: labels.{name[:60]}: {what}. Nothing was spent.")
            for criterion in known:
                criterion_value(label, criterion)
