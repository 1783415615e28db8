"""The two tables of the documents this project began from, measured again: theirs rebuilt small, ours beside it.

Document 002: a step with 100 responses to judge and 10 s of other work. Document 003: 1024 samples, a judge that takes
2 s. The provider is a real HTTP server in a process of its own; time runs faster by the scale that is printed, and all
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

JUDGE, WORK, RESPONSES, THEIR_WORKERS, THEIR_LIMIT = 0.6, 10.0, 100, 4, 10
MONITOR, SAMPLES, THEIR_BATCH = 2.0, 1024, 60
REPEATED = 0.5
"""Share of repeats in document 003's cached row: what its 13 samples/s against 6.5 imply."""
NAIVE = 64
"""Samples of the naive way that are measured; its time for all follows by proportion."""

Timed = tuple[float, float, int]
"""Seconds in all, seconds the trainer stood still, samples scored."""


def _ask(task: tuple[str, bytes]) -> int | None:
    """One blocking call, in a worker process of theirs."""
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
    """Their process mode: tasks through a queue, results collected before anything else goes on."""
    began = clock.monotonic()
    scored = sum(score is not None for score in pool.map(_ask, [(url, body) for body in given], 1))
    waited = clock.monotonic() - began
    clock.pause(work)
    return clock.monotonic() - began, waited, scored


def _loop(url: str, given: list[bytes], work: float) -> Timed:
    """Their event loop as its text describes it: started, then the other work, then collected."""
    found: list[int | None] = []
    began = clock.monotonic()
    thread = threading.Thread(target=lambda: found.extend(asyncio.run(gathered(url, given, THEIR_LIMIT))))
    thread.start()
    clock.pause(work)
    worked = clock.monotonic()
    thread.join()
    now = clock.monotonic()
    return now - began, now - worked, sum(score is not None for score in found)


def _ours(referee: Referee, given: list[Sample], work: float) -> Timed:
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


def document_002(scale: float, repeats: int) -> dict[str, list[list[float]]]:
    """Every way in turn, `repeats` times, each time with texts not seen before."""
    found: dict[str, list[list[float]]] = {}
    work = WORK / scale

    def note(name: str, timed: Timed) -> None:
        found.setdefault(name, []).append([timed[0] * scale, timed[1] * scale, timed[2]])

    context = multiprocessing.get_context("spawn")
    with _provider(JUDGE, scale, 60) as server, context.Pool(THEIR_WORKERS) as pool:
        pool.map(_ask, [(server.url, body) for body in bodies(rollouts(THEIR_WORKERS, "warm up"))], 1)
        inline, processes, thread = (
            Referee(settings(server.url, runtime=name)) for name in ("inline", "processes", "thread")
        )
        with inline, processes, thread:
            for referee in (inline, processes, thread):
                referee.score(rollouts(16, "warm up"))
            for n in range(repeats):
                given = [bodies(rollouts(RESPONSES, f"theirs {n} {kind}")) for kind in range(3)]
                note("theirs: synchronous", _synchronous(server.url, given[0], work))
                note(f"theirs: {THEIR_WORKERS} worker processes", _pool(pool, server.url, given[1], work))
                note(f"theirs: event loop, {THEIR_LIMIT} at once", _loop(server.url, given[2], work))
                note("ours: inline (for debugging)", _ours(inline, rollouts(RESPONSES, f"inline {n}"), work))
                note("ours: processes", _ours(processes, rollouts(RESPONSES, f"processes {n}"), work))
                note("ours: thread", _ours(thread, rollouts(RESPONSES, f"thread {n}"), work))
    return found


def document_003(scale: float, count: int, repeats: int) -> dict[str, list[list[float]]]:
    """Seconds for all samples, and how many were scored."""
    found: dict[str, list[list[float]]] = {}

    def note(name: str, work: Callable[[], int], factor: float = 1.0) -> None:
        began = clock.monotonic()
        scored = work()
        found.setdefault(name, []).append([(clock.monotonic() - began) * scale * factor, scored * factor])

    with _provider(MONITOR, scale, THEIR_BATCH) as server:
        url = server.url
        for n in range(repeats):
            naive = bodies(rollouts(NAIVE, f"naive {n}"))
            note("theirs: one by one", lambda given=naive: _synchronous(url, given, 0.0)[2], count / NAIVE)  # type: ignore[misc]
            batch = bodies(rollouts(count, f"batch {n}"))
            note(f"theirs: batch of {THEIR_BATCH}", lambda given=batch: _batch(url, given))  # type: ignore[misc]
            some = _with_repeats(f"cached {n}", count)
            note(f"theirs: batch + cache, {REPEATED:.0%} repeats", lambda given=some: _cached(url, given))  # type: ignore[misc]
            with Referee(settings(url)) as referee:
                referee.score(rollouts(1, "warm up"))

                def ours(given: list[Sample], referee: Referee = referee) -> int:
                    return sum(reward.scored for reward in referee.score(given))

                fresh, mixed = rollouts(count, f"ours {n}"), _with_repeats(f"ours {n} mixed", count)
                note("ours: not told the limit", lambda given=fresh: ours(given))  # type: ignore[misc]
                note(f"ours: {REPEATED:.0%} repeats", lambda given=mixed: ours(given))  # type: ignore[misc]
                note("ours: the same again, from the cache", lambda given=fresh: ours(given))  # type: ignore[misc]
    return found


def _with_repeats(name: str, count: int) -> list[Sample]:
    distinct = rollouts(round(count * (1 - REPEATED)), name)
    return [distinct[n % len(distinct)] for n in range(count)]


def _batch(url: str, given: list[bytes]) -> int:
    return sum(score is not None for score in asyncio.run(gathered(url, given, THEIR_BATCH)))


def _cached(url: str, given: list[Sample]) -> int:
    """Their cache: by the text of the response, here filled by the distinct ones before the rest is looked up."""
    distinct = {sample.response: sample for sample in given}
    scores = asyncio.run(gathered(url, bodies(list(distinct.values())), THEIR_BATCH))
    cache = dict(zip(distinct, scores, strict=True))
    return sum(cache[sample.response] is not None for sample in given)


def run(quick: bool) -> dict[str, Any]:
    """Both documents."""
    scale, count, repeats = (50.0, 256, 1) if quick else (10.0, SAMPLES, 3)
    return {
        "scale": scale,
        "count": count,
        "002": document_002(scale, repeats),
        "003": document_003(scale, count, repeats),
    }


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    scale, two, three = results["scale"], results["002"], results["003"]
    first = statistics.median(row[0] for row in two["theirs: synchronous"])
    naive = statistics.median(row[0] for row in three["theirs: one by one"])
    rows_002 = [
        [
            name,
            spread([row[0] for row in rows]),
            spread([row[1] for row in rows], ".2f"),
            f"{first / statistics.median(row[0] for row in rows):.1f}x",
            f"{min(row[2] for row in rows):.0f} of {RESPONSES}",
        ]
        for name, rows in two.items()
    ]
    rows_003 = [
        [
            name,
            spread([row[0] for row in rows]),
            f"{results['count'] / statistics.median(row[0] for row in rows):.1f}",
            f"{naive / statistics.median(row[0] for row in rows):.1f}x",
            f"{min(row[1] for row in rows):.0f}",
        ]
        for name, rows in three.items()
    ]
    return [
        f"Time runs {scale:g} times as fast; seconds are unscaled, median (min to max). What a client costs the "
        f"processor is therefore shown {scale:g} times too large.",
        "",
        f"Document 002: {RESPONSES} responses, a judge of {JUDGE:g} s with room for 60, {WORK:g} s of other work in "
        "the step. The documents say 70 s with 60 s waited, 25 s with 15 s, and 10 s with about none.",
        "",
        *table(["way", "step, s", "trainer waited, s", "gain", "scored"], rows_002),
        "",
        f"Document 003: {results['count']} samples, a judge of {MONITOR:g} s with room for {THEIR_BATCH}, which "
        f"refuses more. The documents say 0.5, 6.5 and 13 samples/s (16x and 27x). One by one: {NAIVE} samples "
        "measured, the rest by proportion.",
        "",
        *table(["way", "all samples, s", "samples/s", "gain", "scored"], rows_003),
    ]
