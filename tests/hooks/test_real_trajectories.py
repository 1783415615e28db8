"""Rollouts with a tool in the frameworks' own classes: what the judge is shown. Skipped without the framework."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.adapter_suite import VALUE, sim_url, write_config
from tests.contracts.trajectory_suite import (
    ANSWER,
    Rollout,
    TrajectoryContract,
    listening,
)
from tests.hooks.test_real_hooks import need

from referee.trainers import art, skyrl, verifiers

__all__ = ["listening", "sim_url", "write_config"]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


def art_trajectory(rollout: Rollout, **more: Any) -> Any:
    """ART's own trajectory: the policy's messages are OpenAI's choices."""
    choice = need("openai.types.chat.chat_completion").Choice
    said = [
        choice(finish_reason="stop", index=0, message=one, logprobs=None) if one["role"] == "assistant" else one
        for one in rollout.response
    ]
    return need("art").Trajectory(
        messages_and_choices=[*rollout.prompt, *said],
        tools=rollout.tools,
        metadata=rollout.row,
        reward=0.0,
        **more,
    )


class TestArt(TrajectoryContract):
    """A group of one trajectory, through ART's own gathering."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        framework = need("art")

        async def group() -> Any:
            return framework.TrajectoryGroup([art_trajectory(rollout)])

        async def main() -> Any:
            return await framework.gather_trajectory_groups([group()], after_each=art.after_each(config))

        asyncio.run(main())

    def test_additional_histories_are_shown(self, write_config: Any, listening: Any) -> None:
        """Before the trajectory's own messages, under a heading; the answer is still the trajectory's."""
        other = [{"role": "user", "content": "sub-task"}, {"role": "assistant", "content": "sub-answer"}]
        config = write_config(self.missing, listening.url, judge={"view": "full"})
        framework = need("art")
        more = [need("art.trajectories").History(messages_and_choices=other)]
        group = framework.TrajectoryGroup([art_trajectory(Rollout(), additional_histories=more)])
        asyncio.run(art.after_each(config)(group))  # type: ignore[arg-type]
        seen = listening.heard()["response"]
        places = [seen.index(word) for word in ("additional history", "sub-answer", "the trajectory itself", ANSWER)]
        assert places == sorted(places)


class TestVerifiers(TrajectoryContract):
    """A judge plugged by id scores a trace of verifiers' own nodes, calls and tools."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        need("verifiers.v1.judge")
        made = verifiers.RefereeJudge(verifiers.RefereeJudgeConfig(id="x", referee_config=str(config)))
        task = need("verifiers.v1.task").WireTaskData(prompt="not this", **rollout.row)
        asyncio.run(made.score(task, verifiers_trace(rollout)))

    def test_other_branches_are_mentioned(self, write_config: Any, listening: Any) -> None:
        """A subagent's branch is not shown, and the text says so."""
        trace = verifiers_trace(Rollout())
        node = need("verifiers.v1.graph").MessageNode
        user, assistant = need("verifiers.v1.types").UserMessage, need("verifiers.v1.types").AssistantMessage
        trace.nodes.append(node(message=user(content="sub-task")))
        trace.nodes.append(node(parent=len(trace.nodes) - 1, message=assistant(content="sub-answer"), sampled=True))
        trace.root_reply = Rollout().response[-1]["content"]
        talk = verifiers.talk_of(trace)
        write_config(self.missing, listening.url, judge={"view": "full"})
        asyncio.run(verifiers.judge_answer(talk.question, talk.answer))
        seen = listening.heard()["response"]
        assert ANSWER in seen
        assert "not shown: 1 other branch of this rollout" in seen
        assert "sub-answer" not in seen


def verifiers_trace(rollout: Rollout) -> Any:
    """A trace of one branch in verifiers' own types."""
    types, node = need("verifiers.v1.types"), need("verifiers.v1.graph").MessageNode
    kinds = {
        "system": types.SystemMessage,
        "user": types.UserMessage,
        "assistant": types.AssistantMessage,
        "tool": types.ToolMessage,
    }
    nodes = []
    for number, one in enumerate([*rollout.prompt, *rollout.response]):
        calls = [{"id": call["id"], **call["function"]} for call in one.get("tool_calls", [])]
        message = kinds[one["role"]](**{**one, **({"tool_calls": calls} if calls else {})})
        sampled = one["role"] == "assistant"
        nodes.append(node(parent=number - 1 if number else None, message=message, sampled=sampled))
    nodes[0].tools = [types.Tool(**tool["function"]) for tool in rollout.tools]
    trace = need("verifiers.v1.trace").Trace
    return trace.model_construct(info={}, extra_usage=[], nodes=nodes, calls=[], root_reply=None)


class TestSkyRl(TrajectoryContract):
    """An environment of several turns, which SkyRL-Gym makes from its registry; its own messages go to the judge."""

    missing = {"policy": "value", "value": VALUE}  # noqa: RUF012

    def judge(self, config: Path, rollout: Rollout) -> None:
        gym, base = need("skyrl_gym"), need("skyrl_gym.envs.base_text_env")

        class Env(base.BaseTextEnv):  # type: ignore[misc, name-defined]
            def __init__(self, env_config: Any, extras: dict[str, Any]) -> None:
                super().__init__()
                self.row, self.talk = extras, []

            def init(self, prompt: Any) -> Any:
                self.prompt = prompt
                return prompt, {}

            def step(self, action: dict[str, Any]) -> Any:
                self.talk.append(action)
                if action.get("tool_calls"):
                    self.talk.append(rollout.response[1])
                    return base.BaseTextEnvStepOutput(
                        observations=[rollout.response[1]], reward=0.0, done=False, metadata={}
                    )
                reward, said = skyrl.judge_answer(self.prompt, self.talk, row=self.row)
                return base.BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata=said)

        gym.envs.registration.registry.pop("agent", None)
        gym.register(id="agent", entry_point=Env)
        env = gym.make("agent", env_config={}, extras={"tools": rollout.tools, "env_class": "agent", **rollout.row})
        env.init(rollout.prompt)
        for message in (rollout.response[0], rollout.response[2]):
            result = env.step(message)
        assert result["done"]
