"""A workload judged by the real engine against the simulated provider, in virtual time. Nothing is sent."""

from __future__ import annotations

import asyncio
import functools
import math
import random

from msgspec import Struct

from referee.cache import MemoryCache
from referee.config import Config, load
from referee.engine import Endpoint, Engine
from referee.plan.workload import Workload
from referee.records import Ask, Message, Reply, Sampling, Settled, Verdict
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual
from referee.sim.chat import Question
from referee.sim.judge import Answer

MOST_CALLS = 2500
"""Calls of one rehearsal. A larger workload goes on at the rate of the second half of these."""
MOST_TOKENS = 2000
"""Of a rehearsed call. Of larger ones the tokens, and the limit on them, are made smaller alike."""
CHARS_PER_TOKEN = 4
FOREVER = 1e9
"""Seconds: what a deadline would cut off is to be seen, not lost."""
_ACCEPTED = Verdict(score=1.0, value=1.0)


class Rehearsed(Struct, frozen=True):
    """What came of it."""

    seconds: float
    """Until the last call was answered."""
    attempts: float
    """Requests per call: more than 1 where some timed out or were refused."""
    in_flight: float
    """Calls in flight on average."""


def rehearse(given: Workload, seed: int = 0) -> Rehearsed:
    """Judge the calls of one step, all submitted at once."""
    calls = math.ceil(given.calls)
    if not calls:
        return Rehearsed(0.0, 1.0, 0.0)
    return run_virtual(_rehearse(given, calls, min(calls, MOST_CALLS), seed))


async def _rehearse(given: Workload, calls: int, acted: int, seed: int) -> Rehearsed:
    tokens_in, tokens_out, tpm = _tokens(given)
    spec = ProviderSpec(
        latency_median=given.latency,
        latency_sigma=given.sigma,
        capacity=math.ceil(given.capacity) if given.capacity else None,
    )
    provider = Provider(spec, seed, _Laconic(tokens_out))
    config = _config(given, calls, tpm)
    endpoint = Endpoint(config.endpoint[0], config.limits, None)
    transport = SimTransport(provider)
    engine = Engine(config, [endpoint], [transport], MemoryCache(0), random.Random(seed), lambda: None, lambda: False)
    loop = asyncio.get_running_loop()
    ends: list[float] = []
    over = asyncio.Event()

    def landed(_: int, settled: Settled) -> None:
        ends.append(loop.time())
        if len(ends) == acted:
            over.set()

    text = "x" * (CHARS_PER_TOKEN * tokens_in)
    sampling = Sampling(max_tokens=tokens_out)
    for number in range(acted):
        ask = Ask((Message("user", text),), sampling, (("prompt", str(number)),), "", tokens_in, read=_accept)
        engine.ask(ask, engine.key(ask), FOREVER, functools.partial(landed, number))
    await over.wait()
    await engine.close()
    stats = provider.stats()
    seconds = ends[-1]
    if acted < calls:  # the beginning, while the limit is searched for, and the last stragglers are not the usual rate
        half, most = ends[acted // 2], ends[acted * 9 // 10]
        seconds += (calls - acted) * (most - half) / max(1, acted * 9 // 10 - acted // 2)
    return Rehearsed(seconds, stats.received / acted, stats.work / ends[-1] if ends[-1] else 0.0)


def _tokens(given: Workload) -> tuple[int, int, int | None]:
    """Of a call, in and out, and per minute. The text of each is made, sent and read: long ones take long."""
    sent, replied = max(1.0, given.tokens_in or 0.0), max(1.0, given.tokens_out or 0.0)
    scale = min(1.0, MOST_TOKENS / (sent + replied))
    tpm = math.ceil(scale * given.tpm) if given.tpm else None
    return math.ceil(scale * sent), math.ceil(scale * replied), tpm


def _config(given: Workload, calls: int, tpm: int | None) -> Config:
    limits = {
        "concurrency": "auto" if given.adaptive else min(math.ceil(given.concurrency or calls), calls),
        "max_concurrency": math.ceil(given.concurrency or calls),
        "rpm": math.ceil(given.rpm) if given.rpm else None,
        "tpm": tpm,
        "attempt_timeout": given.attempt_timeout,
        "give_up_after": FOREVER,
        "deadline": FOREVER,
    }
    endpoint = {"url": "http://judge.test/v1", "model": "judge", "key_env": ""}
    return load({"endpoint": endpoint, "limits": {name: value for name, value in limits.items() if value is not None}})


def _accept(request: Ask, reply: Reply) -> Verdict:
    return _ACCEPTED


class _Laconic:
    """A judge whose every reply has the same number of tokens."""

    def __init__(self, tokens: int) -> None:
        self._answer = Answer("x" * (CHARS_PER_TOKEN * tokens), 1)

    def answer(self, question: Question) -> Answer:
        """The reply."""
        return self._answer
