"""A simulated provider's prompt cache, and its own bill, in exact fractions of a dollar."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from msgspec import Struct

from referee.sim.chat import ChatMessage, ChatRequest


class PromptCache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How prompts are cached: by their beginning, in whole blocks, once a request that has it was answered. One
    provider is one replica; another one has a cache of its own."""

    min_tokens: int = 1024
    """Shorter beginnings are not cached."""
    block: int = 128
    """Tokens that are cached together."""
    ttl: float = 300.0
    """Seconds for which an unused block is kept."""
    writes: bool = False
    """Whether usage tells what was put into the cache, which is billed at the price for that."""


class Prices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0
    cached: float | None = None
    """None: as tokens_in; the next too."""
    cache_write: float | None = None
    flex: float = 1.0
    """What the flex tier costs, as a share of these."""


class Usage(Struct, frozen=True):
    """What one request is billed for. Of `tokens_in`, `cached` and `written` are billed at their own prices."""

    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    written: int = 0
    flex: bool = False
    blocks: tuple[int, ...] = ()
    """The blocks of its prompt: each is known by itself and all before it."""


class Blocks:
    """What is cached. `at` is provider time."""

    def __init__(self, spec: PromptCache, chars_per_token: float) -> None:
        self._spec = spec
        self._size = max(1, int(spec.block * chars_per_token))
        self._until: dict[int, float] = {}

    def look_up(self, request: ChatRequest, tokens_in: int, at: float) -> tuple[int, int, tuple[int, ...]]:
        """Tokens from the cache, tokens that will be put there, and the prompt's blocks."""
        spec = self._spec
        text = "\0".join([f"{message.role}\0{text}" for message, text in _cacheable(request)])
        chain, blocks = 0, []
        edges = range(0, min(len(text), int(tokens_in / spec.block) * self._size) + 1, self._size)
        for start, end in pairwise(edges):
            chain = hash((chain, text[start:end]))
            blocks.append(chain)
        if len(blocks) * spec.block < spec.min_tokens:
            return 0, 0, ()
        found = 0
        for block in blocks:
            if self._until.get(block, -1.0) < at:
                break
            found += spec.block
        cached = found if found >= spec.min_tokens else 0
        return cached, len(blocks) * spec.block - cached if spec.writes else 0, tuple(blocks)

    def keep(self, blocks: tuple[int, ...], at: float) -> None:
        """A request with these blocks was answered."""
        for block in blocks:
            self._until[block] = at + self._spec.ttl


def _cacheable(request: ChatRequest) -> Iterator[tuple[ChatMessage, str]]:
    """The texts, up to the last place that the request marks, where its API has such marks."""
    left = math.inf if request.cached_until is None else request.cached_until
    for message in request.messages:
        if left > 0:
            yield message, message.text if left >= len(message.text) else message.text[: int(left)]
        left -= len(message.text)


class Bill:
    """What a provider charges, in exact dollars."""

    def __init__(self, prices: Prices) -> None:
        price_in = Fraction(prices.tokens_in)
        self._in, self._out = price_in, Fraction(prices.tokens_out)
        self._cached = price_in if prices.cached is None else Fraction(prices.cached)
        self._written = price_in if prices.cache_write is None else Fraction(prices.cache_write)
        self._flex = Fraction(prices.flex)
        self.total = Fraction(0)
        self.cached = self.written = 0
        """Tokens so far."""

    def add(self, usage: Usage) -> None:
        """Charge a request that was answered."""
        full = usage.tokens_in - usage.cached - usage.written
        paid = full * self._in + usage.cached * self._cached + usage.written * self._written
        self.total += (paid + usage.tokens_out * self._out) / 10**6 * (self._flex if usage.flex else 1)
        self.cached += usage.cached
        self.written += usage.written
