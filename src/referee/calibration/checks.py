"""What moves a judge although it should not. A check is given labelled rows, what was said of them and a Referee that
may be asked more, and returns findings; `CHECKS` are run for every judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from referee.calibration.labels import Row
from referee.calibration.measures import Common
from referee.calibration.ratings import Rater
from referee.calibration.shape import Finding, Level
from referee.config import Config, LedgerConfig, MissingConfig
from referee.errors import EndpointClosed
from referee.judging.listwise import place_in
from referee.judging.pairwise import FIRST, LOST, WON
from referee.records import Reason, Settled, Verdict
from referee.referee import Referee
from referee.rollouts import own_words
from referee.shaping.length import count_tokens
from referee.stats import Estimate, length_slope, place_slope, position_bias

LENGTH_WARN, LENGTH_BAD = 0.03, 0.1
"""Of the scale, for each standard deviation of log length."""
POSITION_WARN, POSITION_BAD = 0.05, 0.15
"""How far the share that the response shown first wins is from a half."""
PLACE_WARN, PLACE_BAD = 0.02, 0.1
"""Of the scale, from the first place of a list to the last."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What a check is given."""

    referee: Referee | None
    judge: int
    """Which judge of its configuration."""
    rows: Sequence[Row]
    settled: Sequence[Settled]
    """What that judge's asking ended in, for every row."""
    rater: Rater
    common: Common
    seed: int
    spent: list[float] = []
    """What each Referee that checks opened has cost; the checks of all judges share the list."""
    another: Callable[[Config], Referee] = Referee
    """Opens one with other settings."""

    @property
    def config(self) -> Config:
        """The judges' configuration."""
        assert self.referee is not None, "checks that ask are given a Referee"
        return self.referee.config

    @contextmanager
    def asking(self, cache: bool = True) -> Iterator[Referee]:
        """A Referee of this judge alone, which may spend what is left of the budget and leaves no record among that of
        the labelled rows. A check whose questions stay unanswered says so itself, so nothing aborts."""
        assert self.referee is not None
        config, limits = self.config, self.config.limits
        if limits.budget_usd is not None:
            left = limits.budget_usd - _paid(self.referee) - math.fsum(self.spent)
            if left <= 0:
                message = f"limits.budget_usd = {limits.budget_usd:g} is spent"
                raise EndpointClosed(f"{message}.", reason=Reason.BUDGET.value)
            limits = replace(limits, budget_usd=left)
        alone = replace(
            config,
            judge=(replace(config.judge[self.judge], weight=1.0, optional=False),),
            cache=config.cache if cache else replace(config.cache, enabled=False),
            limits=limits,
            ledger=LedgerConfig(),
            missing=MissingConfig(abort_above=1.0),
        )
        with self.another(alone) as referee:
            try:
                yield referee
            finally:
                self.spent.append(_paid(referee))


def _paid(referee: Referee) -> float:
    found = referee.metrics()
    return max(found["cost_usd"], found["budget_spent_usd"])


Check = Callable[[Evidence], Iterable[Finding]]


def length(evidence: Evidence) -> Iterable[Finding]:
    """Whether longer responses get more than people give them. Preferences and orders have no scale to tell by."""
    rater = evidence.rater
    if rater.truth.kind == "preference":
        return
    values, labels, lengths, prompts = [], [], [], []
    for said, human, (row, _) in zip(rater.said, rater.truth.values, rater.keys, strict=True):
        if said.value is not None and human is not None:
            sample = evidence.rows[row].sample
            values.append(said.value)
            labels.append(human)
            lengths.append(float(sample.length or count_tokens(own_words(sample.response))))
            prompts.append(evidence.common.prompts[row])
    alone = len(set(prompts)) == len(prompts)
    found = length_slope(values, lengths, None if alone else prompts, labels=labels)
    if found.value is None:
        return
    yield Finding(
        check="length",
        level=level_of(found, 0.0, LENGTH_WARN, LENGTH_BAD),
        text=f"{_longer(found)}: {found.value:+.3f}{range_of(found, '+.3f')} of the scale per standard deviation of "
        "length, people's labels accounted for.",
        advice="Say in the criteria that length earns nothing, or use [shaping.length]." if _off(found, 0.0) else "",
        estimate=found,
    )


def _longer(found: Estimate) -> str:
    if not _off(found, 0.0):
        return "Length by itself earns nothing that these rows show"
    return "Longer answers get more" if (found.value or 0.0) > 0 else "Shorter answers get more"


def position(evidence: Evidence) -> Iterable[Finding]:
    """Whether the response shown first wins more often, from comparisons in both orders."""
    first: list[bool | None] = []
    pairs: list[tuple[str, str, str]] = []
    for row, settled in zip(evidence.rows, evidence.settled, strict=True):
        verdict = settled.verdict
        if not isinstance(verdict, Verdict) or verdict.how != "pairwise":
            continue
        for part in verdict.parts:
            if part.text == FIRST and isinstance(part.verdict, Verdict):
                first.append({WON: True, LOST: False}.get(part.label))
                one, other = sorted((row.sample.id, part.name))
                pairs.append((row.contest, one, other))
    if not first:
        return
    found = position_bias(first, pairs)
    if found.value is None or found.low is None:
        words = f"Not known whether the response shown first wins more often: {found.reason or 'all are ties'}."
        yield Finding(check="position", level="warn", text=words, estimate=found)
        return
    yield Finding(
        check="position",
        level=level_of(found, 0.5, POSITION_WARN, POSITION_BAD),
        text=f"The response shown first wins {found.value:.0%} of the comparisons that are no tie{range_of(found)}; "
        "half would be fair.",
        advice="Keep both_orders = true: then this costs ties, not wrong verdicts." if _off(found, 0.5) else "",
        estimate=found,
    )


def place(evidence: Evidence) -> Iterable[Finding]:
    """Whether a place in the list is worth something, from the same responses in several orders."""
    values: list[float] = []
    places: list[float] = []
    responses: list[int] = []
    for number, settled in enumerate(evidence.settled):
        verdict = settled.verdict
        if not isinstance(verdict, Verdict) or verdict.how != "listwise":
            continue
        for part in verdict.parts:
            where = place_in(part.text)
            if where is not None and isinstance(part.verdict, Verdict):
                values.append(part.verdict.value)
                places.append(where)
                responses.append(number)
    found = place_slope(values, places, responses)
    if found.value is None:
        return
    gain = "loses" if found.value < 0 else "gains"
    said = f"A response {gain} {abs(found.value):.3f} of the scale between the first place of a list and the last"
    yield Finding(
        check="position",
        level=level_of(found, 0.0, PLACE_WARN, PLACE_BAD),
        text=f"{said if _off(found, 0.0) else 'No place in the list is better than another, as far as these rows show'}"
        f"{range_of(found, '+.3f')}.",
        advice="Keep permutations even: every second order is the reverse." if _off(found, 0.0) else "",
        estimate=found,
    )


CHECKS: tuple[Check, ...] = (length, position, place)


def _off(found: Estimate, fair: float) -> bool:
    return found.low is not None and found.high is not None and not found.low <= fair <= found.high


def level_of(found: Estimate, fair: float, warn: float, bad: float) -> Level:
    """How bad it is to be so far from what would be fair, if it is certain at all."""
    if found.value is None or found.low is None or found.high is None:
        return "warn"
    apart = abs(found.value - fair) if _off(found, fair) else 0.0
    return "bad" if apart >= bad else "warn" if apart >= warn else "good"


def range_of(found: Estimate, form: str = ".0%") -> str:
    """The interval in brackets, if there is one."""
    if found.low is None or found.high is None or math.isinf(found.high):
        return ""
    return f" ({format(found.low, form)} to {format(found.high, form)})"
