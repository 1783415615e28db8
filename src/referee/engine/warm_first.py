"""The first of several requests with the same beginning goes ahead by one answer: a provider's prompt cache holds the
beginning only after that, and takes it at the lower price from the others.

Held requests have no place in the queue, but keep their turn. They go as soon as the first attempt of the first one has
ended, in whatever way, or takes too long.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from referee import clock
from referee.engine.flight import Flight

WARM_S = 240.0
"""Seconds for which a beginning is taken to be cached: providers keep it for five minutes."""
MAX_KNOWN = 65536
MAX_HELD = 2048
"""Requests of a pool that may be held without holding back new ones."""
LATE, LEAST_LATE_S = 3.0, 2.0
"""The first takes too long after this many times the usual latency, and not before that many seconds."""
MAX_SHARE = 0.25
"""Share of the time left to its deadline for which a request is held at most."""


class Beginning:
    """What is known of one beginning."""

    __slots__ = ("first", "held", "warm_until")

    def __init__(self) -> None:
        self.first: Flight | None = None
        """The request under way that will have it cached."""
        self.held: list[Flight] = []
        self.warm_until = float("-inf")


class WarmFirst:
    """Beginnings by pool, team and name."""

    def __init__(self, go: Callable[[Flight], None]) -> None:
        """`go` is called for a held request that may be sent; it may ask `holds` again."""
        self._now = clock.running()
        self._go = go
        self._known: dict[tuple[str, str, str], Beginning] = {}
        """By pool, team and name: the first request of a team that may not send now must not hold back others."""
        self.holding: dict[tuple[str, str], int] = {}
        """Held requests, by pool and team. Empty: nothing was ever held."""
        self._timers: dict[Flight, asyncio.TimerHandle] = {}

    def holds(self, flight: Flight, least: int, latency: float) -> bool:
        """True: it is held, because another with one of its beginnings is under way. Otherwise it goes, and is the
        first of those that are not cached. `latency`: seconds of an answer, usually."""
        request, now = flight.request, self._now()
        if flight.deadline - now < 2 * latency:
            return False
        cold: list[Beginning] = []
        for name, tokens in request.prefixes:
            if tokens < least:
                continue
            known = self._known.get((*flight.place, name))
            if known is None:
                if len(self._known) >= MAX_KNOWN:
                    self._forget(now)
                known = self._known[(*flight.place, name)] = Beginning()
            if known.first is not None:
                known.held.append(flight)
                flight.held = True
                self.holding[flight.place] = self.holding.get(flight.place, 0) + 1
                return True
            if known.warm_until <= now:
                cold.append(known)
        for known in cold:
            known.first = flight
        flight.leads = tuple(cold)
        return False

    def sent(self, flight: Flight, latency: float) -> None:
        """The first request of a beginning is on the wire."""
        now = self._now()
        late = min(max(LEAST_LATE_S, LATE * latency), MAX_SHARE * max(0.0, flight.deadline - now))
        loop = asyncio.get_running_loop()
        self._timers[flight] = clock.at(loop, loop.time() + late, functools.partial(self.ended, flight))

    def ended(self, flight: Flight) -> None:
        """Its first attempt has ended, or is late: the others go. Also after a failure, or they would wait for each
        other in turn."""
        timer = self._timers.pop(flight, None)
        if timer is not None:
            timer.cancel()
        led, flight.leads = flight.leads, ()
        until = self._now() + WARM_S
        for known in led:
            known.first, known.warm_until = None, until
        for known in led:
            held, known.held = known.held, []
            for other in held:
                if other.held:
                    self._free(other)
                    self._go(other)

    def gone(self, flight: Flight) -> None:
        """It is over, or nothing waits for it any more."""
        if flight.held:
            self._free(flight)
        if flight.leads:
            self.ended(flight)

    def held(self, place: tuple[str, str]) -> int:
        """Requests that are held and do not count as begun, by pool and team."""
        return min(MAX_HELD, self.holding.get(place, 0))

    def stop(self) -> None:
        """Let nothing go any more."""
        self._go = _ignore

    def _free(self, flight: Flight) -> None:
        flight.held = False
        self.holding[flight.place] -= 1

    def _forget(self, now: float) -> None:
        """Drop what is no longer cached; if that is little, everything but what is under way."""
        for limit in (now, float("inf")):
            self._known = {
                name: known for name, known in self._known.items() if known.first or known.warm_until > limit
            }
            if len(self._known) < MAX_KNOWN // 2:
                return


def _ignore(_: Flight) -> None:
    return None
