"""The TRL reward function without TRL: names, pickling, early batches, what it says about old releases."""

from __future__ import annotations

import inspect
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.adapter_suite import UNSCORED, Write, answers, fair, sim_url, write_config

from referee.config import Secret
from referee.errors import ConfigError
from referee.trainers import trl
from referee.trainers.trl import TrlReward, attach, reward_func

__all__ = ["sim_url", "write_config"]

ABSTAIN = {"policy": "abstain"}


def call(func: Any, texts: list[str], **columns: Any) -> Any:
    """As TRL calls a reward function."""
    return func(prompts=["q"] * len(texts), completions=texts, completion_ids=[[1]] * len(texts), **columns)


def test_it_is_a_plain_named_function(write_config: Write) -> None:
    """TRL builds metric names from __name__ and looks for coroutine functions; old releases take nothing else."""
    path = write_config(ABSTAIN)
    func, other = reward_func(path), reward_func(path, name="taste", is_async=True)
    assert inspect.isfunction(func)
    assert func.__name__ == "referee"
    assert inspect.iscoroutinefunction(other)
    assert other.__name__ == "taste"
    assert reward_func(path) is func
    with pytest.raises(ConfigError, match="letters"):
        reward_func(path, name="my judge")


def test_it_pickles_into_another_process(write_config: Write) -> None:
    """AsyncGRPO spawns a process for rewards: the function is made there anew, from its name alone."""
    func = reward_func(write_config(ABSTAIN))
    assert pickle.loads(pickle.dumps(func)) is func
    code = (
        "import pickle\n"
        f"func = pickle.loads(bytes.fromhex({pickle.dumps(func).hex()!r}))\n"
        "print(func.__name__, func(prompts=['q'], completions=['[[quality=4]]'], completion_ids=[[1]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["referee", f"[{fair(4)[0]}]"]


def test_a_key_in_the_configuration_does_not_pickle(sim_url: str) -> None:
    """It works in this process, and says why it does not travel."""
    func = reward_func({"endpoint": {"url": sim_url, "model": "m", "api_key": Secret("sk-canary")}})
    assert call(func, answers(4)) == fair(4)
    with pytest.raises((pickle.PicklingError, AttributeError), match="key_env"):
        pickle.dumps(func)
    assert "canary" not in repr(func) + func.__qualname__


def test_unknown_names_stay_unknown() -> None:
    """The module finds functions by name, and nothing else."""
    with pytest.raises(AttributeError):
        trl.no_such_thing  # noqa: B018


def test_what_was_begun_is_used_once_and_only_if_equal(write_config: Write, caplog: pytest.LogCaptureFixture) -> None:
    """An early batch answers the same rows; others are judged by themselves. Batches nobody asks for: said once."""
    func = reward_func(write_config(ABSTAIN))
    reward: TrlReward = func.referee  # type: ignore[attr-defined]
    texts = answers(3, 9)
    reward.begin(["q"] * 2, texts, [[1]] * 2, {})
    assert reward.begun == 1
    assert call(func, answers(5, 6)) == fair(5, 6)
    assert reward.begun == 1
    assert call(func, texts) == fair(3, 9)
    assert reward.begun == 0
    for _ in range(9):
        reward.begin(["q"] * 2, texts, [[1]] * 2, {})
    assert reward.begun <= trl.EARLY
    assert sum("paid for, twice" in record.getMessage() for record in caplog.records) == 1
    reward.abandon()
    assert reward.begun == 0


@pytest.mark.parametrize(("version", "said"), [((1, 5), 1), ((1, 6), 0), (None, 0)])
def test_old_releases_turn_none_into_zero(
    write_config: Write,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: tuple[int, int] | None,
    said: int,
) -> None:
    """Said once, with what to set; nothing to say where None is masked."""
    monkeypatch.setattr(trl, "trl_version", lambda: version)
    func = reward_func(write_config(ABSTAIN), name=f"judge_for_{'_'.join(map(str, version or ()))}")
    with caplog.at_level(logging.WARNING, "referee.trainers"):
        for _ in range(2):
            assert call(func, [UNSCORED, *answers(4)]) == [None, *fair(4)]
    found = [record.getMessage() for record in caplog.records if "group_mean" in record.getMessage()]
    assert len(found) == said


def test_metrics_go_where_trl_takes_them(write_config: Write) -> None:
    """The same names each time, also when nothing is scored; nothing where a release has no such function."""
    func = reward_func(write_config(ABSTAIN))
    metrics: dict[str, float] = {}
    columns: dict[str, list[Any]] = {}
    call(func, answers(4), log_metric=metrics.__setitem__, log_extra=columns.__setitem__)
    names = set(metrics)
    assert metrics["referee/unscored_share"] == 0
    assert columns["judge"] == [4]
    call(func, [UNSCORED], log_metric=metrics.__setitem__, log_extra=columns.__setitem__)
    assert set(metrics) == names
    assert metrics["referee/unscored_share"] == 1
    assert columns["judge"] == [None]
    assert columns["judge_said"] == ["not scored: out_of_range"]
    quiet = reward_func(write_config(ABSTAIN), log_details=False)
    metrics.clear()
    call(quiet, answers(4), log_metric=metrics.__setitem__)
    assert not metrics


class Trainer:
    """What `attach` looks at in a trainer."""

    def __init__(self, *funcs: Any) -> None:
        self.reward_funcs = list(funcs)
        self.state = SimpleNamespace(global_step=2)
        self.seen: list[int] = []

    def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
        return [[0]] * len(prompts), [[1, 2]] * len(prompts), answers(*range(1, len(prompts) + 1))

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        columns = {"ground_truth": [row["ground_truth"] for row in inputs], "trainer_state": self.state}
        return self.reward_funcs[0](
            prompts=prompts, completions=completions, completion_ids=completion_ids_list, **columns
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
        prompts = [row["prompt"] for row in inputs]
        _, ids, completions = self._generate(prompts)
        self.seen.append(self.reward_funcs[0].referee.begun)
        return self._calculate_rewards(inputs, prompts, completions, ids)


def test_attach_begins_at_the_end_of_generation(write_config: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows begun are the rows asked for; afterwards the trainer is as it was."""
    monkeypatch.setattr(trl, "trl_version", lambda: (1, 16))
    trainer = Trainer(reward_func(write_config(ABSTAIN)))
    inputs = [{"prompt": "q", "ground_truth": str(n)} for n in range(3)]
    before = dict(trainer.__dict__)
    with attach(trainer):
        assert trainer._generate_and_score_completions(inputs) == fair(1, 2, 3)
    assert trainer._generate_and_score_completions(inputs) == fair(1, 2, 3)
    assert trainer.seen == [1, 0]
    assert trainer.__dict__ == before


def test_attach_survives_a_pass_that_fails(write_config: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error between generation and rewards leaves a batch begun; detaching stops it."""
    monkeypatch.setattr(trl, "trl_version", lambda: (1, 16))
    trainer = Trainer(reward_func(write_config(ABSTAIN)))
    attached = attach(trainer)
    monkeypatch.setattr(trainer, "_calculate_rewards", lambda *rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer._generate_and_score_completions([{"prompt": "q", "ground_truth": "1"}])
    assert trainer.reward_funcs[0].referee.begun == 1
    attached.detach()
    assert trainer.reward_funcs[0].referee.begun == 0


def test_no_key_in_the_name(tmp_path: Path, write_config: Write) -> None:
    """The qualified name travels in pickles and tracebacks: it holds settings, never a key's value."""
    name = reward_func(write_config(ABSTAIN)).__qualname__
    assert name.isidentifier()
    assert name.startswith(trl.PREFIX)
