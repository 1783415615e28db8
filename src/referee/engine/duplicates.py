"""The same question of several teams: one of them asks, and the others wait for its answer.

Each team has a flight of its own, with its own listeners, deadline and place in the queue: a team that may not send now
must not hold back another. The first that gets a permit pays; those that wait are told its verdict, and ask for
themselves if it has none. State only, and nothing at all where there are no teams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from referee.engine.flight import Flight
from referee.records import Settled, Verdict


class Duplicates:
    """Finds flights of other teams for the same question."""

    def __init__(self, flights: Mapping[tuple[str, str, str], Flight], teams: Iterable[str]) -> None:
        """`flights`: by pool, key and team."""
        self._flights = flights
        self._teams = ("", *teams)
        self._lone = len(self._teams) == 1

    def under_way(self, pool: str, key: str) -> bool:
        """Whether any team asks this."""
        if self._lone:
            return (pool, key, "") in self._flights
        return any([(pool, key, team) in self._flights for team in self._teams])

    def follows(self, flight: Flight) -> bool:
        """True: another team's flight for this question has a permit, and this one waits for its end."""
        if self._lone:
            return False
        for other in self._others(flight):
            if other.asking:
                _add(other, flight)
                return True
        return False

    def asks(self, flight: Flight) -> None:
        """It has a permit: others that wait for their first one leave the queue. Those that try again go on: they have
        been charged already, and end by themselves."""
        if self._lone:
            return
        flight.asking = True
        for other in self._others(flight):
            if other.waiter is not None and other.task is None:
                other.waiter.gone, other.waiter = True, None
                _add(flight, other)

    def leave(self, flight: Flight, go: Callable[[Flight], None], settled: Settled | None = None) -> Sequence[Flight]:
        """It has ended, or must wait for another permit. Returns the flights that its verdict ends too; without one,
        each goes on by itself."""
        if self._lone:
            return ()
        waiting, flight.followers, flight.asking = flight.followers or (), None, False
        still = [other for other in waiting if self._flights.get(other.name) is other]
        if settled is not None and isinstance(settled.verdict, Verdict):
            return still
        for other in still:
            go(other)
        return ()

    def _others(self, flight: Flight) -> Iterator[Flight]:
        for team in self._teams:
            other = self._flights.get((flight.request.pool, flight.key, team))
            if other is not None and other is not flight:
                yield other


def _add(asking: Flight, waiting: Flight) -> None:
    if asking.followers is None:
        asking.followers = []
    asking.followers.append(waiting)
