"""Agreement per dollar: one cheap judge, one strong one, juries, repeats and cascades, on a simulated population.

Judges are driven by hand, without HTTP. Each sees the evidence of a sample with an error of its own that stays the same
however often it is asked, an error that all cheap judges share, and noise that is drawn anew each time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.common import table
from referee.config import Config, load
from referee.records import Ask, Sample, Verdict
from referee.scoring.build import build_judges
from referee.stats import kappa, kappa_interval
from referee.testing import deliberate

SAMPLES = 2000
EVIDENCE = 1.2
"""How far the mean evidence of right answers, and of wrong ones, is from 0; its standard deviation is 1."""
PRICES = {"small": 0.15, "other": 0.15, "third": 0.15, "large": 3.0}
"""US dollars for a million tokens of prompt; replies cost four times as much."""
REPLY = 40
"""Tokens of a reply."""
WHAT = (
    "{samples} samples, half of them right; evidence of right and wrong ones two standard deviations and a bit apart. "
    "Each judge sees it with an error of its own (cheap 0.8, strong 0.3), cheap ones also with one they share (0.4), "
    "and with noise at each look (0.4); it says P(yes). Prices: $0.15 and $3 for a million tokens of prompt, four "
    "times that for replies. Kappa with the truth has an interval of 95 %."
)


class Errors(NamedTuple):
    """How a judge errs."""

    own: float
    shared: float
    noise: float


ERRORS = {name: Errors(0.3, 0.0, 0.4) if name == "large" else Errors(0.8, 0.4, 0.4) for name in PRICES}
MEMBERS = [{"name": f"by {name}", "kind": "yes_no", "endpoint": name} for name in PRICES]
CHEAP = ["by small", "by other", "by third"]


def ways() -> dict[str, dict[str, Any]]:
    """The judge of each way, by its name."""
    found: dict[str, dict[str, Any]] = {
        "cheap": {"kind": "yes_no", "endpoint": "small"},
        "cheap, repeat = 5": {"kind": "yes_no", "endpoint": "small", "repeat": 5},
        "jury of three cheap, one drawn": {"kind": "jury", "members": CHEAP, "ask": "one"},
        "jury of three cheap": {"kind": "jury", "members": CHEAP},
    }
    for most in (0.6, 0.5, 0.3):
        until = {"uncertainty": most}
        found[f"cascade, cheap to strong, until {most}"] = {
            "kind": "cascade",
            "members": ["by small", "by large"],
            "until": until,
        }
    found["strong"] = {"kind": "yes_no", "endpoint": "large"}
    return found


def config_of(settings: dict[str, Any]) -> Config:
    """The configuration with this judge, and those that it names."""
    endpoints = [{"name": name, "url": "http://127.0.0.1:9/v1", "model": name, "key_env": ""} for name in PRICES]
    named = [member for member in MEMBERS if member["name"] in settings.get("members", ())]
    return load({"judge": [{"name": "judge", **settings}, *named], "endpoint": endpoints}, {})


def population(count: int, seed: int) -> tuple[list[Sample], list[bool], Callable[[Ask], Verdict]]:
    """Samples, what is true of them, and judges that answer about them."""
    chance = random.Random(seed)
    samples = [Sample(prompt=f"Question {n}?", response=f"Response number {n}.") for n in range(count)]
    truth = [chance.random() < 0.5 for _ in samples]
    evidence = [chance.gauss(EVIDENCE if right else -EVIDENCE, 1.0) for right in truth]
    shared = [chance.gauss(0.0, 1.0) for _ in samples]
    own = {name: [chance.gauss(0.0, 1.0) for _ in samples] for name in PRICES}

    def answer(ask: Ask) -> Verdict:
        number = int(ask.messages[-1].content.partition("Response number ")[2].split(".")[0])
        errs = ERRORS[ask.pool]
        seen = evidence[number] + errs.own * own[ask.pool][number] + errs.shared * shared[number]
        seen += errs.noise * chance.gauss(0.0, 1.0)
        yes = 1 / (1 + math.exp(-2 * EVIDENCE * seen))
        unsure = -sum(p * math.log(p) for p in (yes, 1 - yes) if p > 0)
        return Verdict(score=yes, value=yes, how="logprob", uncertainty=unsure)

    return samples, truth, answer


def measure(settings: dict[str, Any], count: int, seed: int) -> dict[str, float]:
    """One way on the whole population."""
    samples, truth, answer = population(count, seed)
    [judge] = build_judges(config_of(settings), b"secret")
    said, cost, calls, strong = [], 0.0, 0, 0
    for sample in samples:
        done = deliberate(judge, [sample], answer, "schema")
        verdict = done.verdicts[0]
        assert isinstance(verdict, Verdict)
        said.append(verdict.value > 0.5)
        for ask in done.asks:
            calls += 1
            strong += ask.pool == "large"
            cost += (ask.prompt_tokens + 4 * REPLY) * PRICES[ask.pool] / 1e6
    found = kappa_interval(truth, said)
    return {
        "kappa": kappa(truth, said) or 0.0,
        "low": found.low or 0.0,
        "high": found.high or 0.0,
        "accuracy": sum(a == b for a, b in zip(truth, said, strict=True)) / len(truth),
        "calls": calls / count,
        "strong": strong / count,
        "cost": 1000 * cost / count,
    }


def run(quick: bool) -> dict[str, Any]:
    """All ways on one population."""
    count = 200 if quick else SAMPLES
    return {"samples": count, "ways": {name: measure(settings, count, 1) for name, settings in ways().items()}}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    rows = [
        [
            name,
            f"{one['kappa']:.2f} ({one['low']:.2f} to {one['high']:.2f})",
            f"{one['accuracy']:.1%}",
            f"{one['calls']:.2f}",
            f"{one['strong']:.0%}",
            f"{one['cost']:.3f}",
        ]
        for name, one in results["ways"].items()
    ]
    head = ["judge", "kappa with the truth", "right", "calls a sample", "asked the strong one", "$ for 1,000"]
    return [WHAT.format(samples=results["samples"]), "", *table(head, rows)]
