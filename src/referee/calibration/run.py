"""One configuration's judges on labelled rows: asked through a Referee, measured, checked."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from referee.calibration.checks import CHECKS, Check, Evidence
from referee.calibration.findings import findings
from referee.calibration.labels import Row
from referee.calibration.measures import CUT, Common, contests, measure, right
from referee.calibration.ratings import Rater, ask, raters, settled_of
from referee.calibration.shape import Calibrated, Corrected, Disagreement, Finding, Part
from referee.calibration.truth import YesRule, pairs
from referee.config import Config, JudgeConfig, all_judges, endpoints_of
from referee.errors import RefereeError
from referee.records import Reward, Settled, Verdict
from referee.referee import Referee
from referee.rollouts import plain
from referee.stats import prediction_powered, rogan_gladen

KEPT_TEXT = 4000
"""Characters of a text kept for a disagreement."""
MADE_OF_OTHERS = ("jury", "cascade")
"""Kinds of judges that ask no model themselves."""
MOST_VALUES = 24
"""Values of a column that are shown, the most frequent first."""


def common_of(rows: Sequence[Row]) -> Common:
    """What all judges of these rows share."""
    return Common([row.contest for row in rows], [row.prompt for row in rows])


def calibrate(
    referee: Referee | Config,
    rows: Sequence[Row],
    *,
    rewards: Sequence[Reward] | None = None,
    yes: YesRule | None = None,
    rename: Callable[[str], str] = str,
    seed: int = 0,
    examples: int = 5,
    checks: Sequence[Check] = CHECKS,
    another: Callable[[Config], Referee] = Referee,
) -> Iterator[tuple[Calibrated, Rater]]:
    """Every judge of the Referee's configuration, with what was said of each row. `rewards`: what a run that is over
    said; then its configuration is enough, for checks that ask nothing. `another`: for those that ask with other
    settings."""
    config, common = referee if isinstance(referee, Config) else referee.config, common_of(rows)
    spent: list[float] = []
    if rewards is None:
        assert isinstance(referee, Referee)
        rewards = ask(referee, rows)
    found = list(raters(config, rows, rewards, yes, rename))
    for place, judge in enumerate(config.judge):
        name, settled = rename(judge.name), settled_of(place, rewards)
        whole = next((one for one in found if one.judge == name and one.what == "judge"), None)
        if whole is None:
            continue
        measures = measure(whole, common, seed)
        parts = _parts(whole, [one for one in found if one.judge == name], rows, common, seed)
        evidence = Evidence(
            referee=referee if isinstance(referee, Referee) else None,
            judge=place,
            rows=rows,
            settled=settled,
            rater=whole,
            common=common,
            seed=seed,
            spent=spent,
            another=another,
        )
        said: list[Finding] = [*findings(whole, measures, parts, judge.kind)]
        for check in checks:
            said += _checked(check, evidence)
        models = dict.fromkeys(model for one in settled for model in one.model.split(",") if model)
        yield (
            Calibrated(
                name=name,
                kind=judge.kind,
                models=tuple(model.strip() for model in models),
                measures=measures,
                parts=tuple(parts),
                corrected=_corrected(whole, common),
                findings=tuple(said),
                disagreements=tuple(_disagreements(whole, rows, common, examples)),
                cost_per_1000=_cost(config, judge, settled),
                seconds=_seconds(settled),
            ),
            whole,
        )


def _checked(check: Check, evidence: Evidence) -> list[Finding]:
    """What a check finds. What the labels say of the judge is paid for: a check that cannot go on takes none of it."""
    try:
        return list(check(evidence))
    except RefereeError as error:
        name = getattr(getattr(check, "func", check), "__name__", "check")
        return [Finding(check=name, level="warn", text=f"Not known ({name}): {error}")]


def _parts(whole: Rater, family: Sequence[Rater], rows: Sequence[Row], common: Common, seed: int) -> list[Part]:
    found = []
    for one in family:
        if one.what != "judge":
            every = range(len(one.said))
            found.append(Part(name=one.name, what=one.what, measures=measure(one, common, seed, every)))
    for column in dict.fromkeys(name for row in rows for name in row.by):
        places: dict[str, list[int]] = {}
        for place, (row, _) in enumerate(whole.keys):
            places.setdefault(rows[row].by.get(column, ""), []).append(place)
        frequent = sorted(places, key=lambda value: -len(places[value]))[:MOST_VALUES]
        for value in frequent:
            measures = measure(whole, common, seed, places[value])
            if measures.labelled:
                found.append(Part(name=value, what="by", column=column, measures=measures))
    return found


def _corrected(whole: Rater, common: Common) -> Corrected | None:
    """The corrected mean, where there are rows without labels."""
    if whole.truth.kind == "preference":
        return None
    human, judged, groups = [], [], []
    more, more_groups = [], []
    for said, true, (row, _) in zip(whole.said, whole.truth.values, whole.keys, strict=True):
        if said.value is None:
            continue
        if true is None:
            more.append(said.value)
            more_groups.append(common.prompts[row])
        else:
            human.append(true)
            judged.append(said.value)
            groups.append(common.prompts[row])
    if not human or not more:
        return None
    found = Corrected(
        labelled=len(human),
        unlabelled=len(more),
        judge_mean=statistics.fmean([*judged, *more]),
        prediction_powered=prediction_powered(human, judged, more, None, groups, more_groups),
    )
    if whole.truth.kind != "binary":
        return found
    says = [value > CUT for value in judged], [value > CUT for value in more]
    return replace(
        found,
        judge_share=sum(says[1]) / len(more),
        rogan_gladen=rogan_gladen([value > CUT for value in human], *says, groups, more_groups),
    )


def _disagreements(whole: Rater, rows: Sequence[Row], common: Common, most: int) -> Iterator[Disagreement]:
    """The widest first; the same response once."""
    truth, said = whole.truth, whole.said
    if truth.kind == "preference":
        wrong = [pair for pair in pairs(truth.values, contests(whole, common)) if right(whole, pair) == 0.0]
        wrong.sort(key=lambda pair: (said[pair[0]].value or 0.0) - (said[pair[1]].value or 0.0))
        for better, worse in wrong[:most]:
            other = rows[whole.keys[worse][0]]
            yield replace(
                _disagreement(whole, rows, better),
                human=1.0,
                judge=said[better].value or 0.0,
                other=plain(other.sample.response)[:KEPT_TEXT],
                other_judge=said[worse].value,
                other_why=said[worse].why[:KEPT_TEXT],
            )
        return
    apart = {
        place: abs(one.value - true)
        for place, (one, true) in enumerate(zip(said, truth.values, strict=True))
        if one.value is not None
        and true is not None
        # 0.8 for a yes is the same answer.
        and (one.value != true if truth.kind == "ordinal" else (one.value > CUT) != (true > CUT))
    }
    worst = sorted(apart, key=lambda place: -apart[place])
    yield from (_disagreement(whole, rows, place) for place in worst[:most])


def _disagreement(whole: Rater, rows: Sequence[Row], place: int) -> Disagreement:
    truth, said, (number, criterion) = whole.truth, whole.said[place], whole.keys[place]
    row, unit = rows[number], truth.high - truth.low
    return Disagreement(
        line=row.line,
        id=f"{row.sample.id}, {criterion}" if criterion else row.sample.id,
        prompt=plain(row.sample.prompt)[:KEPT_TEXT],
        response=plain(row.sample.response)[:KEPT_TEXT],
        human=truth.low + (truth.values[place] or 0.0) * unit,
        judge=truth.low + (said.value or 0.0) * unit,
        human_why=row.why[:KEPT_TEXT],
        judge_why=said.why[:KEPT_TEXT],
    )


def _cost(config: Config, judge: JudgeConfig, settled: Sequence[Settled]) -> float | None:
    asking = [one for one in all_judges([judge]) if one.kind not in MADE_OF_OTHERS]
    asked = {place for one in asking for place in endpoints_of(one, config.endpoint)}
    prices = [config.endpoint[place].price_in for place in asked]
    # A row that the end of the budget left unasked is not a cheap one.
    judged = [one for one in settled if isinstance(one.verdict, Verdict) or _paid(one)]
    # Rewards of `referee score` do not say what a cached verdict cost once.
    unknown = any(prices) and any(one.origin == "cache" and not _paid(one) for one in judged)
    return None if not judged or unknown or None in prices else 1000 * sum(map(_paid, judged)) / len(judged)


def _paid(settled: Settled) -> float:
    return settled.cost + settled.saved


def _seconds(settled: Sequence[Settled]) -> float | None:
    called = [one.latency_s for one in settled if one.origin == "call" and one.latency_s > 0]
    return statistics.median(called) if called else None
