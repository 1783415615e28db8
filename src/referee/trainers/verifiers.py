"""verifiers v1 and prime-rl: a judge to plug into a taskset, or to call from a task's @reward.

A module of your own gives it a plugin id: it imports RefereeJudge from here and names it in `__all__`.
Not scored: it raises, as the built-in judges do; the rollout carries the error and prime-rl leaves it out of its
group.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from referee.records import Reward, Verdict
from referee.trainers.rows import REFERENCES, reference_of, to_sample
from referee.trainers.shared import Judged, from_environment, number


async def judge_answer(question: Any, answer: str, reference: Any = None, judged: Judged | None = None) -> Reward:
    """The reward of one answer, with what the judge said; raises UnscoredError where there is none."""
    judged = (judged or from_environment()).needs("verifiers", none=True, groups=False)
    judged.expects_reference(reference is not None, f"the task one of {', '.join(REFERENCES)}")
    (reward,) = await judged.ascore([to_sample(question, answer, reference=reference)])
    number(reward, "verifiers")
    return reward


def __getattr__(name: str) -> Any:
    """`RefereeJudge` and its configuration, made when first asked for: only then is verifiers there to inherit from."""
    if name not in ("RefereeJudge", "RefereeJudgeConfig"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    judge = importlib.import_module("verifiers.v1.judge")
    settings = importlib.import_module("verifiers.v1.configs.judge")
    types = importlib.import_module("verifiers.v1.types")

    class RefereeJudgeConfig(settings.JudgeConfig):  # type: ignore[misc, name-defined]
        """`id`: the module that exports RefereeJudge. The endpoint is referee.toml's; the one here is not used."""

        referee_config: str = ""
        question_field: str = ""
        view: str = "last_reply"

    class RefereeJudge(judge.Judge[float, RefereeJudgeConfig]):  # type: ignore[misc, name-defined]
        """One cache, one limit and one budget for all rollouts of the process."""

        @functools.cached_property
        def judged(self) -> Judged:
            return Judged(self.config.referee_config) if self.config.referee_config else from_environment()

        async def score(self, task: Any, trace: Any) -> float:
            answer = judge.judge_response(trace, self.config.view)
            question = judge.judge_question(task, self.config.question_field)
            row = task.model_dump() if hasattr(task, "model_dump") else dict(getattr(task, "__dict__", {}))
            reward = await judge_answer(question, answer, reference_of(row), self.judged)
            _record(trace, self.reward_name, reward, judge.JudgeResponse, types.Usage)
            return number(reward, "verifiers")

    for made in (RefereeJudge, RefereeJudgeConfig):
        made.__module__, made.__qualname__ = __name__, made.__name__
        globals()[made.__name__] = made
    return globals()[name]


def _record(trace: Any, name: str, reward: Reward, response: Any, usage: Any) -> None:
    """What was said and paid, on the trace, where verifiers keeps it for its own judges."""
    verdict, settled = reward.verdict, reward.settled
    said = response(
        text=verdict.reason if isinstance(verdict, Verdict) else "",
        parsed=reward.value,
        usage=usage(prompt_tokens=settled.tokens_in, completion_tokens=settled.tokens_out, cost=settled.cost),
    )
    trace.record_judge_call(name=name, request={"judge": "referee", "origin": settled.origin}, response=said)
