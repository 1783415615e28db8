"""Seed after seed: `python -m tests.faults.soak --seeds 2000`. A broken one prints the command that replays it."""

from __future__ import annotations

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor

from msgspec import Struct
from tests.faults.check import broken
from tests.faults.scenario import draw
from tests.faults.world import play

REPLAY = "python -m tests.faults.soak --from {seed} --seeds 1"


class Count(Struct):
    """What one seed met."""

    seed: int
    problems: list[str]
    requests: int
    faulted: int
    scored: int
    unscored: int


def run(seed: int, replays: bool = False) -> Count:
    """Play one seed and check it; `replays`: play it again and compare."""
    played = play(draw(seed))
    problems = broken(played)
    if replays and played.trace() != play(draw(seed)).trace():
        problems.append("the same seed gave another run")
    rewards = [reward for heard in played.heard for reward in heard.rewards.values()]
    scored = sum(reward.scored for reward in rewards)
    faulted = sum(sum(s.by_fault.values()) + s.abandoned for s in played.stats.values())
    return Count(seed, problems, len(played.sends), faulted, scored, len(rewards) - scored)


def _quietly() -> None:
    """In a worker: thousands of faults are not worth a log line each."""
    logging.disable(logging.CRITICAL)


def main() -> int:
    """Run the seeds, in as many processes as asked, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    requests = faulted = scored = unscored = bad = 0
    with ProcessPoolExecutor(options.workers, initializer=_quietly) as pool:
        for at, count in enumerate(pool.map(run, seeds, [s % 10 == 0 for s in seeds], chunksize=8), 1):
            requests, faulted = requests + count.requests, faulted + count.faulted
            scored, unscored = scored + count.scored, unscored + count.unscored
            if count.problems:
                bad += 1
                print(f"seed {count.seed} is broken: {'; '.join(count.problems)}")
                print(f"  replay: {REPLAY.format(seed=count.seed)}", flush=True)
            if at % 1000 == 0:
                print(f"{at:,} seeds, {requests:,} requests", file=sys.stderr, flush=True)
    print(
        f"{len(seeds):,} seeds, {requests:,} requests ({faulted:,} met a fault), {scored:,} scored, "
        f"{unscored:,} unscored, {bad} seeds broken"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
