"""LengthPenaltyRewardManager on real DataProtos, beside verl's own batch managers."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("verl")

import numpy as np
import torch
from omegaconf import OmegaConf
from tests.contracts.group_judges import KIND, registered
from tests.trainers.verl_batches import clean, lengths, make_batch, server, tokenizer
from tests.trainers.verl_real import AbstractRewardManager, get_reward_manager_cls, loop_managers
from tests.trainers.verl_rule import contains

from referee.errors import InputError
from referee.sim import ServerProcess
from referee.trainers.verl import (
    AsyncOpenAIManager,
    LengthPenaltyConfig,
    LengthPenaltyRewardManager,
    acompute_score,
    compute_score,
)
from referee.trainers.verl.columns import KEYS
from referee.trainers.verl.data import rows_of

__all__ = ["clean", "server", "tokenizer"]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

FIVE = ["openai_quality_reward", "length_penalty", "original_score", "response_length", "median_length"]


@pytest.fixture
def make(tokenizer: Any, server: ServerProcess) -> Callable[..., LengthPenaltyRewardManager]:
    """A manager that asks the simulated judge."""

    def build(rule: Any = contains, **keys: Any) -> LengthPenaltyRewardManager:
        more = {"cache": {"path": ""}, "judge": {"ask_again": 0}, **keys.pop("referee", {})}
        asked = {"enable_openai_reward": True, "api_endpoint": server.url, "use_async_io": True}
        config = {**asked, "referee": more, **keys}
        return LengthPenaltyRewardManager(tokenizer, 0, rule, length_penalty_config=config)

    return build


def rewards(data: Any, tensor: torch.Tensor) -> list[float]:
    """The rewards, after checking that they stand on the last valid token and nowhere else."""
    at = [max(length - 1, 0) for length in lengths(data)]
    found = [tensor[row, column].item() for row, column in enumerate(at)]
    assert tensor.shape == data.batch["responses"].shape
    assert tensor.dtype == torch.float32
    assert tensor.sum(-1).tolist() == pytest.approx(found)
    return found


def test_reward_is_rule_plus_judge_minus_penalty(make: Any, tokenizer: Any) -> None:
    """Hand-computed, in batch order, for uids that are interleaved."""
    first = "right [[quality=4]]" + "b" * 80
    others = ["wrong [[quality=9]]" + "c" * 119, "right [[quality=10]]" + "d" * 20]
    data = make_batch(tokenizer, [first, others[0], first + "x", others[1]], ["a", "b", "a", "b"])
    manager = make(enable=True, penalty_scale=0.5, max_penalty=2.0, reward_coefficient=0.1)
    out = manager(data, return_dict=True)
    size = lengths(data)
    medians = [(size[0] + size[2]) / 2, (size[1] + size[3]) / 2] * 2

    def penalty(length: int, median: float) -> float:
        low, high = median * 0.7, median * 1.3
        if low <= length <= high:
            return 0.0
        inner = (low - length) if length < low else (length - high)
        return min(2.0, 2.0 * inner / (median * 0.2))

    wanted = [0.5 * penalty(length, median) for length, median in zip(size, medians, strict=True)]
    assert wanted[1] > 0
    assert wanted[3] > 0
    expected = [1.4 - wanted[0], 0.0 - wanted[1], 1.4 - wanted[2], 2.0 - wanted[3]]
    assert rewards(data, out["reward_tensor"]) == pytest.approx(expected)
    info = out["reward_extra_info"]
    assert list(info)[:5] == FIVE
    assert set(info) == set(KEYS)
    assert info["openai_quality_reward"] == pytest.approx([0.4, 0.0, 0.4, 1.0])
    assert info["length_penalty"] == pytest.approx(wanted)
    assert info["original_score"] == [1.0, 0.0, 1.0, 1.0]
    assert info["response_length"] == size
    assert info["median_length"] == medians
    assert info["judge_asked"] == [1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("length", "penalty"),
    [
        (100, 0.0),
        (70, 0.0),
        (130, 0.0),
        (60, 0.5),
        (140, 0.5),
        (50, 1.0),
        (150, 1.0),
        (20, 1.0),
        (200, 1.0),
        (65, 0.25),
    ],
)
def test_the_penalty_is_the_documents_formula(tokenizer: Any, length: int, penalty: float) -> None:
    """Median 100, free to 30 %, full at 50 %: a table of hand-computed values. No key, so no judge."""
    manager = LengthPenaltyRewardManager(tokenizer, 0, contains, length_penalty_config={"enable": True})
    texts = ["x" * 99, "y" * 99, "z" * 99, "w" * (length - 1)]  # and the end token
    data = make_batch(tokenizer, texts, ["g"] * 4)
    out = manager(data, return_dict=True)
    assert out["reward_extra_info"]["median_length"] == [100.0] * 4
    assert out["reward_extra_info"]["length_penalty"][3] == pytest.approx(penalty)
    assert rewards(data, out["reward_tensor"])[3] == pytest.approx(-penalty)


def test_without_return_dict_it_is_the_tensor(make: Any, tokenizer: Any) -> None:
    """As verl's managers do it."""
    data = make_batch(tokenizer, ["right [[quality=3]]"], ["a"])
    assert rewards(data, make()(data)) == [4.0]


def test_submit_and_collect(make: Any, tokenizer: Any) -> None:
    """The non-blocking pair gives what a call gives; a ticket of another batch is refused."""
    manager = make()
    data = make_batch(tokenizer, ["right [[quality=3]]", "right [[quality=5]] x"], ["a", "a"])
    ticket = manager.submit(data)
    assert rewards(data, manager.collect(ticket, data)) == [4.0, 6.0]
    assert manager.collect(ticket, data, return_dict=True)["reward_extra_info"]["judge_scored"] == [1.0, 1.0]
    with pytest.raises(InputError, match="2 rewards and the batch has 1 rows"):
        manager.collect(ticket, make_batch(tokenizer, ["x"], ["a"]))


def test_a_ticket_of_another_batch_is_refused(make: Any, tokenizer: Any) -> None:
    """Of the same size: by the first row that differs, in uid or response; and the same rows in another order."""
    manager = make()
    texts = ["right [[quality=3]]", "right [[quality=5]]"]
    data = make_batch(tokenizer, texts, ["a", "b"])
    ticket = manager.submit(data)
    for other, words in (
        (make_batch(tokenizer, texts, ["a", "c"]), "row 1 has uid 'b'; here that is 'c'"),
        (
            make_batch(tokenizer, [texts[0], "right [[quality=4]]"], ["a", "b"]),
            r"another response in row 1 \(uid 'b'\)",
        ),
        (data[[1, 0]], "the same rows in another order"),
    ):
        with pytest.raises(InputError, match=words):
            manager.collect(ticket, other)
    with pytest.raises(InputError, match=r"not of LengthPenaltyRewardManager\.submit"):
        manager.collect(AsyncOpenAIManager("k", referee={"cache": {"path": ""}}).submit([]), data[:0])
    assert rewards(data, manager.collect(ticket, data)) == [4.0, 6.0]


def test_a_response_that_fills_its_window_without_an_end_is_truncated(make: Any, tokenizer: Any) -> None:
    """The end token in the last place is an end. The documents' judge is asked all the same, unless the gate is set."""
    data = make_batch(tokenizer, ["right [[quality=4]]" + "x" * size for size in (20, 30, 30)], ["a"] * 3)
    width = max(lengths(data))
    for name in ("responses", "attention_mask", "input_ids"):
        data.batch[name] = data.batch[name][:, : data.batch[name].shape[1] - 2]
    data.batch["responses"][1, width - 1] = tokenizer("x", add_special_tokens=False)["input_ids"][0]
    assert [row.truncated for row in rows_of(data, tokenizer, window=width)] == [False, True, False]
    assert not any(row.truncated for row in rows_of(data, tokenizer))
    assert rewards(data, make()(data)) == [5.0, 5.0, 5.0]
    gated = make(referee={"judge": {"ask_again": 0, "gates": {"truncated": "lowest"}}})(data, return_dict=True)
    assert rewards(data, gated["reward_tensor"]) == [5.0, 2.0, 5.0]
    assert gated["reward_extra_info"]["judge_asked"] == [1.0, 0.0, 1.0]


def test_median_length_is_there_without_a_penalty(make: Any, tokenizer: Any) -> None:
    """enable=False: the column still says how long the group's responses are."""
    data = make_batch(tokenizer, ["right" + "x" * size for size in (10, 20, 30, 50)], ["a", "b", "a", "b"])
    size = lengths(data)
    info = make(enable=False, enable_openai_reward=False)(data, return_dict=True)["reward_extra_info"]
    assert info["median_length"] == [(size[0] + size[2]) / 2, (size[1] + size[3]) / 2] * 2
    assert info["length_penalty"] == [0.0] * 4


def test_scores_that_are_there_pass_through(make: Any, tokenizer: Any) -> None:
    """rm_scores in the batch: nothing is asked."""
    data = make_batch(tokenizer, ["right [[quality=3]]"], ["a"])
    data.batch["rm_scores"] = torch.full(data.batch["responses"].shape, 0.5)
    data.non_tensor_batch["mine"] = np.array([7])
    data.meta_info["reward_extra_keys"] = ["mine"]
    out = make()(data, return_dict=True)
    assert torch.equal(out["reward_tensor"], data.batch["rm_scores"])
    assert out["reward_extra_info"]["mine"].tolist() == [7]
    assert torch.equal(make()(data), data.batch["rm_scores"])


def test_an_empty_response_is_no_trouble(make: Any, tokenizer: Any) -> None:
    """No token to stand on: the reward goes to the first column, not around to the last; the median counts it."""
    data = make_batch(tokenizer, ["right [[quality=3]]", ""], ["a", "a"])
    out = make(enable=True)(data, return_dict=True)
    size = lengths(data)
    assert size[1] == 0
    assert rewards(data, out["reward_tensor"])[1] == pytest.approx(-1.0)
    assert out["reward_tensor"][1, -1].item() == 0.0
    assert out["reward_extra_info"]["median_length"] == [size[0] / 2] * 2


def test_the_callers_data_is_left_alone(make: Any, tokenizer: Any) -> None:
    """extra_info reaches the rule as a copy, with what verl adds; the batch gets no new column."""
    seen: list[dict[str, Any]] = []

    def rule(extra_info: dict[str, Any], **_: Any) -> float:
        extra_info["mine"] = True
        seen.append(extra_info)
        return 1.0

    data = make_batch(tokenizer, ["[[quality=3]]"], ["a"], __num_turns__=[2])
    before = copy.deepcopy(data.non_tensor_batch["extra_info"][0])
    columns = set(data.non_tensor_batch), set(data.batch.keys())
    make(rule)(data)
    assert data.non_tensor_batch["extra_info"][0] == before
    assert (set(data.non_tensor_batch), set(data.batch.keys())) == columns
    assert seen[0]["num_turns"] == 2


def test_a_prompt_is_decoded_once_for_all_its_rollouts(tokenizer: Any) -> None:
    """Told apart by its tokens: another prompt under the same uid is decoded too, and each row has its own."""
    decoded: list[str] = []

    class Counting:
        pad_token_id = tokenizer.pad_token_id

        def decode(self, ids: Any, skip_special_tokens: bool) -> str:
            decoded.append(tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))
            return decoded[-1]

    data = make_batch(tokenizer, ["one", "two", "three", "four"], ["a"] * 4)
    data.batch["prompts"][3, -1] = tokenizer("X", add_special_tokens=False)["input_ids"][0]
    rows = rows_of(data, Counting())
    assert [row.prompt for row in rows] == ["ask", "ask", "ask", "asX"]
    assert sorted(decoded) == sorted(["one", "two", "three", "four", "ask", "asX"])


def test_rows_without_a_score_get_their_siblings_mean(make: Any, tokenizer: Any) -> None:
    """Columns still add up, and judge_scored says which. A group without any score teaches nothing."""
    texts = ["right [[quality=2]]", "right [[quality=broken]]", "right [[quality=6]]", "right [[quality=no]]"]
    data = make_batch(tokenizer, texts, ["a", "a", "a", "b"])
    out = make()(data, return_dict=True)
    found = rewards(data, out["reward_tensor"])
    info = out["reward_extra_info"]
    assert found == [3.0, 5.0, 7.0, 1.0]
    assert info["judge_scored"] == [1.0, 0.0, 1.0, 0.0]
    assert info["judge_error"][1] > 0
    added = [
        r + q - p
        for r, q, p in zip(info["original_score"], info["openai_quality_reward"], info["length_penalty"], strict=True)
    ]
    assert added == pytest.approx(found)


def test_the_rules_own_columns_pass_through_in_batch_order(make: Any, tokenizer: Any) -> None:
    """As the rule gave them, verl's `acc` and `pred` among them; `reward` is verl's own, `score` is original_score."""

    def rule(solution_str: str, **_: Any) -> dict[str, Any]:
        more = {"bonus": 2.0, "note": "b"} if "b" in solution_str else {}
        return {"score": 1.0, "acc": "b" in solution_str, "reward": 1.0, "pred": solution_str[0], **more}

    data = make_batch(tokenizer, ["a [[quality=3]]", "b [[quality=4]]", "a [[quality=5]]"], ["x", "y", "x"])
    info = make(rule)(data, return_dict=True)["reward_extra_info"]
    assert set(info) == {*KEYS, "acc", "pred", "bonus", "note"}
    assert info["acc"] == [False, True, False]
    assert info["pred"] == ["a", "b", "a"]
    assert info["note"] == ["", "b", ""]
    assert np.isnan(info["bonus"]).tolist() == [True, False, True]
    assert all(np.array(values).shape == (3,) for values in info.values())
    assert all(isinstance(value, float) for name in KEYS for value in info[name])


def test_a_coroutine_function_is_a_rule_too(make: Any, tokenizer: Any) -> None:
    """verl's own batch managers cannot take one."""

    async def rule(**_: Any) -> float:
        await asyncio.sleep(0)
        return 1.0

    data = make_batch(tokenizer, ["[[quality=3]]"], ["a"])
    assert rewards(data, make(rule)(data)) == [4.0]


@pytest.mark.parametrize("shape", ["mapping", "omegaconf", "object", "config"])
def test_every_shape_of_configuration(tokenizer: Any, shape: str) -> None:
    """A mapping, an OmegaConf node with interpolations, an object, a LengthPenaltyConfig."""
    keys = {"enable": True, "penalty_scale": 2.0}
    config: Any = {
        "mapping": keys,
        "omegaconf": OmegaConf.create({"scale": 2.0, "cfg": {"enable": True, "penalty_scale": "${scale}"}}).cfg,
        "object": type("Mine", (), keys)(),
        "config": LengthPenaltyConfig(**keys),
    }[shape]
    manager = LengthPenaltyRewardManager(
        tokenizer=tokenizer, num_examine=0, length_penalty_config=config, compute_score=contains
    )
    data = make_batch(tokenizer, ["x" * 99, "x" * 99, "x" * 9], ["g"] * 3)
    assert rewards(data, manager(data)) == pytest.approx([0.0, 0.0, -2.0])


def test_the_manager_travels_without_its_key(tokenizer: Any) -> None:
    """verl 0.4 to 0.7 sends it to a Ray task."""
    manager = LengthPenaltyRewardManager(
        tokenizer, 0, contains, length_penalty_config={"enable": True, "api_key": "sk-canary"}
    )
    data = pickle.dumps(manager)
    assert b"sk-canary" not in data
    assert "sk-canary" not in repr(manager)
    assert pickle.loads(data).length_penalty_config.judges


def test_rows_can_be_printed(make: Any, tokenizer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """num_examine rows of each data source."""
    manager = make()
    manager.num_examine = 1
    manager(make_batch(tokenizer, ["right [[quality=3]]", "right [[quality=4]]"], ["a", "a"]))
    assert capsys.readouterr().out.count("[response]") == 1


def test_it_is_registered_in_verl() -> None:
    """Under the documents' name, and counts as one of verl's managers."""
    assert get_reward_manager_cls("length_penalty") is LengthPenaltyRewardManager
    assert issubclass(LengthPenaltyRewardManager, AbstractRewardManager)


@pytest.mark.slow
def test_it_is_registered_whichever_is_imported_first() -> None:
    """Our package first, verl afterwards, nothing of ours touched in between."""
    code = (
        "import referee.trainers.verl, sys\n"
        "assert 'verl' not in sys.modules\n"
        "from verl.workers.reward_manager import get_reward_manager_cls, NaiveRewardManager\n"
        "assert get_reward_manager_cls('length_penalty').__name__ == 'LengthPenaltyRewardManager'\n"
        "assert get_reward_manager_cls('naive') is NaiveRewardManager\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=300)


def test_our_function_in_verls_own_managers(
    tokenizer: Any, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """naive calls it row by row, batch once; both with the monitor behind it."""
    monkeypatch.setenv("TRAIN_WITH_MONITOR", "true")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.removesuffix("/chat/completions"))
    monkeypatch.setenv("REFEREE_CACHE_PATH", "")
    texts = [f"<think>{n} [[quality=yes]]</think><answer>right</answer>" for n in range(3)]
    extra = [{"is_correct": fact} for fact in (True, False, True)]
    for name in ("naive", "batch"):
        data = make_batch(tokenizer, texts, ["a", "b", "c"], extra=copy.deepcopy(extra))
        manager = get_reward_manager_cls(name)(tokenizer=tokenizer, num_examine=0, compute_score=compute_score)
        out = manager(data, return_dict=True)
        assert rewards(data, out["reward_tensor"]) == pytest.approx([0.0, 2.0, 0.0])
        assert out["reward_extra_info"]["monitor_answer"] == [1.0, 1.0, 1.0]


def test_our_function_in_verls_loop_manager(tokenizer: Any) -> None:
    """The coroutine function is awaited."""

    async def run() -> dict[str, Any]:
        config = OmegaConf.create({"reward": {}, "trainer": {}})
        manager = loop_managers.get_reward_manager_cls("naive")(
            config=config, tokenizer=tokenizer, compute_score=acompute_score
        )
        found: dict[str, Any] = await manager.run_single(make_batch(tokenizer, ["so\nright"], ["a"]))
        return found

    assert asyncio.run(run())["reward_score"] == 1.0


def test_a_judge_of_groups_sees_whole_groups(make: Any, tokenizer: Any) -> None:
    """A batch holds them; an answer is worth the share of its siblings that are worse."""
    texts = [f"right [[quality={mark}]]" for mark in (2, 9, 4, 7, 6, 3)]
    data = make_batch(tokenizer, texts, [*"ababab"])
    settings = {"judge": {"kind": KIND, "ask_again": 0}, "shaping": {"scale": "unit"}}
    with registered():
        out = make(referee=settings)(data, return_dict=True)
    assert rewards(data, out["reward_tensor"]) == pytest.approx([1.0, 1 + 2 / 3, 1 + 1 / 3, 1 + 1 / 3, 1 + 2 / 3, 1.0])
