"""What a rubric costs at 1, 4 or all criteria a call, and what a judge's errors do to each way of combining them.

Tokens are counted by our own estimate. A provider's prefix cache is counted as generously as its rules allow: the
longest beginning that a request shares with an earlier one about the same response, in steps of 128 tokens from 1024
on. Calls about one response are sent at once, so a provider may serve fewer of them from its cache.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bench.common import settings, spread, table
from referee.config import Config
from referee.engine import Response
from referee.judging import first_round, make_judge
from referee.judging.digest import measure
from referee.judging.folding import RULES, Credit, fold
from referee.records import Ask, Criterion, Reward, Sample
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer

CRITERIA, GROUP = 12, 8
PER_CALL: tuple[int | str, ...] = (1, 4, "all")
LENGTHS = {"short": 20, "long": 250}
"""Sentences of a response, of 13 tokens each."""
LEAST, STEP = 1024, 128
"""Tokens of a beginning that a provider's cache keeps, and by which it grows."""
DISCOUNTS = (0.5, 0.1)
"""What a cached token costs beside another."""
OUT = 4.0
"""What a token of the reply costs beside one of the request."""
REASON = "The third paragraph says so in these words and gives the figure that the statement asks for."
ERRORS = ((0.1, 0.0), (0.0, 0.1), (0.1, 0.1), (0.2, 0.05))
"""False positives (true said of what is not) and false negatives, as shares."""
COMBINED = (*RULES, "threshold")
COUNTED = (
    f"{CRITERIA} criteria, a group of {GROUP} responses; tokens by our estimate. Shared: the longest beginning that a "
    f"request has in common with an earlier one about the response, in steps of {STEP} tokens, none below {LEAST}. "
    f"Cost: requests and replies (a token of a reply at {OUT:g} times the price) beside all in one call; then with a "
    "prefix cache whose tokens cost half or a tenth, if every shared token is served from it."
)
SIMULATED = (
    "A simulated judge that errs on each criterion by itself, {} drawn rubrics of 3 to 20 criteria (1 to 10 points, a "
    f"quarter of them faults), {GROUP} responses each. Mean: of the true scores. Bias and deviation: of the error. "
    "Differ: pairs of a group whose true scores are not the same; order: how often those come in the right order, ties "
    "counting half."
)
_ASKED = re.compile(r"^c\d+\. ", re.MULTILINE)


def rubric() -> tuple[Criterion, ...]:
    """Sentences of the length that HealthBench's have, a quarter of them faults."""
    text = "States number {} of the facts that a careful answer to this question has to give, with its figure and unit"
    return tuple(
        Criterion(text.format(n), 1.0 + n % 10, f"fact {n}", true_is="bad" if n % 4 == 3 else "good")
        for n in range(CRITERIA)
    )


def group(sentences: int, name: str = "answer") -> list[Sample]:
    """Responses to one prompt."""
    body = "It says a few words more about what was asked there. " * sentences
    prompt = "What follows from the evidence given here? " * 4
    return [
        Sample(prompt=prompt, response=f"{name} {n}. {body}", group="g", id=str(n), rubric=rubric())
        for n in range(GROUP)
    ]


def config_for(per_call: int | str, **judge: Any) -> Config:
    """A rubric judge that asks so."""
    return settings("http://127.0.0.1:1/v1", judge={"kind": "rubric", "criteria_per_call": per_call, **judge})


def asked_about(samples: Sequence[Sample], per_call: int | str) -> Iterator[tuple[Ask, int]]:
    """Every request, with the tokens of it that a provider has seen before, in one about the same response."""
    judge = make_judge(config_for(per_call).judge[0], b"secret")
    for sample in samples:
        earlier: list[str] = []
        for ask in first_round(judge, (sample,), "schema"):
            text = "\n".join(message.content for message in ask.messages)
            shared = max([measure(_common(text, other))[1] for other in earlier], default=0)
            earlier.append(text)
            yield ask, shared // STEP * STEP if shared >= LEAST else 0


def _common(text: str, other: str) -> str:
    """The beginning of both."""
    return os.path.commonprefix([text, other])  # noqa: RUF071 -- character by character is what is wanted


def tokens(sentences: int, per_call: int | str) -> dict[str, float]:
    """What a group costs in calls and tokens."""
    found = list(asked_about(group(sentences), per_call))
    return {
        "calls": len(found),
        "tokens": sum(ask.prompt_tokens for ask, _ in found),
        "shared": sum(shared for _, shared in found),
        "out": sum(measure(reply(_asked(ask)))[1] for ask, _ in found),
    }


def reply(count: int) -> str:
    """A judge's words about so many criteria."""
    return msgspec.json.encode({f"c{n + 1}": {"reason": REASON, "verdict": "yes"} for n in range(count)}).decode()


def _asked(ask: Ask) -> int:
    return len(_ASKED.findall(ask.messages[-1].content))


class InstantTransport:
    """Answers every request at once, yes to all of its criteria."""

    def __init__(self, criteria: int) -> None:
        message = {"role": "assistant", "content": reply(criteria)}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 420, "completion_tokens": 20, "total_tokens": 440}
        self._body = msgspec.json.encode({"id": "1", "model": "simulated", "choices": [choice], "usage": usage})

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        return Response(200, {"content-type": "application/json"}, self._body)

    async def close(self) -> None:
        return None


def processor(per_call: int | str, groups: int) -> float:
    """Microseconds of CPU for a criterion: plan, guard, key, admission, encode, read, fold, shape; all but HTTP."""
    config = config_for(per_call, reply="schema")
    given = [sample for n in range(groups) for sample in group(LENGTHS["short"], f"answer {n}")]
    landed: list[Reward] = []

    async def main() -> float:
        transport = InstantTransport(CRITERIA if per_call == "all" else int(per_call))
        scorer = build_scorer(config, transport, random.Random(1), b"secret")
        before = time.process_time()
        await scorer.run(Batch("b", given, config, 1e6, lambda rewards, error, done: landed.extend(rewards)))
        used = time.process_time() - before
        await scorer.aclose()
        return used

    used = asyncio.run(main())
    assert sum(reward.scored for reward in landed) == len(given)
    return 1e6 * used / (len(given) * CRITERIA)


def drawn(chance: random.Random) -> list[tuple[float, bool]]:
    """A rubric's weights and signs: 3 to 20 criteria, 1 to 10 points, one in four a fault."""
    return [(float(chance.randint(1, 10)), chance.random() > 0.25) for _ in range(chance.randint(3, 20))]


def truth(weights: Sequence[tuple[float, bool]], skill: float, chance: random.Random) -> list[Credit]:
    """What is true of a response: merits as often as its skill says, faults half as often as what is left."""
    return [
        Credit(weight, good, float(chance.random() < (skill if good else (1 - skill) / 2))) for weight, good in weights
    ]


def judged(true: Sequence[Credit], wrong: tuple[float, float], chance: random.Random) -> list[Credit]:
    """What a judge says of it that errs at these rates, on each criterion by itself."""
    said = [1.0 if chance.random() < (1 - wrong[1] if credit.met else wrong[0]) else 0.0 for credit in true]
    return [Credit(credit.weight, credit.good, met) for credit, met in zip(true, said, strict=True)]


def errors(wrong: tuple[float, float], rubrics: int, seed: int = 1) -> dict[str, dict[str, float]]:
    """Of each rule: its mean where the judge is right, bias and standard deviation of the error, the share of pairs
    in a group that differ in truth, and how often those come in the right order, ties counting half."""
    chance = random.Random(seed)
    found: dict[str, list[tuple[float, float]]] = {combine: [] for combine in COMBINED}
    order: dict[str, list[float]] = {combine: [] for combine in COMBINED}
    for _ in range(rubrics):
        weights = drawn(chance)
        true = [truth(weights, chance.uniform(0.4, 1.0), chance) for _ in range(GROUP)]
        said = [judged(response, wrong, chance) for response in true]
        for combine in COMBINED:
            pairs = [
                (fold(a, combine, 0.5, False) or 0.0, fold(b, combine, 0.5, False) or 0.0)
                for a, b in zip(true, said, strict=True)
            ]
            found[combine] += pairs
            order[combine] += [
                (one[1] > other[1]) + 0.5 * (one[1] == other[1])
                for one in pairs
                for other in pairs
                if one[0] > other[0]
            ]
    return {combine: _summary(pairs, order[combine]) for combine, pairs in found.items()}


def _summary(pairs: Sequence[tuple[float, float]], order: Sequence[float]) -> dict[str, float]:
    off = [said - true for true, said in pairs]
    bias = sum(off) / len(off)
    return {
        "true": sum(true for true, _ in pairs) / len(pairs),
        "bias": bias,
        "deviation": (sum((value - bias) ** 2 for value in off) / len(off)) ** 0.5,
        "differ": 2 * len(order) / (len(pairs) * (GROUP - 1)),
        "order": sum(order) / len(order),
    }


def run(quick: bool) -> dict[str, Any]:
    """Tokens, processor time, and errors of every rule."""
    for per_call in PER_CALL:
        processor(per_call, 2)  # first use is dearer
    times: dict[str, list[float]] = {str(per_call): [] for per_call in PER_CALL}
    for _ in range(3 if quick else 9):
        for per_call in PER_CALL:
            times[str(per_call)].append(processor(per_call, 4 if quick else 40))
    return {
        "tokens": {name: {str(each): tokens(size, each) for each in PER_CALL} for name, size in LENGTHS.items()},
        "cpu_us": times,
        "rubrics": 300 if quick else 5000,
        "errors": {f"{wrong[0]} {wrong[1]}": errors(wrong, 300 if quick else 5000) for wrong in ERRORS},
    }


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    lines = [COUNTED, ""]
    head = ["response", "criteria a call", "calls", "prompt tokens", "of them shared", "reply tokens", "cost"]
    head += [f"cached at {discount:g}" for discount in DISCOUNTS]
    head.append("CPU for a criterion, µs")
    rows = []
    for name, ways in results["tokens"].items():
        best = _cost(ways["all"], 1.0)
        for per_call, row in ways.items():
            costs = [f"{_cost(row, discount) / best:.2f}" for discount in (1.0, *DISCOUNTS)]
            counts = [f"{row[key]:,.0f}" for key in ("calls", "tokens", "shared", "out")]
            cpu = spread(results["cpu_us"][per_call], ".0f") if name == "short" else ""
            rows.append([name, per_call, *counts, *costs, cpu])
    lines += table(head, rows)
    lines += ["", SIMULATED.format(results["rubrics"]), ""]
    head = ["false yes", "false no", "combine", "mean", "bias", "deviation", "differ", "order"]
    rows = []
    for wrong, rules in results["errors"].items():
        said, unsaid = (f"{float(share):.0%}" for share in wrong.split())
        for combine, row in rules.items():
            figures = [f"{row['true']:.2f}", f"{row['bias']:+.3f}", f"{row['deviation']:.3f}"]
            figures += [f"{row['differ']:.0%}", f"{row['order']:.3f}"]
            rows.append([said, unsaid, f"`{combine}`", *figures])
    return lines + table(head, rows)


def _cost(row: Mapping[str, float], discount: float) -> float:
    return row["tokens"] - row["shared"] * (1 - discount) + OUT * row["out"]
