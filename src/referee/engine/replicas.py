"""Which replica a request belongs to, by its beginning: rendezvous hashing, the same in every process. So questions
that begin alike meet the prompt cache that the first of them filled, and a replica that goes away moves only its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from referee.engine.endpoint import Endpoint
from referee.records import Ask

MAX_REMEMBERED = 4096


class Replicas:
    """The endpoints of an engine, as far as beginnings are kept together among them. False: there are not two."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        found = [e for e in endpoints if not e.config.backup and e.config.prefix_cache != "off"]
        self._replicas = tuple(found) if len(found) > 1 else ()
        self._orders: dict[tuple[str, frozenset[Endpoint]], tuple[Endpoint, ...]] = {}
        """Of beginnings, the replicas in order of preference."""
        self._placed: set[tuple[str, frozenset[Endpoint]]] = set()
        """Those of which a request was sent."""

    def __bool__(self) -> bool:
        return bool(self._replicas)

    def of(self, request: Ask, avoid: Endpoint | None, excluded: frozenset[Endpoint]) -> Endpoint | None:
        """The replica, of those that are up; None: any may serve it."""
        if not request.prefixes:
            return None
        name = request.prefixes[0][0]
        order = self._orders.get((name, excluded))
        if order is None:
            if len(self._orders) >= MAX_REMEMBERED:
                self._orders.clear()
                self._placed.clear()
            order = self._orders[name, excluded] = self._order(name, excluded)
        for endpoint in order:
            if endpoint.breaker.closed is None and not endpoint.breaker.suspended:
                return None if endpoint is avoid else endpoint
        return None

    def sent(self, request: Ask, excluded: frozenset[Endpoint], endpoint: Endpoint) -> None:
        """A request that belongs to a replica was sent to this one. If it is the first with its beginning and its own
        replica had no room, the others follow it."""
        place = request.prefixes[0][0], excluded
        if place in self._placed or place not in self._orders:
            return
        self._placed.add(place)
        order = self._orders[place]
        if order and order[0] is not endpoint:
            self._orders[place] = (endpoint, *[other for other in order if other is not endpoint])

    def _order(self, name: str, excluded: frozenset[Endpoint]) -> tuple[Endpoint, ...]:
        usable = [endpoint for endpoint in self._replicas if endpoint not in excluded]
        if len(usable) < 2:
            return ()
        return tuple(sorted(usable, key=lambda endpoint: _weight(name, endpoint)))


def _weight(name: str, endpoint: Endpoint) -> bytes:
    """Two accounts at one provider have the same URL, and are told apart by their names."""
    return blake2b(f"{name} {endpoint.url} {endpoint.label}".encode(), digest_size=8).digest()
