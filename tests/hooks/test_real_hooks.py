"""Hooks called by their framework's own code. Each runs where the framework is installed, and is skipped elsewhere."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.adapter_suite import UNSCORED, VALUE, Write, answers, broke_url, fair, sim_url, write_config
from tests.contracts.group_judges import KIND, registered

from referee.errors import EndpointClosed
from referee.trainers import art as art_hook
from referee.trainers import openrlhf as openrlhf_hook
from referee.trainers import slime as slime_hook
from referee.trainers import swift as swift_hook
from referee.trainers.tinker import Grader

__all__ = ["broke_url", "sim_url", "write_config"]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

PROMPT = "What is good? "
NUMBER = {"policy": "value", "value": VALUE}
ABSTAIN = {"policy": "abstain"}


def need(name: str) -> Any:
    """The module, or a skip: also where a part of it that is not installed here is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        if name.split(".")[0] in os.environ.get("REQUIRED_HOOKS", "").split(","):
            raise  # installed on purpose: a skip would hide that it no longer works
        pytest.skip(f"{name}: {missing}")


class Letters:
    """A tokenizer of one token for each letter."""

    eos_token_id = pad_token_id = 0

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        return {"input_ids": need("torch").tensor([[ord(letter) for letter in text]])}

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(one) for one in ids)


def vllm(text: str) -> Any:
    """An engine that answers with this text, as OpenRLHF's vLLM actor does."""

    async def generate(*_: Any, **__: Any) -> Any:
        ids = [ord(letter) for letter in text]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, text=text, finish_reason="stop", logprobs=None)])

    return SimpleNamespace(generate=generate)


def executor_of(kind: str) -> Any:
    """OpenRLHF's executor for our file: with its reward function, or with its agent."""
    agent = need("openrlhf.utils.agent")
    file = openrlhf_hook.__file__
    if kind == "function":
        return agent.SingleTurnAgentExecutor(file)
    spec = importlib.util.spec_from_file_location("agent_module", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert issubclass(module.AgentExecutor, agent.AgentExecutorBase)
    return module.AgentExecutor()


@pytest.mark.parametrize("kind", ["function", "agent"])
@pytest.mark.parametrize("text", [answers(9)[0], answers(9)[0] * 20], ids=["short", "long"])
def test_openrlhf_cuts_a_prompt(write_config: Write, kind: str, text: str) -> None:
    """A prompt longer than its share: the function does not judge what it cannot find, the agent judges the answer."""
    write_config(NUMBER)
    sampling = SimpleNamespace(max_tokens=64, logprobs=None)
    prompt = "A long story. " * 8 + PROMPT
    found = asyncio.run(executor_of(kind).execute(prompt, "label", sampling, 128, Letters(), vllm(text)))
    assert float(found["reward"]) == pytest.approx(VALUE if kind == "function" else fair(9)[0])


@pytest.mark.parametrize("kind", ["function", "agent"])
def test_openrlhf_executors(write_config: Write, kind: str) -> None:
    """Its two executors load our file by path and take the reward from it."""
    write_config(NUMBER)
    executor = executor_of(kind)

    async def run(text: str) -> Any:
        sampling = SimpleNamespace(max_tokens=64, logprobs=None)
        return await executor.execute(PROMPT, "label", sampling, 512, Letters(), vllm(text))

    async def main() -> list[Any]:
        return await asyncio.gather(*(run(text) for text in [*answers(4, 9), UNSCORED]))

    found = asyncio.run(main())
    assert [float(one["reward"]) for one in found] == pytest.approx([*fair(4, 9), VALUE])
    assert [float(one["extra_logs"]["judge_scored"]) for one in found] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["referee", "referee_async"])
def test_swift_scores_samples(write_config: Write, name: str) -> None:
    """ms-swift's own function finds us by name, calls us with its rows, and runs the coroutine."""
    rewards, algorithm = need("swift.rewards"), need("swift.rl_core.grpo_algorithm")
    data, torch = need("swift.rl_core.data"), need("torch")
    write_config({"policy": "group_mean"})
    swift_hook.register()
    func = rewards.orms[name](args=None)
    texts = [*answers(4, 10), UNSCORED]
    samples = [
        data.GRPOSample(messages=[{"role": "user", "content": PROMPT}, {"role": "assistant", "content": text}])
        for text in texts
    ]
    for _ in range(2):
        found = algorithm.compute_rewards_per_func(samples, [func], [None], torch.device("cpu"))
        assert found[:, 0].tolist() == pytest.approx([*fair(4, 10), sum(fair(4, 10)) / 2])


def test_skyrl_environment(write_config: Write) -> None:
    """Its registry makes our environment from a string."""
    gym = need("skyrl_gym")
    write_config(NUMBER)
    if "referee" not in gym.envs.registration.registry:
        gym.register(id="referee", entry_point="referee.trainers.skyrl:JudgedEnv")
    found = []
    for text in [*answers(4, 9), UNSCORED]:
        env = gym.make("referee", env_config={}, extras={"reward_spec": {"ground_truth": "4"}})
        prompt, _ = env.init([{"role": "user", "content": PROMPT}])
        assert prompt[0]["content"] == PROMPT
        result = env.step(text)
        assert result["done"]
        found.append(result["reward"])
    assert found == pytest.approx([*fair(4, 9), VALUE])
    assert env.get_metrics() == {"judge_scored": 0.0}


def test_areal_workflow(write_config: Write) -> None:
    """Its RLVR workflow generates, asks us, and builds the tensors; without a reward there is no trajectory."""
    need("areal.workflow.rlvr")
    struct, args = need("areal.api.io_struct"), need("areal.api.cli_args")
    from referee.trainers import areal

    path = write_config(ABSTAIN)
    workflow = areal.JudgedWorkflow(
        config=str(path),
        gconfig=args.GenerationHyperparameters(),
        tokenizer=Letters(),
        get_input_ids_fn=lambda data, *_: [ord(letter) for letter in data[0]["content"]],
        data_extract_prompt_fn=lambda data: data["messages"],
    )

    async def run(text: str) -> Any:
        async def agenerate(request: Any) -> Any:
            out = [ord(letter) for letter in text]
            return struct.ModelResponse(
                input_tokens=request.input_ids,
                output_tokens=out,
                output_logprobs=[0.0] * len(out),
                output_versions=[0] * len(out),
            )

        data = {"messages": [{"role": "user", "content": PROMPT}], "answer": "4"}
        return await workflow.arun_episode(SimpleNamespace(agenerate=agenerate), data)

    async def main() -> list[Any]:
        return await asyncio.gather(*(run(text) for text in [*answers(4, 9), UNSCORED]))

    good, better, missing = asyncio.run(main())
    assert [float(good["rewards"]), float(better["rewards"])] == pytest.approx(fair(4, 9))
    assert missing is None


def test_verifiers_plugged_judge(write_config: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task names us by plugin id; the reward, what was said and the usage are on its trace; unscored is an error."""
    need("verifiers.v1.judge")
    loaders, judges = need("verifiers.v1.utils.loaders"), need("verifiers.v1.configs.judge")
    path = write_config(ABSTAIN)
    (tmp_path / "my_referee_judge.py").write_text(
        'from referee.trainers.verifiers import RefereeJudge\n\n__all__ = ["RefereeJudge"]\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    (config,) = judges.resolve_judges([{"id": "my_referee_judge", "referee_config": str(path)}])
    judge = loaders.load_judge(config)
    trace_class, task = need("verifiers.v1.trace").Trace, need("verifiers.v1.task")

    def trace(text: str) -> Any:
        made = trace_class.model_construct(info={}, extra_usage=[], root_reply=text)
        assert made.last_reply == text
        return made

    data = task.TaskData(prompt=PROMPT)
    for text, reward in zip(answers(4, 9), fair(4, 9), strict=True):
        one = trace(text)
        assert asyncio.run(judge.score(data, one)) == pytest.approx(reward)
        (call,) = one.info["judge_calls"]
        assert call["name"] == judge.reward_name
        assert one.extra_usage[0].completion_tokens > 0
    with pytest.raises(Exception, match="no reward"):
        asyncio.run(judge.score(data, trace(UNSCORED)))
    sys.modules.pop("my_referee_judge", None)


def test_verifiers_takes_several_judges_as_several_rewards(write_config: Write) -> None:
    """Its own scoring records each under the judge's name, and they add up; what is missing of an optional one is not
    there."""
    need("verifiers.v1.judge")
    from referee.trainers import verifiers

    path = with_judges(write_config(ABSTAIN))
    judge = verifiers.RefereeJudge(verifiers.RefereeJudgeConfig(id="x", referee_config=str(path)))
    trace_class, task = need("verifiers.v1.trace").Trace, need("verifiers.v1.task")

    class Plugged(task.Task):  # type: ignore[misc, name-defined]
        def plugged_judges(self) -> list[Any]:
            return [judge]

    def scored(text: str) -> Any:
        made = trace_class.model_construct(info={}, extra_usage=[], root_reply=text, rewards={}, metrics={})
        asyncio.run(Plugged(task.TaskData(prompt=PROMPT)).score(made))
        return made

    rewards = scored(answers(4)[0]).rewards
    assert set(rewards) == {"taste", "safe"}
    assert rewards["taste"].score == pytest.approx(0.8 * fair(4)[0])
    assert set(scored(UNSCORED).rewards) == {"safe"}


def test_verifiers_compares_all_attempts_in_finalize(write_config: Write) -> None:
    """Its best-of-n environment, with a `finalize` that asks a judge of groups: each trace has its rank as reward."""
    best = need("verifiers.v1.envs.best_of_n.env").BestOfNEnv
    trace_class, task = need("verifiers.v1.trace").Trace, need("verifiers.v1.task")
    from referee.trainers.verifiers import judge_group

    class ComparedEnv(best):  # type: ignore[misc, valid-type]
        async def finalize(self, task: Any, episode: Any) -> None:
            await judge_group(task, episode.traces, question=PROMPT)

    texts = [*answers(2, 9, 5), UNSCORED]
    traces = [
        trace_class.model_construct(info={}, extra_usage=[], root_reply=text, rewards={}, metrics={}) for text in texts
    ]
    write_config(ABSTAIN, judge={"kind": KIND, "ask_again": 0})
    with registered():
        finalized = ComparedEnv.finalize(None, task.Task(task.TaskData(prompt=PROMPT)), SimpleNamespace(traces=traces))
        asyncio.run(finalized)
    assert [trace.reward for trace in traces] == pytest.approx([0.0, 2 / 3, 1 / 3, 1 / 3])
    assert [trace.metrics["referee_scored"] for trace in traces] == [1.0, 1.0, 1.0, 0.0]


def with_judges(path: Path) -> Path:
    """The configuration with an optional judge that reads the quality, and one that always has a verdict."""
    taste = '[[judge]]\nname = "taste"\nweight = 0.8\noptional = true\nask_again = 0\n'
    safe = '[[judge]]\nname = "safe"\nweight = 0.2\nkind = "yes_no"\n'
    path.write_text(path.read_text().replace("[judge]\nask_again = 0\n", taste + safe))
    return path


def test_art_gathers_groups(write_config: Write) -> None:
    """Its gather function hands us each group; an unscored trajectory leaves it, a lone one takes the group along."""
    art = need("art")
    path = write_config(ABSTAIN)

    def trajectory(text: str) -> Any:
        said = need("openai.types.chat.chat_completion").Choice(
            finish_reason="stop", index=0, message={"role": "assistant", "content": text}, logprobs=None
        )
        return art.Trajectory(messages_and_choices=[{"role": "user", "content": PROMPT}, said], reward=0.0)

    async def group(texts: list[str]) -> Any:
        return art.TrajectoryGroup([trajectory(text) for text in texts])

    async def main() -> Any:
        groups = [group([*answers(4, 9), UNSCORED]), group([answers(3)[0], UNSCORED])]
        return await art.gather_trajectory_groups(groups, after_each=art_hook.after_each(path))

    (found,) = asyncio.run(main())
    assert [one.reward for one in found.trajectories] == pytest.approx(fair(4, 9))
    assert found.trajectories[0].metrics["judge"] == 4


def test_a_judge_that_can_never_answer_comes_through(write_config: Write, broke_url: str) -> None:
    """SkyRL's environment and ART's gathering do not swallow it: the run stops with the one clear error."""
    gym, art = need("skyrl_gym"), need("art")
    path = write_config(NUMBER, broke_url)
    if "referee" not in gym.envs.registration.registry:
        gym.register(id="referee", entry_point="referee.trainers.skyrl:JudgedEnv")
    env = gym.make("referee", env_config={}, extras={})
    env.init([{"role": "user", "content": PROMPT}])
    with pytest.raises(EndpointClosed, match="quota"):
        env.step("an answer")

    async def group() -> Any:
        talk = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "an answer"}]
        return art.TrajectoryGroup([art.Trajectory(messages_and_choices=talk, reward=0.0)])

    async def main() -> Any:
        return await art.gather_trajectory_groups([group()], after_each=art_hook.after_each(path))

    with pytest.raises(EndpointClosed, match="quota"):
        asyncio.run(main())


def test_tinker_group_rollout(write_config: Write) -> None:
    """Its group rollout runs the environments and adds the rewards of a grader that went through a pickle."""
    import pickle

    types, rollouts = need("tinker_cookbook.rl.types"), need("tinker_cookbook.rl.rollouts")
    completers, tinker = need("tinker_cookbook.completers"), need("tinker")
    texts = [*answers(4, 10), UNSCORED]
    path = write_config(ABSTAIN)

    class Env(types.Env):  # type: ignore[misc, name-defined]
        async def initial_observation(self) -> Any:
            return tinker.ModelInput.from_ints([1]), []

        async def step(self, action: Any, *, extra: Any = None) -> Any:
            end = tinker.ModelInput.from_ints([1])
            return types.StepResult(reward=0.0, episode_done=True, next_observation=end, next_stop_condition=[])

    class Builder(types.EnvGroupBuilder):  # type: ignore[misc, name-defined]
        def __init__(self, grader: Grader) -> None:
            self.grader = pickle.loads(pickle.dumps(grader))

        async def make_envs(self) -> Any:
            return [Env() for _ in texts]

        async def compute_group_rewards(self, trajectory_group: Any, env_group: Any) -> Any:
            renderer = SimpleNamespace(parse_response=lambda ids: ({"role": "assistant", "content": texts[ids[0]]}, 0))
            return await self.grader.trajectories(renderer, PROMPT, trajectory_group)

    class Policy(completers.TokenCompleter):  # type: ignore[misc, name-defined]
        count = 0

        async def __call__(self, *_: Any, **__: Any) -> Any:
            self.count += 1
            return completers.TokensWithLogprobs(tokens=[self.count - 1], maybe_logprobs=[0.0])

    group = asyncio.run(rollouts.do_group_rollout(Builder(Grader(path)), Policy()))
    assert group.get_total_rewards() == pytest.approx([*fair(4, 10), sum(fair(4, 10)) / 2])


def test_slime_segments_of_one_rollout(write_config: Write) -> None:
    """What a generate function returns for one rollout goes through its hub as a list; each sample stands by itself."""
    hub, types = need("slime.rollout.rm_hub"), need("slime.utils.types")
    write_config(ABSTAIN)
    args = SimpleNamespace(
        custom_rm_path="referee.trainers.slime.custom_rm",
        custom_reward_post_process_path=slime_hook.POST_PROCESS,
        group_rm=False,
    )
    segments = [
        types.Sample(prompt=PROMPT, response=text, response_length=3, index=7, group_index=2, rollout_id=7, label="4")
        for text in [*answers(4, 10), UNSCORED]
    ]
    first, second, missing = asyncio.run(hub.batched_async_rm(args, segments))
    assert [first, second] == pytest.approx(fair(4, 10))
    assert math.isnan(missing)


@pytest.mark.parametrize("grouped", [False, True], ids=["single", "group"])
def test_slime_reward_hub(write_config: Write, grouped: bool) -> None:
    """Its hub loads us by path and gives us its own samples; the unscored one is out of the loss and of the mean."""
    hub, types = need("slime.rollout.rm_hub"), need("slime.utils.types")
    write_config(ABSTAIN)
    args = SimpleNamespace(
        custom_rm_path="referee.trainers.slime.custom_rm",
        custom_reward_post_process_path=slime_hook.POST_PROCESS,
        reward_key=None,
        group_rm=grouped,
        advantage_estimator="grpo",
        rewards_normalization=True,
        grpo_std_normalization=False,
        n_samples_per_prompt=3,
    )
    samples = [
        types.Sample(prompt=PROMPT, response=text, response_length=3, index=n, group_index=0, label="4")
        for n, text in enumerate([*answers(4, 10), UNSCORED])
    ]

    async def single() -> list[Any]:
        return await asyncio.gather(*(hub.async_rm(args, sample) for sample in samples))

    found = asyncio.run(hub.batched_async_rm(args, samples) if grouped else single())
    for sample, reward in zip(samples, found, strict=True):
        sample.reward = reward
    assert [sample.remove_sample for sample in samples] == [False, False, True]
    mean = sum(fair(4, 10)) / 2
    raw, final = slime_hook.post_process(args, samples)
    assert raw == pytest.approx([*fair(4, 10), mean])
    assert final == pytest.approx([fair(4)[0] - mean, fair(10)[0] - mean, 0.0])


def test_nemo_gym_server(write_config: Write) -> None:
    """Its web server takes a verify request with all fields of its row; unscored is its own failed judge."""
    base = need("nemo_gym.base_resources_server")
    client = need("starlette.testclient").TestClient
    from referee.trainers import nemo_gym

    write_config(ABSTAIN)
    server = nemo_gym.JudgedResourcesServer.model_construct(config=SimpleNamespace(name="judged"))
    assert isinstance(server, base.SimpleResourcesServer)
    app = need("fastapi").FastAPI()
    app.post("/verify")(need("nemo_gym.judge").judge_failsafe(server.verify))

    def ask(text: str) -> Any:
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        response = {
            "id": "r",
            "created_at": 0.0,
            "model": "m",
            "object": "response",
            "output": [message],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
        }
        row = {
            "responses_create_params": {"input": [{"role": "user", "content": PROMPT}]},
            "response": response,
            "expected_answer": "4",
        }
        answer = client(app).post("/verify", json=row)
        assert answer.status_code == 200, answer.text
        return answer.json()

    good, missing = ask(answers(4)[0]), ask(UNSCORED)
    assert good["expected_answer"] == "4"
    assert good["reward"] == pytest.approx(fair(4)[0])
    assert "_ng_failure_class" not in good
    assert "instance_config" not in good
    assert missing["_ng_failure_class"] == "judge_failed"
    assert "reward_components" not in good
    assert missing["instance_config"] == {"mask_sample": True}, "where NeMo-RL looks for rows to leave out of the loss"
    path = with_judges(write_config(ABSTAIN))
    both = ask(answers(4)[0])
    assert both["reward"] == pytest.approx(sum(both["reward_components"].values()))
    path = with_judges(write_config(ABSTAIN))
    path.write_text(path.read_text().replace("optional = true", "optional = false"))
    missing = ask(UNSCORED)
    assert missing["instance_config"] == {"mask_sample": True}
    assert missing["reward_components"] == {"taste": 0.0, "safe": 0.0}, "the same keys on every row"
    assert missing["judge_taste_scored"] == 0.0
