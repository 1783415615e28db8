"""A hand-written reward manager, rebuilt small, and referee beside it, on two loads.

100 responses to judge in a step with 10 s of other work; the hand-written manager is synchronous, has worker processes,
or an event loop. And 1024 samples for a judge that takes 2 s: one by one, or 60 at once, with and without a cache. The
provider is a real HTTP server in a process of its own; time runs faster by the scale that is printed, and all
seconds are given unscaled. The trainer's other work is a pause: the accelerator's, not this processor's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import threading
from collections.abc import Callable
from typing import Any

from bench.common import BlockingClient, bodies, gathered, rollouts, settings, spread, table
from referee import clock
from referee.records import Sample
from referee.referee import Referee
from referee.sim import ProviderSpec, ServerProcess, start_server_process

JUDGE, WORK, RESPONSES, WORKERS, LOOP_LIMIT = 0.6, 10.0, 100, 4, 10
MONITOR, SAMPLES, AT_ONCE = 2.0, 1024, 60
REPEATED = 0.5
"""Share of repeats in the rows with a cache: half of the samples were seen before."""
NAIVE = 64
"""Samples of the naive way that are measured; its time for all follows by proportion."""

Timed = tuple[float, float, int]
"""Seconds in all, seconds the trainer stood still, samples scored."""


def _ask(task: tuple[str, bytes]) -> int | None:
    """One blocking call, in a worker process of the hand-written manager."""
    client = BlockingClient(task[0])
    try:
        return client.ask(task[1])
    finally:
        client.close()


def _synchronous(url: str, given: list[bytes], work: float) -> Timed:
    began = clock.monotonic()
    client = BlockingClient(url)
    scored = sum(client.ask(body) is not None for body in given)
    client.close()
    waited = clock.monotonic() - began
    clock.pause(work)
    return clock.monotonic() - began, waited, scored


def _pool(pool: Any, url: str, given: list[bytes], work: float) -> Timed:
    """Worker processes, by hand: tasks through a queue, results collected before anything else goes on."""
    began = clock.monotonic()
    scored = sum(score is not None for score in pool.map(_ask, [(url, body) for body in given], 1))
    waited = clock.monotonic() - began
    clock.pause(work)
    return clock.monotonic() - began, waited, scored


def _loop(url: str, given: list[bytes], work: float) -> Timed:
    """An event loop, by hand: started, then the other work, then collected."""
    found: list[int | None] = []
    began = clock.monotonic()
    thread = threading.Thread(target=lambda: found.extend(asyncio.run(gathered(url, given, LOOP_LIMIT))))
    thread.start()
    clock.pause(work)
    worked = clock.monotonic()
    thread.join()
    now = clock.monotonic()
    return now - began, now - worked, sum(score is not None for score in found)


def _referee(referee: Referee, given: list[Sample], work: float) -> Timed:
    began = clock.monotonic()
    ticket = referee.submit(given)
    submitted = clock.monotonic() - began
    clock.pause(work)
    worked = clock.monotonic()
    scored = sum(reward.scored for reward in ticket.result())
    now = clock.monotonic()
    return now - began, submitted + now - worked, scored


def _provider(seconds: float, scale: float, capacity: int) -> ServerProcess:
    spec = ProviderSpec(latency_median=seconds, latency_sigma=0.25, capacity=capacity, time_scale=scale)
    return start_server_process(spec, seed=1)


def responses(scale: float, repeats: int) -> dict[str, list[list[float]]]:
    """Every way in turn, `repeats` times, each time with texts not seen before."""
    found: dict[str, list[list[float]]] = {}
    work = WORK / scale

    def note(name: str, timed: Timed) -> None:
        found.setdefault(name, []).append([timed[0] * scale, timed[1] * scale, timed[2]])

    context = multiprocessing.get_context("spawn")
    with _provider(JUDGE, scale, 60) as server, context.Pool(WORKERS) as pool:
        pool.map(_ask, [(server.url, body) for body in bodies(rollouts(WORKERS, "warm up"))], 1)
        inline, processes, thread = (
            Referee(settings(server.url, runtime=name)) for name in ("inline", "processes", "thread")
        )
        with inline, processes, thread:
            for referee in (inline, processes, thread):
                referee.score(rollouts(16, "warm up"))
            for n in range(repeats):
                given = [bodies(rollouts(RESPONSES, f"by hand {n} {kind}")) for kind in range(3)]
                note("hand-written: synchronous", _synchronous(server.url, given[0], work))
                note(f"hand-written: {WORKERS} worker processes", _pool(pool, server.url, given[1], work))
                note(f"hand-written: event loop, {LOOP_LIMIT} at once", _loop(server.url, given[2], work))
                note("referee: inline (for debugging)", _referee(inline, rollouts(RESPONSES, f"inline {n}"), work))
                note("referee: processes", _referee(processes, rollouts(RESPONSES, f"processes {n}"), work))
                note("referee: thread", _referee(thread, rollouts(RESPONSES, f"thread {n}"), work))
    return found


def samples(scale: float, count: int, repeats: int) -> dict[str, list[list[float]]]:
    """Seconds for all samples, and how many were scored."""
    found: dict[str, list[list[float]]] = {}

    def note(name: str, work: Callable[[], int], factor: float = 1.0) -> None:
        began = clock.monotonic()
        scored = work()
        found.setdefault(name, []).append([(clock.monotonic() - began) * scale * factor, scored * factor])

    with _provider(MONITOR, scale, AT_ONCE) as server:
        url = server.url
        for n in range(repeats):
            naive = bodies(rollouts(NAIVE, f"naive {n}"))
            note("hand-written: one by one", lambda given=naive: _synchronous(url, given, 0.0)[2], count / NAIVE)  # type: ignore[misc]
            batch = bodies(rollouts(count, f"batch {n}"))
            note(f"hand-written: {AT_ONCE} at once", lambda given=batch: _batch(url, given))  # type: ignore[misc]
            some = _with_repeats(f"cached {n}", count)
            name = f"hand-written: {AT_ONCE} at once, a cache, {REPEATED:.0%} repeats"
            note(name, lambda given=some: _cached(url, given))  # type: ignore[misc]
            with Referee(settings(url)) as referee:
                referee.score(rollouts(1, "warm up"))

                def judged(given: list[Sample], referee: Referee = referee) -> int:
                    return sum(reward.scored for reward in referee.score(given))

                fresh, mixed = rollouts(count, f"referee {n}"), _with_repeats(f"referee {n} mixed", count)
                note("referee: not told the limit", lambda given=fresh: judged(given))  # type: ignore[misc]
                note(f"referee: {REPEATED:.0%} repeats", lambda given=mixed: judged(given))  # type: ignore[misc]
                note("referee: the same again, from the cache", lambda given=fresh: judged(given))  # type: ignore[misc]
    return found


def _with_repeats(name: str, count: int) -> list[Sample]:
    distinct = rollouts(round(count * (1 - REPEATED)), name)
    return [distinct[n % len(distinct)] for n in range(count)]


def _batch(url: str, given: list[bytes]) -> int:
    return sum(score is not None for score in asyncio.run(gathered(url, given, AT_ONCE)))


def _cached(url: str, given: list[Sample]) -> int:
    """A cache by hand: by the text of the response, here filled by the distinct ones before the rest is looked up."""
    distinct = {sample.response: sample for sample in given}
    scores = asyncio.run(gathered(url, bodies(list(distinct.values())), AT_ONCE))
    cache = dict(zip(distinct, scores, strict=True))
    return sum(cache[sample.response] is not None for sample in given)


def run(quick: bool) -> dict[str, Any]:
    """Both loads."""
    scale, count, repeats = (50.0, 256, 1) if quick else (10.0, SAMPLES, 3)
    return {
        "scale": scale,
        "count": count,
        "responses": responses(scale, repeats),
        "samples": samples(scale, count, repeats),
    }


OLDER = {
    "theirs: batch + cache": f"hand-written: {AT_ONCE} at once, a cache",
    f"theirs: batch of {AT_ONCE}": f"hand-written: {AT_ONCE} at once",
    "theirs:": "hand-written:",
    "ours:": "referee:",
}
"""How names began in results that are stored already."""


def ways(results: dict[str, Any], name: str, older: str) -> dict[str, list[list[float]]]:
    """One load's rows by today's names, also where they were stored under older ones."""
    rows = results[name] if name in results else results[older]
    return {_renamed(way): found for way, found in rows.items()}


def _renamed(way: str) -> str:
    for old, new in OLDER.items():
        if way.startswith(old):
            return new + way.removeprefix(old)
    return way


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    scale, few, many = results["scale"], ways(results, "responses", "002"), ways(results, "samples", "003")
    first = statistics.median(row[0] for row in few["hand-written: synchronous"])
    naive = statistics.median(row[0] for row in many["hand-written: one by one"])
    few_rows = [
        [
            name,
            spread([row[0] for row in rows]),
            spread([row[1] for row in rows], ".2f"),
            f"{first / statistics.median(row[0] for row in rows):.1f}x",
            f"{min(row[2] for row in rows):.0f} of {RESPONSES}",
        ]
        for name, rows in few.items()
    ]
    many_rows = [
        [
            name,
            spread([row[0] for row in rows]),
            f"{results['count'] / statistics.median(row[0] for row in rows):.1f}",
            f"{naive / statistics.median(row[0] for row in rows):.1f}x",
            f"{min(row[1] for row in rows):.0f}",
        ]
        for name, rows in many.items()
    ]
    return [
        f"Time runs {scale:g} times as fast; seconds are unscaled, median (min to max). What a client costs the "
        f"processor is therefore shown {scale:g} times too large.",
        "",
        f"{RESPONSES} responses, a judge of {JUDGE:g} s with room for 60, {WORK:g} s of other work in the step. "
        "Hand-written: a reward manager as one writes it first (one call after another, then the other work), with "
        f"{WORKERS} worker processes (all results are collected before the other work), and with an event loop that "
        "judges during the other work (goal: 7 times the first, about no waiting).",
        "",
        *table(["way", "step, s", "trainer waited, s", "gain", "scored"], few_rows),
        "",
        f"{results['count']} samples, a judge of {MONITOR:g} s with room for {AT_ONCE}, which refuses more (goal: 16 "
        f"times one by one, 27 times with a cache). The hand-written way is told to send {AT_ONCE} at once. One by "
        f"one: {NAIVE} samples measured, the rest by proportion.",
        "",
        *table(["way", "all samples, s", "samples/s", "gain", "scored"], many_rows),
    ]
