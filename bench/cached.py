"""What a verdict already paid for costs to find, how fast keys are made, and what repeated rollouts save.

The first two on the real clock, this process's processor time; the third in virtual time with the whole pipeline.
Redis has a benchmark of its own, `redis_cache`.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.common import in_virtual_time, rollouts, settings, spread, table
from bench.overhead import samples
from referee import clock, wire
from referee.cache import Entry, KeyMaker, LayeredCache, MemoryCache, SqliteCache
from referee.judging import make_judge
from referee.records import Ask, Reply, Sample, Verdict
from referee.sim import ProviderSpec

CAPACITY, MEDIAN = 60, 2.0


def entry() -> Entry:
    """About 600 bytes, as a judge's verdict with its reason is."""
    return Entry(
        verdict=Verdict(score=7, value=0.7, reason="It is mostly right. " * 10),
        reply=Reply(text='{"reason": "…", "score": 7}' * 8, finish="stop", model="m", tokens_in=500, tokens_out=60),
        cost=0.001,
        created=1e9,
        endpoint="host",
    )


def _cpu(work: Callable[[], object], count: int) -> float:
    before = clock.cpu()
    work()
    return (clock.cpu() - before) / count * 1e6


def hits(folder: Path, count: int) -> dict[str, float]:
    """Microseconds for each search that finds, and for each store."""
    keys = [sha256(b"%d" % n).hexdigest()[:32] for n in range(count)]
    value, memory = entry(), MemoryCache(count)
    path = folder / "cache.sqlite"
    file = SqliteCache(path)

    def fill() -> None:
        for key in keys:
            file.put(key, value)
        file.close()

    found = {"stored in SQLite, written out": _cpu(fill, count)}
    for key in keys:
        memory.put(key, value)
    file = SqliteCache(path)
    random.Random(1).shuffle(keys)

    def together() -> None:
        for start in range(0, count, 32):
            layered = LayeredCache(MemoryCache(count), file)
            layered.expect(keys[start : start + 32])
            assert all(layered.get(key) is not None for key in keys[start : start + 32])

    found["found in memory"] = _cpu(lambda: [memory.get(key) for key in keys], count)
    found["found in SQLite, one by one"] = _cpu(lambda: [file.get(key) for key in keys], count)
    found["found in SQLite, 32 together"] = _cpu(together, count)
    file.close()
    return found


def keys_made(count: int) -> dict[str, float]:
    """Microseconds to plan a request, and to make its key."""
    config = settings("http://127.0.0.1:1/v1")
    judge, maker = make_judge(config.judge[0], b"secret"), KeyMaker(config.endpoint[0], wire.CHAT)
    given = samples(count, "keys")
    plans: list[Ask] = []

    def plan() -> None:
        plans.extend(p for p in (judge.plan(sample, "schema") for sample in given) if isinstance(p, Ask))

    planned = _cpu(plan, count)
    return {"a request planned, 1.2 KB": planned, "its key": _cpu(lambda: [maker.key(p) for p in plans], count)}


def repeats(share: float, count: int, seed: int) -> dict[str, float]:
    """One batch with such a share of repeats: seconds, and requests paid."""
    rng = random.Random(seed)
    distinct = rollouts(round(count * (1 - share)), "repeats")
    given: list[Sample] = distinct + [rng.choice(distinct) for _ in range(count - len(distinct))]
    rng.shuffle(given)
    spec = ProviderSpec(latency_median=MEDIAN, latency_sigma=0.4, capacity=CAPACITY, mode="queue")
    found = in_virtual_time(spec, settings("http://a.test/v1", limits={"concurrency": CAPACITY}), given, seed)
    return {"seconds": found.makespan, "paid": found.provider.stats().answered, "scored": found.scored}


def run(quick: bool) -> dict[str, Any]:
    """All three."""
    count, times, size, seeds = (2000, 1, 300, (1,)) if quick else (20_000, 5, 1024, (1, 2, 3, 4, 5))
    costs: dict[str, list[float]] = {}
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            for name, value in {**hits(Path(folder), count), **keys_made(min(count, 5000))}.items():
                costs.setdefault(name, []).append(value)
    shares = {f"{share:g}": [repeats(share, size, seed) for seed in seeds] for share in (0.0, 0.1, 0.3, 0.6)}
    return {"count": count, "size": size, "costs": costs, "repeats": shares}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    costs, size = results["costs"], results["size"]
    base = sorted(row["seconds"] for row in results["repeats"]["0"])
    middle = base[len(base) // 2]
    shares = [
        [
            f"{float(share):.0%}",
            f"{size - max(row['paid'] for row in rows):.0f} of {size}",
            spread([row["seconds"] for row in rows], ".1f"),
            spread([middle / row["seconds"] for row in rows], ".2f"),
        ]
        for share, rows in results["repeats"].items()
    ]
    return [
        f"{results['count']:,} verdicts of 600 bytes; microseconds of this process's processor time, median "
        "(min to max).",
        "",
        *table(["what", "µs CPU"], [[name, spread(values, ".1f")] for name, values in costs.items()]),
        "",
        f"Keys per second on one core: {spread([1e6 / value for value in costs['its key']], ',.0f')}.",
        "",
        f"{size} rollouts in one batch, some of them repeated, a judge of {MEDIAN:g} s with room for {CAPACITY}, "
        "virtual time: a repeat is asked once even while the first is under way.",
        "",
        *table(["repeated", "calls saved", "seconds", "times as fast"], shares),
    ]
