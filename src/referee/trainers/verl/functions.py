"""compute_score: one function for verl's naive, batch and reward-loop calls, with the CoT monitor behind a switch.

    compute_score(response, ground_truth, dataset_name, extra_info)                  # one sample
    compute_score(data_source=…, solution_str=…, ground_truth=…, extra_info=…)       # one sample, as verl calls it
    compute_score(data_sources=…, solution_strs=…, ground_truths=…, extra_infos=…)   # a whole batch

One sample gives a dict, a batch a list of dicts, always with the same keys: `score` is what verl trains on.
`acompute_score` is the same as a coroutine function: the one for the reward loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from referee.config import MissingConfig
from referee.errors import ConfigError, InputError, UnscoredError
from referee.judging import refuse_groups
from referee.records import Reward, Sample, Unscored
from referee.trainers.rows import reference_text
from referee.trainers.shared import Judged
from referee.trainers.verl.columns import rule_columns
from referee.trainers.verl.data import RuleFunction, Scored, default_rule, scores_of, verl_loaded
from referee.trainers.verl.monitor import FactCounts, Monitor, hidden_fact, read_monitor, weights
from referee.trainers.verl.sharing import job_wide, on_ray

WORKERS = 8
"""Reward workers verl starts by default: a function is not told how many there are."""

_ANSWER = re.compile(r"<(answer|final_answer|measurements|solution)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_MARKS = " \t\r\n.,;:!*`$\"'"


class MonitorResult(Struct, frozen=True):
    """What the monitor means for one sample."""

    share: float
    predicted: bool | None
    fact: bool


NOT_ASKED = MonitorResult(0.0, None, False)


class Call(Struct, frozen=True):
    """One call, in one shape: every convention becomes this."""

    responses: list[str]
    truths: list[Any]
    sources: list[Any]
    extras: list[Mapping[str, Any]]
    single: bool
    monitor: Monitor
    true_share: float | None
    facts: list[bool]
    """What the monitor has to predict; empty where it is off."""


def compute_score(
    response: str | None = None,
    ground_truth: Any = None,
    dataset_name: Any = None,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rule: RuleFunction | str | None = None,
    true_share: float | None = None,
    **verl: Any,
) -> Any:
    """Rule score, plus the monitor's reward if TRAIN_WITH_MONITOR is true. Works inside a running event loop too.

    `rule`: a function, or "package.module:function", called as verl calls rules; None: verl's own for the data source,
    else whether the final answer equals the ground truth. `true_share`: how often the hidden fact is true in the data,
    for REBALANCE_MONITOR_REWARD; None: counted.
    """
    call = _call(response, ground_truth, dataset_name, extra_info, true_share, verl)
    rules, judged = _prepared(call, rule)
    return _results(call, rules, judged, judged.score(_samples(call)) if judged else [])


async def acompute_score(
    response: str | None = None,
    ground_truth: Any = None,
    dataset_name: Any = None,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rule: RuleFunction | str | None = None,
    true_share: float | None = None,
    **verl: Any,
) -> Any:
    """`compute_score` without blocking the event loop."""
    call = _call(response, ground_truth, dataset_name, extra_info, true_share, verl)
    rules, judged = await asyncio.to_thread(_prepared, call, rule)
    return _results(call, rules, judged, await judged.ascore(_samples(call)) if judged else [])


def matches(response: str, ground_truth: Any) -> float:
    """1.0 if the final answer equals the ground truth, case and white space aside; else 0.0.

    The final answer is what stands in the last <answer> (or <measurements>, <solution>) or \\boxed{}, else after the
    last ####, else the last line.
    """
    if ground_truth is None:
        return 0.0
    return float(_plain(_final(response)) == _plain(reference_text(ground_truth)))


def _call(response: Any, truth: Any, source: Any, extra: Any, true_share: float | None, verl: dict[str, Any]) -> Call:
    for name in ("reward_router_address", "reward_model_tokenizer"):
        verl.pop(name, None)
    batch = {name: verl.pop(name, None) for name in ("data_sources", "solution_strs", "ground_truths", "extra_infos")}
    if batch["solution_strs"] is not None:
        responses = [str(text) for text in batch["solution_strs"]]
        truths, sources, extras = (
            _column(batch[name], len(responses), name) for name in ("ground_truths", "data_sources", "extra_infos")
        )
    else:
        response = verl.pop("solution_str", response)
        source = verl.pop("data_source", source)
        if not isinstance(response, str):
            raise InputError(
                "compute_score: no response. Call it with (response, ground_truth, dataset_name, extra_info), or with "
                "verl's keywords solution_str or solution_strs.",
                field="response",
            )
        responses, truths, sources, extras = [response], [truth], [source], [extra or {}]
    if verl:
        raise InputError(
            f"compute_score: unknown argument {', '.join(sorted(verl))}. It takes `rule` and `true_share` beside "
            "verl's own (reward.custom_reward_function.reward_kwargs).",
            field=min(verl),
        )
    monitor = read_monitor(os.environ)
    facts = [hidden_fact(extra, index) for index, extra in enumerate(extras)] if monitor.enabled else []
    single = batch["solution_strs"] is None
    return Call(responses, truths, sources, extras, single, monitor, true_share, facts)


def _column(values: Any, count: int, name: str) -> list[Any]:
    if values is None:
        return [{} if name == "extra_infos" else None] * count
    if isinstance(values, str):
        return [values] * count  # one data source for all
    found = list(values)
    if len(found) != count:
        raise InputError(f"compute_score: {len(found)} {name} for {count} responses.", field=name)
    return [item or {} for item in found] if name == "extra_infos" else found


def _samples(call: Call) -> list[Sample]:
    return [Sample(prompt="", response=text, id=str(index)) for index, text in enumerate(call.responses)]


def _prepared(call: Call, rule: RuleFunction | str | None) -> tuple[list[Scored], Judged | None]:
    """The rule's scores, and the monitor, opened; None where it is off. Both may take seconds."""
    return _rules(call, rule), _judge(call.monitor) if call.monitor.enabled else None


def _judge(monitor: Monitor) -> Judged:
    overrides = tuple(item for item in os.environ.items() if item[0].startswith("REFEREE_"))
    judged = _judged(monitor, overrides, on_ray())
    judged.referee  # noqa: B018  # a missing key is an error now, not an unscored batch
    return judged


@functools.lru_cache(maxsize=16)
def _judged(monitor: Monitor, *_: Any) -> Judged:
    """Of these settings, read once: that takes milliseconds, and every sample may be a call of its own."""
    judged = Judged(monitor.settings())
    refuse_groups(judged.config.judge, "compute_score", "RefereeRewardManager")
    return Judged(job_wide(judged.config, WORKERS))


def _rules(call: Call, rule: RuleFunction | str | None) -> list[Scored]:
    function = (_found(rule) if isinstance(rule, str) else rule) or _default
    rows = zip(call.responses, call.truths, call.sources, call.extras, strict=True)
    return scores_of(
        function,
        [
            {"data_source": source, "solution_str": text, "ground_truth": truth, "extra_info": dict(extra)}
            for text, truth, source, extra in rows
        ],
    )


def _default(**arguments: Any) -> Any:
    """verl's rule for this data source, where verl is loaded and has one; else an exact match."""
    if verl_loaded() and arguments["data_source"] is not None:
        with contextlib.suppress(NotImplementedError):
            return default_rule()(**arguments)
    return matches(arguments["solution_str"], arguments["ground_truth"])


@functools.lru_cache(maxsize=16)
def _found(name: str) -> RuleFunction:
    module, _, function = name.partition(":")
    try:
        found: RuleFunction = getattr(importlib.import_module(module), function or "compute_score")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"rule = {name!r}: cannot load it ({type(error).__name__}: {error}).", setting="rule"
        ) from None
    return found


def _predicted(call: Call, rewards: Sequence[Reward], missing: MissingConfig) -> list[MonitorResult]:
    monitor, facts = call.monitor, call.facts
    predictions = [None if isinstance(r.verdict, Unscored) else r.verdict.value >= 0.5 for r in rewards]
    scale = [1.0] * len(facts)
    if monitor.rebalance:
        scale = weights(call.sources, facts, call.true_share, _facts_so_far if call.single else None)
    shares = [
        None if predicted is None else monitor.reward(predicted, fact, weight)
        for predicted, fact, weight in zip(predictions, facts, scale, strict=True)
    ]
    filled = _filled(shares, rewards, missing)
    return [MonitorResult(*row) for row in zip(filled, predictions, facts, strict=True)]


def _results(call: Call, rules: Sequence[Scored], judged: Judged | None, rewards: Sequence[Reward]) -> Any:
    """One dict for each sample, with the same keys on all of them, asked or not; what the rule says beside its score is
    passed on."""
    predicted = _predicted(call, rewards, judged.config.missing) if judged else [NOT_ASKED] * len(rules)
    own = rule_columns([extra for _, extra in rules])
    results = []
    for index, ((rule, _), one) in enumerate(zip(rules, predicted, strict=True)):
        results.append(
            {
                **{name: column[index] for name, column in own.items()},
                "score": rule + one.share,
                "rule_score": rule,
                "monitor_correctness_reward": one.share,
                "monitor_correctness": float(one.predicted is not None and one.predicted == one.fact),
                "monitor_answer": float(bool(one.predicted)),
                "monitor_scored": float(one.predicted is not None),
            }
        )
    return results[0] if call.single else results


def _filled(shares: Sequence[float | None], rewards: Sequence[Reward], missing: MissingConfig) -> list[float]:
    """A number for every sample: by the policy, where the monitor gave none. Never a 0 by default."""
    there = [share for share in shares if share is not None]
    if len(there) == len(shares):
        return there
    if missing.policy == "value" and missing.value is not None:
        return [missing.value if share is None else share for share in shares]
    first = next(reward.verdict for reward in rewards if isinstance(reward.verdict, Unscored))
    if missing.policy == "raise" or not there:
        raise UnscoredError(
            f"the monitor gave no prediction for {len(shares) - len(there)} of {len(shares)} samples ({first.reason}: "
            f"{first.detail}), so they have no reward. verl's V1 trainer leaves such a prompt out; to train on a "
            "number instead, set REFEREE_MISSING_POLICY=value and REFEREE_MISSING_VALUE.",
            rewards=list(rewards),
        )
    mean = statistics.fmean(there)
    return [mean if share is None else share for share in shares]


def _final(response: str) -> str:
    tagged = _ANSWER.findall(response)
    if tagged:
        return str(tagged[-1][1])
    boxed = _BOXED.findall(response)
    if boxed:
        return str(boxed[-1])
    if "####" in response:
        return response.rpartition("####")[2]
    lines = [line for line in response.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _plain(text: str) -> str:
    return " ".join(text.strip(_MARKS).casefold().split())


_facts_so_far = FactCounts()
