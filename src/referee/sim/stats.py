"""Counters of a simulated provider."""

from __future__ import annotations

import functools
from hashlib import blake2b
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from referee.sim.replies import SimResponse

K = TypeVar("K")


class Stats(Struct, kw_only=True):
    """Counts so far. received = answered + refused + failed + broken + abandoned + open."""

    received: int = 0
    answered: int = 0
    """Status 200 with a complete body, corrupted ones included."""
    refused: int = 0
    """Status 429."""
    failed: int = 0
    """Any other error status."""
    broken: int = 0
    """Hung, dripped, reset, cut or endless."""
    abandoned: int = 0
    """The client disconnected first."""
    open: int = 0
    """In service, queued, or about to be refused."""
    max_open: int = 0
    busy: int = 0
    """In service."""
    max_busy: int = 0
    queued: int = 0
    max_queued: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    """Tokens of answered requests, as billed."""
    tokens_cached: int = 0
    tokens_cache_write: int = 0
    """Of tokens_in, those from the prompt cache and those put there at a price of their own."""
    billed_usd: float = 0.0
    work: float = 0.0
    """Total service time in provider seconds. Divided by capacity it is the shortest possible run."""
    seconds: float = 0.0
    """From the first arrival to the last reply, in provider seconds."""
    by_status: dict[int, int] = field(default_factory=dict)
    by_fault: dict[str, int] = field(default_factory=dict)
    """Injected faults, and refusals by cause: capacity, rate."""
    by_key: dict[str, int] = field(default_factory=dict)
    """Requests per API key, by `key_label`: the key itself is not kept."""
    distinct: int = 0
    """Distinct bodies received."""
    max_repeats: int = 0
    """Largest number of times one body was received."""
    batches: int = 0
    """Batches created. Their items are counted like single requests."""


class Tally:
    """Counts as they happen."""

    def __init__(self) -> None:
        self.stats = Stats()
        self._bodies: dict[int, int] = {}

    def arrived(self, body: bytes, key: str) -> int:
        """A request arrived, with this API key or none. Returns its number, from 1."""
        stats = self.stats
        stats.received += 1
        stats.open += 1
        if stats.open > stats.max_open:
            stats.max_open = stats.open
        digest = hash(body)
        self._bodies[digest] = self._bodies.get(digest, 0) + 1
        if key:
            _add(stats.by_key, key_label(key))
        return stats.received

    def left(self) -> None:
        """The client disconnected before its reply."""
        self.stats.open -= 1
        self.stats.abandoned += 1

    def ended(self, response: SimResponse, fault: str, tokens: tuple[int, int], at: float) -> None:
        """A request ended at second `at`, with a reply or a wire fault."""
        stats = self.stats
        stats.open -= 1
        stats.seconds = at
        if fault:
            _add(stats.by_fault, fault)
        if response.wire:
            stats.broken += 1
            return
        _add(stats.by_status, response.status)
        if response.status == 200:
            stats.answered += 1
            stats.tokens_in += tokens[0]
            stats.tokens_out += tokens[1]
        elif response.status == 429:
            stats.refused += 1
        else:
            stats.failed += 1

    def repeats(self, body: bytes) -> int:
        """How often this exact body was received."""
        return self._bodies.get(hash(body), 0)

    def snapshot(self) -> Stats:
        """A copy that no longer changes."""
        stats = self.stats
        return msgspec.structs.replace(
            stats,
            by_status=stats.by_status.copy(),
            by_fault=stats.by_fault.copy(),
            by_key=stats.by_key.copy(),
            distinct=len(self._bodies),
            max_repeats=max(self._bodies.values(), default=0),
        )


def _add(counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


@functools.lru_cache(maxsize=64)
def key_label(authorization: str) -> str:
    """A short name for an API key that does not reveal it."""
    return blake2b(authorization.removeprefix("Bearer ").encode(), digest_size=4).hexdigest()
