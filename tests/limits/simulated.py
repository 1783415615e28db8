"""A closed-loop client and several providers in virtual time: a heap of events, no tasks, no clock, seeded.

The client keeps `limit` requests in flight while it has work. A refused or failed request is parked with back-off and
sent again. Providers answer by scheduling (time, outcome) events.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from referee.limits import Breaker, Limit, Outcome, retry_delay
from referee.records import Action, Failure, Reason

Reply = Callable[[Outcome], None]

THROTTLED = Failure(reason=Reason.THROTTLED, action=Action.PARK)
OVERLOADED = Failure(reason=Reason.OVERLOADED, action=Action.BACK_OFF)


@dataclass
class Job:
    """One sample: how long a server works on it alone, and how many tokens it answers with."""

    seconds: float
    tokens: int = 0
    attempts: int = 0
    gone: bool = False


def lognormal_jobs(count: int, seed: int, median: float = 2.0, sigma: float = 0.6) -> list[Job]:
    """Service times with no relation to reply length (no usage reported)."""
    rng = random.Random(seed)
    return [Job(median * rng.lognormvariate(0.0, sigma)) for _ in range(count)]


def token_jobs(count: int, seed: int, median: float = 2.0, sigma: float = 0.6) -> list[Job]:
    """Service times that follow the reply's length, with some noise, as on a token-by-token server."""
    rng = random.Random(seed)
    jobs = []
    for _ in range(count):
        tokens = max(1, round(150 * rng.lognormvariate(0.0, sigma)))
        jobs.append(Job(median * (tokens + 20) / 170 * rng.lognormvariate(0.0, 0.15), tokens))
    return jobs


class World:
    """The heap of events and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def at(self, when: float, call: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (max(when, self.now), self._serial, call))

    def run(self) -> None:
        while self._events:
            self.now, _, call = heapq.heappop(self._events)
            call()


class Provider(Protocol):
    def send(self, world: World, job: Job, reply: Reply) -> None: ...


Capacity = Callable[[float], int]
"""Concurrent requests served at a given time."""


def always(n: int) -> Capacity:
    """A capacity that does not change."""
    return lambda _: n


@dataclass
class Refusing:
    """Serves up to `capacity` at once and refuses the rest after 50 ms: the classic 429."""

    capacity: Capacity
    refusal: Outcome = "throttled"
    busy: int = 0

    def send(self, world: World, job: Job, reply: Reply) -> None:
        if self.busy >= self.capacity(world.now):
            world.at(world.now + 0.05, lambda: reply(self.refusal))
            return
        self.busy += 1

        def done() -> None:
            self.busy -= 1
            reply("ok")

        world.at(world.now + job.seconds, done)


@dataclass
class Queueing:
    """Serves `capacity` at once and queues the rest (FIFO), like vLLM and llama.cpp."""

    capacity: Capacity
    busy: int = 0
    queue: deque[tuple[Job, Reply]] = field(default_factory=deque)

    def send(self, world: World, job: Job, reply: Reply) -> None:
        self.queue.append((job, reply))
        self._start(world)

    def _start(self, world: World) -> None:
        while self.queue and self.busy < self.capacity(world.now):
            job, reply = self.queue.popleft()
            if job.gone:
                continue  # the client disconnected while it was queued
            self.busy += 1
            world.at(world.now + job.seconds, lambda reply=reply: self._done(world, reply))  # type: ignore[misc]

    def _done(self, world: World, reply: Reply) -> None:
        self.busy -= 1
        self._start(world)
        reply("ok")


@dataclass
class Sharing:
    """Processor sharing: each request is `slowdown(n)` times slower when n are in progress."""

    slowdown: Callable[[int], float]
    progress: float = 0.0
    since: float = 0.0
    version: int = 0
    active: list[tuple[float, int, Reply]] = field(default_factory=list)

    def send(self, world: World, job: Job, reply: Reply) -> None:
        self._advance(world)
        self.version += 1
        heapq.heappush(self.active, (self.progress + job.seconds, self.version, reply))
        self._schedule(world)

    def _advance(self, world: World) -> None:
        if self.active:
            self.progress += (world.now - self.since) / self.slowdown(len(self.active))
        self.since = world.now

    def _schedule(self, world: World) -> None:
        if self.active:
            wait = max(0.0, (self.active[0][0] - self.progress) * self.slowdown(len(self.active)))
            version = self.version
            world.at(world.now + wait, lambda: self._finish(world, version))

    def _finish(self, world: World, version: int) -> None:
        if version != self.version:
            return  # something arrived or left meanwhile: this event is outdated
        self._advance(world)
        self.version += 1
        _, _, reply = heapq.heappop(self.active)
        self._schedule(world)
        reply("ok")


@dataclass
class RateLimited:
    """Any number at once, but only `per_second` new ones with a small burst; the rest is refused."""

    per_second: float
    burst: float = 10.0
    level: float = 10.0
    since: float = 0.0

    def send(self, world: World, job: Job, reply: Reply) -> None:
        self.level = min(self.burst, self.level + (world.now - self.since) * self.per_second)
        self.since = world.now
        if self.level < 1.0:
            world.at(world.now + 0.05, lambda: reply("throttled"))
            return
        self.level -= 1.0
        world.at(world.now + job.seconds, lambda: reply("ok"))


@dataclass
class Quota:
    """A fixed window of `per_minute`; then everything is refused until the next minute, without Retry-After."""

    per_minute: int
    minute: int = -1
    used: int = 0

    def send(self, world: World, job: Job, reply: Reply) -> None:
        if int(world.now // 60) != self.minute:
            self.minute, self.used = int(world.now // 60), 0
        if self.used >= self.per_minute:
            world.at(world.now + 0.05, lambda: reply("throttled"))
            return
        self.used += 1
        world.at(world.now + job.seconds, lambda: reply("ok"))


@dataclass
class Failing:
    """Another provider with an outage: between `start` and `end` nothing is answered, work in progress is lost."""

    inner: Provider
    start: float
    end: float
    hang: float = 0.01
    """Seconds until a request sent during the outage fails."""

    def send(self, world: World, job: Job, reply: Reply) -> None:
        if self.start <= world.now < self.end:
            world.at(world.now + self.hang, lambda: reply("overloaded"))
            return
        open_ = [True]

        def answer(outcome: Outcome) -> None:
            if open_[0]:
                open_[0] = False
                reply(outcome)

        if world.now < self.start:
            world.at(self.start, lambda: answer("overloaded"))
        self.inner.send(world, job, answer)


@dataclass
class Result:
    """What happened."""

    makespan: float = 0.0
    done: int = 0
    sent: int = 0
    refused: int = 0
    failed: int = 0
    finished_at: list[float] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)
    levels: list[tuple[float, int, int]] = field(default_factory=list)
    """(time, limit, in flight) after every event."""

    def throughput(self, start: float, end: float) -> float:
        """Completions per second between two times."""
        return sum(start <= t < end for t in self.finished_at) / (end - start)

    def steady(self) -> tuple[float, float]:
        """When the middle part of the work began and ended: from 20 % to 90 % of completions."""
        return self.finished_at[self.done // 5], self.finished_at[self.done * 9 // 10]

    def mean_in_flight(self, start: float, end: float) -> float:
        """Requests in flight, averaged over time."""
        total, last, level = 0.0, start, 0
        for t, _, n in self.levels:
            if t >= end:
                break
            if t > start:
                total += level * (t - last)
                last = t
            level = n
        return (total + level * (end - last)) / (end - start)

    def peak_in_flight(self, start: float = 0.0) -> int:
        """Most requests in flight at any time after `start`."""
        return max(n for t, _, n in self.levels if t >= start)


class Client:
    """Keeps as many requests in flight as the limit and the breaker allow; backs off after refusals and faults."""

    def __init__(self, world: World, limit: Limit, provider: Provider, breaker: Breaker | None, timeout: float) -> None:
        self.world, self.limit, self.provider = world, limit, provider
        self.breaker, self.timeout = breaker, timeout
        self.ready: deque[Job] = deque()
        self.rng = random.Random(7)
        self.in_flight = 0
        self.wake = -1.0
        self.result = Result()

    def pump(self) -> None:
        while self.ready and self.in_flight < self.limit.limit:
            if self.breaker is not None:
                wait = self.breaker.wait(self.world.now)
                if wait > 0:
                    self._wake_at(self.world.now + wait)
                    break
            self._send(self.ready.popleft())
        self.result.levels.append((self.world.now, self.limit.limit, self.in_flight))

    def _wake_at(self, when: float) -> None:
        if not self.world.now < self.wake <= when:  # an earlier wake-up is scheduled
            self.wake = when
            self.world.at(when, self.pump)

    def _send(self, job: Job) -> None:
        world = self.world
        self.in_flight += 1
        job.attempts += 1
        self.result.sent += 1
        self.result.sent_at.append(world.now)
        sent = world.now
        stamp = self.limit.admit(world.now, self.in_flight)
        if self.breaker is not None:
            self.breaker.on_send()
        attempt = Job(job.seconds, job.tokens)
        answered = [False]

        def reply(outcome: Outcome) -> None:
            if answered[0]:
                return
            answered[0] = attempt.gone = True
            self.in_flight -= 1
            tokens = job.tokens if outcome == "ok" else 0
            self.limit.release(stamp, outcome, world.now, self.in_flight, world.now - sent, tokens)
            if self.breaker is not None:
                if outcome == "overloaded":
                    self.breaker.on_fault(world.now, self.rng.random())
                elif outcome == "throttled":
                    self.breaker.on_throttled(world.now, self.rng.random())
                else:
                    self.breaker.on_ok(sent)
                self.breaker.on_gone()
            if outcome == "ok":
                self.result.done += 1
                self.result.finished_at.append(world.now)
            else:
                throttled = outcome == "throttled"
                self.result.refused += throttled
                self.result.failed += not throttled
                delay = retry_delay(THROTTLED if throttled else OVERLOADED, job.attempts, self.rng.random())
                world.at(world.now + delay, lambda: self._again(job))
            self.pump()

        if self.timeout < math.inf:
            world.at(world.now + self.timeout, lambda: reply("overloaded"))
        self.provider.send(world, attempt, reply)

    def _again(self, job: Job) -> None:
        self.ready.appendleft(job)
        self.pump()

    def arrive(self, job: Job) -> None:
        self.ready.append(job)
        self.pump()


def run(
    limit: Limit,
    provider: Provider,
    jobs: list[Job],
    breaker: Breaker | None = None,
    timeout: float = math.inf,
    per_second: float = math.inf,
) -> Result:
    """Send every job until it is done. Jobs arrive all at once, or `per_second`."""
    world = World()
    client = Client(world, limit, provider, breaker, timeout)
    for i, job in enumerate(jobs):
        fresh = Job(job.seconds, job.tokens)
        if per_second == math.inf:
            client.ready.append(fresh)
        else:
            world.at(i / per_second, lambda fresh=fresh: client.arrive(fresh))  # type: ignore[misc]
    client.pump()
    world.run()
    assert client.result.done == len(jobs)
    client.result.makespan = client.result.finished_at[-1]
    return client.result
