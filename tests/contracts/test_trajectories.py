"""Every adapter shows its judge a rollout with reasoning, a tool call, its result and an answer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.adapter_suite import VALUE, sim_url, write_config
from tests.contracts.test_adapters import SLIME, ArtGroup, SlimeSample
from tests.contracts.trajectory_suite import TEMPLATE, TOPIC, Rollout, TrajectoryContract, listening

from referee.trainers import areal, art, nemo_gym, openrlhf, skyrl, slime, swift, tinker, trl, verifiers
from referee.trainers.shared import Judged
from referee.trainers.verl.loop_manager import RefereeRewardManager

__all__ = ["listening", "sim_url", "write_config"]

pytestmark = pytest.mark.timeout(120)

NUMBER = {"policy": "value", "value": VALUE}


def thing(value: Any) -> Any:
    """A mapping as an object with attributes, all the way down, as client libraries have it."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: thing(item) for name, item in value.items()})
    return [thing(item) for item in value] if isinstance(value, list) else value


class TestTrl(TrajectoryContract):
    """Lists of messages; the tools in the dataset's column."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        columns = {name: [value] for name, value in rollout.row.items()}
        trl.reward_func(config)(
            prompts=[rollout.prompt],
            completions=[rollout.response],
            completion_ids=[[1, 2]],
            tools=[rollout.tools],
            trainer_state=SimpleNamespace(global_step=1),
            log_extra=lambda *_: None,
            log_metric=lambda *_: None,
            **columns,
        )


class TestTrlTools(TrajectoryContract):
    """The trainer's own tools: functions, found where TRL lets a reward function find its trainer."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        def search(q: str) -> str:
            """looks-it-up"""
            return q

        trainer = Trainer([search])
        trl.reward_func(config)(
            prompts=[rollout.prompt],
            completions=[rollout.response],
            completion_ids=[[1, 2]],
            log_metric=trainer.log_metric,
            trainer_state=None,
            environments=[object()],
            **{name: [value] for name, value in rollout.row.items()},
        )


@dataclass
class Trainer:
    """What of TRL's trainer a reward function can see through the methods it is passed."""

    tools: list[Any]
    num_generations: int = 1

    def log_metric(self, name: str, value: float) -> None:
        """Nothing is logged."""


class TestOpenRlhf(TrajectoryContract):
    """The helper for agents of one's own; the label is all that OpenRLHF hands on of a row."""

    missing = NUMBER

    def judge(self, config: Path, rollout: Rollout) -> None:
        label = {"tools": rollout.tools, **rollout.row}
        asyncio.run(openrlhf.judge_answer(rollout.prompt, rollout.response, label))


class TestSlime(TrajectoryContract):
    """A generate function leaves its conversation in the sample's metadata, where slime keeps tools and columns."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        talk = [*rollout.prompt, *rollout.response]
        sample = SlimeSample("all of it as one text", prompt=rollout.prompt)
        sample.metadata = {"messages": talk, "tools": rollout.tools, "rm_type": "x", **rollout.row}
        asyncio.run(slime.custom_rm(SLIME, [sample]))


class TestSwift(TrajectoryContract):
    """The whole conversation in `messages`; ms-swift says how many turns of it are the policy's."""

    missing = NUMBER

    def judge(self, config: Path, rollout: Rollout) -> None:
        columns: dict[str, Any] = {
            "messages": [[*rollout.prompt, *rollout.response]],
            "rollout_infos": [{"num_turns": 2}],
            "response_token_ids": [[]],
            "is_truncated": [False],
            "prompt_id": ["p"],
            "request_id": ["r"],
            "finish_reason": ["stop"],
            "tools": [[json.dumps(tool) for tool in rollout.tools]],
            "trainer_state": None,
            **{name: [value] for name, value in rollout.row.items()},
        }
        swift.RefereeORM(args=None)([rollout.response[-1]["content"]], **columns)


class TestSwiftTokens(TestSwift):
    """Tokens kept turn by turn say the same; an earlier answer in the prompt is not the policy's."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        earlier = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello to you"}]
        columns = {"messages": [[*rollout.prompt[:1], *earlier, *rollout.prompt[1:], *rollout.response]]}
        columns |= {name: [value] for name, value in rollout.row.items()}
        swift.RefereeORM(args=None)(["x"], response_token_ids=[[[1], [2, 3]]], tools=[rollout.tools], **columns)


class TestSkyRl(TrajectoryContract):
    """The helper for environments of several turns."""

    missing = NUMBER

    def judge(self, config: Path, rollout: Rollout) -> None:
        row = {"env_class": "x", "tools": rollout.tools, **rollout.row}
        skyrl.judge_answer(rollout.prompt, rollout.response, row=row)


class TestAreal(TrajectoryContract):
    """The helper for agent workflows."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        row = {"messages": rollout.prompt, "tools": rollout.tools, **rollout.row}
        asyncio.run(areal.judge_episode(Judged(config), rollout.prompt, rollout.response, [1, 2], row))


class TestVerifiers(TrajectoryContract):
    """A trace: nodes of messages, of which some were sampled; tools stand at its root."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        talk = verifiers.talk_of(trace(rollout))
        row = {**rollout.row, "tools": talk.tools}
        asyncio.run(verifiers.judge_answer(talk.question, talk.answer, row=row))


def trace(rollout: Rollout) -> Any:
    """A verifiers trace of one branch."""
    flat = [{"id": "c1", "name": "search", "arguments": call["function"]["arguments"]} for call in calls(rollout)]
    messages = [{**one, "tool_calls": flat} if one.get("tool_calls") else one for one in rollout.response]
    nodes = [SimpleNamespace(message=thing(one), sampled=False) for one in rollout.prompt]
    nodes += [SimpleNamespace(message=thing(one), sampled=one["role"] == "assistant") for one in messages]
    nodes[0].tools = [SimpleNamespace(**tool["function"]) for tool in rollout.tools]
    return SimpleNamespace(
        nodes=nodes, branches=[SimpleNamespace(nodes=nodes)], last_reply=rollout.response[-1]["content"]
    )


def calls(rollout: Rollout) -> list[dict[str, Any]]:
    return [call for message in rollout.response for call in message.get("tool_calls", [])]


class TestNemoGym(TrajectoryContract):
    """Items of the Responses API: reasoning, message, function_call and its output, each by itself."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        items: list[dict[str, Any]] = []
        for message in rollout.response:
            if message["role"] == "tool":
                items.append({"type": "function_call_output", "call_id": "c1", "output": message["content"]})
                continue
            if "reasoning_content" in message:
                summary = [{"type": "summary_text", "text": message["reasoning_content"]}]
                items.append({"type": "reasoning", "summary": summary, "content": None})
            part = {"type": "output_text", "text": message["content"]}
            items.append({"type": "message", "role": "assistant", "content": [part]})
            called = message.get("tool_calls", [])
            items += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in called]
        system, *asked = rollout.prompt
        tools = [{"type": "function", **tool["function"]} for tool in rollout.tools]
        body = SimpleNamespace(
            responses_create_params=SimpleNamespace(
                input=thing(asked), instructions=system["content"], tools=thing(tools)
            ),
            response=thing({"output": items}),
            **rollout.row,
        )
        asyncio.run(nemo_gym.judge_body(body))

    def test_the_answer_is_the_last_message(self, write_config: Any, listening: Any) -> None:
        """As everywhere; items are counted as messages."""
        seen = self.heard(write_config, listening, Rollout())["response"]
        assert "final-words" in seen
        assert not any(word in seen for word in ("so-I-think", "let-me-look", "tides-query", "two-a-day"))
        assert "not shown: 4 messages before" in seen


class TestTinker(TrajectoryContract):
    """The grader's own call, as a tool environment's reward function makes it with its history."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        answer = [{**one, "content": parts_of(one)} for one in rollout.response]
        asyncio.run(tinker.Grader(config).grade(rollout.prompt, answer, row={"tools": rollout.tools, **rollout.row}))


class TestTinkerTrajectories(TrajectoryContract):
    """Trajectories of tokens: actions are parsed by the renderer, what came between is decoded."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        first, said, last = rollout.response
        made = [{"role": "assistant", "content": parts_of(first), "unparsed_tool_calls": unparsed(first)}, last]
        renderer = SimpleNamespace(
            parse_response=lambda ids: (made[ids[0]], None),
            tokenizer=SimpleNamespace(decode=lambda ids: said["content"] if ids == [7] else "?"),
        )
        steps = [
            SimpleNamespace(ob=tokens(5), ac=SimpleNamespace(tokens=[0])),
            SimpleNamespace(ob=tokens(5, 0, 7), ac=SimpleNamespace(tokens=[1])),
        ]
        row = {"tools": rollout.tools, **rollout.row}
        done = [SimpleNamespace(transitions=steps)]
        asyncio.run(tinker.Grader(config).trajectories(renderer, rollout.prompt, done, row=row))


def parts_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """tinker keeps reasoning as a part of the content."""
    thought = message.get("reasoning_content")
    thinking = [{"type": "thinking", "thinking": thought}] if thought else []
    return [*thinking, {"type": "text", "text": message["content"]}]


def unparsed(message: dict[str, Any]) -> list[Any]:
    raw = json.dumps(message["tool_calls"][0]["function"])
    return [SimpleNamespace(raw_text=raw, error="not the format")]


def tokens(*ids: int) -> Any:
    return SimpleNamespace(chunks=[SimpleNamespace(tokens=list(ids))])


@dataclass
class ArtTrajectory:
    """ART's Trajectory: messages as they are, choices with their message inside."""

    rollout: Rollout
    reward: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        return self.rollout.row

    @property
    def tools(self) -> list[Any]:
        return self.rollout.tools

    @property
    def messages_and_choices(self) -> list[Any]:
        said = [
            SimpleNamespace(message=thing(one), finish_reason="stop") if one["role"] == "assistant" else one
            for one in self.rollout.response
        ]
        return [*self.rollout.prompt, *said]

    def model_copy(self, update: dict[str, Any]) -> ArtTrajectory:
        return self


class TestArt(TrajectoryContract):
    """A group of one trajectory."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        group = ArtGroup([ArtTrajectory(rollout)])  # type: ignore[list-item]
        asyncio.run(art.after_each(config)(group))  # type: ignore[arg-type]


class Grid(list[list[int]]):
    """As much of a tensor as rows are read from."""

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self[0])


class Data:
    """A DataProto with a row for each output of one rollout."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.batch = {"responses": Grid([[number] for number in range(len(rows))])}
        self.non_tensor_batch = {name: [row[name] for row in rows] for name in rows[0]}
        self.meta_info: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.batch["responses"])


def verl_row(rollout: Rollout, **more: Any) -> dict[str, Any]:
    """What verl's reward loop is given of a rollout beside its tokens."""
    return {
        "uid": "u",
        "data_source": "toy",
        "raw_prompt": rollout.prompt,
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": 3, "split": "train", **rollout.row},
        "response_len": 1,
        "prompt_len": 1,
        **more,
    }


def verl_judge(config: Path, *rows: dict[str, Any]) -> None:
    tokenizer = SimpleNamespace(decode=lambda ids, **_: f"decoded-{ids[0]}")
    settings = {"reward": {"referee": {"config": str(config), "rule": False}}, "trainer": {"use_v1": True}}
    asyncio.run(RefereeRewardManager(settings, tokenizer).run_single(Data(*rows)))


class TestVerl(TrajectoryContract):
    """The reward loop's rollout: an agent loop passes its conversation and its tools in extra_fields."""

    def judge(self, config: Path, rollout: Rollout) -> None:
        talk = [*rollout.prompt, *rollout.response]
        fields = {"messages": talk, "tools": rollout.tools, "turn_scores": [], "tool_rewards": []}
        verl_judge(config, verl_row(rollout, tool_extra_fields=fields, __num_turns__=4))

    def test_the_form_of_older_releases_is_read(self, write_config: Any, listening: Any) -> None:
        """Their multi-turn rollouts have a column of mappings."""
        rollout = Rollout()
        talk = {"messages": [*rollout.prompt, *thing(rollout.response)]}
        verl_judge(write_config(self.missing, listening.url, judge={"view": "full"}), verl_row(rollout, messages=talk))
        assert "result of search" in listening.heard()["response"]

    def test_a_datasets_own_messages_are_not_the_rollouts(self, write_config: Any, listening: Any) -> None:
        """A list in a column of that name was there before the rollout."""
        gold = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "the gold answer"}]
        verl_judge(write_config(self.missing, listening.url), verl_row(Rollout(), messages=gold))
        assert listening.heard()["response"] == "decoded-0"

    def test_all_outputs_of_a_rollout_are_shown(self, write_config: Any, listening: Any) -> None:
        """verl rewards the last one; the full view holds those before it."""
        config = write_config(self.missing, listening.url, judge={"view": "full"})
        verl_judge(config, verl_row(Rollout()), verl_row(Rollout()))
        seen = listening.heard()["response"]
        assert seen.index("decoded-0") < seen.index("decoded-1")

    @pytest.mark.parametrize("place", ["extra_info", "column", "tool_extra_fields"])
    def test_columns_are_found_by_name(self, write_config: Any, listening: Any, tmp_path: Path, place: str) -> None:
        """In extra_info, among the dataset's own columns, or where an agent loop left them."""
        (tmp_path / "judge.txt").write_text(TEMPLATE)
        own = {"topic": TOPIC}
        row = verl_row(Rollout())
        row |= own if place == "column" else {place: own}
        verl_judge(write_config(self.missing, listening.url, judge={"prompt_file": str(tmp_path / "judge.txt")}), row)
        assert TOPIC in listening.heard()["column"]
