"""A TRL reward function for each judge, without TRL: one batch for all, and None only where TRL understands it."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.adapter_suite import UNSCORED, Write, answers, fair, sim_url, write_config
from tests.contracts.test_trl_function import Owner, Trainer, call

from referee.config import load
from referee.errors import ConfigError, UnscoredError
from referee.records import Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.shaping import shape_group
from referee.trainers import trl
from referee.trainers.shared import Judged
from referee.trainers.trl import attach, reward_func, reward_funcs
from referee.trainers.trl_terms import OpenBatches, term_values

__all__ = ["sim_url", "write_config"]

SCORE = 'kind = "score"\nask_again = 0\n'
YES_NO = 'kind = "yes_no"\nask_again = 0\n'


def several(
    write: Write, *more: str, policy: str = "abstain", shaping: str = "", taste: str = "weight = 0.8\n"
) -> Path:
    """A configuration with a judge `taste` that reads the quality, a judge `safe`, and more."""
    path = write({"policy": policy, "abort_above": 1.0})
    tables = [f'name = "taste"\n{taste}{SCORE}', f'name = "safe"\nweight = 0.2\n{YES_NO}', *more]
    judges = "".join(f"[[judge]]\n{table}" for table in tables)
    path.write_text(path.read_text().replace("[judge]\nask_again = 0\n", judges) + shaping)
    return path


def calls_of(path: Path) -> float:
    """Samples that were paid for: once, however many judges and functions there are."""
    return Judged(path).referee.metrics()["calls"]


def test_a_function_for_each_judge_and_one_batch_for_all(write_config: Write) -> None:
    """Named after the judges; weighted and added up they are the reward of the one function, and nothing is asked
    twice."""
    path = several(write_config, shaping="[shaping]\ncoefficient = 2.0\n")
    funcs = reward_funcs(path)
    assert [func.__name__ for func in funcs] == ["taste", "safe"]
    assert funcs.weights == [1.6, 0.4]
    assert all(map(inspect.isfunction, funcs))
    texts = answers(4, 9, 1)
    taste, safe = (call(func, texts) for func in funcs)
    assert taste == fair(4, 9, 1)
    assert calls_of(path) == len(texts)
    whole = call(reward_func(path), texts)
    assert [1.6 * one + 0.4 * other for one, other in zip(taste, safe, strict=True)] == pytest.approx(whole)
    assert call(funcs[0], texts) == taste, "the next step with the same rows is a batch of its own"


def test_the_scale_is_the_configured_one(write_config: Write) -> None:
    """With scale = "native" a function gives the judge's own numbers."""
    path = several(write_config, shaping='[shaping]\nscale = "native"\n')
    assert call(reward_funcs(path)[0], answers(4, 9)) == [4, 9]


def test_asynchronous_functions_share_it_too(write_config: Write) -> None:
    """As TRL runs them: all at once on one loop; and sync ones in threads, as AsyncGRPO does."""
    path = several(write_config)
    funcs, texts = reward_funcs(path, is_async=True), answers(3, 7)
    assert all(map(inspect.iscoroutinefunction, funcs))

    async def run() -> list[Any]:
        return await asyncio.gather(*[call(func, texts) for func in funcs])

    assert asyncio.run(run())[0] == fair(3, 7)
    assert calls_of(path) == 2
    found: dict[str, Any] = {}
    others = answers(5, 6, 2)
    threads = [
        threading.Thread(target=lambda func=func: found.__setitem__(func.__name__, call(func, others)))
        for func in reward_funcs(path)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert found["taste"] == fair(5, 6, 2)
    assert calls_of(path) == 5


def test_a_row_without_a_reward_is_none_in_all_functions(write_config: Write) -> None:
    """A single None counts as 0 in TRL's sum: where a judge that must not be missing is, every function says None."""
    funcs = reward_funcs(several(write_config))
    taste, safe = (call(func, [UNSCORED, *answers(4)]) for func in funcs)
    assert taste == [None, *fair(4)]
    assert safe[0] is None
    assert safe[1] is not None


def test_an_optional_judge_is_none_by_itself(write_config: Write) -> None:
    """The reward is then made of the others, which is what TRL makes of a single None."""
    taste, safe = (
        call(func, [UNSCORED]) for func in reward_funcs(several(write_config, taste="weight = 0.8\noptional = true\n"))
    )
    assert taste == [None]
    assert safe[0] is not None


def test_a_group_mean_is_each_judges_own(write_config: Write) -> None:
    """An unscored row stands at its group's mean with every judge: advantage 0, summed before or after."""
    path = several(write_config, policy="group_mean")
    funcs, texts = reward_funcs(path), [UNSCORED, *answers(4, 9)]
    rows = [call(func, texts) for func in funcs]
    for first, *others in rows:
        assert first == pytest.approx(sum(others) / 2)
    whole = call(reward_func(path), texts)
    assert [0.8 * one + 0.2 * other for one, other in zip(*rows, strict=True)] == pytest.approx(whole)


def test_a_group_without_a_reward_stays_without(write_config: Write) -> None:
    """There is no mean to give."""
    assert [
        call(func, [UNSCORED, f"{UNSCORED} b"]) for func in reward_funcs(several(write_config, policy="group_mean"))
    ] == [[None, None]] * 2


def test_policy_raise_raises_each_time(write_config: Write) -> None:
    """An error is not kept for the next function; it judges again and says the same."""
    for func in reward_funcs(several(write_config, policy="raise")):
        with pytest.raises(UnscoredError):
            call(func, [UNSCORED])


def test_a_watched_judge_has_no_function(write_config: Write) -> None:
    """Weight 0: asked and in the log, but TRL would add it up wherever nobody passes weights."""
    funcs = reward_funcs(several(write_config, f'name = "watched"\nweight = 0\n{SCORE}'))
    assert [func.__name__ for func in funcs] == ["taste", "safe"]
    owner = Owner(1)
    call(funcs[1], answers(4), **owner.columns)
    assert owner.logged["referee/watched/score_mean"] == fair(4)[0]


def test_metrics_are_sent_once(write_config: Write) -> None:
    """TRL refuses a column twice; the reasons of all judges stand in one."""
    owner = Owner(1)
    for func in reward_funcs(several(write_config)):
        call(func, answers(4), **owner.columns)
    assert owner.logged["referee/unscored_share"] == 0
    assert "taste: " in owner.logged["judge_said"][0]
    assert "safe: " in owner.logged["judge_said"][0]


@pytest.mark.parametrize(
    ("shaping", "policy", "setting"),
    [("[shaping.length]\nenable = true\n", "abstain", "shaping.length.enable"), ("", "value", "missing.policy")],
)
def test_what_is_no_judges_own_is_refused(write_config: Write, shaping: str, policy: str, setting: str) -> None:
    """By name, before training, with the function that can do it."""
    path = several(write_config, shaping=shaping, policy=policy)
    if policy == "value":
        path.write_text(path.read_text().replace('policy = "value"', 'policy = "value"\nvalue = 0.5'))
    with pytest.raises(ConfigError, match="reward_func") as found:
        reward_funcs(path)
    assert found.value.setting == setting


def test_weights_that_are_not_passed_are_said_once(write_config: Write, caplog: pytest.LogCaptureFixture) -> None:
    """TRL counts each with 1 then."""
    funcs = reward_funcs(several(write_config), name="without_weights")
    for weights in (None, [1.0, 1.0], [0.8, 0.2], [3.0, 1.0]):
        for func in funcs:
            call(func, answers(4), **Owner(1, reward_weights=weights).columns)
    assert sum("reward_weights" in record.getMessage() for record in caplog.records) == 1


def test_they_pickle_one_by_one_and_still_share(write_config: Write) -> None:
    """In another process as here: two functions, one judging."""
    path = several(write_config)
    funcs = reward_funcs(path)
    assert [pickle.loads(pickle.dumps(func)) for func in funcs] == funcs
    code = (
        "import pickle\n"
        f"funcs = [pickle.loads(bytes.fromhex(text)) for text in {[pickle.dumps(func).hex() for func in funcs]!r}]\n"
        "for func in funcs: func(prompts=['q'], completions=['[[quality=4]]'], completion_ids=[[1]])\n"
        "print(*[func.__name__ for func in funcs], funcs[0].referee.judged.referee.metrics()['calls'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["taste", "safe", "1.0"]


def test_attach_begins_once_for_all(write_config: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun at the end of generation is what every function collects."""
    monkeypatch.setattr(trl, "trl_version", lambda: (1, 16))
    path = several(write_config)
    trainer = Trainer(*reward_funcs(path))
    inputs = [{"prompt": "q", "ground_truth": str(n)} for n in range(3)]
    with attach(trainer):
        assert trainer._generate_and_score_completions(inputs) == fair(1, 2, 3)
    assert trainer.seen == [1]
    assert calls_of(path) == 3


def test_a_lone_judge_has_one_function(write_config: Write) -> None:
    """The same numbers as `reward_func`, under the judge's name."""
    (func,) = reward_funcs(write_config({"policy": "abstain"}))
    assert func.__name__ == "judge"
    assert call(func, answers(4, 9)) == fair(4, 9)


def test_means_are_of_the_own_group() -> None:
    """Two groups of a batch do not mix, and a term that nobody has stays None."""
    config = load(
        {
            "endpoint": {"url": "http://a.test/v1", "model": "m", "key_env": ""},
            "judge": [{"name": "a"}, {"name": "b", "optional": True}],
            "missing": {"policy": "group_mean"},
        }
    )

    def said(value: float) -> Settled:
        return Settled(verdict=Verdict(score=value, value=value))

    gone = Settled(verdict=Unscored(reason=Reason.TIMEOUT))
    ends = {"x": [(said(0.2), gone), (gone, said(0.9))], "y": [(said(0.8), said(0.4)), (gone, gone)]}
    rewards: list[Reward] = []
    for group, rows in ends.items():
        members = [(len(rewards) + n, Sample(prompt="p", response="r", group=group), row) for n, row in enumerate(rows)]
        rewards += shape_group(members, config)
    assert term_values(rewards, 0, config) == [0.2, 0.2, 0.8, 0.8]
    assert term_values(rewards, 1, config) == [None, None, 0.4, 0.4]


def test_a_batch_that_an_error_left_behind_is_not_taken_for_the_next_one() -> None:
    """As after an interrupt in a notebook: the same rows are submitted again, and all functions get the new batch."""
    samples = (Sample(prompt="p", response="r"),)
    made = [SimpleNamespace(samples=samples), SimpleNamespace(samples=samples)]
    batches, submit = OpenBatches(2), iter(made)
    taken = [batches.take(function, samples, lambda _: next(submit)) for function in (0, 0, 1)]  # type: ignore[arg-type, return-value]
    assert taken == [(made[0], True), (made[1], True), (made[1], False)]
