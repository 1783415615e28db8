"""Ways to wait for a judge, side by side on the simulated provider: the time of a step, and how much of it waits."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from rich.table import Table

from referee import clock
from referee.config import Config, load
from referee.records import Sample
from referee.referee import Referee
from referee.sim import ProviderSpec, start_server_process

RESPONSES = 100
JUDGE_SECONDS = 0.6
OTHER_WORK = 10.0
"""Seconds of the step in which the accelerator has other work: log-probabilities, values."""


class Way(Struct, frozen=True):
    """One way to wait, measured, in seconds of unscaled time."""

    name: str
    step: float
    waited: float
    scored: int


def compare(speed: float) -> list[Way]:
    """Run the same step each way against a fresh provider in a process of its own."""
    return [
        _measure("one call after another", "inline", speed, _judge_first),
        _measure("submitted, worker processes", "processes", speed, _submit_first),
        _measure("submitted, event loop", "thread", speed, _submit_first),
    ]


def comparison_table(ways: list[Way]) -> Table:
    """What was measured, the first row as the yardstick."""
    table = Table(show_edge=False, pad_edge=False)
    for name in ("way", "scored", "step", "trainer waited", "gain"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way in ways:
        gain = f"{ways[0].step / way.step:.1f}x"
        table.add_row(way.name, str(way.scored), f"{way.step:.1f} s", f"{way.waited:.1f} s", gain)
    return table


def _measure(name: str, runtime: str, speed: float, step: Callable[[Referee, list[Sample], float], float]) -> Way:
    spec = ProviderSpec(latency_median=JUDGE_SECONDS, latency_sigma=0.25, capacity=60, time_scale=speed)
    with start_server_process(spec, seed=1) as server, Referee(_config(server.url, runtime)) as referee:
        referee.submit(_samples("warm up", 1)).result()
        samples = _samples(name, RESPONSES)
        started = clock.monotonic()
        waited = step(referee, samples, OTHER_WORK / speed)
        took = clock.monotonic() - started
        scored = sum(reward.scored for reward in referee.score(samples))
    return Way(name, took * speed, waited * speed, scored)


def _judge_first(referee: Referee, samples: list[Sample], work: float) -> float:
    started = clock.monotonic()
    referee.score(samples)
    waited = clock.monotonic() - started
    clock.pause(work)
    return waited


def _submit_first(referee: Referee, samples: list[Sample], work: float) -> float:
    ticket = referee.submit(samples)
    clock.pause(work)
    started = clock.monotonic()
    ticket.result()
    return clock.monotonic() - started


def _config(url: str, runtime: str) -> Config:
    return load(
        {
            "endpoint": {"url": url, "model": "simulated", "key_env": ""},
            "cache": {"path": ""},
            "runtime": runtime,
        }
    )


def _samples(name: str, count: int) -> list[Sample]:
    return [Sample(prompt="Write a line.", response=f"{name}: line number {n}", id=str(n)) for n in range(count)]
