"""kind = "pairwise": responses of a group two at a time, and how strong each is by what it has won.

A response is shown first once and second once, and what changes with the order is a tie. A comparison that fails is
missing, not a tie.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence

from referee.config import JudgeConfig
from referee.judging.judge import SampleJudge
from referee.judging.kind import Deliberation, Form, Judge, Kind, Unit, forms_of, object_schema
from referee.judging.labels import better_of
from referee.judging.prompt_builder import RESPONSES
from referee.judging.schedule import Outcomes, Pair, Rounds, calls, rounds_of
from referee.judging.siblings import Alone, shuffled, siblings_of
from referee.judging.strengths import Comparison, strengths
from referee.judging.template import criteria_of, shipped, shipped_replies
from referee.records import Ask, Part, Reason, Sample, Unscored, Verdict

WON, LOST, TIED = "won", "lost", "tied"
FIRST, SECOND = "shown first", "shown second"
REFERENCE = "reference"
DIGITS = 9
"""Of a value."""


def unit_of_pairs(config: JudgeConfig) -> Unit:
    """A response that is compared with an anchor needs no siblings."""
    return "sample" if config.schedule == "anchor" else "group"


class PairwiseJudge:
    """Compares the responses of a group, or each with an anchor."""

    def __init__(self, config: JudgeConfig, secret: bytes, template: str | None, used: Mapping[str, Judge]) -> None:
        """As registry.make_judge."""
        self._config = config
        self._kind = pairwise(config)
        self._asker = SampleJudge(config, self._kind, secret, template)
        self._alone = Alone(config, used)
        self.unit = unit_of_pairs(config)
        column = (config.anchor,) if config.schedule == "anchor" and config.anchor != REFERENCE else ()
        self.columns = tuple(dict.fromkeys((*self._asker.columns, *self._alone.columns, *column)))
        self.shows = self._asker.shows

    def calls(self, count: int) -> int:
        """Requests for a group of `count` different responses; of a schedule with several rounds, at most."""
        config = self._config
        pairs = count if config.schedule == "anchor" else calls(config.schedule, count, config.rounds)
        return pairs * (2 if config.both_orders else 1)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """The rounds of the schedule."""
        config = self._config
        found = siblings_of(self._asker, samples, form, config.max_view_tokens)
        if found.sample is None:
            return found.ends({})
        if config.schedule == "anchor":
            return (yield from self._against_anchor(samples[0], found.sample, found.texts[0], form))
        if found.lone is not None:
            [end] = yield from self._alone.deliberate(samples[found.lone], form)
            return found.ends(dict.fromkeys(found.texts, end))
        compared = Comparisons()
        rounds = rounds_of(config.schedule, len(found.texts), config.rounds)
        pairs = next(rounds, [])
        while pairs:
            answered = yield from self._compare(found.sample, found.texts, pairs, form, compared)
            # At a deadline a case has a few rounds left to come to an end, and in an outage more rounds find nothing.
            pairs = _resumed(rounds, {pair: compared.outcomes.get(pair) for pair in pairs}) if answered else []
        places = [found.places[text] for text in found.texts]
        names = [samples[first].id or f"#{first + 1}" for first, *_ in places]
        values = self._values([len(copies) for copies in places], found.gated, compared)
        return found.ends(
            {text: self._verdict(number, values, compared, names) for number, text in enumerate(found.texts)}
        )

    def _against_anchor(self, given: Sample, sample: Sample, mine: str, form: Form) -> Deliberation:
        """One response and the anchor, which is data as the response is."""
        name = self._config.anchor
        anchor = given.reference if name == REFERENCE else given.columns.get(name)
        other = self._asker.view(anchor or "", self._config.max_view_tokens)
        if not other.strip():
            what = "`reference`" if name == REFERENCE else f"column `{name}`"
            return (Unscored(reason=Reason.CONFIG, detail=f"the sample has no {what} to be compared with"),)
        if mine == other:
            return (Verdict(score=0.5, value=0.5, how="pairwise", reason=f"equal to the {name}"),)
        # With one order, it must not always be the response that stands first.
        texts = shuffled(self._asker.group(sample, form).prompt, (mine, other))
        me, compared = texts.index(mine), Comparisons()
        yield from self._compare(sample, texts, [(0, 1)], form, compared)
        values = [_seen_by(number, pair, outcome) for pair, outcome in compared.outcomes.items() for number in pair]
        return (self._verdict(me, values or [None, None], compared, [name, name]),)

    def _compare(
        self, sample: Sample, texts: Sequence[str], pairs: Sequence[Pair], form: Form, compared: Comparisons
    ) -> Generator[Sequence[Ask], Sequence[Verdict | Unscored], bool]:
        """Ask about these pairs. False: none of the questions has an answer."""
        shown = {pair: self._orders(pair) for pair in pairs}
        asked = [order for orders in shown.values() for order in orders]
        given = yield [
            self._asker.ask_about(
                sample, [texts[place] for place in order], form, self._kind.sampling.__getitem__, better_of
            )
            for order in asked
        ]
        compared.answers |= zip(asked, given, strict=True)
        for pair, orders in shown.items():
            outcome = _agreed([_as(pair, order, compared.answers[order]) for order in orders])
            if outcome is not None:
                compared.outcomes[pair] = outcome
        return any(isinstance(answer, Verdict) for answer in given)

    def _orders(self, pair: Pair) -> list[Pair]:
        """A pair as it is shown: in both orders, or in the one that the schedule gave it."""
        return [pair, pair[::-1]] if self._config.both_orders else [pair]

    def _values(self, copies: Sequence[int], gated: int, compared: Comparisons) -> list[float | None]:
        """The share of its siblings that each response beats: equal ones half, those that a gate has settled whole.
        None for one without a comparison, which counts for none of the others either."""
        count = len(copies)
        met = [compared.of(number) for number in range(count)]
        values: list[float | None] = []
        fitted = (
            strengths(count, [Comparison(*pair, outcome) for pair, outcome in compared.outcomes.items()])
            if self._config.strength == "bradley_terry"
            else None
        )
        for number, mine in enumerate(met):
            if count > 1 and not mine:
                values.append(None)
                continue
            if fitted is not None:
                others = [other for other in range(count) if other != number and met[other]]
                chances = {other: _chance(fitted[number] - fitted[other]) for other in others}
            else:
                chances = mine
            there = sum(copies[other] for other in range(count) if other != number and met[other])
            weight = sum(copies[other] for other in chances)
            rate = sum(chance * copies[other] for other, chance in chances.items()) / max(weight, 1)
            equal = copies[number] - 1
            # Strengths are only computed to some digits: what is equally strong has an equal value.
            values.append(round((rate * there + equal / 2 + gated) / (there + equal + gated), DIGITS))
        return values

    def _verdict(
        self, number: int, values: Sequence[float | None], compared: Comparisons, names: Sequence[str]
    ) -> Verdict | Unscored:
        mine, parts, value = list(compared.of(number).values()), compared.parts(number, names), values[number]
        # What the schedule did not ask about it has not failed: one that sat out or went out early lacks nothing.
        asked = len({frozenset(order) for order in compared.answers if number in order})
        if value is None or len(mine) < min(self._config.min_comparisons, asked):
            # One that sat out has no comparison of its own that failed; those of its siblings ended the schedule.
            said = [*(part.verdict for part in parts), *compared.answers.values()]
            missing = next((verdict for verdict in said if isinstance(verdict, Unscored)), None)
            why = f": {missing.detail}" if missing is not None else ""
            least = self._config.min_comparisons
            detail = f"{len(mine)} of its comparisons have a verdict, and judge.min_comparisons is {least}{why}"
            reason = Reason.NO_VERDICT if missing is None else missing.reason
            return Unscored(reason=reason, detail=detail, parts=parts)
        won, lost = mine.count(1.0), mine.count(0.0)
        words = f"won {won}, lost {lost}, tied {len(mine) - won - lost}" if mine else "no other response was compared"
        return Verdict(score=value, value=value, reason=words, how="pairwise", parts=parts)


class Comparisons:
    """The comparisons of a group so far. Responses are numbers, by their places in the group's texts."""

    def __init__(self) -> None:
        self.answers: dict[Pair, Verdict | Unscored] = {}
        """Of each pair as it was shown: 1 if its first is better."""
        self.outcomes: dict[Pair, float] = {}
        """What all orders of a pair say, as `schedule.Outcomes`; missing where one of them has no verdict."""

    def of(self, number: int) -> dict[int, float]:
        """What a response has from meeting others: 1 where it won."""
        return {
            pair[pair[0] == number]: _seen_by(number, pair, outcome)
            for pair, outcome in self.outcomes.items()
            if number in pair
        }

    def parts(self, number: int, names: Sequence[str]) -> tuple[Part, ...]:
        """Every comparison of one response, each order by itself, by the other's name."""
        parts = []
        for order, answer in self.answers.items():
            if number not in order:
                continue
            first = order[0] == number
            label = ""
            if isinstance(answer, Verdict):
                value = _seen_by(number, order, answer.value)
                label = WON if value == 1 else LOST if value == 0 else TIED
                answer = Verdict(score=value, value=value, reason=answer.reason, how=answer.how)
            text = FIRST if first else SECOND
            parts.append(Part(name=names[order[first]], verdict=answer, text=text, label=label))
        return tuple(parts)


def pairwise(config: JudgeConfig) -> Kind:
    """The texts around two responses."""
    return Kind(
        name="pairwise/1",
        template=shipped("pairwise"),
        needs=(RESPONSES,),
        values={"criteria": criteria_of(config, "score")},
        replies=shipped_replies("pairwise"),
        sampling=forms_of(config, object_schema("verdict", {"type": "string"})),
    )


def _as(pair: Pair, order: Pair, answer: Verdict | Unscored) -> float | None:
    """An answer as the outcome of the pair: 1 if its first is better."""
    return None if isinstance(answer, Unscored) else _seen_by(pair[0], order, answer.value)


def _agreed(outcomes: Sequence[float | None]) -> float | None:
    """Of what each order says: won if all agree, a tie if they do not, None if one is missing."""
    first, *others = outcomes
    if first is None or None in others:
        return None
    return first if all(outcome == first for outcome in others) else 0.5


def _seen_by(number: int, pair: Pair, outcome: float) -> float:
    return outcome if pair[0] == number else 1.0 - outcome


def _chance(difference: float) -> float:
    """Of winning, by the difference in strength."""
    return (1 + math.tanh(difference / 2)) / 2


def _resumed(rounds: Rounds, outcomes: Outcomes) -> list[Pair]:
    """The next round; empty if there is none."""
    try:
        return rounds.send(outcomes)
    except StopIteration:
        return []
