"""Which pairs of a group are compared, round by round. Items are positions 0..n-1; the caller has shuffled them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

Pair: TypeAlias = tuple[int, int]
"""Two positions, the one shown first in front. Over a schedule each item comes first about half of the time."""

Schedule = Literal["circular", "all", "knockout", "swiss", "anchor"]
"""How pairs are chosen. "anchor" compares with something outside of the group, so it has no rounds here."""

Outcomes: TypeAlias = Mapping[Pair, float | None]
"""1 if the first of the pair is better, 0 if the second is, 0.5 for a tie, None or no entry if there is none."""

Rounds: TypeAlias = Generator[list[Pair], Outcomes, None]


def rounds_of(schedule: Schedule, count: int, rounds: int = 0) -> Rounds:
    """Yields the pairs of a round, is sent their outcomes, ends when done. No two items meet twice.

    `rounds` is the number of neighbours on each side (circular), of tournaments (knockout) or of rounds (swiss); 0 is
    the default, more than `count` allows is as much as it does.
    """
    if schedule == "circular":
        return _at_once(count, _distances(count, rounds))
    if schedule == "all" or _too_few(schedule, count, rounds):
        return _at_once(count, count // 2)
    if schedule == "knockout":
        return _knockout(count, _tournaments(count, rounds))
    if schedule == "swiss":
        return _swiss(count, _swiss_rounds(count, rounds))
    raise ValueError(f'schedule "{schedule}" has no rounds within a group')


def calls(schedule: Schedule, count: int, rounds: int = 0) -> int:
    """How many pairs are compared: exact, except that several knockout tournaments share pairs and may need fewer."""
    every = count * (count - 1) // 2
    if schedule == "all" or _too_few(schedule, count, rounds):
        return every
    if schedule == "circular":
        return min(count * _distances(count, rounds), every)
    if schedule == "knockout":
        return min((count - 1) * _tournaments(count, rounds), every)
    if schedule == "swiss":
        return count // 2 * _swiss_rounds(count, rounds)
    raise ValueError(f'schedule "{schedule}" has no rounds within a group')


def _distances(count: int, rounds: int) -> int:
    return min(max(rounds, 1), count // 2)


def _tournaments(count: int, rounds: int) -> int:
    """As many as have first rounds without a pair in common."""
    return min(max(rounds, 1), _even(count) - 1)


def _swiss_rounds(count: int, rounds: int) -> int:
    """At most half as many as "all" would fill: up to there every round can be paired, whatever the outcomes were.

    With an odd count at least two, or the one that sits out first would never be compared.
    """
    wanted = max(rounds, 1 + count % 2) if rounds > 0 else (count - 1).bit_length()
    return min(wanted, _even(count) // 2)


def _too_few(schedule: Schedule, count: int, rounds: int) -> bool:
    """Two rounds of three items compare two of them once only, and cannot order them; the third pair can."""
    return schedule == "swiss" and count <= 3 and not rounds


def _even(count: int) -> int:
    return count + count % 2


def _at_once(count: int, distances: int) -> Rounds:
    """Each item with the next ones around the circle, in one round."""
    pairs = [
        (item, (item + distance) % count)
        for distance in range(1, distances + 1)
        # Half way around, the second half of the items would meet the first again.
        for item in range(count // 2 if 2 * distance == count else count)
    ]
    if pairs:
        yield pairs


class _Table:
    """The pairs asked so far, each once."""

    def __init__(self) -> None:
        self.points: dict[Pair, float | None] = {}
        """What the first one has from meeting the second; each meeting is here from both sides."""
        self._lead: Counter[int] = Counter()
        """How much more often an item was shown first than second."""

    def ask(self, pairs: Iterable[Pair]) -> Rounds:
        """Ask what has not been asked before, as one round."""
        new: list[Pair] = []
        for pair in dict.fromkeys((min(pair), max(pair)) for pair in pairs):
            if pair not in self.points:
                first, second = sorted(pair, key=self._lead.__getitem__)
                self._lead[first] += 1
                self._lead[second] -= 1
                new.append((first, second))
        if new:
            outcomes = yield new
            for first, second in new:
                self.note(first, second, outcomes.get((first, second)))

    def note(self, first: int, second: int, outcome: float | None) -> None:
        self.points[first, second] = outcome
        self.points[second, first] = None if outcome is None else 1 - outcome

    def winner(self, one: int, other: int) -> int:
        """The better one; the earlier one after a tie, or if the comparison failed."""
        points = self.points[one, other]
        if points is None or points == 0.5:
            return min(one, other)
        return one if points > 0.5 else other


def _knockout(count: int, tournaments: int) -> Rounds:
    """Tournaments side by side, all of the same number of rounds. Where two of them need a pair, it is asked once."""
    table = _Table()
    brackets = [_bracket(count, number) for number in range(tournaments)]
    while any(len(bracket) > 1 for bracket in brackets):
        yield from table.ask(pair for bracket in brackets for pair in _neighbours(bracket))
        # The odd one out stands in front of the next round, or it could sit out until the final.
        brackets = [
            bracket[len(bracket) // 2 * 2 :] + [table.winner(*pair) for pair in _neighbours(bracket)]
            for bracket in brackets
        ]


def _bracket(count: int, number: int) -> list[int]:
    """The order of a tournament: neighbours are the pairs of one day of a round robin (the circle method).

    So first rounds of different tournaments have no pair in common, and with an odd count not the same odd one out.
    """
    turning = _even(count) - 1
    order = [(number + sign * step) % turning for step in range(1, turning // 2 + 1) for sign in (1, -1)]
    return [*order, number, turning][:count]


def _neighbours(order: Sequence[int]) -> list[Pair]:
    return list(zip(order[::2], order[1::2], strict=False))


def _swiss(count: int, rounds: int) -> Rounds:
    """Each round pairs items of about equal points that have not met.

    A failed comparison and sitting out are worth half a point: they say nothing about the item.
    """
    table = _Table()
    points = [0.0] * count
    # With an odd count there is one more place, an empty one. To meet it is to sit out, so that happens at most once.
    empty = [count] if count % 2 else []
    for _ in range(rounds):
        pairs = _without_rematch(sorted(range(count), key=lambda item: -points[item]) + empty, table.points)
        yield from table.ask(pair for pair in pairs if count not in pair)
        for one, other in pairs:
            if count in (one, other):
                table.note(one, other, None)
            for item, opponent in ((one, other), (other, one)):
                if item < count:
                    got = table.points[item, opponent]
                    points[item] += 0.5 if got is None else got


def _without_rematch(ranking: Sequence[int], met: Container[Pair]) -> list[Pair]:
    """Pair all of the ranking, from the top, each with the next one it has not met.

    If two are left that have met, a pair is found to swap with, the lowest possible. There is one as long as each has
    met fewer than half of the others: of the four links between the two and such a pair, three are free somewhere.
    """
    waiting = list(ranking)
    pairs: list[Pair] = []
    alone: list[int] = []
    while waiting:
        top = waiting.pop(0)
        other = next((other for other in waiting if (top, other) not in met), None)
        if other is None:
            alone.append(top)
        else:
            waiting.remove(other)
            pairs.append((top, other))
    for one, two in _neighbours(alone):
        index, upper, lower = next(
            (index, upper, lower)
            for index in reversed(range(len(pairs)))
            for upper, lower in (pairs[index], pairs[index][::-1])
            if (one, upper) not in met and (two, lower) not in met
        )
        pairs[index : index + 1] = [(upper, one), (lower, two)]
    return pairs
