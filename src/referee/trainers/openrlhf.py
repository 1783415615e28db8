"""OpenRLHF: `reward_func` for --reward.remote_url, and an agent for --train.agent_func_path. Both take this very file.

    REFEREE_CONFIG=referee.toml … --train.agent_func_path $(python -m referee.trainers.openrlhf)

OpenRLHF shows one answer at a time and has no signal for "no reward", so `[missing] policy` must be "value" or "raise".
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any

from referee.errors import RefereeError
from referee.records import Reward, Sample, Verdict
from referee.trainers.rows import to_sample
from referee.trainers.shared import Judged, from_environment, number

log = logging.getLogger("referee.trainers")

_SPECIAL = re.compile(r"(?:\s*(?:<\|[^<>|]{1,40}\|>|</s>|<eos>|<end_of_turn>))+\s*$")
"""Tokens that end an answer: OpenRLHF decodes them into the text."""


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> dict[str, Any]:
    """OpenRLHF's reward function: judge and wait. Called from threads, with one answer each time."""
    judged = _judged()
    rows = zip(queries, prompts, labels, strict=True)
    samples = [_sample(prompt, _answer(query, prompt), label) for query, prompt, label in rows]
    try:
        return _result(judged.score(samples))
    except RefereeError as error:
        log.error("OpenRLHF will not show this error, only a missing reward: %s", error)
        raise


class JudgedAgent:
    """One answer, judged on the vLLM actor's own loop: no thread is held, any number of answers wait at once."""

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Nothing to prepare."""
        return states

    async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The judge's reward for the answer; the episode ends."""
        answer = _SPECIAL.sub("", states["action_text"])
        rewards = await _judged().ascore([_sample(states["observation_text"], answer, states.get("label"))])
        return {
            **_result(rewards),
            "environment_feedback": "",
            "done": True,
            "sampling_params": states.get("sampling_params"),
        }


def __getattr__(name: str) -> Any:
    """`AgentExecutor`, made when OpenRLHF looks for it: only then is OpenRLHF there to inherit from."""
    if name != "AgentExecutor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    agent = importlib.import_module("openrlhf.utils.agent")

    class Agent(JudgedAgent, agent.AgentInstanceBase):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **settings: Any) -> None:
            _judged()

    class AgentExecutor(agent.MultiTurnAgentExecutor):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(Agent)

    globals()["AgentExecutor"] = AgentExecutor
    return AgentExecutor


def _judged() -> Judged:
    return from_environment().needs("OpenRLHF", none=False, groups=False)


def _sample(prompt: str, answer: str, label: Any) -> Sample:
    return to_sample(prompt, answer, reference=None if label in (None, "") else label)


def _answer(query: str, prompt: str) -> str:
    """The answer inside the whole text. The tokenizer may have put a token before the prompt."""
    start = query.find(prompt)
    return _SPECIAL.sub("", query[max(start, 0) + len(prompt) :])


def _result(rewards: list[Reward]) -> dict[str, Any]:
    """Rewards for advantages, scores in [0, 1] for dynamic filtering, and numbers for the log."""
    given = [number(reward, "OpenRLHF") for reward in rewards]
    scores = [
        reward.verdict.value if isinstance(reward.verdict, Verdict) else value
        for reward, value in zip(rewards, given, strict=True)
    ]
    return {
        "rewards": _tensor(given),
        "scores": _tensor(scores),
        "extra_logs": {
            "judge_scored": _tensor([float(reward.scored) for reward in rewards]),
            "judge_cached": _tensor([float(reward.settled.origin in ("cache", "shared")) for reward in rewards]),
        },
    }


def _tensor(numbers: list[float]) -> Any:
    """A float tensor where there is torch, as in every OpenRLHF process; else an object with the one method used."""
    if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
        return importlib.import_module("torch").tensor(numbers)
    return _Numbers(numbers)


class _Numbers(list[float]):
    """A list that answers `item()` as a one-element tensor does."""

    def item(self) -> float:
        """The one number."""
        (number,) = self
        return number


if __name__ == "__main__":
    sys.stdout.write(f"{__file__}\n")
