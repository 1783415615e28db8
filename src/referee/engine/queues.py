"""The queues of requests that wait for a permit, and which of them is next. State only.

Requests that some endpoints may not serve, that belong to one replica, or that are of one team have queues of their
own, so that they do not hold up the others. Within a team the oldest request goes first; teams take turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator
from typing import NamedTuple

from referee.engine.endpoint import Endpoint
from referee.engine.permit import Waiter


class Place(NamedTuple):
    """Which queue."""

    excluded: frozenset[Endpoint]
    """Endpoints that may not serve its requests."""
    own: Endpoint | None
    """The replica they belong to."""
    team: str


OPEN = Place(frozenset(), None, "")
"""The queue of most requests."""


class Queues:
    """Queues by place, oldest request first."""

    def __init__(self) -> None:
        self._queues: dict[Place, list[Waiter]] = {OPEN: []}
        self._served: dict[str, int] = {}
        """Turns that each team has had."""
        self._floor = 0
        """Where the team of the last turn stood: others start there. Idle time earns no credit."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def of(self, excluded: frozenset[Endpoint], own: Endpoint | None, team: str) -> list[Waiter]:
        """The queue of a place."""
        if not excluded and own is None and not team:
            return self._queues[OPEN]
        place = Place(excluded, own, team)
        found = self._queues.get(place)
        if found is None:
            found = self._queues[place] = []
        return found

    def items(self) -> Iterator[tuple[Place, list[Waiter]]]:
        """Every queue."""
        return iter(self._queues.items())

    def waiting(self, team: str) -> bool:
        """Whether a request of a team waits."""
        return any(not waiter.left for place, queue in self._queues.items() if place.team == team for waiter in queue)

    def oldest(self, stuck: Container[Place]) -> tuple[Place, list[Waiter]] | None:
        """The queue whose head is next, of those that are not stuck."""
        if len(self._queues) == 1:
            queue = self._queues[OPEN]
            return None if OPEN in stuck or not queue else (OPEN, queue)
        found, rank = None, (0, 0)
        for place, queue in self._queues.items():
            if queue and place not in stuck:
                this = self._served.get(place.team, 0), queue[0].turn
                if found is None or this < rank:
                    found, rank = (place, queue), this
        return found

    def start(self, team: str) -> None:
        """A team could not, or would not, send until now."""
        self._served[team] = max(self._served.get(team, 0), self._floor)

    def served(self, team: str) -> None:
        """A team had its turn."""
        if len(self._queues) == 1:
            return  # there is no other
        self._floor = self._served.get(team, 0)
        self._served[team] = self._floor + 1

    def clear(self) -> list[Waiter]:
        """Every waiter, oldest first; none is left."""
        queues, self._queues = self._queues, {OPEN: []}
        return list(heapq.merge(*map(sorted, queues.values())))
