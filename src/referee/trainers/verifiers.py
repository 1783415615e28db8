"""verifiers v1 and prime-rl: a judge to plug into a taskset, or to call from a task's @reward.

A module of your own gives it a plugin id: it imports RefereeJudge from here and names it in `__all__`.
Not scored: it raises, as the built-in judges do; the rollout carries the error and prime-rl leaves it out of its
group.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from referee.records import Reward, Verdict
from referee.shaping.missing import mean
from referee.trainers.on_demand import on_demand
from referee.trainers.outcome import number, terms_of
from referee.trainers.rows import REFERENCES, first_of, omitted, with_reference
from referee.trainers.shared import Judged, from_environment
from referee.trainers.siblings import siblings

ADD = f"the task one of {', '.join(REFERENCES)}"
GROUPS = "judge_group in finalize of an environment that makes all attempts"


async def judge_answer(
    question: Any,
    answer: Any,
    reference: Any = None,
    judged: Judged | None = None,
    row: Mapping[str, Any] | None = None,
) -> Reward:
    """The reward of one answer, text or messages, with what the judge said; raises UnscoredError where there is none.

    `row`: the task's fields, for columns that a template shows, and `tools`. `talk_of` makes question and answer of a
    trace.
    """
    judged = (judged or from_environment()).needs(
        "verifiers' score", can_abstain=True, sees_groups=False, instead=GROUPS
    )
    (reward,) = await judged.ascore([judged.sample(question, answer, with_reference(row, reference), ADD)])
    number(reward, "verifiers")
    return reward


async def judge_group(
    task: Any, traces: Sequence[Any], name: str = "referee", judged: Judged | None = None, question: Any = None
) -> list[Reward]:
    """The rewards of all attempts at one task, recorded on their traces under `name`: for `finalize` of an environment
    that makes several, such as best-of-n. `question`: what was asked, if not the messages before the first own one.

    verifiers counts a trace without a reward as 0, so one that is not scored has its siblings' mean, and the metric
    `<name>_scored` is 0. Raises UnscoredError where none of them is scored: the episode fails.
    """
    if not traces:
        return []
    judged, talks = judged or from_environment(), [talk_of(trace) for trace in traces]
    row = {**_columns(task), "tools": talks[0].tools}
    asked = talks[0].question if question is None else question
    rewards = await judged.ascore(siblings(judged, asked, [talk.answer for talk in talks], row, ADD))
    known = mean([reward.value for reward in rewards if reward.value is not None])
    for trace, reward in zip(traces, rewards, strict=True):
        value = number(reward, "verifiers") if known is None or reward.value is not None else known
        trace.record_reward(name, value)
        trace.record_metric(f"{name}_scored", float(reward.scored))
    return rewards


def named(reward: Reward) -> float | dict[str, float]:
    """The reward as verifiers takes it. Of several judges, what each adds to it, by name: verifiers adds them up. One
    number where there is one judge, or where the missing policy filled it in."""
    total = number(reward, "verifiers")
    return total if len(reward.terms) == 1 or reward.filled else terms_of(reward)


class Talk(NamedTuple):
    """A trace as the judge is shown it."""

    question: list[Any]
    """The messages before the model's first own one."""
    answer: Any
    """The rest; the last reply's text where a trace holds no messages."""
    tools: Any = None


def talk_of(trace: Any) -> Talk:
    """Question, answer and tools of a trace. Of several branches (compaction, subagents) it is the one that ends with
    the trace's last reply; a turn in the answer says how many others there are."""
    branches = trace.branches if getattr(trace, "nodes", None) else []
    if not branches:
        return Talk([], trace.last_reply)
    chosen = next((one for one in reversed(branches) if _last_said(one) == trace.last_reply), branches[-1])
    first = first_of(chosen.nodes, lambda node: node.sampled)
    messages, others = [node.message for node in chosen.nodes], len(branches) - 1
    note = [omitted(f"{others} other {'branch' if others == 1 else 'branches'} of this rollout")] if others else []
    tools = getattr(chosen.nodes[0], "tools", None) or getattr(trace, "tools", None)
    return Talk(messages[:first], [*note, *messages[first:]], tools)


def _settings() -> type:
    settings = importlib.import_module("verifiers.v1.configs.judge")

    class RefereeJudgeConfig(settings.JudgeConfig):  # type: ignore[misc, name-defined]
        """`id`: the module that exports RefereeJudge. The endpoint is referee.toml's; the one here is not used."""

        referee_config: str = ""
        question_field: str = ""

    return RefereeJudgeConfig


def _judge() -> type:
    judge = importlib.import_module("verifiers.v1.judge")
    types = importlib.import_module("verifiers.v1.types")

    class RefereeJudge(judge.Judge[float, __getattr__("RefereeJudgeConfig")]):  # type: ignore[misc]
        """One cache, one limit and one budget for all rollouts of the process. Several judges are several rewards."""

        @functools.cached_property
        def judged(self) -> Judged:
            return Judged(self.config.referee_config) if self.config.referee_config else from_environment()

        async def score(self, task: Any, trace: Any) -> float | dict[str, float]:
            talk, question = talk_of(trace), self.config.question_field
            asked = judge.judge_question(task, question) if question or not talk.question else talk.question
            row = {**_columns(task), "tools": talk.tools}
            reward = await judge_answer(asked, talk.answer, judged=self.judged, row=row)
            _record(trace, self.reward_name, reward, judge.JudgeResponse, types.Usage)
            return named(reward)

    return RefereeJudge


__getattr__ = on_demand(globals(), RefereeJudge=_judge, RefereeJudgeConfig=_settings)


def _columns(task: Any) -> dict[str, Any]:
    """A task's own fields. `image` is the container it runs in, not a picture."""
    fields = {**(getattr(task, "model_extra", None) or {}), **getattr(task, "__dict__", {})}
    return {name: value for name, value in fields.items() if name != "image"}


def _last_said(branch: Any) -> str:
    said = [node.message.content or "" for node in branch.nodes if node.sampled]
    return str(said[-1]).strip() if said else ""


def _record(trace: Any, name: str, reward: Reward, response: Any, usage: Any) -> None:
    """What was said and paid, on the trace, where verifiers keeps it for its own judges."""
    verdict, settled = reward.verdict, reward.settled
    said = response(
        text=verdict.reason if isinstance(verdict, Verdict) else "",
        parsed=reward.value,
        usage=usage(prompt_tokens=settled.tokens_in, completion_tokens=settled.tokens_out, cost=settled.cost),
    )
    trace.record_judge_call(name=name, request={"judge": "referee", "origin": settled.origin}, response=said)
