"""Two sets of answers to the same prompts, compared: win rate, position bias, breakdown, length, worst losses.

Pure. Everything is said of b: a win is b's. What has no verdict counts nowhere, and is counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from referee.report.shape import Finding
from referee.report.versus_pair import Comparison
from referee.stats.bootstrap import bootstrap
from referee.stats.clusters import mean
from referee.stats.interval import Estimate, mean_interval, proportion
from referee.stats.slopes import position_bias

FEWEST_RESAMPLED, MOST_RESAMPLED = 30, 5000
"""Prompts from which, and comparisons up to which, the interval is a bootstrap's. Of few prompts it is coarse, and of
many comparisons the closed form is as good and takes no time."""
ABOUT_AS_LONG = 0.1
"""Answers whose lengths differ by less than this share of the longer one are about as long."""
EVEN = 0.5
FEWEST_IN_SLICE = 10
"""Comparisons of one value of a column from which it is worth a finding."""
MANY = 0.2
"""Share without a verdict from which the rest says little."""
NO_VALUE = "(none)"


class About(Struct, frozen=True, kw_only=True):
    """What was compared, by which judge, at what price."""

    names: tuple[str, str]
    """Of a and b."""
    judge: str
    kind: str
    by: Literal["comparison", "score"]
    """comparison: the judge saw both answers. score: it scored each, and the higher score won."""
    both_orders: bool = False
    """Whether each comparison was asked twice, each answer first once."""
    models: tuple[str, ...] = ()
    requests: int = 0
    from_cache: int = 0
    """Answers whose verdict was in the cache."""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    """None: an endpoint has no price."""
    unmatched: tuple[int, int] = (0, 0)
    """Rows of a and of b without a partner, left out."""


class Counts(Struct, frozen=True, kw_only=True):
    """Comparisons and what came of them."""

    pairs: int
    wins: int
    ties: int
    losses: int
    unscored: int
    """Without a verdict; in none of the three."""
    win_rate: Estimate
    """(wins + ties / 2) / (wins + ties + losses), the interval over prompts."""
    interval: Literal["bootstrap", "wilson", ""]
    """How the interval was found; empty: there is none."""


class Slice(Counts, frozen=True, kw_only=True):
    """The comparisons with one value of a column."""

    value: str


class Position(Struct, frozen=True, kw_only=True):
    """Whether the judge favours a place."""

    decided: int
    """Requests that were not answered with a tie."""
    first_wins: Estimate
    """Share of them that the answer shown first won. Without a bias it is a half if both orders are asked."""
    twice: int
    """Comparisons asked in both orders."""
    agree: float | None
    """Share of those with the same outcome in both."""
    order_ties: int
    """Ties because the outcome changed with the order."""


class Lengths(Struct, frozen=True, kw_only=True):
    """How long the answers are, and whether the longer one wins."""

    unit: Literal["tokens", "words"]
    """tokens: as the rows say (`length`). words: counted, with punctuation marks."""
    mean_a: float | None
    mean_b: float | None
    longer_wins: Estimate
    """Of comparisons that were won or lost and whose lengths differ."""
    by: tuple[Slice, ...]
    """Comparisons in which b is shorter, about as long, longer."""


class Scores(Struct, frozen=True, kw_only=True):
    """Where each answer has a score of its own: their means, in [0, 1]."""

    mean_a: float
    mean_b: float
    difference: Estimate
    """b - a."""


class Versus(Counts, frozen=True, kw_only=True):
    """Everything that is said of b against a."""

    about: About
    prompts: int
    equal: int
    """Pairs of equal answers: ties that were not asked about."""
    gated_a: int
    gated_b: int
    """Answers that a gate settled: empty, cut off and the like. They lose against any other."""
    unscored_share: float
    reasons: dict[str, int]
    """Why comparisons have no verdict."""
    position: Position | None
    scores: Scores | None
    lengths: Lengths
    by: dict[str, tuple[Slice, ...]]
    findings: tuple[Finding, ...]
    worst: tuple[Comparison, ...]
    """Comparisons that b lost, by the widest margin first."""


def versus(found: Sequence[Comparison], about: About, by: Sequence[str] = (), worst: int = 5, unit: str = "") -> Versus:
    """Fold comparisons into what is said of them. `by`: columns to break down by."""
    lengths = _lengths(found, about.names[1], "tokens" if unit == "tokens" else "words")
    position, scores = _position(found), _scores(found) if about.by == "score" else None
    parts = {name: _slices(found, name) for name in by}
    total = counts(found)
    missing = [each for each in found if each.outcome is None]
    return Versus(
        **_fields(total),
        about=about,
        prompts=len({each.prompt_number for each in found}),
        equal=sum(each.equal for each in found),
        gated_a=sum(each.a.gated for each in found),
        gated_b=sum(each.b.gated for each in found),
        unscored_share=len(missing) / len(found) if found else 0.0,
        reasons=dict(Counter(each.unscored for each in missing).most_common()),
        position=position,
        scores=scores,
        lengths=lengths,
        by=parts,
        findings=tuple(_findings(total, about, position, lengths, parts, missing)),
        worst=tuple(worst_first(found)[:worst]),
    )


def counts(found: Sequence[Comparison]) -> Counts:
    """Wins, ties, losses, and the win rate with its interval, over prompts: answers to one prompt are no independent
    evidence."""
    there = [(each.outcome, each.prompt_number) for each in found if each.outcome is not None]
    outcomes, prompts = [outcome for outcome, _ in there], [prompt for _, prompt in there]
    rate, how = _win_rate(outcomes, prompts)
    return Counts(
        pairs=len(found),
        wins=outcomes.count(1.0),
        ties=outcomes.count(0.5),
        losses=outcomes.count(0.0),
        unscored=len(found) - len(outcomes),
        win_rate=rate,
        interval=how,
    )


def worst_first(found: Iterable[Comparison]) -> list[Comparison]:
    """Losses, by margin; of the same margin, first what the judge was asked about, then those on prompts where b also
    lost with its other answers."""
    losses, of_prompt = list[Comparison](), dict[int, list[float]]()
    for each in found:
        if each.outcome is not None:
            of_prompt.setdefault(each.prompt_number, []).append(each.outcome)
        if each.outcome == 0.0:
            losses.append(each)
    return sorted(losses, key=lambda each: (-each.margin, each.b.gated, mean(of_prompt[each.prompt_number])))


def _fields(total: Counts) -> dict[str, Any]:
    return {name: getattr(total, name) for name in Counts.__struct_fields__}


def _win_rate(outcomes: Sequence[float], prompts: Sequence[int]) -> tuple[Estimate, Literal["bootstrap", "wilson", ""]]:
    if len(set(prompts)) >= FEWEST_RESAMPLED and len(outcomes) <= MOST_RESAMPLED:
        resampled = bootstrap(mean, [outcomes], random.Random(0), prompts)
        if resampled.low is not None:
            return resampled, "bootstrap"
    # Also where all have the same outcome: a bootstrap has no interval then.
    closed = proportion(outcomes, prompts)
    return closed, "wilson" if closed.low is not None else ""


def _slices(found: Sequence[Comparison], column: str) -> tuple[Slice, ...]:
    """By each value of a column, the most frequent first."""
    members: dict[str, list[Comparison]] = {}
    for each in found:
        members.setdefault(each.columns.get(column, NO_VALUE), []).append(each)
    ordered = sorted(members.items(), key=lambda item: -len(item[1]))
    return tuple(_slice(value, each) for value, each in ordered)


def _slice(value: str, found: Sequence[Comparison]) -> Slice:
    return Slice(value=value, **_fields(counts(found)))


def _position(found: Sequence[Comparison]) -> Position | None:
    asked = [each for each in found if each.orders]
    if not asked:
        return None
    won = [order.winner == order.first if order.winner else None for each in asked for order in each.orders]
    prompts = [each.prompt_number for each in asked for _ in each.orders]
    bias = position_bias(won, prompts)
    twice = [each for each in asked if len(each.orders) > 1]
    same = [len({order.winner for order in each.orders}) == 1 for each in twice]
    return Position(
        decided=bias.n,
        first_wins=bias,
        twice=len(twice),
        agree=sum(same) / len(same) if same else None,
        order_ties=sum(each.outcome == 0.5 for each, agree in zip(twice, same, strict=True) if not agree),
    )


def _scores(found: Sequence[Comparison]) -> Scores | None:
    both = [each for each in found if each.a.value is not None and each.b.value is not None]
    if not both:
        return None
    mine, theirs = [each.b.value or 0.0 for each in both], [each.a.value or 0.0 for each in both]
    apart = [x - y for x, y in zip(mine, theirs, strict=True)]
    difference = mean_interval(apart, [each.prompt_number for each in both])
    return Scores(mean_a=mean(theirs), mean_b=mean(mine), difference=difference)


def _lengths(found: Sequence[Comparison], name: str, unit: Literal["tokens", "words"]) -> Lengths:
    decided = [each for each in found if each.outcome in (0.0, 1.0) and each.a.length != each.b.length]
    longer = [float((each.b.length > each.a.length) == (each.outcome == 1.0)) for each in decided]
    parts = {word: list[Comparison]() for word in (f"{name} shorter", "about as long", f"{name} longer")}
    shorter, same, more = parts.values()
    for each in found:
        apart = (each.b.length - each.a.length) / max(each.a.length, each.b.length, 1)
        (same if abs(apart) < ABOUT_AS_LONG else more if apart > 0 else shorter).append(each)
    a, b = [each.a.length for each in found], [each.b.length for each in found]
    return Lengths(
        unit=unit,
        mean_a=mean(a) if a else None,
        mean_b=mean(b) if b else None,
        longer_wins=proportion(longer, [each.prompt_number for each in decided]),
        by=tuple(_slice(word, each) for word, each in parts.items() if each),
    )


def _findings(
    total: Counts,
    about: About,
    position: Position | None,
    lengths: Lengths,
    parts: dict[str, tuple[Slice, ...]],
    missing: Sequence[Comparison],
) -> Iterable[Finding]:
    """What a reader should not have to look for, the most important first."""
    name, other = about.names[1], about.names[0]
    yield _verdict(total, name, other)
    if missing:
        share = len(missing) / total.pairs
        reasons = ", ".join(f"{why} {n}" for why, n in Counter(each.unscored for each in missing).most_common())
        said = f"{len(missing)} of {total.pairs} comparisons ({100 * share:.1f} %)"
        yield Finding("bad" if share > MANY else "warn", f"{said} have no verdict and count nowhere: {reasons}.")
    if position is not None and excludes(position.first_wins, EVEN):
        place = "first" if (position.first_wins.value or 0.0) > EVEN else "second"
        cure = (
            f"What changed with the order is a tie ({position.order_ties} of them), so {name} gains nothing by it."
            if about.both_orders
            else "Each pair was shown in one order only: set judge.both_orders = true."
        )
        said = f"{with_interval(position.first_wins)} of what is decided"
        text = f"The judge favours the answer shown {place}: the first wins {said}. {cure}"
        yield Finding("warn" if about.both_orders else "bad", text, "position")
    if excludes(lengths.longer_wins, EVEN):
        word = "longer" if (lengths.longer_wins.value or 0.0) > EVEN else "shorter"
        mine, theirs = lengths.mean_b or 0.0, lengths.mean_a or 0.0
        text = (
            f"Wins follow length: the longer answer wins {with_interval(lengths.longer_wins)} of what is decided. "
            f"Answers of {name} have {mine:.0f} {lengths.unit} on average, those of {other} {theirs:.0f}."
        )
        helped = (mine > theirs) == (word == "longer")
        yield Finding("warn" if helped else "good", text, "lengths")
    for column, slices in parts.items():
        for each in slices:
            behind = each.win_rate.high is not None and each.win_rate.high < EVEN
            if behind and len(slices) > 1 and each.wins + each.ties + each.losses >= FEWEST_IN_SLICE:
                text = f"{name} loses where {column} is {each.value}: win rate {with_interval(each.win_rate)}."
                yield Finding("bad", text, f"by-{column}")


def _verdict(total: Counts, name: str, other: str) -> Finding:
    compared = total.wins + total.ties + total.losses
    if not compared:
        return Finding("bad", "Nothing could be compared: not one pair has a verdict.")
    said = f"{name} wins {with_interval(total.win_rate)} of {compared} against {other}, ties counting half"
    if total.win_rate.low is None:
        return Finding("warn", f"{said}: too few prompts to say more.")
    if not excludes(total.win_rate, EVEN):
        return Finding("warn", f"{said}. No difference is shown: 50 % is inside the interval.")
    better = (total.win_rate.value or 0.0) > EVEN
    return Finding("good" if better else "bad", f"{said}: {name if better else other} is better.")


def excludes(found: Estimate, value: float) -> bool:
    """Whether the interval is there and does not hold this value."""
    return found.low is not None and found.high is not None and not found.low <= value <= found.high


def with_interval(found: Estimate) -> str:
    """A share and its interval in words."""
    if found.value is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{100 * found.value:.1f} %"
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f} to {100 * found.high:.1f})"
