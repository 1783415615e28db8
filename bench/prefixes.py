"""What scheduling for a provider's prompt cache saves: `endpoint.prefix_cache` off, route and warm.

Simulated providers in virtual time, each replica with a cache of its own that holds a beginning once a request with it
was answered; and llama.cpp's server with the embedded model, by its own count of prompt tokens from its cache.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

from bench.common import table
from referee import Referee, Sample, clock
from referee.config import load
from referee.local import embedded_config
from referee.local.model import MODEL, ServerSpec, weights
from referee.local.shared import use
from referee.records import Criterion, Reward
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual
from referee.sim.billing import Prices, PromptCache

MODES = ("off", "route", "warm")
GROUP, CRITERIA = 8, 8
BILLS = {
    "cached at a tenth": {"price_in": 0.4, "price_out": 1.6, "price_cached": 0.04},
    "cached at a tenth, written at 1.25": {
        "price_in": 0.4,
        "price_out": 1.6,
        "price_cached": 0.04,
        "price_cache_write": 0.5,
    },
}
ABOUT = (
    "Simulated replicas of 16 places each, 1 s an answer (lognormal, sigma 0.3), {groups} groups for each replica. A "
    "beginning of 1024 tokens or more is cached in blocks of 128 for 5 minutes, on the replica that answered, once it "
    "has answered. Scores: groups of 8 responses, prompts of about 1,900 tokens, one call each. Rubric: groups of 2 "
    "responses of about 2,000 tokens, 8 criteria, one a call. Seconds: until all is judged. $0.40 for a million tokens "
    "of prompt, $1.60 of reply."
)
REAL = (
    "llama.cpp's server with the embedded model (SmolLM2 135M), {groups} groups of 6 responses to prompts of about "
    "1,600 tokens, 4 tokens a reply. Processed: prompt tokens that were not in the server's cache, by its own usage."
)


def scores(groups: int) -> list[Sample]:
    """Groups of responses to long prompts."""
    return [
        Sample(
            prompt=f"Case {g}. " + "What follows from this? " * 300,
            response=f"[[quality={n + 1}]] {g}-{n}",
            group=f"{g}",
        )
        for g in range(groups)
        for n in range(GROUP)
    ]


def rubrics(groups: int) -> list[Sample]:
    """Responses that are asked about in one call for each criterion."""
    rubric = tuple(
        Criterion(f"It gives fact number {n} with its figure and unit.", name=f"f{n}") for n in range(CRITERIA)
    )
    return [
        Sample(
            prompt=f"Case {g}?",
            response=f"[[quality=6]] {g}-{n} " + "It says a little more. " * 350,
            group=f"{g}",
            rubric=rubric,
        )
        for g in range(groups)
        for n in range(2)
    ]


WORK: dict[str, tuple[Any, dict[str, Any]]] = {
    "scores": (scores, {}),
    "rubric, a criterion a call": (rubrics, {"kind": "rubric", "criteria_per_call": 1}),
}


def simulated(work: str, bill: str, hosts: int, mode: str, groups: int, seed: int = 1) -> dict[str, float]:
    """Dollars by the providers' own bills, the share of cached tokens, and seconds."""
    make, judge = WORK[work]
    prices = BILLS[bill]
    written = prices.get("price_cache_write")
    spec = ProviderSpec(
        latency_median=1.0,
        latency_sigma=0.3,
        prompt_cache=PromptCache(writes=written is not None),
        prices=Prices(tokens_in=0.4, tokens_out=1.6, cached=0.04, cache_write=written),
    )
    config = load(
        {
            "cache": {"path": ""},
            "judge": judge,
            "limits": {"concurrency": 16, "deadline": 3600.0},
            "endpoint": [
                {"url": f"http://h{n}/v1", "model": "m", "key_env": "", "prefix_cache": mode, **prices}
                for n in range(hosts)
            ],
        }
    )
    providers = {f"h{n}": Provider(spec, seed + n) for n in range(hosts)}
    ends: list[float] = []
    metrics: dict[str, float] = {}

    def deliver(rewards: list[Reward], error: object, done: bool) -> None:
        assert all(reward.scored for reward in rewards), "every sample is judged"
        ends.append(clock.now())

    async def main() -> None:
        scorer = build_scorer(config, SimTransport(providers), random.Random(seed), b"secret")
        await scorer.run(Batch("b", make(groups * hosts), config, 3600.0, deliver))
        metrics.update(scorer.metrics())
        await scorer.aclose()

    run_virtual(main())
    billed = float(sum(provider.bill.total for provider in providers.values()))
    assert abs(billed - metrics["cost_usd"]) < 1e-9, "what was counted is what was billed"
    return {"usd": billed, "cached": metrics["tokens_cached"] / metrics["tokens_in"], "seconds": max(ends)}


_CONTEXTS = count(4096)
"""Equal servers would be one, with what it has cached before."""


def real(servers: int, slots: int, mode: str, groups: int) -> dict[str, float]:
    """Prompt tokens that llama.cpp's server processed, those it had cached, and seconds."""
    with ExitStack() as stack:
        specs = [ServerSpec(str(weights()), MODEL, slots=slots, context=next(_CONTEXTS)) for _ in range(servers)]
        started = [stack.enter_context(closing(use(spec))) for spec in specs]
        folder = Path(tempfile.mkdtemp())
        stack.callback(shutil.rmtree, folder)
        settings = embedded_config(references=False)
        endpoint = {**settings["endpoint"], "model": started[0].model, "provider": "", "key_env": ""}
        settings["endpoint"] = [
            {**endpoint, "url": judge.url, "name": f"s{n}", "known_as": f"s{n}", "prefix_cache": mode}
            for n, judge in enumerate(started)
        ]
        settings["limits"] |= {"concurrency": slots, "deadline": 3600.0}
        settings["cache"] = {"path": ""}
        settings["runtime"] = "inline"
        given = [
            Sample(
                prompt=f"Question {g}: how many apples are left? " + f"Ann has {g} apples and gives one away. " * 100,
                response=f"There are {n} apples left.",
                group=f"{g}",
            )
            for g in range(groups)
            for n in range(6)
        ]
        began = clock.monotonic()
        with Referee(settings) as referee:
            rewards = referee.score(given)
            metrics = referee.metrics()
        assert all(reward.scored for reward in rewards), "every sample is judged"
        tokens, cached = metrics["tokens_in"], metrics["tokens_cached"]
        return {"tokens": tokens, "processed": tokens - cached, "seconds": clock.monotonic() - began}


def run(quick: bool = False) -> dict[str, Any]:
    """All of it; quick: few groups, and one real pair."""
    groups, few = (8, 2) if quick else (16, 2)
    found: dict[str, Any] = {"groups": groups, "real_groups": few, "simulated": [], "real": []}
    for work in WORK:
        for bill in list(BILLS)[: 1 if quick else 2]:
            for hosts in (1, 2, 4):
                for mode in MODES:
                    if hosts > 1 or mode != "route":
                        row = simulated(work, bill, hosts, mode, groups)
                        found["simulated"].append({"work": work, "bill": bill, "replicas": hosts, "mode": mode, **row})
    for servers, slots in ((2, 1),):
        for mode in MODES:
            if servers > 1 or mode != "route":
                row = real(servers, slots, mode, few)
                found["real"].append({"servers": servers, "slots": slots, "mode": mode, **row})
    return found


def report(results: dict[str, Any]) -> list[str]:
    """Two tables."""
    lines = [ABOUT.format(groups=results["groups"]), ""]
    lines += table(
        ("judge", "bill", "replicas", "prefix_cache", "$", "cached", "s"),
        [
            (
                row["work"],
                row["bill"],
                str(row["replicas"]),
                row["mode"],
                f"{row['usd']:.3f}",
                f"{row['cached']:.0%}",
                f"{row['seconds']:.1f}",
            )
            for row in results["simulated"]
        ],
    )
    lines += ["", REAL.format(groups=results["real_groups"]), ""]
    lines += table(
        ("servers", "slots each", "prefix_cache", "prompt tokens", "processed", "s"),
        [
            (
                str(row["servers"]),
                str(row["slots"]),
                row["mode"],
                f"{row['tokens']:.0f}",
                f"{row['processed']:.0f}",
                f"{row['seconds']:.1f}",
            )
            for row in results["real"]
        ],
    )
    return lines
