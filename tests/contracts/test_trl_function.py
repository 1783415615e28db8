"""The TRL reward function without TRL: names, pickling, early batches, what it says about old releases."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import math
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.adapter_suite import UNSCORED, Write, answers, fair, sim_url, write_config
from tests.contracts.group_judges import KIND, registered

from referee.config import Secret
from referee.errors import ConfigError, InputError, UnscoredError
from referee.ledger import TotalLine, read
from referee.trainers import trl, trl_ranks
from referee.trainers.shared import close_all
from referee.trainers.trl import TrlReward, attach, reward_func, reward_funcs
from referee.trainers.trl_batch import tools_by_row

__all__ = ["sim_url", "write_config"]

ABSTAIN = {"policy": "abstain"}


def call(func: Any, texts: list[str], **columns: Any) -> Any:
    """As TRL calls a reward function."""
    return func(prompts=["q"] * len(texts), completions=texts, completion_ids=[[1]] * len(texts), **columns)


def test_the_record_says_how_many_steps_there_will_be(write_config: Write, tmp_path: Path) -> None:
    """As TRL's trainer knows it: `referee watch` says what is left."""
    func = reward_func(write_config(ABSTAIN, ledger={"dir": str(tmp_path / "run")}))
    call(func, ["[[quality=3]]"], trainer_state=SimpleNamespace(global_step=1, max_steps=40))
    call(func, ["[[quality=4]]"], trainer_state=SimpleNamespace(global_step=2, max_steps=-1))
    close_all()
    assert [line.steps for line in read(tmp_path / "run") if isinstance(line, TotalLine)] == [40]


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
    reward.begin((["q"] * 2, texts, [[1]] * 2, {}))
    assert reward.begun == 1
    assert call(func, answers(5, 6)) == fair(5, 6)
    assert reward.begun == 1
    assert call(func, texts) == fair(3, 9)
    assert reward.begun == 0
    for _ in range(9):
        reward.begin((["q"] * 2, texts, [[1]] * 2, {}))
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


def test_several_judges_are_told_apart_in_the_log(write_config: Write) -> None:
    """Each has its mean, its unscored share and its cost; the names stay the same where nothing is scored."""
    path = write_config(ABSTAIN)
    judges = '[[judge]]\nname = "taste"\nask_again = 0\n[[judge]]\nname = "safe"\nkind = "yes_no"\nask_again = 0'
    path.write_text(path.read_text().replace("[judge]\nask_again = 0", judges))
    func = reward_func(path)
    metrics: dict[str, float] = {}
    call(func, answers(4), log_metric=metrics.__setitem__)
    assert metrics["referee/taste/score_mean"] == fair(4)[0]
    assert metrics["referee/taste/unscored_share"] == metrics["referee/safe/unscored_share"] == 0
    names = set(metrics)
    call(func, [UNSCORED], log_metric=metrics.__setitem__)
    assert set(metrics) == names
    assert metrics["referee/taste/unscored_share"] == 1
    assert math.isnan(metrics["referee/taste/score_mean"])


class Owner:
    """What a reward function can find out about its trainer: TRL passes bound methods of it."""

    def __init__(self, rows: int = 4, **more: Any) -> None:
        self.num_generations = rows
        self.max_completion_length = 3
        self._tokenizer = SimpleNamespace(eos_token_id=0, pad_token_id=1)
        self.eos_token_ids = [0, 9]
        self.logged: dict[str, Any] = {}
        self.__dict__.update(more)

    def _log_metric(self, name: str, value: Any) -> None:
        assert name not in self.logged, f"{name}: logged twice"
        self.logged[name] = value

    @property
    def columns(self) -> dict[str, Any]:
        return {"log_metric": self._log_metric, "log_extra": self._log_metric}


def test_two_groups_with_one_prompt_have_two_medians(write_config: Write) -> None:
    """A prompt that is drawn twice in a batch: each group is measured by its own answers, and named by itself."""
    path = write_config(ABSTAIN)
    path.write_text(path.read_text() + "[shaping.length]\nenable = true\npeak_ratio = 0.1\nouter_ratio = 0.2\n")
    func, texts = reward_func(path), answers(*[10] * 8)
    ids = [[5] * length for length in (10, 10, 10, 10, 50, 50, 50, 50)]
    batch = {"prompts": ["q"] * 8, "completions": texts, "completion_ids": ids}
    owner = Owner(max_completion_length=99)
    assert func(**batch, **owner.columns) == [1.0] * 8
    pending, _ = func.referee.batch(0, (*batch.values(), owner.columns))  # type: ignore[attr-defined]
    names = [sample.group for sample in pending.samples]
    assert len({*names[:4]}) == len({*names[4:]}) == 1
    assert names[0] != names[4]
    assert [reward.group for reward in pending.result()] == names


def test_groups_spread_over_ranks_are_refused(write_config: Write, caplog: pytest.LogCaptureFixture) -> None:
    """Of a function that does not gather them, a part has another median: an error before anything is judged; a warning
    in evaluation."""
    path = write_config({"policy": "group_mean"})
    func = reward_funcs(path)[0]
    two = {"accelerator": SimpleNamespace(num_processes=2, process_index=1)}
    with pytest.raises(ConfigError, match="per_device_train_batch_size"):
        call(func, answers(4, 5, 6), **Owner(**two).columns)
    evaluating = Owner(**two, model=SimpleNamespace(training=False))
    for _ in range(2):
        assert call(func, answers(4, 5, 6), **evaluating.columns) == fair(4, 5, 6)
        evaluating.logged.clear()
    assert sum("per_device_eval_batch_size" in record.getMessage() for record in caplog.records) == 1
    assert call(reward_func(write_config(ABSTAIN)), answers(4, 5, 6), **Owner(**two).columns) == fair(4, 5, 6)


def test_a_judge_of_groups_is_not_shown_a_part_of_one(write_config: Write) -> None:
    """Spread over ranks, a group would be judged in parts."""
    path = write_config(ABSTAIN, judge={"kind": KIND})
    two = {"accelerator": SimpleNamespace(num_processes=2, process_index=1)}
    with registered(), pytest.raises(ConfigError, match=r'judge "judge".*steps_per_generation a multiple') as caught:
        asyncio.run(call(reward_func(path, is_async=True), answers(4, 5, 6), **Owner(**two).columns))
    assert caught.value.setting == "judge.kind"


class Ranks:
    """Threads that call a reward function as ranks do, with collective calls between them."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = count
        self._rank = threading.local()
        self._given: list[Any] = [None] * count
        self._meeting = threading.Barrier(count, timeout=60)
        monkeypatch.setattr(trl_ranks, "gather_object", self._gather)

    def _gather(self, rows: list[Any]) -> list[Any]:
        self._given[self._rank.number] = rows
        self._meeting.wait()
        found = [row for given in self._given for row in pickle.loads(pickle.dumps(given))]
        self._meeting.wait()
        return found

    def call(self, func: Any, texts: Sequence[Any]) -> list[Any]:
        """What each rank's call returns or raises, on an even part of the texts, four of which are a group."""
        rows = len(texts) // self._count

        def run(rank: int) -> Any:
            self._rank.number = rank
            owner = Owner(accelerator=SimpleNamespace(num_processes=self._count, process_index=rank))
            try:
                return call(func, list(texts[rank * rows : (rank + 1) * rows]), **owner.columns)
            except Exception as error:
                return error

        with ThreadPoolExecutor(self._count) as threads:
            return list(threads.map(run, range(self._count)))


@pytest.mark.parametrize("ranks", [2, 4, 12])
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_groups_spread_over_ranks_are_gathered(
    write_config: Write, monkeypatch: pytest.MonkeyPatch, kind: str, ranks: int
) -> None:
    """Each rank has the rewards of its own rows, as if all rows had been on one rank, also a group over four ranks."""
    func = reward_func(write_config(ABSTAIN, judge={"kind": kind}))
    texts = answers(1, 4, 5, 9, 6, 7, 2, 8, 3, 10, 5, 6)
    wanted = call(func, texts, **Owner().columns)
    assert len(set(wanted)) > 2
    found = Ranks(ranks, monkeypatch).call(func, texts)
    assert [value for rank in found for value in rank] == wanted


def test_a_rank_that_fails_ends_all_of_them(write_config: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that cannot be read, and a judge that cannot answer: the same error on both ranks, and none waits."""
    ranks = Ranks(2, monkeypatch)
    func = reward_func(write_config(ABSTAIN, judge={"kind": "listwise"}))
    first, second = ranks.call(func, [*answers(1, 2, 3, 4, 5), [{"role": "assistant", "content": 6}]])
    assert isinstance(first, InputError)
    assert isinstance(second, InputError)
    assert str(first) == str(second)
    strict = write_config({"policy": "raise"}, judge={"kind": "listwise"})
    first, second = ranks.call(reward_func(strict), [*answers(1, 2, 3, 4, 5), UNSCORED])
    assert isinstance(first, UnscoredError)
    assert isinstance(second, UnscoredError)


def test_groups_that_trl_does_not_tell_of_are_warned_about(
    write_config: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TRL before 1.0 without attach, on several ranks: whether groups are whole is not known. AsyncGRPO's are."""
    func = reward_func(write_config({"policy": "group_mean"}))
    state = SimpleNamespace(global_step=1)
    for ranks, columns, warnings in (
        ("1", {"trainer_state": state}, 0),
        ("2", {}, 0),
        ("2", {"trainer_state": state}, 1),
    ):
        monkeypatch.setenv("WORLD_SIZE", ranks)
        for _ in range(2):
            assert call(func, answers(4, 5), **columns) == fair(4, 5)
        assert sum("in parts, unnoticed" in record.getMessage() for record in caplog.records) == warnings


@pytest.mark.parametrize("action", ["lowest", "off"])
def test_answers_cut_at_the_limit_meet_their_gate(write_config: Write, action: str) -> None:
    """No end token and as long as allowed: cut. An end token, or a stop string before the limit: whole."""
    path = write_config(ABSTAIN)
    path.write_text(path.read_text() + f'[judge.gates]\ntruncated = "{action}"\n')
    ids = [[5, 5, 5], [5, 5, 0], [5, 5, 9], [5, 5], []]
    batch = {"prompts": ["q"] * 5, "completions": answers(7, 7, 7, 7, 7), "completion_ids": ids}
    found = reward_func(path)(**batch, **Owner(5).columns)
    assert found == [0.0 if action == "lowest" else fair(7)[0], *fair(7, 7, 7, 7)]


def test_a_gate_that_cannot_work_is_said_once(write_config: Write, caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody says which tokens end an answer, nothing is guessed."""
    func = reward_func(write_config(ABSTAIN), name="without_a_trainer")
    for _ in range(2):
        assert call(func, answers(7, 8)) == fair(7, 8)
    assert sum("judge.gates.truncated" in record.getMessage() for record in caplog.records) == 1
    caplog.clear()
    call(reward_func(write_config(ABSTAIN), name="with_a_trainer"), answers(7), **Owner(1).columns)
    assert not caplog.records


def test_a_judge_that_compares_wants_a_column(write_config: Write) -> None:
    """No column for the known answer: one error at the first call that names what to add, and nothing is judged."""
    path = write_config({**ABSTAIN, "abort_above": 1.0})
    path.write_text(path.read_text().replace("[judge]", '[judge]\nkind = "reference"'))
    func = reward_func(path)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"column.*ground_truth.*target"):
            call(func, answers(4), difficulty=["hard"])
    assert call(func, answers(4), solution=[None]) == [None], "a row without one is a row without a score"
    assert call(func, answers(4)) == [None], "an evaluation set without the column does not end the training"


def test_a_template_that_shows_a_reference_wants_a_column(write_config: Write, tmp_path: Path) -> None:
    """The same for a prompt of the user's own."""
    (tmp_path / "prompt.txt").write_text("{{prompt}}\n{{response}}\nKnown: {{ reference }}\n{{low}} to {{high}}")
    path = write_config(ABSTAIN)
    path.write_text(path.read_text().replace("[judge]", '[judge]\nprompt_file = "prompt.txt"'))
    with pytest.raises(ConfigError, match="prompt_file"):
        call(reward_func(path), answers(4))


def test_two_functions_of_one_trainer_log_apart(write_config: Write) -> None:
    """Each under its own name; a score has no tail of digits."""
    path, owner = write_config(ABSTAIN), Owner(1)
    for name in ("taste", "truth"):
        call(reward_func(path, name=name), answers(4), **owner.columns)
    assert {"taste/wait_s", "truth/wait_s", "taste_judge", "truth_judge_said"} <= {*owner.logged}
    assert not [name for name in owner.logged if name.startswith(("referee/", "judge"))]
    yes = write_config(ABSTAIN)
    yes.write_text(yes.read_text().replace("[judge]", '[judge]\nkind = "yes_no"'))
    owner = Owner(1)
    call(reward_func(yes), answers(4), **owner.columns)
    (score,) = owner.logged["judge"]
    assert score == round(score, 4)


def test_two_functions_of_one_name_are_refused(write_config: Write) -> None:
    """In TRL's log and in the table of completions one would overwrite the other, whatever the second one is."""
    path, other = write_config(ABSTAIN), write_config(ABSTAIN, shaping={"coefficient": 2.0})
    mine, its_own = reward_func(path), reward_func(other, name="taste")

    def referee(prompts: Any, **_: Any) -> list[float]:
        return [0.0] * len(prompts)

    for second in (mine, reward_func(other), referee, reward_funcs(other)[0]):
        with pytest.raises(ConfigError, match="named 'referee'"):
            call(mine, answers(4), **Owner(1, reward_funcs=[mine, its_own, second]).columns)
    assert call(mine, answers(4), **Owner(1, reward_funcs=[mine, its_own]).columns) == fair(4)


def test_a_judge_of_criteria_wants_some(write_config: Write) -> None:
    """Neither in the judge nor in the rows: one error at the first call; a row without any is that row's matter."""
    judge = {"kind": "rubric", "ask_again": 0}
    func = reward_func(write_config({**ABSTAIN, "abort_above": 1.0}, judge=judge))
    with pytest.raises(ConfigError, match=r"no rubric \(they have: level\).*column `rubric`"):
        call(func, answers(4), level=["hard"], tools=[[]])
    assert call(func, answers(4), rubric=[None]) == [None]
    assert call(func, answers(4)) == [None], "an evaluation set without the column does not end the training"
    own = write_config(ABSTAIN, judge=judge)
    own.write_text(own.read_text() + '[[judge.criterion]]\ntext = "It is true."\n')
    assert call(reward_func(own), answers(4)) != [None]


def test_a_trainer_is_not_kept_alive(write_config: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function lives as long as the process; a model must not."""
    monkeypatch.setattr(trl, "trl_version", lambda: (1, 16))
    trainer = Trainer(reward_func(write_config(ABSTAIN)))
    with attach(trainer):
        pass
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None


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


def test_tools_are_those_of_a_rows_environment() -> None:
    """TRL offers each row the tools of the environment it names; one environment for all has no name."""

    def dig() -> None:
        """Digs."""

    def swim() -> None:
        """Swims."""

    several = SimpleNamespace(_env_tools={"sand": [dig], "sea": [dig, swim]}, tools=[dig, swim])
    rows = tools_by_row(several, {"environment": ["sea", "sand"]}, 2)
    assert [[tool["name"] for tool in tools] for tools in rows] == [["dig", "swim"], ["dig"]]
    one = SimpleNamespace(_env_tools={None: [swim]}, tools=[swim])
    assert tools_by_row(one, {}, 2) == [[{"name": "swim", "description": "Swims."}]] * 2
    assert tools_by_row(SimpleNamespace(tools=[dig]), {}, 1) == [[{"name": "dig", "description": "Digs."}]]
    assert tools_by_row(None, {}, 2) == [[], []]
