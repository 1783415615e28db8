"""A random world from a seed: providers with faults and moods, a configuration, samples, and what the caller does.

Everything is drawn from one generator, so a seed names a world for good. `world` plays it; `check` judges the play.
"""

from __future__ import annotations

import random
from typing import Any, get_args

from msgspec import Struct

from referee.records import Sample
from referee.sim.spec import FAULTS, Fault, ProviderSpec, RetryAfter

FATAL: tuple[Fault, ...] = ("quota", "auth", "forbidden", "unknown_model", "redirect")
"""Faults that close an endpoint for good: one is enough, so they are drawn seldom."""
PRICE_IN, PRICE_OUT = 1.0, 4.0


class Act(Struct, frozen=True):
    """One batch: when it is submitted, and when its caller stops waiting (None: never)."""

    at: float
    samples: tuple[Sample, ...]
    cancelled_at: float | None = None


class Scenario(Struct, frozen=True):
    """A world."""

    seed: int
    specs: dict[str, ProviderSpec]
    config: dict[str, Any]
    acts: tuple[Act, ...]
    closed_at: float | None = None
    """When the Referee is closed under way, or None."""


def draw(seed: int) -> Scenario:
    """The world of this seed."""
    rng = random.Random(seed)
    kind = rng.choice(["score", "score", "score", "yes_no", "reference"])
    hosts = ["a.test"] if rng.random() < 0.6 else ["a.test", "b.test"]
    texts = _texts(rng)
    acts = tuple(_act(rng, texts, number, kind) for number in range(rng.choice([1, 1, 2, 3])))
    return Scenario(
        seed=seed,
        specs={host: _spec(rng) for host in hosts},
        config=_config(rng, hosts, kind),
        acts=acts,
        closed_at=rng.uniform(1.0, 60.0) if rng.random() < 0.08 else None,
    )


def _spec(rng: random.Random) -> ProviderSpec:
    faults = _faults(rng)
    outages: tuple[tuple[float, float], ...] = ()
    if rng.random() < 0.25:
        start = rng.uniform(0.0, 20.0)
        outages = ((start, start + rng.choice([2.0, 10.0, 60.0])),)
    limited = rng.random() < 0.25
    return ProviderSpec(
        latency_median=rng.choice([0.05, 0.5, 2.0]),
        latency_sigma=rng.choice([0.0, 0.5, 1.0]),
        tail_share=rng.choice([0.0, 0.0, 0.05]),
        capacity=rng.choice([None, 1, 4, 20]),
        mode=rng.choice(["refuse", "queue", "degrade"]),
        schedule=((rng.uniform(1.0, 10.0), rng.choice([1, 3, 30])),) if rng.random() < 0.2 else (),
        refuse_latency=rng.choice([0.0, 0.02, 0.5]),
        rpm=rng.choice([30, 120, 600]) if limited else None,
        tpm=rng.choice([20_000, 200_000]) if limited and rng.random() < 0.5 else None,
        rate_headers=rng.random() < 0.7,
        retry_after=rng.choice([form for form in get_args(RetryAfter) if form != "far"]),
        retry_after_s=rng.choice([0.1, 1.0, 5.0]),
        outages=outages,
        outage=rng.choice(["http_503", "http_529", "hang", "reset"]),
        faults=faults,
        drip_interval=0.05,
        huge_bytes=100_000,
        unsupported=rng.choice([(), (), (), ("response_format",), ("temperature",)]),
    )


def _faults(rng: random.Random) -> dict[Fault, float]:
    """A few kinds of trouble, together up to half of all requests; now and then one that is final."""
    usual = [fault for fault in FAULTS if fault not in FATAL]
    chosen = rng.sample(usual, rng.choice([0, 1, 3, 6]))
    total = rng.choice([0.05, 0.2, 0.5])
    faults: dict[Fault, float] = {fault: total / len(chosen) for fault in chosen}
    if rng.random() < 0.1:
        faults[rng.choice(FATAL)] = 0.02
    return faults


def _config(rng: random.Random, hosts: list[str], kind: str) -> dict[str, Any]:
    endpoints = [
        {
            "url": f"http://{host}/v1",
            "model": "m",
            "key_env": "",
            "price_in": PRICE_IN,
            "price_out": PRICE_OUT,
            "backup": at > 0 and rng.random() < 0.3,
        }
        for at, host in enumerate(hosts)
    ]
    limits: dict[str, Any] = {
        "concurrency": rng.choice(["auto", "auto", 1, 7, 50]),
        "attempt_timeout": rng.choice([3.0, 10.0, 60.0]),
        "deadline": rng.choice([15.0, 60.0, 300.0]),
    }
    if rng.random() < 0.25:
        limits["rpm"] = rng.choice([60, 300])
    if rng.random() < 0.15:
        limits["tpm"] = rng.choice([30_000, 300_000])
    if rng.random() < 0.2:
        limits["budget_usd"] = rng.choice([0.002, 0.02, 0.2])
    missing: dict[str, Any] = {"policy": rng.choice(["abstain", "group_mean", "value", "raise"]), "abort_above": 1.0}
    if missing["policy"] == "value":
        missing["value"] = -0.25
    if rng.random() < 0.1:
        missing["abort_above"] = 0.5
    return {
        "judge": {
            "kind": kind,
            "reply": rng.choice(["auto", "schema", "text"]),
            "ask_again": rng.choice([0, 2, 4]),
            "max_tokens": 64,
        },
        "endpoint": endpoints,
        "limits": limits,
        "cache": {"path": "", "enabled": rng.random() < 0.9},
        "missing": missing,
        "shaping": {"length": {"enable": rng.random() < 0.3}},
    }


def _texts(rng: random.Random) -> list[str]:
    return [f"[[quality={rng.randint(1, 10)}]] answer {n}" for n in range(rng.choice([3, 20, 60]))]


def _act(rng: random.Random, texts: list[str], number: int, kind: str) -> Act:
    count = rng.choice([1, 8, 40, 80])
    given = tuple(
        Sample(
            prompt="How many are there?",
            response="" if rng.random() < 0.03 else rng.choice(texts),
            reference="Seven of them." if kind == "reference" else None,
            group=str(n // 4),
            length=rng.randint(1, 200),
            id=f"{number}-{n}",
        )
        for n in range(count)
    )
    cancelled = rng.uniform(0.1, 30.0) if rng.random() < 0.1 else None
    return Act(at=rng.uniform(0.0, 5.0) if number else 0.0, samples=given, cancelled_at=cancelled)
