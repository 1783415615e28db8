"""Which endpoints may answer which questions: a pool for each judge's set of them. Plain lookups, no waiting."""

from __future__ import annotations

from collections.abc import Sequence

from referee.config import Config, all_judges, endpoints_of, pool_of
from referee.engine.endpoint import Endpoint
from referee.errors import EndpointClosed
from referee.records import Ask


class Pools:
    """The pools of a configuration, by name; the empty name is all endpoints."""

    def __init__(self, config: Config, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints: dict[str, tuple[Endpoint, ...]] = {"": tuple(endpoints)}
        for judge in all_judges(config.judge):
            numbers = endpoints_of(judge, config.endpoint)
            self._endpoints[pool_of(judge)] = tuple(endpoints[number] for number in numbers)
        self._excluded = {name: frozenset(endpoints) - {*pool} for name, pool in self._endpoints.items()}
        self.several = len(endpoints) > 1
        firsts = {name: pool[0] for name, pool in self._endpoints.items() if pool}
        self.warms = {name: first for name, first in firsts.items() if first.warm_from is not None}
        """By pool: its first endpoint, if a request with a new beginning should go ahead of others with the same."""

    def excluded(self, request: Ask) -> frozenset[Endpoint]:
        """Endpoints that may not answer it."""
        return self._excluded[request.pool]

    def key(self, request: Ask) -> str:
        """Its key, in the engine and in the cache: that of its first endpoint."""
        return self._endpoints[request.pool][0].keys.key(request)

    def other_keys(self, request: Ask) -> list[str]:
        """Its keys in the cache if another endpoint has answered."""
        if not self.several:
            return []
        return [endpoint.keys.key(request) for endpoint in self._endpoints[request.pool][1:]]

    def limit(self, pool: str) -> int:
        """How many requests its endpoints take at once."""
        return sum([endpoint.limiter.limit for endpoint in self._endpoints[pool]])

    def any_of(self, pool: str, endpoints: set[Endpoint]) -> bool:
        """True if one of these is in the pool."""
        return bool(endpoints) and not endpoints.isdisjoint(self._endpoints[pool])

    def closed(self, pool: str) -> EndpointClosed | None:
        """The one clear error, once no endpoint of a pool can answer any more."""
        endpoints = self._endpoints[pool]
        why = endpoints[0].breaker.closed if endpoints else None
        if why is None or any(endpoint.breaker.closed is None for endpoint in endpoints):
            return None
        labels = ", ".join(endpoint.label for endpoint in endpoints)
        return EndpointClosed(
            f"no judge can answer ({labels}: {why.reason}): {why.detail.rstrip('.')}. What was judged before is kept; "
            "nothing else was scored.",
            reason=str(why.reason),
        )
