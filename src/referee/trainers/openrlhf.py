"""OpenRLHF: `reward_func` for --reward.remote_url, and an agent for --train.agent_func_path. Both take this very file.

    REFEREE_CONFIG=referee.toml … --train.agent_func_path $(python -m referee.trainers.openrlhf)

OpenRLHF shows one answer at a time and has no signal for "no reward", so `[missing] policy` must be "value" or "raise".
The reward function is given prompt and answer as one text; where the prompt does not stand at its start (OpenRLHF cuts
prompts that are too long), the answer is not known and not judged. The agent is given the answer by itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from referee.errors import RefereeError
from referee.records import Reward, Sample, Verdict
from referee.trainers.on_demand import on_demand
from referee.trainers.outcome import judge_numbers, number
from referee.trainers.rows import holds, with_reference
from referee.trainers.shared import Judged, from_environment

log = logging.getLogger("referee.trainers")

_SPECIAL = re.compile(r"(?:\s*(?:<\|[^<>|]{1,40}\|>|</s>|<eos>|<end_of_turn>))+\s*$")
"""Tokens that end an answer: OpenRLHF decodes them into the text."""
_FIRST = re.compile(r"<\|[^<>|]{1,40}\|>|<s>|<bos>|\[BOS\]|\[CLS\]")
"""A token that a tokenizer may have put before the prompt."""
UNKNOWN = (
    "OpenRLHF's text does not start with its prompt, so where the answer begins is not known. OpenRLHF cuts prompts "
    "longer than --data.max_len less --rollout.max_new_tokens: raise the first, drop such prompts, or use the agent "
    "(--train.agent_func_path), which is given the answer by itself"
)


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> dict[str, Any]:
    """OpenRLHF's reward function: judge and wait. Called from threads, with one answer each time."""
    judged = _judged()
    try:
        return _result(_rewards(judged, queries, prompts, labels))
    except RefereeError as error:
        log.error("OpenRLHF will not show this error, only a missing reward: %s", error)
        raise


async def judge_answer(prompt: Any, answer: Any, label: Any = None) -> dict[str, Any]:
    """Rewards, scores and extra_logs of one answer, as the last `step` of an agent of your own returns them.

    `answer`: its text; of an episode of several turns, its messages. `label`: as OpenRLHF hands it on.
    """
    judged = _judged()
    return _result(await judged.ascore([_sample(judged, prompt, answer, label)]))


class JudgedAgent:
    """One answer, judged on the vLLM actor's own loop: no thread is held, any number of answers wait at once."""

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Nothing to prepare."""
        return states

    async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The judge's reward for the answer; the episode ends."""
        answer = _SPECIAL.sub("", states["action_text"])
        return {
            **await judge_answer(states["observation_text"], answer, states.get("label")),
            "environment_feedback": "",
            "done": True,
            "sampling_params": states.get("sampling_params"),
        }


def _executor() -> type:
    agent = importlib.import_module("openrlhf.utils.agent")

    class Agent(JudgedAgent, agent.AgentInstanceBase):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **settings: Any) -> None:
            _judged()

    class AgentExecutor(agent.MultiTurnAgentExecutor):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(Agent)

    return AgentExecutor


__getattr__ = on_demand(globals(), AgentExecutor=_executor)


def _judged() -> Judged:
    return from_environment().needs("OpenRLHF", can_abstain=False, sees_groups=False)


def _sample(judged: Judged, prompt: Any, answer: Any, label: Any) -> Sample:
    """A label that is a mapping is the row's columns: OpenRLHF hands no others on."""
    row = label if isinstance(label, Mapping) else with_reference(None, label if holds(label) else None)
    add = "the dataset a column with the known answer, and name it with --data.label_key"
    return judged.sample(prompt, answer, row, add)


def _rewards(judged: Judged, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> list[Reward]:
    answers = [answer_in(query, prompt) for query, prompt in zip(queries, prompts, strict=True)]
    rows = zip(prompts, answers, labels, strict=True)
    samples = [(_sample(judged, prompt, answer or "", label), answer is not None) for prompt, answer, label in rows]
    lost = [sample for sample, known in samples if not known]
    missing = iter(judged.unknown(lost, UNKNOWN) if lost else ())
    given = iter(judged.score([sample for sample, known in samples if known]))
    return [next(given if known else missing) for _, known in samples]


def answer_in(query: str, prompt: str) -> str | None:
    """The answer in a text that starts with its prompt, white space and a first token apart; None in any other.

    A prompt that stands elsewhere in the text may be a quotation of it, and a cut by its length would be a guess.
    """
    start = 0
    while (end := _end(query, prompt, start)) is None:
        first = _FIRST.match(query, start)
        if first is None:
            return None
        start = first.end()
    return _SPECIAL.sub("", query[end:])


def _end(query: str, prompt: str, start: int) -> int | None:
    """Where the prompt ends that begins at `start`. Decoding may change white space, and nothing else."""
    if query.startswith(prompt, start):
        return start + len(prompt)
    wanted, place = "".join(prompt.split()), start
    for letter in wanted:
        while place < len(query) and query[place].isspace():
            place += 1
        if query[place : place + 1] != letter:
            return None
        place += 1
    return place + len(query[place:]) - len(query[place:].lstrip())


def _result(rewards: list[Reward]) -> dict[str, Any]:
    """Rewards for advantages, scores in [0, 1] for dynamic filtering, and numbers for the log."""
    given = [number(reward, "OpenRLHF") for reward in rewards]
    scores = [
        reward.verdict.value if isinstance(reward.verdict, Verdict) else value
        for reward, value in zip(rewards, given, strict=True)
    ]
    logs = [
        {
            "judge_scored": float(reward.scored),
            "judge_cached": float(reward.settled.origin in ("cache", "shared")),
            **judge_numbers(reward),
        }
        for reward in rewards
    ]
    extra_logs = {name: _tensor([log[name] for log in logs]) for name in (logs[0] if logs else ())}
    return {"rewards": _tensor(given), "scores": _tensor(scores), "extra_logs": extra_logs}


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
