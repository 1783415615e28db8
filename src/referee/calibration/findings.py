"""What a busy reader should know of a judge, in sentences, each with what to do about it. Pure, over measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from referee.calibration.measures import Measures
from referee.calibration.ratings import Rater
from referee.calibration.shape import Calibration, Corrected, Finding, Level, Part
from referee.stats import Estimate, kappa

GOOD, FAIR = 0.6, 0.4
"""Kappa from which agreement is called good, and fair. The words are ours; the interval is what counts."""
WANTED_HALF = 0.1
"""Half the width of an interval that tells judges apart."""
UNSCORED_WARN, UNSCORED_BAD = 0.02, 0.1
BIAS_WARN = 0.05
WELL_ORDERED = 0.8
PROBABILITIES = ("yes_no", "reference", "monitor")
"""Kinds of judges whose value is a probability."""
BETTER_CUT = 0.05
"""By how much another cut must improve kappa to be worth a word."""
ORDERED, HARDLY_ORDERED, FEW_PAIRS = 0.75, 0.6, 10
"""Shares of pairs in the right order, and pairs below which nothing is said of them."""
FEW = 20
"""Rows below which a part is not called worse than the whole."""


def findings(rater: Rater, measures: Measures, parts: Sequence[Part], kind: str) -> Iterator[Finding]:
    """What stands out about agreement of a judge of this kind; the checks say the rest."""
    yield from _agreement(measures, any(criterion for _, criterion in rater.keys))
    yield from _order(measures)
    yield from _unscored(measures)
    yield from _leaning(rater, measures)
    if kind in PROBABILITIES:
        yield from _probabilities(measures)
    yield from _worse(measures, parts)


def _agreement(measures: Measures, parts: bool) -> Iterator[Finding]:
    found = measures.kappa
    unit = "pairs" if measures.kind == "preference" else "labels" if parts else "rows"
    if found.value is None:
        reason = found.reason or "not defined"
        yield Finding(
            check="agreement",
            level="bad",
            text=f"Agreement cannot be measured on {measures.n} {unit}: {reason}.",
            advice="Label rows of both kinds, of several prompts." if measures.n else "",
            estimate=found,
        )
        return
    low, high = found.low, found.high
    if low is None:
        level, word = "warn", f"Not known how far it agrees ({found.reason})"
    elif low <= 0.0:
        level, word = "bad", "No better than chance, as far as these labels show"
        if found.value >= FAIR:
            level, word = "warn", "Perhaps fair, but too few labels to rule out chance"
    elif found.value >= GOOD and low < FAIR:
        level, word = "warn", "Agrees well with people, but too few labels to be sure"
    elif found.value >= GOOD:
        level, word = "good", "Agrees well with people"
    elif found.value >= FAIR:
        level, word = "warn", "Agrees fairly with people"
    else:
        level, word = "bad", "Agrees poorly with people"
    text = f"{word}: kappa {value(found)}, accuracy {percent(measures.accuracy)}, on {measures.n} {unit} of "
    text += f"{measures.prompts} prompt{'' if measures.prompts == 1 else 's'}."
    advice = ""
    if low is None:
        advice = "Label answers to more prompts."
    elif level != "good":
        advice = "Read the worst disagreements, sharpen the criteria or try a stronger model, and run this again."
    if low is not None and high is not None and (high - low) / 2 > 2 * WANTED_HALF:
        needed = round(measures.prompts * ((high - low) / 2 / WANTED_HALF) ** 2, -1)
        advice += f" About {needed:.0f} labelled prompts would give kappa to within {WANTED_HALF}."
    yield Finding(check="agreement", level=level, text=text, advice=advice.strip(), estimate=found)  # type: ignore[arg-type]


def _order(measures: Measures) -> Iterator[Finding]:
    found = measures.order
    if measures.kind == "preference" or found.value is None or found.n < FEW_PAIRS:
        return
    level: Level = "good" if found.value >= ORDERED else "warn" if found.value >= HARDLY_ORDERED else "bad"
    level = "warn" if found.low is None else level
    yield Finding(
        check="order",
        level=level,
        text=f"Of two answers to one prompt that people tell apart it scores the better one higher in {percent(found)} "
        f"of {found.n} pairs: what a trainer that compares within groups learns from.",
        estimate=found,
    )


def _unscored(measures: Measures) -> Iterator[Finding]:
    share = measures.unscored / measures.labelled if measures.labelled else 0.0
    if share > UNSCORED_WARN:
        why = ", ".join(f"{reason} {count}" for reason, count in measures.reasons.items())
        yield Finding(
            check="unscored",
            level="bad" if share > UNSCORED_BAD else "warn",
            text=f"{share:.0%} of the labelled rows ({measures.unscored} of {measures.labelled}) have no verdict: "
            f"{why}. They count neither for nor against it.",
            advice="If these are the hard rows, agreement is worse than it looks.",
        )


def _leaning(rater: Rater, measures: Measures) -> Iterator[Finding]:
    """Too generous or too strict, and whether another cut would help."""
    bias, area = measures.bias, measures.roc_auc
    leans = bias.value is not None and bias.low is not None and bias.high is not None
    if leans and not (bias.low or 0.0) <= 0.0 <= (bias.high or 0.0) and abs(bias.value or 0.0) >= BIAS_WARN:
        word = "generous" if (bias.value or 0.0) > 0 else "strict"
        rates = ""
        if measures.sensitivity.value is not None and measures.specificity.value is not None:
            rates = (
                f" Of what people call yes it says yes to {measures.sensitivity.value:.0%}, of what they call no to "
                f"{1 - measures.specificity.value:.0%}."
            )
        yield Finding(
            check="bias",
            level="warn",
            text=f"Too {word}: {value(bias, '+.2f')} against people, on a scale from 0 to 1.{rates}",
            advice="Within a group this cancels out; between prompts, and as an evaluation, it does not.",
            estimate=bias,
        )
    if measures.kind == "binary" and area.value is not None and area.value >= WELL_ORDERED:
        cut, there = _best_cut(rater)
        if there - (measures.kappa.value or 0.0) > BETTER_CUT:
            yield Finding(
                check="cut",
                level="warn",
                text=f"It orders answers well (AUC {value(area)}) but draws the line elsewhere: a value above "
                f"{cut:.2f}, instead of 0.5, would agree better on these rows (kappa about {there:.2f}).",
                advice="As a reward the values themselves are fine; where you need yes or no, cut there.",
                estimate=area,
            )


def _best_cut(rater: Rater) -> tuple[float, float]:
    """The cut with the highest kappa on these rows, which flatters it a little."""
    known = [
        (said.value, human > 0.5)
        for said, human in zip(rater.said, rater.truth.values, strict=True)
        if said.value is not None and human is not None
    ]
    levels = sorted({said for said, _ in known})
    cuts = [(a + b) / 2 for a, b in pairwise(levels)]
    step = max(1, len(cuts) // 100)
    human = [yes for _, yes in known]
    scored = [(kappa(human, [said > cut for said, _ in known]) or 0.0, cut) for cut in cuts[::step]]
    best = max(scored, default=(0.0, 0.5))
    return best[1], best[0]


def _probabilities(measures: Measures) -> Iterator[Finding]:
    found, floor = measures.ece, measures.ece_floor or 0.0
    if measures.kind == "binary" and found.value is not None and found.value > floor + 0.1:
        yield Finding(
            check="calibration",
            level="warn",
            text=f"Its values are no probabilities: off by {found.value:.2f} on average (ECE; by chance alone "
            f"{floor:.2f}).",
            advice="Fine for ordering answers; do not read 0.8 as right eight times out of ten.",
            estimate=found,
        )


def _worse(measures: Measures, parts: Sequence[Part]) -> Iterator[Finding]:
    """Parts that agree less than the whole does, by more than noise."""
    whole = measures.accuracy.value
    for part in parts:
        found = part.measures.accuracy
        if whole is None or found.high is None or part.measures.n < FEW or found.high >= whole:
            continue
        if part.what == "juror" and part.measures.labelled < measures.labelled:
            continue  # a cascade's later member judges what is hard
        where = f"{part.column} = {part.name}" if part.what == "by" else f"{part.what} {part.name}"
        yield Finding(
            check=part.what,
            level="warn",
            text=f"Worse at {where}: {percent(found)} against {whole:.0%} overall.",
            advice="Reword this criterion." if part.what == "criterion" else "",
            estimate=found,
        )


def corrected_words(found: Corrected) -> str:
    """What the judge says on average, and what that means after labels."""
    better = found.prediction_powered
    if better.low is None or better.high is None:
        return f"the judge says {found.judge_mean:.2f}; with your labels: not known ({better.reason})"
    words = f"the judge says {found.judge_mean:.2f}; with your labels: between {better.low:.2f} and {better.high:.2f}"
    share = found.rogan_gladen
    if share is not None and found.judge_share is not None and share.low is not None and share.high is not None:
        words += (
            f" (it says yes to {found.judge_share:.2f} of them; corrected for its errors, people would to "
            f"{share.low:.2f} to {share.high:.2f})"
        )
    return words


def legend(found: Calibration) -> str:
    """What kappa and accuracy are. Where they are not the same for all judges, which is whose, and what all share."""
    kinds: dict[str, list[str]] = {}
    for one in found.judges:
        words = f"kappa: {one.measures.kappa_of}. accuracy: {one.measures.accuracy_of}."
        kinds.setdefault(words, []).append(one.name)
    each = " ".join(words if len(kinds) == 1 else f"For {', '.join(kinds[words])}, {words}" for words in kinds)
    if found.comparison is None or found.comparison.by == "kappa":
        return each
    return (
        "order: pairs of answers to one prompt that it puts as people do. It is what is compared: the kappas of these "
        f"judges are different measures. {each}"
    )


def value(found: Estimate, form: str = ".2f") -> str:
    """0.62 (0.50 to 0.72)."""
    if found.value is None:
        return "-"
    if found.low is None or found.high is None:
        return format(found.value, form)
    return f"{format(found.value, form)} ({format(found.low, form)} to {format(found.high, form)})"


def percent(found: Estimate) -> str:
    """81 % (74 to 87)."""
    if found.value is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{found.value:.0%}"
    return f"{found.value:.0%} ({100 * found.low:.0f} to {100 * found.high:.0f})"
