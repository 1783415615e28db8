"""Real TRL trainers with a simulated judge: sync, async, attached, failing, several steps."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.trainers.trl_tiny import logged, make_trainer, quietly

from referee.errors import ConfigError, EndpointClosed, UnscoredError
from referee.sim import ProviderSpec, ServerProcess, start_server_process
from referee.trainers import trl as adapter
from referee.trainers.rows import to_sample
from referee.trainers.shared import Judged, close_all

pytest.importorskip("trl")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

Start = Callable[..., dict[str, Any]]


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Start]:
    """Starts simulated judges; gives the configuration that reaches each."""
    servers: list[ServerProcess] = []

    def start(faults: dict[str, float] | None = None, **sections: Any) -> dict[str, Any]:
        servers.append(start_server_process(ProviderSpec(faults=faults or {}), seed=1))  # type: ignore[arg-type]
        endpoint = {"url": servers[-1].url, "model": "simulated", "key_env": ""}
        # The random model hardly ever ends an answer by itself.
        asked = {"gates": {"truncated": "off"}, **sections.pop("judge", {})}
        return {"endpoint": endpoint, "cache": {"path": ""}, "judge": asked, **sections}

    yield start
    close_all()
    for server in servers:
        server.stop()


def expected(config: dict[str, Any], prompts: list[Any], completions: list[Any]) -> list[float | None]:
    """What the judge says of each row when asked by itself."""
    samples = [to_sample(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
    return [reward.value for reward in Judged(config).score(samples)]


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_every_row_gets_its_own_reward(tmp_path: Path, judge: Start, kind: str, is_async: bool, chat: bool) -> None:
    """Over several steps, each completion's reward is the judge's verdict on it, in its own row."""
    config = judge()
    func = adapter.reward_func(config, is_async=is_async)
    trainer = make_trainer(tmp_path, [func], kind, chat, steps=3)
    trainer.train()
    prompts, completions, rewards, _ = logged(trainer)
    assert len(rewards) == 3 * 8
    assert rewards == pytest.approx(expected(config, prompts, completions))
    assert len(set(rewards)) > 3, "a judge that says the same of everything shows nothing about order"
    last = [row for row in trainer.state.log_history if "rewards/referee/mean" in row][-1]
    if (adapter.trl_version() or (0, 0)) >= (1, 0):  # before, TRL takes no metrics from a reward function
        assert last["referee/unscored_share"] == 0
        assert list(trainer._logs["extra"]) == ["judge", "judge_said"]


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_attached_gives_the_same_rewards_and_begins_early(tmp_path: Path, judge: Start, kind: str) -> None:
    """Judging is under way while log-probabilities are computed, and no number differs."""
    config, seen = judge(shaping={"length": {"enable": True}}), []
    runs = []
    for attached in (False, True):
        func = adapter.reward_func(config, name=f"judge_{attached}")
        trainer = make_trainer(tmp_path / str(attached), [func], kind, steps=3, beta=0.1)
        compute = trainer._get_per_token_logps_and_entropies

        def watch(*args: Any, compute: Any = compute, func: Any = func, **named: Any) -> Any:
            if not quietly("torch").is_grad_enabled():
                seen.append(func.referee.begun)
            return compute(*args, **named)

        trainer._get_per_token_logps_and_entropies = watch
        if attached:
            seen.clear()
            with adapter.attach(trainer):
                trainer.train()
        else:
            trainer.train()
            assert not any(seen)
        assert func.referee.begun == 0
        runs.append(logged(trainer, f"judge_{attached}"))
    assert seen
    assert all(count == 1 for count in seen)
    assert runs[0] == runs[1]


@pytest.mark.parametrize("attached", [False, True], ids=["function", "attached"])
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_groups_are_judged_as_a_whole(tmp_path: Path, judge: Start, kind: str, attached: bool) -> None:
    """Every step's groups of siblings, in GRPO: each row has the value that its response has among them."""
    config = judge(judge={"kind": kind, "gates": {"truncated": "off", "no_alphanumerics": "off", "empty": "off"}})
    func = adapter.reward_func(config)
    trainer = make_trainer(tmp_path, [func], steps=2)
    with adapter.attach(trainer) if attached else contextlib.nullcontext():
        trainer.train()
    prompts, completions, rewards, _ = logged(trainer)
    size = trainer.num_generations
    assert len(rewards) == 2 * 8
    assert size > 1
    for start in range(0, len(rewards), size):
        rows = zip(prompts[start : start + size], completions[start : start + size], strict=True)
        siblings = [msgspec.structs.replace(to_sample(*row), group="g") for row in rows]
        alone = [reward.value for reward in Judged(config).score(siblings)]
        assert rewards[start : start + size] == pytest.approx(alone)
    assert len(set(rewards)) > 3


def test_detached_trainer_is_as_it_was(tmp_path: Path, judge: Start) -> None:
    """Nothing stays on the trainer, and it can be attached again but not twice."""
    trainer = make_trainer(tmp_path, [adapter.reward_func(judge())], steps=1)
    before = dict(trainer.__dict__)
    attached = adapter.attach(trainer)
    with pytest.raises(ConfigError, match="attached already"):
        adapter.attach(trainer)
    attached.detach()
    attached.detach()
    assert trainer.__dict__ == before
    with adapter.attach(trainer):
        trainer.train()
    assert {"_generate", "_generate_and_score_completions"}.isdisjoint(trainer.__dict__)


def test_attach_refuses_what_it_does_not_know(tmp_path: Path, judge: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release, a trainer without our function, something that is no such trainer."""
    trainer = make_trainer(tmp_path, [adapter.reward_func(judge())], steps=1)
    for version in [(0, 26), (1, 17), (2, 0), None]:
        monkeypatch.setattr(adapter, "trl_version", lambda version=version: version)
        with pytest.raises(ConfigError, match="knows TRL"):
            adapter.attach(trainer)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="no referee function"):
        adapter.attach(object())
    trainer._calculate_rewards = lambda inputs: None
    with pytest.raises(ConfigError, match="does not know the inside"):
        adapter.attach(trainer)


def test_unscored_rows_teach_nothing(tmp_path: Path, judge: Start) -> None:
    """With the length penalty on, a row the judge did not score has advantage 0 and moves no baseline.

    A penalty in a function of its own would have scored it, and TRL would have taken the judge's part as 0.
    """
    version = adapter.trl_version()
    if version is None or version < adapter.MASKS_NONE:
        pytest.skip("this TRL counts None as 0; the function says so, see tests/contracts")
    config = judge(
        {"refusal": 0.4},
        shaping={"length": {"enable": True, "peak_ratio": 0.0, "outer_ratio": 0.1}},
        missing={"abort_above": 1.0},
        judge={"ask_again": 0},
    )
    trainer = make_trainer(tmp_path, [adapter.reward_func(config)], steps=4)
    trainer.train()
    _, _, rewards, advantages = logged(trainer)
    missing = [n for n, reward in enumerate(rewards) if math.isnan(reward)]
    assert 0 < len(missing) < len(rewards)
    assert all(advantages[n] == 0 for n in missing)
    for start in range(0, len(rewards), 4):
        scored = [n for n in range(start, start + 4) if n not in missing]
        mean = sum(rewards[n] for n in scored) / max(1, len(scored))
        assert all((advantages[n] > 0) == (rewards[n] > mean + 1e-6) for n in scored)
    shares = [row["referee/unscored_share"] for row in trainer.state.log_history if "referee/unscored_share" in row]
    assert sum(shares) * 8 == pytest.approx(len(missing))


@pytest.mark.parametrize("attached", [False, True], ids=["plain", "attached"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_training_survives_a_judge_that_is_down(tmp_path: Path, judge: Start, attached: bool, is_async: bool) -> None:
    """Every call fails: training goes on, no reward is invented, the model does not move by it."""
    config = judge({"http_503": 1.0}, limits={"deadline": 1.0})
    trainer = make_trainer(tmp_path, [adapter.reward_func(config, is_async=is_async)], steps=3)
    if attached:
        adapter.attach(trainer)
    trainer.train()
    _, _, rewards, advantages = logged(trainer)
    assert trainer.state.global_step == 3
    assert all(math.isnan(reward) for reward in rewards)
    assert set(advantages) == {0.0}


@pytest.mark.parametrize("attached", [False, True], ids=["plain", "attached"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_wrong_key_stops_training_at_once(tmp_path: Path, judge: Start, attached: bool, is_async: bool) -> None:
    """A judge that can never answer: the one clear error in the first step, before the model has moved."""
    config = judge({"auth": 1.0})
    trainer = make_trainer(tmp_path, [adapter.reward_func(config, is_async=is_async)], steps=3)
    if attached:
        adapter.attach(trainer)
    with pytest.raises(EndpointClosed, match="key_env"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_policy_raise_stops_training(tmp_path: Path, judge: Start) -> None:
    """Only then, and with our error."""
    config = judge({"refusal": 1.0}, missing={"policy": "raise"}, judge={"ask_again": 0})
    trainer = make_trainer(tmp_path, [adapter.reward_func(config)], steps=2)
    with pytest.raises(UnscoredError, match="policy"):
        trainer.train()


def test_policy_group_mean_fills_in(tmp_path: Path, judge: Start) -> None:
    """Unscored rows get their siblings' mean where there is one."""
    config = judge({"refusal": 0.3}, missing={"policy": "group_mean", "abort_above": 1.0}, judge={"ask_again": 0})
    trainer = make_trainer(tmp_path, [adapter.reward_func(config)], steps=3)
    trainer.train()
    assert trainer.state.global_step == 3
    assert not any(math.isnan(reward) for reward in logged(trainer)[2])


def test_several_steps_per_generation(tmp_path: Path, judge: Start) -> None:
    """One reward call for a larger batch; attached or not, all rows are scored."""
    config = judge()
    func = adapter.reward_func(config)
    trainer = make_trainer(tmp_path, [func], steps=4, steps_per_generation=2, gradient_accumulation_steps=1)
    with adapter.attach(trainer):
        trainer.train()
    prompts, completions, rewards, _ = logged(trainer)
    assert len(rewards) == 32
    assert rewards == pytest.approx(expected(config, prompts, completions))


def test_beside_another_reward_function(tmp_path: Path, judge: Start) -> None:
    """Other functions of the user's stay what they are."""

    def constant(prompts: Any, **_: Any) -> list[float]:
        return [0.5] * len(prompts)

    config = judge()
    trainer = make_trainer(tmp_path, [constant, adapter.reward_func(config)], steps=2)
    trainer.train()
    prompts, completions, rewards, _ = logged(trainer)
    assert rewards == pytest.approx(expected(config, prompts, completions))
    assert set(logged(trainer, "constant")[2]) == {0.5}


@pytest.mark.parametrize("attached", [False, True], ids=["plain", "attached"])
@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_answers_cut_at_the_limit_are_the_ones_trl_counts(
    tmp_path: Path, judge: Start, kind: str, attached: bool
) -> None:
    """As many meet the gate as TRL reports clipped; the others are judged."""
    if not attached and (adapter.trl_version() or (0, 0)) < (1, 0):
        pytest.skip("this TRL shows a reward function nothing of its trainer")
    config = judge(judge={"gates": {"truncated": "unscored"}}, missing={"abort_above": 1.0})
    trainer = make_trainer(tmp_path, [adapter.reward_func(config)], kind, steps=6, max_completion_length=4)
    if attached:
        adapter.attach(trainer)
    trainer.train()
    _, _, rewards, _ = logged(trainer)
    clipped = [row["completions/clipped_ratio"] for row in trainer.state.log_history if "step_time" in row]
    assert 0 < sum(clipped) < len(clipped)
    assert sum(map(math.isnan, rewards)) == pytest.approx(sum(clipped) * 8)


@pytest.mark.parametrize("attached", [False, True], ids=["plain", "attached"])
def test_a_prompt_drawn_twice_is_two_groups(tmp_path: Path, judge: Start, attached: bool) -> None:
    """Four answers are a group, as TRL counts them, also where the next four have the same prompt."""
    if not attached and (adapter.trl_version() or (0, 0)) < (1, 0):
        pytest.skip("this TRL shows a reward function nothing of its trainer")
    config = judge(ledger={"dir": str(tmp_path / "ledger")}, missing={"policy": "group_mean"})
    trainer = make_trainer(tmp_path, [adapter.reward_func(config)], steps=3)
    trainer.train_dataset = trainer.train_dataset.map(lambda row: {"prompt": "2+2="})
    if attached:
        adapter.attach(trainer)
    trainer.train()
    close_all()
    lines = [line for file in (tmp_path / "ledger").rglob("*.jsonl") for line in file.read_text().splitlines()]
    groups: dict[str, set[tuple[int, str]]] = {}
    for line in map(json.loads, lines):
        if line.get("group"):
            groups.setdefault(line["group"], set()).add((line["step"], line["id"]))
    assert len(groups) == 3 * 2
    assert all(len(rows) == 4 and len({step for step, _ in rows}) == 1 for rows in groups.values())


def test_two_judges_in_one_trainer(tmp_path: Path, judge: Start) -> None:
    """Metrics and columns of each stand under its own name."""
    if (adapter.trl_version() or (0, 0)) < (1, 0):
        pytest.skip("this TRL takes no metrics from a reward function")
    config = judge()
    funcs = [adapter.reward_func(config, name=name) for name in ("taste", "truth")]
    trainer = make_trainer(tmp_path, funcs, steps=2)
    trainer.train()
    last = [row for row in trainer.state.log_history if "rewards/taste/mean" in row][-1]
    assert {"taste/unscored_share", "truth/unscored_share"} <= {*last}
    columns = {name: len(values) for name, values in trainer._logs["extra"].items()}
    assert columns == dict.fromkeys(["taste_judge", "taste_judge_said", "truth_judge", "truth_judge_said"], 16)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_function_for_each_judge_under_both_aggregations(tmp_path: Path, judge: Start, is_async: bool) -> None:
    """TRL weighs the judges' numbers itself; each row is judged once, and one without a reward has advantage 0."""
    version = adapter.trl_version()
    if version is None or version < adapter.MASKS_NONE:
        pytest.skip("this TRL counts None as 0")
    judges = [
        {"name": "taste", "weight": 0.8, "kind": "score", "ask_again": 0, "gates": {"truncated": "off"}},
        {"name": "safe", "weight": 0.2, "kind": "yes_no", "gates": {"truncated": "off"}},
    ]
    for aggregation in ("sum_then_normalize", "normalize_then_sum"):
        config = judge({"refusal": 0.2}, missing={"abort_above": 1.0}) | {"judge": judges}
        funcs = adapter.reward_funcs(config, is_async=is_async)
        trainer = make_trainer(
            tmp_path / aggregation,
            funcs,
            steps=3,
            reward_weights=funcs.weights,
            multi_objective_aggregation=aggregation,
        )
        with adapter.attach(trainer):
            trainer.train()
        _, _, taste, advantages = logged(trainer, "taste")
        safe = logged(trainer, "safe")[2]
        assert list(map(math.isnan, taste)) == list(map(math.isnan, safe))
        missing = [n for n, number in enumerate(taste) if math.isnan(number)]
        assert 0 < len(missing) < len(taste)
        assert all(advantages[n] == 0 for n in missing)
        assert any(advantages)
        assert Judged(config).referee.metrics()["samples"] == len(taste)


def test_a_missing_column_stops_training_at_once(tmp_path: Path, judge: Start) -> None:
    """A judge that compares and a dataset without known answers: one error in the first step."""
    trainer = make_trainer(tmp_path, [adapter.reward_func(judge(judge={"kind": "reference"}))], steps=2)
    trainer.train_dataset = trainer.train_dataset.remove_columns("ground_truth")
    with pytest.raises(ConfigError, match="ground_truth"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_pickles_as_trl_asks(judge: Start) -> None:
    """AsyncGRPO pickles reward functions; TRL's own test of asynchronous functions sees ours for what they are."""
    utils = quietly("trl.trainer.utils")
    for is_async in (False, True):
        func = adapter.reward_func(judge(), is_async=is_async)
        assert pickle.loads(pickle.dumps(func)) is func
        assert getattr(utils, "is_async_callable", inspect.iscoroutinefunction)(func) is is_async
