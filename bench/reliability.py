"""Does every wait end when it should? A provider that hangs, 2,000 samples in flight; and a minute's outage.

First: threads submit batches with a deadline and wait for them, others wait with a timeout of their own; measured is
how late each call came back. Second, in virtual time: a provider at four fifths of its capacity is away for a minute.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

from bench.common import rollouts, settings, spread, table
from referee import clock
from referee.errors import TicketTimeout
from referee.records import Reward, Sample
from referee.referee import Referee
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual, start_server_process

RATE, CAPACITY, MEDIAN, OUTAGE = 22, 60, 2.0, (60.0, 120.0)


def late(in_flight: int, batches: int, deadline: float, timeout: float, runtime: str) -> dict[str, list[float]]:
    """Milliseconds after its time at which each call returned."""
    found: dict[str, list[float]] = {"result() at the batch's deadline": [], "result(timeout)": []}
    lock = threading.Lock()
    spec = ProviderSpec(faults={"hang": 1.0})
    limits = {"concurrency": in_flight, "deadline": deadline, "attempt_timeout": 60.0}
    with (
        start_server_process(spec, seed=1) as server,
        Referee(settings(server.url, limits=limits, runtime=runtime)) as referee,
    ):
        referee.submit(rollouts(1, "warm up"), deadline=0.5).result()
        given = rollouts(in_flight, f"hang {runtime}")
        size = in_flight // batches

        def note(name: str, due: float) -> None:
            overshoot = (clock.monotonic() - due) * 1e3
            with lock:
                found[name].append(overshoot)

        def caller(n: int) -> None:
            due = clock.monotonic() + deadline
            ticket = referee.submit(given[n * size : (n + 1) * size])
            patience = threading.Thread(target=impatient, args=(ticket,))
            patience.start()
            ticket.result()
            note("result() at the batch's deadline", due)
            patience.join()

        def impatient(ticket: Any) -> None:
            due = clock.monotonic() + timeout
            try:
                ticket.result(timeout)
            except TicketTimeout:
                note("result(timeout)", due)

        threads = [threading.Thread(target=caller, args=(n,)) for n in range(batches)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def outage(kind: str, seed: int, seconds: int) -> dict[str, float]:
    """What a minute's outage cost: samples lost, requests per sample, and the pace soon after beside that before."""
    spec = ProviderSpec(
        latency_median=MEDIAN,
        latency_sigma=0.5,
        capacity=CAPACITY,
        outages=(OUTAGE,),
        outage=kind,  # type: ignore[arg-type]
    )
    config = settings("http://a.test/v1", limits={"attempt_timeout": 20.0})
    provider = Provider(spec, seed)
    landed: list[tuple[float, bool]] = []

    def deliver(rewards: list[Reward], error: object, done: bool) -> None:
        landed.extend((clock.now(), reward.scored) for reward in rewards)

    async def main() -> None:
        scorer = build_scorer(config, SimTransport(provider), random.Random(seed), b"secret")
        running = []
        for second in range(seconds):
            given = [Sample(prompt="p", response=f"{second} {n}") for n in range(RATE)]
            running.append(asyncio.ensure_future(scorer.run(Batch(str(second), given, config, 300.0, deliver))))
            await clock.sleep(1.0)
        await asyncio.gather(*running)
        await scorer.aclose()

    run_virtual(main())
    before = sum(30.0 <= at < 60.0 for at, _ in landed) / 30.0
    after = sum(OUTAGE[1] + 5.0 <= at < OUTAGE[1] + 15.0 for at, _ in landed) / 10.0
    lost = sum(not scored for _, scored in landed)
    return {"lost": lost, "requests": provider.stats().received / len(landed), "pace": after / before}


def run(quick: bool) -> dict[str, Any]:
    """Both."""
    in_flight, batches, times, seeds = (400, 20, 1, (1,)) if quick else (2000, 100, 3, (1, 2, 3))
    waits: dict[str, list[float]] = {}
    for runtime in ("thread", "processes"):
        for _ in range(times):
            for name, values in late(in_flight, batches, 4.0, 2.0, runtime).items():
                waits.setdefault(f"{name}, {runtime}", []).extend(values)
    kinds = ("http_503",) if quick else ("http_503", "http_529", "reset")
    return {
        "in_flight": in_flight,
        "waits": waits,
        "outages": {kind: [outage(kind, seed, 150 if quick else 240) for seed in seeds] for kind in kinds},
    }


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    waits = []
    for name, values in results["waits"].items():
        found = sorted(values)
        at = [found[min(len(found) - 1, len(found) * share // 100)] for share in (50, 99)]
        waits.append([name, str(len(found)), *(f"{value:.1f}" for value in (*at, found[-1]))])
    outages = [
        [
            kind,
            f"{max(r['lost'] for r in rows):.0f}",
            spread([r["requests"] for r in rows], ".2f"),
            spread([r["pace"] for r in rows], ".2f"),
        ]
        for kind, rows in results["outages"].items()
    ]
    return [
        f"A provider that never answers, {results['in_flight']:,} samples in flight, over real sockets; milliseconds "
        "after its time at which a call came back (goal: 50 at p99, on a machine of one's own).",
        "",
        *table(["call", "calls", "p50", "p99", "most"], waits),
        "",
        "A minute without a provider at four fifths of its capacity, virtual time. Pace: samples/s from 5 s to 15 s "
        "after its end, over that before it.",
        "",
        *table(["outage", "samples lost, most", "requests per sample", "pace after"], outages),
    ]
