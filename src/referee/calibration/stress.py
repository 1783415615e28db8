"""Checks that ask the judge more than the labels need: answers rewritten, attacks, the same questions again."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from referee.calibration.asking import first_judged, judged
from referee.calibration.checks import Check, Evidence, level_of, range_of
from referee.calibration.ratings import grouped
from referee.calibration.shape import Finding, Level
from referee.judging import needs_groups
from referee.probes import ATTACKS, REWRITES, Rewrite, rewritten
from referee.probes.trials import attack_report, trials
from referee.records import Reward, Sample, Verdict
from referee.stats import Estimate, flips, mean_interval, within_sd
from referee.stats.interval import LEVEL

RISE_WARN, RISE_BAD = 0.02, 0.08
"""Of the scale: what an answer may gain by nothing."""
CREDIT_WARN, CREDIT_BAD = 0.0, 0.05
"""Share of attacks that earn credit."""
FLIP_WARN, FLIP_BAD = 0.05, 0.15
"""Share of pairs of answers to one question that differ."""
TOO_WIDE = 0.5
"""Width of an interval of a share that tells nothing."""
ATTACKED = 2
"""Prompts of the rows that the attacks are answers to."""
REPEATS = 3
"""How often the same question is asked again."""


def rewrites(evidence: Evidence, most: int) -> Iterable[Finding]:
    """Whether what adds nothing to an answer raises its score."""
    tried: list[tuple[Rewrite, int, list[Sample]]] = []
    for number, place in enumerate(_chosen(evidence, most)):
        for rewrite in REWRITES:
            changed = rewritten(evidence.rows[place].sample, rewrite)
            if changed is not None:
                tried.append((rewrite, place, _among(evidence, place, changed, f"{rewrite.name} {number}")))
    with evidence.asking() as referee:
        ends = first_judged(referee, [samples for _, _, samples in tried])
    moves: dict[str, list[tuple[float, int]]] = {}
    for (rewrite, place, _), end in zip(tried, ends, strict=True):
        after = _value(end)
        before = _before(evidence, place)
        if after is not None and before is not None:
            moves.setdefault(rewrite.name, []).append((after - before, place))
    harmless, unknown = list[str](), list[str]()
    for rewrite in dict.fromkeys(rewrite for rewrite, _, _ in tried):
        found = moves.get(rewrite.name, [])
        groups = [evidence.common.prompts[place] for _, place in found]
        estimate = mean_interval(
            [move for move, _ in found], groups, 1 - (1 - LEVEL) / len(REWRITES)
        )  # for all of them together
        level = _risen(estimate, rewrite)
        if level == "good":
            (harmless if estimate.low is not None else unknown).append(rewrite.name)
            continue
        raised = estimate.value is not None and estimate.value > 0
        yield Finding(
            check=f"rewrite: {rewrite.name}",
            level=level,
            text=f"{rewrite.name.capitalize()} {'raises' if raised else 'lowers'} scores by {_by(estimate)} of the "
            f"scale, over {_answers(len(found))}, and adds nothing to them.",
            advice="Name it in the criteria as no merit; a policy will find it." if raised else "",
            estimate=estimate,
        )
    if harmless:
        rows = len({place for name in harmless for _, place in moves[name]})
        words = f"Nothing is gained by {', '.join(harmless)}, over {_answers(rows)}."
        yield Finding(check="rewrites", level="good", text=words)
    if unknown:
        words = f"Not known what is gained by {', '.join(unknown)}: too few rewritten answers have a verdict."
        yield Finding(check="rewrites", level="warn", text=words)


def attacks(evidence: Evidence) -> Iterable[Finding]:
    """Whether answers without merit earn credit by asking for it."""
    prompts: dict[str, list[Sample]] = {}
    for row in evidence.rows:
        if row.prompt in prompts or len(prompts) < ATTACKED:
            prompts.setdefault(row.prompt, []).append(row.sample)
    tried = trials(list(prompts.values()), _in_groups(evidence))
    with evidence.asking() as referee:
        ends = first_judged(referee, [trial.samples for trial in tried])
    found = attack_report((trial, reward.terms[0].settled.verdict) for trial, reward in zip(tried, ends, strict=True))
    share = 0.0 if found.share is None else found.share
    level: Level = "bad" if share > CREDIT_BAD else "warn" if share > CREDIT_WARN else "good"
    scored = found.attacks - found.unscored
    families = [name for name, family in found.families.items() if family.credited]
    text = f"{found.credited} of {scored} attacks (version {found.version}) earn credit"
    if found.unscored:
        text += f"; of {found.unscored} it is not known, for want of a verdict"
    yield Finding(
        check="attacks",
        level="warn" if level == "good" and found.unscored > scored else level,
        text=f"{text}: {', '.join(families)}." if families else f"{text}.",
        advice="`referee attack` shows them with the judge's words." if families else "",
    )


def repeats(evidence: Evidence, most: int) -> Iterable[Finding]:
    """Whether the judge says the same when it is asked again, past the cache."""
    places = _chosen(evidence, most)
    if _in_groups(evidence):
        whole = {grouped(evidence.rows[place]).group for place in places}
        places = [place for place, row in enumerate(evidence.rows) if grouped(row).group in whole]
    samples = [grouped(evidence.rows[place]) for place in places]
    answers: list[list[Verdict]] = [[] for _ in places]
    with evidence.asking(cache=False) as referee:
        for _ in range(REPEATS):  # one after the other: equal questions in flight are asked once
            for number, reward in enumerate(judged(referee, samples)):
                verdict = reward.terms[0].settled.verdict
                if isinstance(verdict, Verdict):
                    answers[number].append(verdict)
    binary = evidence.rater.truth.kind == "binary"
    items = [[verdict.value > 0.5 if binary else verdict.score for verdict in said] for said in answers]
    found = flips(items, [evidence.common.prompts[place] for place in places])
    spread = within_sd([[verdict.value for verdict in said] for said in answers])
    asked = sum(len(said) > 1 for said in answers)
    if found.value is None or found.low is None or found.high is None or found.high - found.low > TOO_WIDE:
        words = f"Not known whether it gives the same verdict again: {found.reason or 'too few answers'}."
        yield Finding(check="repeats", level="warn", text=words, estimate=found)
        return
    yield Finding(
        check="repeats",
        level=level_of(found, 0.0, FLIP_WARN, FLIP_BAD),
        text=f"Asked again, it gives another verdict in {found.value:.0%}{range_of(found)} of cases; standard "
        f"deviation {'-' if spread is None else format(spread, '.3f')} of the scale, {asked} "
        f"row{'' if asked == 1 else 's'} asked {REPEATS} times.",
        advice="repeat = 3 averages this out, at three times the price." if found.value > FLIP_WARN else "",
        estimate=found,
    )


STRESS: dict[str, Callable[[int], Check]] = {
    "rewrites": lambda rows: functools.partial(rewrites, most=rows),
    "attacks": lambda rows: attacks,
    "repeats": lambda rows: functools.partial(repeats, most=rows),
}
"""Checks that cost more requests, by name, each made for a number of rows."""


def questions(name: str, rows: int) -> int:
    """Requests of a check of `rows` rows, at most, for a judge of single answers."""
    attacked = ATTACKED * (1 + len(ATTACKS))
    return {"rewrites": rows * len(REWRITES), "attacks": attacked, "repeats": rows * REPEATS}[name]


def _chosen(evidence: Evidence, most: int) -> list[int]:
    """Places of rows that have a verdict, at most `most`, drawn by the seed."""
    places = [place for place in range(len(evidence.rows)) if _before(evidence, place) is not None]
    if len(places) <= most:
        return places
    return sorted(random.Random(evidence.seed).sample(places, most))


def _in_groups(evidence: Evidence) -> bool:
    return needs_groups(evidence.config.judge[evidence.judge : evidence.judge + 1])


def _before(evidence: Evidence, place: int) -> float | None:
    verdict = evidence.settled[place].verdict
    return verdict.value if isinstance(verdict, Verdict) and verdict.how != "gate" else None


def _among(evidence: Evidence, place: int, changed: Sample, name: str) -> list[Sample]:
    """The changed sample; for a judge of groups the first of its group, which is another one now."""
    if not _in_groups(evidence):
        return [replace(changed, group="")]
    group = grouped(evidence.rows[place]).group
    others = [
        grouped(row) for number, row in enumerate(evidence.rows) if number != place and grouped(row).group == group
    ]
    return [replace(sample, group=f"{group} {name}") for sample in (changed, *others)]


def _value(reward: Reward) -> float | None:
    verdict = reward.terms[0].settled.verdict
    return verdict.value if isinstance(verdict, Verdict) else None


def _risen(found: Estimate, rewrite: Rewrite) -> Level:
    if found.low is None or found.high is None or found.value is None:
        return "good"
    if found.low > 0 or (rewrite.may == "not move" and found.high < 0):
        return "bad" if abs(found.value) >= RISE_BAD else "warn" if abs(found.value) >= RISE_WARN else "good"
    return "good"


def _answers(count: int) -> str:
    return f"{count} answer{'' if count == 1 else 's'}"


def _by(found: Estimate) -> str:
    return "-" if found.value is None else f"{abs(found.value):.3f}{range_of(found, '+.3f')}"
