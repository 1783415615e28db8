"""Every adapter keeps the contract, called in the shapes its framework's documentation and source give."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.adapter_suite import (
    UNSCORED,
    VALUE,
    AdapterContract,
    GroupAdapterContract,
    Outcome,
    Write,
    answers,
    broke_url,
    down_url,
    fair,
    sim_url,
    write_config,
)
from tests.contracts.group_judges import KIND, registered

from referee.errors import ConfigError, RefereeError, UnscoredError
from referee.trainers import areal, art, nemo_gym, openrlhf, skyrl, slime, swift, tinker, trl, verifiers
from referee.trainers.shared import Judged

__all__ = ["broke_url", "down_url", "sim_url", "write_config"]

pytestmark = pytest.mark.timeout(120)

PROMPT = "What is good?"
NUMBER = {"policy": "value", "value": VALUE}


def together(calls: list[Callable[[], Awaitable[Any]]], signals: tuple[type[Exception], ...] = ()) -> list[Outcome]:
    """Await all of them on a loop of their own; an exception that is the framework's signal is None."""

    async def one(call: Callable[[], Awaitable[Any]]) -> Outcome:
        try:
            return float(await call())
        except signals:
            return None

    async def main() -> list[Outcome]:
        return list(await asyncio.gather(*(one(call) for call in calls)))

    return asyncio.run(main())


class TestTrl(GroupAdapterContract):
    """Keyword arguments, lists, extra columns, None for missing."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        func = trl.reward_func(config)
        ids = [[1] * len(text) for text in texts]
        return list(func(prompts=[PROMPT] * len(texts), completions=texts, completion_ids=ids, ground_truth=texts))


class TestTrlAsyncConversational(GroupAdapterContract):
    """An `async def` and lists of messages, as AsyncGRPO calls it: without trainer_state and log functions."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        func = trl.reward_func(config, is_async=True)
        prompts = [[{"role": "system", "content": "Be good."}, {"role": "user", "content": PROMPT}]] * len(texts)
        completions = [[{"role": "assistant", "content": text}] for text in texts]
        return list(asyncio.run(func(prompts=prompts, completions=completions, completion_ids=[[1]] * len(texts))))


class TestOpenRlhfFunction(AdapterContract):
    """One answer a call, as prompt and answer in one text with special tokens."""

    missing = NUMBER

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        found = []
        for text in texts:
            result = openrlhf.reward_func([f"<s>{PROMPT}{text}<|im_end|>"], [PROMPT], ["label"])
            assert set(result) == {"rewards", "scores", "extra_logs"}
            found.append(float(result["rewards"].item()))
        return found


class TestOpenRlhfAgent(AdapterContract):
    """`step` of an agent, on a running loop, one instance each."""

    missing = NUMBER

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        async def step(text: str) -> float:
            states = {"observation_text": PROMPT, "action_text": text, "label": "x", "sampling_params": None}
            agent = openrlhf.JudgedAgent()
            assert await agent.reset({"observation": PROMPT}) == {"observation": PROMPT}
            result = await agent.step(states)
            assert result["done"]
            return float(result["rewards"].item())

        return together([lambda text=text: step(text) for text in texts])  # type: ignore[misc]


@dataclass
class SlimeSample:
    """The fields of slime's Sample that rewards are about."""

    response: str
    prompt: Any = PROMPT
    label: str | None = None
    index: int = 0
    group_index: int | None = 0
    response_length: int = 3
    reward: Any = None
    remove_sample: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    status: Any = field(default_factory=lambda: SimpleNamespace(value="completed"))

    def get_reward_value(self, args: Any) -> Any:
        return self.reward


SLIME = SimpleNamespace(
    custom_reward_post_process_path=slime.POST_PROCESS,
    advantage_estimator="grpo",
    rewards_normalization=True,
    grpo_std_normalization=True,
    n_samples_per_prompt=4,
)


class TestSlimeSingle(AdapterContract):
    """One Sample a call. Missing: NaN that post_process replaces, and the sample is taken out of the loss."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        samples = [SlimeSample(text) for text in texts]
        found = together([lambda one=one: slime.custom_rm(SLIME, one) for one in samples])  # type: ignore[misc]
        assert [math.isnan(reward or 0.0) for reward in found] == [sample.remove_sample for sample in samples]
        return [None if reward is None or math.isnan(reward) else reward for reward in found]


class TestSlimeGroup(GroupAdapterContract):
    """A list of Samples: a list of rewards. Missing: the siblings' mean, and out of the loss."""

    fills_with_mean = True

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        samples = [SlimeSample(text) for text in texts]
        found = asyncio.run(slime.custom_rm(SLIME, samples))
        assert len(found) == len(texts)
        return list(found)


class TestSwift(GroupAdapterContract):
    """Positional completions, the conversation in `messages`."""

    missing = NUMBER

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        return list(swift.RefereeORM(args=None)(texts, **self.columns(texts)))

    @staticmethod
    def columns(texts: list[str]) -> dict[str, Any]:
        talk = {"role": "user", "content": PROMPT}
        messages = [[talk, {"role": "assistant", "content": text}] for text in texts]
        return {"messages": messages, "trainer_state": SimpleNamespace(global_step=3), "solution": texts}


class TestSwiftAsync(TestSwift):
    """A coroutine on a new loop each step, as ms-swift runs it."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        return list(asyncio.run(swift.AsyncRefereeORM(args=None)(texts, **self.columns(texts))))


class TestSkyRl(AdapterContract):
    """One answer a call, from a pool of threads."""

    missing = NUMBER

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        return [skyrl.judge_answer([{"role": "user", "content": PROMPT}], text, "reference")[0] for text in texts]


class TestAreal(AdapterContract):
    """One episode a coroutine. Missing: the episode is rejected."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        judged = Judged(config)
        return together(
            [lambda text=text: areal.judge_episode(judged, PROMPT, text, [1, 2]) for text in texts],  # type: ignore[misc]
            (areal.Rejected,),
        )


class TestVerifiers(AdapterContract):
    """One trace a coroutine. Missing: an exception, which makes the trace an error."""

    signals: tuple[type[Exception], ...] = (UnscoredError,)

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        return together([lambda text=text: self.one(text) for text in texts], self.signals)  # type: ignore[misc]

    def rewards_or_error(self, config: Path, texts: list[str]) -> list[Outcome]:
        return together([lambda text=text: self.one(text) for text in texts])  # type: ignore[misc]

    async def one(self, text: str) -> float:
        reward = await verifiers.judge_answer(PROMPT, text, "reference")
        assert reward.value is not None
        return reward.value


class TestNemoGym(TestVerifiers):
    """A verify request in the shape of the Responses API. Missing: JudgeError (without NeMo-Gym: UnscoredError)."""

    async def one(self, text: str) -> float:
        part = SimpleNamespace(type="output_text", text=text)
        message = SimpleNamespace(type="message", role="assistant", content=[part])
        asked = SimpleNamespace(input=[{"role": "user", "content": PROMPT}])
        body = SimpleNamespace(
            responses_create_params=asked,
            response=SimpleNamespace(output=[SimpleNamespace(type="reasoning"), message]),
            expected_answer="4",
        )
        return await nemo_gym.judge_body(body)


class TestTinkerStep(TestVerifiers):
    """The grader inside Env.step. Missing: an exception, for the rollout strategy to handle."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        self.grader = tinker.Grader(config)
        return super().rewards(config, texts)

    def rewards_or_error(self, config: Path, texts: list[str]) -> list[Outcome]:
        self.grader = tinker.Grader(config)
        return super().rewards_or_error(config, texts)

    async def one(self, text: str) -> float:
        return await self.grader.grade([{"role": "user", "content": PROMPT}], text, tokens=[1, 2, 3])


class TestTinkerGroup(GroupAdapterContract):
    """compute_group_rewards: pairs of reward and metrics. Missing: the siblings' mean, centered away."""

    fills_with_mean = True

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        actions = [
            SimpleNamespace(transitions=[SimpleNamespace(ac=SimpleNamespace(tokens=[n]))]) for n in range(len(texts))
        ]
        renderer = SimpleNamespace(parse_response=lambda ids: ({"role": "assistant", "content": texts[ids[0]]}, None))
        found = asyncio.run(tinker.Grader(config).trajectories(renderer, PROMPT, actions))
        assert all(set(metrics) == {"judge", "judge_scored", "length_penalty"} for _, metrics in found)
        return [reward for reward, _ in found]


@dataclass
class ArtTrajectory:
    """The fields of ART's Trajectory that rewards are about."""

    text: str
    reward: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def messages_and_choices(self) -> list[Any]:
        return [
            {"role": "user", "content": PROMPT},
            SimpleNamespace(message=SimpleNamespace(role="assistant", content=self.text)),
        ]

    def model_copy(self, update: dict[str, Any]) -> ArtTrajectory:
        return replace(self, **update)


@dataclass
class ArtGroup:
    """A group of them."""

    trajectories: list[ArtTrajectory]

    def model_copy(self, update: dict[str, Any]) -> ArtGroup:
        return replace(self, **update)


class TestArt(GroupAdapterContract):
    """after_each on a group. Missing: the trajectory leaves the group, or the whole group goes."""

    def rewards(self, config: Path, texts: list[str]) -> list[Outcome]:
        group = ArtGroup([ArtTrajectory(text) for text in texts])
        judged = asyncio.run(art.after_each(config)(group))  # type: ignore[arg-type]
        assert [one.reward for one in group.trajectories] == [0.0] * len(texts), "the caller's group is left alone"
        found = {} if judged is None else {one.text: one.reward for one in judged.trajectories}
        return [found.get(text) for text in texts]


LENGTHS = {"length": {"enable": True}}


def sloppy(config: Path) -> dict[str, Callable[[], Any]]:
    """Hooks that show one answer at a time, or have no signal for a missing reward."""
    sample = SlimeSample("x")
    body = SimpleNamespace(responses_create_params=SimpleNamespace(input="q"), response=SimpleNamespace(output=[]))
    return {
        "openrlhf": lambda: openrlhf.reward_func(["qx"], ["q"], [None]),
        "slime": lambda: asyncio.run(slime.custom_rm(SLIME, sample)),
        "skyrl": lambda: skyrl.judge_answer("q", "x"),
        "areal": lambda: asyncio.run(areal.judge_episode(Judged(config), "q", "x")),
        "verifiers": lambda: asyncio.run(verifiers.judge_answer("q", "x")),
        "nemo_gym": lambda: asyncio.run(nemo_gym.judge_body(body)),
        "tinker": lambda: asyncio.run(tinker.Grader(config).grade("q", "x")),
    }


@pytest.mark.parametrize("hook", ["openrlhf", "slime", "skyrl", "areal", "verifiers", "nemo_gym", "tinker"])
def test_settings_a_hook_cannot_keep_are_refused(write_config: Write, hook: str) -> None:
    """A length penalty or a group mean without a group would silently do nothing."""
    path = write_config(NUMBER)
    path.write_text(path.read_text() + "[shaping.length]\nenable = true\n")
    with pytest.raises(ConfigError, match="one answer at a time"):
        sloppy(path)[hook]()
    with pytest.raises(ConfigError, match="no group"):
        sloppy(write_config({"policy": "group_mean"}))[hook]()


@pytest.mark.parametrize(
    ("hook", "instead"),
    [
        ("openrlhf", r"by itself\.$"),
        ("slime", "use --group-rm"),
        ("skyrl", "use judge_groups"),
        ("areal", "use judge_group in a workflow"),
        ("verifiers", "use judge_group in finalize"),
        ("nemo_gym", r"by itself\.$"),
        ("tinker", r"use Grader\.group"),
    ],
)
def test_judges_of_groups_are_refused_where_there_are_none(write_config: Write, hook: str, instead: str) -> None:
    """A group of one has nothing to be compared with; the error names the hook that sees whole groups, if any."""
    path = write_config(NUMBER, judge={"kind": KIND, "name": "rank"})
    with registered(), pytest.raises(ConfigError, match=f'one answer at a time, and judge "rank".*{instead}'):
        sloppy(path)[hook]()


class Attempt(SimpleNamespace):
    """What a trace of verifiers is asked for, and told."""

    def record_reward(self, name: str, value: float) -> None:
        assert name == "referee"
        self.reward = value

    def record_metric(self, name: str, value: float) -> None:
        assert name == "referee_scored"
        self.scored = value


def verifiers_group(path: Path, texts: list[str]) -> list[Outcome]:
    """As `finalize` of an environment calls it."""
    attempts = [Attempt(last_reply=text) for text in texts]
    asyncio.run(verifiers.judge_group(SimpleNamespace(answer="4"), attempts, question=PROMPT))
    return [attempt.reward for attempt in attempts]


WHOLE: dict[str, Callable[[Path, list[str]], Any]] = {
    "trl": lambda path, texts: TestTrl().rewards(path, texts),
    "trl_async": lambda path, texts: TestTrlAsyncConversational().rewards(path, texts),
    "slime": lambda path, texts: TestSlimeGroup().rewards(path, texts),
    "swift": lambda path, texts: TestSwift().rewards(path, texts),
    "swift_async": lambda path, texts: TestSwiftAsync().rewards(path, texts),
    "skyrl": lambda path, texts: skyrl.judge_groups([PROMPT] * len(texts), texts, ["u"] * len(texts)),
    "areal": lambda path, texts: asyncio.run(areal.judge_group(Judged(path), PROMPT, texts)),
    "verifiers": verifiers_group,
    "art": lambda path, texts: TestArt().rewards(path, texts),
    "tinker": lambda path, texts: TestTinkerGroup().rewards(path, texts),
}
"""Hooks that see the answers to a prompt together."""


@pytest.mark.parametrize("hook", WHOLE)
def test_judges_of_groups_are_shown_whole_ones(write_config: Write, hook: str) -> None:
    """Each answer is worth the share of its siblings that are worse; one without a score does not spoil the others."""
    path = write_config({"policy": "group_mean"}, judge={"kind": KIND, "name": "rank", "ask_again": 0})
    with registered():
        assert WHOLE[hook](path, answers(2, 9, 5)) == pytest.approx([0.0, 2 / 3, 1 / 3])
        assert WHOLE[hook](path, [*answers(2, 9), UNSCORED]) == pytest.approx([0.0, 0.5, 0.25])


def test_a_batch_of_skyrl_holds_several_groups(write_config: Write) -> None:
    """Answers with one uid are compared, in whatever order they stand, and lengths are their groups'."""
    path = write_config({"policy": "group_mean"}, judge={"kind": KIND, "name": "rank"})
    path.write_text(path.read_text() + "[shaping.length]\nenable = true\n")
    with registered():
        found = skyrl.judge_groups([PROMPT] * 4, answers(2, 9, 5, 4), [1, 2, 1, 2], lengths=[10, 30, 10, 30])
    assert found == [0.0, 0.5, 0.5, 0.0]


def test_verifiers_without_any_score_fails_the_episode(write_config: Write) -> None:
    """No attempt has a verdict: there is no mean to give."""
    path = write_config({"policy": "abstain"})
    with pytest.raises(UnscoredError):
        verifiers_group(path, [UNSCORED, f"{UNSCORED} x"])
    assert verifiers_group(path, [*answers(10), UNSCORED]) == [1.0, 1.0]
    assert asyncio.run(verifiers.judge_group(None, [])) == []


@pytest.mark.parametrize("hook", ["openrlhf", "skyrl"])
def test_frameworks_without_a_signal_want_a_number(write_config: Write, hook: str) -> None:
    """Where "no reward" cannot be said, the user says what it becomes; nobody picks 0 for them."""
    with pytest.raises(ConfigError, match="no way to say"):
        sloppy(write_config({"policy": "abstain"}))[hook]()


def test_swift_refuses_to_abstain(write_config: Write) -> None:
    """None is 0 in ms-swift; a group mean is not."""
    write_config({"policy": "abstain"})
    with pytest.raises(ConfigError, match="group_mean"):
        swift.RefereeORM(args=None)
    write_config({"policy": "group_mean"})
    columns = TestSwift.columns([*answers(4, 10), UNSCORED])
    assert swift.RefereeORM(args=None)([*answers(4, 10), UNSCORED], **columns)[2] == pytest.approx(sum(fair(4, 10)) / 2)


def test_slime_wants_its_baseline_cleaned(write_config: Write) -> None:
    """A lone custom_rm without post_process would leave unscored answers in the baseline."""
    write_config({"policy": "abstain"})
    with pytest.raises(ConfigError, match="post_process"):
        asyncio.run(slime.custom_rm(SimpleNamespace(custom_reward_post_process_path=None), SlimeSample("x")))


def test_slime_post_process_leaves_the_unscored_out() -> None:
    """Advantages of the scored are as if the others were not there; theirs is 0; the filter counts the scored."""
    samples = [SlimeSample("a", reward=1.0), SlimeSample("b", reward=0.0), SlimeSample("c", reward=math.nan)]
    samples[2].metadata[slime.MARK] = "timeout"
    other = [SlimeSample("d", reward=0.5, group_index=1), SlimeSample("e", reward=math.nan, group_index=1)]
    other[1].metadata[slime.MARK] = "timeout"
    raw, final = slime.post_process(SLIME, [*samples, *other])
    assert raw == [1.0, 0.0, 0.5, 0.5, 0.5]
    assert final == pytest.approx([0.70711, -0.70711, 0.0, 0.0, 0.0], abs=1e-4)
    assert slime.keep_scored(SLIME, samples)
    assert not slime.keep_scored(SLIME, other)


def test_length_penalty_reaches_group_hooks(write_config: Write) -> None:
    """Hooks that see a group apply the penalty around its median."""
    path = write_config({"policy": "abstain"})
    path.write_text(path.read_text() + "[shaping.length]\nenable = true\n")
    texts = [*answers(10, 10, 10), "[[quality=10]] " + "long " * 40]
    assert TestTrl().rewards(path, texts)[:3] == pytest.approx([1.0] * 3, abs=0.3)
    func = trl.reward_func(path)
    found = func(prompts=[PROMPT] * 4, completions=texts, completion_ids=[[1] * 10] * 3 + [[1] * 90])
    assert found == pytest.approx([1.0, 1.0, 1.0, 0.0])


def test_errors_are_ours_and_picklable(write_config: Write) -> None:
    """What an adapter raises under `raise` crosses processes."""
    import pickle

    write_config({"policy": "raise"})
    with pytest.raises(RefereeError) as caught:
        asyncio.run(verifiers.judge_answer(PROMPT, UNSCORED))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
