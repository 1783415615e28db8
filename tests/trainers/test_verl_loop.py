"""RefereeRewardManager as verl loads and calls it, in one process: the Ray cluster has a test file of its own."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tests.contracts.group_judges import KIND, registered
from tests.trainers.verl_batches import clean, fresh, lengths, make_batch, run, server, tokenizer
from tests.trainers.verl_real import DataProto, loading
from tests.trainers.verl_rule import contains
from verl.trainer.ppo import core_algos

from referee.errors import ConfigError, EndpointClosed, UnscoredError
from referee.ledger import RewardLine, read
from referee.report.data import build
from referee.sim import ProviderSpec, ServerProcess, start_server_process
from referee.trainers.shared import close_all
from referee.trainers.verl import RefereeRewardManager
from referee.trainers.verl.columns import KEYS

__all__ = ["clean", "server", "tokenizer"]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

OURS = [
    "reward.reward_manager.source=importlib",
    "reward.reward_manager.name=RefereeRewardManager",
    "reward.reward_manager.module.path=pkg://referee.trainers.verl",
]


def judge(server: ServerProcess, **sections: Any) -> dict[str, Any]:
    """A referee configuration that asks the simulated judge for integers, added as they are."""
    return {
        "judge": {"kind": "integer", "ask_again": 0, "reply": "text"},
        "endpoint": {"url": server.url, "key_env": ""},
        "cache": {"path": ""},
        "shaping": {"scale": "native"},
        **sections,
    }


def verl_config(referee: dict[str, Any], n: int = 1, v1: bool = True, **more: Any) -> Any:
    return OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {"n": n, "val_kwargs": {"n": 1}}},
            "trainer": {"use_v1": v1},
            "reward": {"num_workers": 2, "referee": referee},
            **more,
        }
    )


def manager(tokenizer: Any, referee: dict[str, Any], rule: Any = contains, **more: Any) -> RefereeRewardManager:
    return RefereeRewardManager(config=verl_config(referee, **more), tokenizer=tokenizer, compute_score=rule)


def test_config_lines_alone_plug_it_in(tokenizer: Any, server: ServerProcess, tmp_path: Path) -> None:
    """verl's own configuration, composed by hydra with our lines, loads our manager through verl's loader."""
    (tmp_path / "referee.toml").write_text(
        f'cache.path = ""\nshaping.scale = "native"\n[judge]\nkind = "integer"\n[endpoint]\nurl = "{server.url}"\n'
    )
    folder = str(Path(loading.__file__).parent.parent / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose("ppo_trainer", [*OURS, "+reward.referee.config=referee.toml"])
    loaded = loading.load_reward_manager(config, tokenizer)
    assert type(loaded) is RefereeRewardManager
    assert loading.resolve_reward_manager_cls(config) is RefereeRewardManager
    assert loaded.settings.drops_groups
    data = make_batch(tokenizer, ["so [[quality=8]]"], fresh("a"))  # no rule knows this data source
    out = run([loaded], data)[0]
    assert out["reward_score"] == 8.0


def test_old_keys_are_refused_on_the_composed_configuration(tokenizer: Any) -> None:
    """hydra takes them, verl 0.9 ignores them, we do not."""
    folder = str(Path(loading.__file__).parent.parent / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose(
            "ppo_trainer", [*OURS, "custom_reward_function.path=my.py", "reward_model.reward_manager=dapo"]
        )
    with pytest.raises(ConfigError, match=r"custom_reward_function.path.*reward.custom_reward_function.path"):
        loading.load_reward_manager(config, tokenizer)


def test_a_function_of_ours_is_loaded_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """reward.custom_reward_function.path=pkg://referee.trainers.verl, sync and async, with arguments."""
    monkeypatch.delenv("TRAIN_WITH_MONITOR", raising=False)
    folder = str(Path(loading.__file__).parent.parent / "config")
    for name in ("compute_score", "acompute_score"):
        lines = [
            "reward.custom_reward_function.path=pkg://referee.trainers.verl",
            f"reward.custom_reward_function.name={name}",
            "+reward.custom_reward_function.reward_kwargs.true_share=0.3",
        ]
        with initialize_config_dir(config_dir=folder, version_base=None):
            config = compose("ppo_trainer", lines)
        function = loading.get_custom_reward_fn(config)
        out = function(data_source="toy", solution_str="so\n42", ground_truth="42", extra_info={})
        assert (asyncio.run(out) if name.startswith("a") else out)["score"] == 1.0


def test_rule_and_judge_add_up(tokenizer: Any, server: ServerProcess) -> None:
    """One fixed set of numeric keys on every row."""
    data = make_batch(tokenizer, ["right [[quality=7]]", "wrong [[quality=2]]"], fresh("a", "b"))
    before = copy.deepcopy(data.non_tensor_batch["extra_info"].tolist())
    outs = run([manager(tokenizer, {"config": judge(server)})], data)
    assert [out["reward_score"] for out in outs] == [8.0, 2.0]
    assert [set(out["reward_extra_info"]) for out in outs] == [set(KEYS)] * 2
    assert all(isinstance(value, float) for out in outs for value in out["reward_extra_info"].values())
    assert data.non_tensor_batch["extra_info"].tolist() == before


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_rules_of_both_kinds_and_their_columns(tokenizer: Any, server: ServerProcess, kind: str) -> None:
    """rule_keys names the columns to keep; a row that lacks one has a number that is none."""

    def plain(solution_str: str, **_: Any) -> dict[str, Any]:
        return {"score": 0.5, **({"bonus": 1} if "b" in solution_str else {}), "noise": 3}

    async def coroutine(**arguments: Any) -> dict[str, Any]:
        return plain(**arguments)

    judged = manager(
        tokenizer, {"config": judge(server), "rule_keys": ["bonus"]}, plain if kind == "sync" else coroutine
    )
    outs = run([judged], make_batch(tokenizer, ["b [[quality=7]]", "[[quality=2]]"], fresh("a", "b")))
    assert [out["reward_score"] for out in outs] == [7.5, 2.5]
    found = [out["reward_extra_info"]["bonus"] for out in outs]
    assert found[0] == 1.0
    assert found[1] != found[1]
    assert all(set(out["reward_extra_info"]) == {*KEYS, "bonus"} for out in outs)


def test_the_last_of_several_outputs_counts(tokenizer: Any, server: ServerProcess) -> None:
    """With the length verl gives by name: the mask of outputs padded together does not fit."""
    data = make_batch(tokenizer, ["first [[quality=1]] and long", "last [[quality=9]]"], fresh("a") * 2)
    data.non_tensor_batch["response_len"] = torch.tensor(lengths(data)).numpy()
    data.batch["attention_mask"] = torch.ones_like(data.batch["attention_mask"])
    out = asyncio.run(manager(tokenizer, {"config": judge(server)}).run_single(data))
    assert out["reward_score"] == 9.0
    assert out["reward_extra_info"]["response_length"] == lengths_by_name(data)[1]


def lengths_by_name(data: DataProto) -> list[int]:
    found: list[int] = data.non_tensor_batch["response_len"].tolist()
    return found


def test_an_empty_response(tokenizer: Any, server: ServerProcess) -> None:
    """Gated, not asked; its score stands in the first column."""
    data = make_batch(tokenizer, ["", "right [[quality=3]]"], fresh("a", "b"))
    outs = run([manager(tokenizer, {"config": judge(server)})], data)
    assert [out["reward_score"] for out in outs] == [1.0, 4.0]
    scores = RefereeRewardManager.assemble_rm_scores(data, [1.0, 4.0])
    assert scores[0].tolist()[:2] == [1.0, 0.0]
    assert scores[1, lengths(data)[1] - 1].item() == 4.0
    assert scores.sum(-1).tolist() == [1.0, 4.0]


def test_a_response_that_fills_its_window_without_an_end_is_gated(tokenizer: Any, server: ServerProcess) -> None:
    """The window is verl's rollout.response_length; a rollout is not padded, so its own width says nothing."""
    data = make_batch(tokenizer, ["right [[quality=4]]" + "x" * size for size in (29, 29, 20)], fresh(*"abc"))
    window = max(lengths(data))
    data.batch["responses"][1, window - 1] = tokenizer("x", add_special_tokens=False)["input_ids"][0]
    data.batch["responses"][2, lengths(data)[2] - 1] = tokenizer("x", add_special_tokens=False)["input_ids"][0]
    config = verl_config({"config": judge(server)})
    config.actor_rollout_ref.rollout.response_length = window
    outs = run([RefereeRewardManager(config=config, tokenizer=tokenizer, compute_score=contains)], data)
    assert [out["reward_score"] for out in outs] == [5.0, 2.0, 5.0]
    assert [out["reward_extra_info"]["judge_asked"] for out in outs] == [1.0, 0.0, 1.0]


def test_no_trimmings_needed(tokenizer: Any, server: ServerProcess) -> None:
    """Only prompts and responses, as the colocated path passes them: no mask, no columns."""
    full = make_batch(tokenizer, ["[[quality=6]]"], ["a"])
    bare = DataProto.from_dict(tensors={name: full.batch[name] for name in ("prompts", "responses")})
    out = asyncio.run(manager(tokenizer, {"config": judge(server), "rule": False}).run_single(bare))
    assert out["reward_score"] == 6.0


def test_a_prompt_in_messages_reaches_the_judge(tokenizer: Any, server: ServerProcess) -> None:
    """raw_prompt, in the shapes verl's arrays make of it."""
    from referee.trainers.verl.data import rows_of

    data = make_batch(tokenizer, ["x"], ["a"], raw_prompt=[[{"role": "user", "content": "What is 2 + 2?"}]])
    assert rows_of(data, tokenizer)[0].prompt == "What is 2 + 2?"
    assert rows_of(make_batch(tokenizer, ["x"], ["a"]), tokenizer)[0].prompt == "ask"


def test_the_length_penalty_is_the_groups(tokenizer: Any, server: ServerProcess) -> None:
    """Siblings that reach different managers meet; interleaved groups do not mix."""
    referee = {"config": judge(server, shaping={"scale": "native", "length": {"enable": True}}), "group_wait": 60}
    managers = [manager(tokenizer, referee, n=3) for _ in range(2)]
    texts = ["[[quality=5]]" + "x" * size for size in (86, 186, 86, 186, 21, 186)]
    data = make_batch(tokenizer, texts, fresh(*"ababab"))
    outs = run(managers, data)
    assert [out["reward_extra_info"]["median_length"] for out in outs] == [100, 200, 100, 200, 100, 200]
    assert [out["reward_extra_info"]["length_penalty"] for out in outs] == [0, 0, 0, 0, 1, 0]
    assert [out["reward_score"] for out in outs] == [5, 5, 5, 5, 4, 5]


def test_validation_rows_do_not_wait_for_training_siblings(tokenizer: Any, server: ServerProcess) -> None:
    """extra_info["split"] = test: val_kwargs.n siblings are expected, not rollout.n."""
    referee = {"config": judge(server, shaping={"scale": "native", "length": {"enable": True}}), "group_wait": 600}
    data = make_batch(tokenizer, ["[[quality=5]]"], fresh("a"), extra=[{"split": "test"}])
    assert run([manager(tokenizer, referee, n=8)], data)[0]["reward_score"] == 5.0


def test_a_sibling_that_never_comes_is_not_waited_for_for_ever(tokenizer: Any, server: ServerProcess) -> None:
    """After group_wait the median is of those that are there."""
    referee = {"config": judge(server, shaping={"scale": "native", "length": {"enable": True}}), "group_wait": 2.0}
    data = make_batch(tokenizer, ["[[quality=5]]" + "x" * 86, "[[quality=5]]"], fresh("a") * 2)
    data.non_tensor_batch["uid"][1] = data.non_tensor_batch["uid"][0]
    outs = run([manager(tokenizer, referee, n=3)], data)
    assert {out["reward_extra_info"]["median_length"] for out in outs} == {57.0}


def test_a_uid_that_comes_again_is_another_group(tokenizer: Any, server: ServerProcess) -> None:
    """fully_async numbers its uids from the start in every run: the second run's medians are its own."""
    referee = {"config": judge(server, shaping={"scale": "native", "length": {"enable": True}}), "group_wait": 60}
    uids = ["uid_sample_0_1", "uid_sample_0_2"] * 3
    for sizes in ((86, 186, 86, 186, 86, 186), (386, 26, 386, 26, 386, 26), (86, 186, 86, 186, 21, 186)):
        managers = [manager(tokenizer, referee, n=3) for _ in range(2)]
        data = make_batch(tokenizer, ["[[quality=5]]" + "x" * size for size in sizes], uids)
        outs = run(managers, data)
        medians = [float(sorted(lengths(data)[group::2])[1]) for group in (0, 1)] * 3
        assert [out["reward_extra_info"]["median_length"] for out in outs] == medians
    assert [out["reward_score"] for out in outs] == [5, 5, 5, 5, 4, 5]


@pytest.mark.parametrize("v1", [True, False])
def test_a_sibling_that_comes_too_late_is_not_scored(
    tokenizer: Any, server: ServerProcess, caplog: pytest.LogCaptureFixture, v1: bool
) -> None:
    """Its siblings have their rewards, without it: it has none, and a warning says why and what to set."""
    referee = {
        "config": judge(server, shaping={"scale": "native", "length": {"enable": True}}, missing={"abort_above": 1.0}),
        "group_wait": 1.0,
    }
    judged = manager(tokenizer, referee, n=3, v1=v1)
    uid = fresh("a")
    early = run([judged], make_batch(tokenizer, ["right [[quality=5]]" + "x" * 80] * 2, uid * 2))
    assert {out["reward_score"] for out in early} == {6.0}
    (late,) = run([judged], make_batch(tokenizer, ["right [[quality=5]]" + "x" * 980], uid), errors=True)
    (said,) = [r.getMessage() for r in caplog.records if "came after its siblings" in r.getMessage()]
    assert uid[0] in said
    assert "group_wait" in said
    if v1:
        assert isinstance(late, UnscoredError)
        assert "group_wait = 1 s" in str(late)
    else:
        assert late["reward_score"] == 6.0  # their mean
        assert late["reward_extra_info"]["judge_scored"] == 0.0


def test_no_score_is_an_error_that_drops_the_prompt(tokenizer: Any, server: ServerProcess) -> None:
    """In V1: the sibling rows keep their rewards; the error says what happens and what to set."""
    data = make_batch(tokenizer, ["right [[quality=7]]", "right [[quality=nothing]]"], fresh("a", "b"))
    good, bad = run([manager(tokenizer, {"config": judge(server)})], data, errors=True)
    assert good["reward_score"] == 8.0
    assert isinstance(bad, UnscoredError)
    assert "sync_refill_failed_groups" in str(bad)
    assert "no_verdict" in str(bad)


def test_no_score_can_be_the_siblings_mean(tokenizer: Any, server: ServerProcess) -> None:
    """policy = group_mean, across managers; the columns add up."""
    referee = {"config": judge(server, missing={"policy": "group_mean"}), "group_wait": 60}
    managers = [manager(tokenizer, referee, n=3) for _ in range(2)]
    texts = ["right [[quality=2]]", "right [[quality=nothing]]", "right [[quality=6]]"]
    outs = run(managers, make_batch(tokenizer, texts, fresh("a") * 3))
    assert [out["reward_score"] for out in outs] == [3.0, 5.0, 7.0]
    assert [out["reward_extra_info"]["judge_scored"] for out in outs] == [1.0, 0.0, 1.0]
    assert outs[1]["reward_extra_info"]["openai_quality_reward"] == 4.0


@pytest.mark.parametrize("policy", ["abstain", "group_mean", "value"])
def test_judges_are_columns_for_gdpo(tokenizer: Any, server: ServerProcess, policy: str) -> None:
    """An optional judge says nothing of one row: verl's own estimator gets a number there, by the policy."""
    judges = [
        {"name": "taste", "kind": "score", "optional": True, "weight": 0.8, "ask_again": 0},
        {"name": "safe", "kind": "yes_no", "weight": 0.2},
    ]
    missing = {"policy": policy, **({"value": 0.1} if policy == "value" else {})}
    referee = {"config": judge(server, judge=judges, missing=missing), "group_wait": 60}
    managers = [manager(tokenizer, referee, n=3) for _ in range(2)]
    data = make_batch(
        tokenizer, ["right [[quality=4]]", "right [[quality=99]]", "right [[quality=10]]"], fresh("a") * 3
    )
    rows = [out["reward_extra_info"] for out in run(managers, data)]
    taste = [row["judge_taste"] for row in rows]
    assert taste == pytest.approx([1 / 3, 0.1 if policy == "value" else 2 / 3, 1.0])
    assert [row["judge_taste_scored"] for row in rows] == [1.0, 0.0, 1.0]
    keys = ["original_score", "judge_taste", "judge_safe"]
    mask = data.batch["attention_mask"][:, data.batch["prompts"].size(1) :]
    advantages, _ = core_algos.compute_gdpo_outcome_advantage(
        token_level_rewards=torch.zeros_like(mask, dtype=torch.float32),
        response_mask=mask,
        index=data.non_tensor_batch["uid"],
        config={"gdpo_reward_keys": keys, "gdpo_reward_weights": [1.0, 0.8, 0.0]},
        non_tensor_batch={key: np.array([row[key] for row in rows]) for key in keys},
        batch=data.batch,
    )
    assert torch.isfinite(advantages).all()


def test_no_score_can_be_a_value(tokenizer: Any, server: ServerProcess) -> None:
    """policy = value."""
    referee = {"config": judge(server, missing={"policy": "value", "value": -2.0})}
    outs = run([manager(tokenizer, referee)], make_batch(tokenizer, ["right [[quality=nothing]]"], fresh("a")))
    assert outs[0]["reward_score"] == -2.0
    assert outs[0]["reward_extra_info"]["judge_scored"] == 0.0


def test_an_old_trainer_is_not_stopped(tokenizer: Any, server: ServerProcess) -> None:
    """Before V1 an error would kill the run: abstain becomes the group's mean; with no score at all, one number."""
    referee = {"config": judge(server), "group_wait": 60}
    managers = [manager(tokenizer, referee, n=2, v1=False) for _ in range(2)]
    texts = ["right [[quality=2]]", "right [[quality=nothing]]"]
    assert [o["reward_score"] for o in run(managers, make_batch(tokenizer, texts, fresh("a") * 2))] == [3.0, 3.0]
    texts = ["right [[quality=none]]", "wrong [[quality=nothing]]"]
    assert [o["reward_score"] for o in run(managers, make_batch(tokenizer, texts, fresh("b") * 2))] == [0.5, 0.5]


def test_length_penalty_keys_of_the_documents(tokenizer: Any, server: ServerProcess) -> None:
    """The same keys as the batch manager's, and the judge asked only above a rule score of 0."""
    keys = {"enable": True, "enable_openai_reward": True, "api_endpoint": server.url, "reward_coefficient": 0.1}
    referee = {"length_penalty": {**keys, "referee": {"cache": {"path": ""}}}}
    data = make_batch(tokenizer, ["right [[quality=7]]", "wrong [[quality=9]]"], fresh("a", "b"))
    outs = run([manager(tokenizer, referee)], data)
    assert [out["reward_score"] for out in outs] == pytest.approx([1.7, 0.0])
    assert [out["reward_extra_info"]["judge_asked"] for out in outs] == [1.0, 0.0]


def test_errors_name_the_documents_keys(tokenizer: Any) -> None:
    """When it starts, and when the judge refuses the key."""
    with pytest.raises(ConfigError, match="api_endpoint: the key would travel unencrypted"):
        manager(tokenizer, {"length_penalty": {"api_key": "k", "api_endpoint": "http://10.1.2.3/v1/chat/completions"}})
    with start_server_process(ProviderSpec(key="sk-right")) as strict:
        keys = {"api_key": "sk-wrong", "api_endpoint": strict.url, "referee": {"cache": {"path": ""}}}
        data = make_batch(tokenizer, ["right [[quality=7]]"], fresh("a"))
        (error,) = run([manager(tokenizer, {"length_penalty": keys})], data, errors=True)
        assert isinstance(error, EndpointClosed)
        assert "check api_key or api_key_env" in str(error)


def test_no_key_is_the_length_penalty_alone(tokenizer: Any) -> None:
    """And nothing is asked."""
    referee = {"length_penalty": {"enable": True}, "group_wait": 60}
    texts = ["right" + "x" * 94, "right" + "x" * 94, "right" + "x" * 194]
    outs = run([manager(tokenizer, referee, n=3)], make_batch(tokenizer, texts, fresh("a") * 3))
    assert [out["reward_score"] for out in outs] == [1.0, 1.0, 0.0]


def test_a_second_step_on_a_new_loop_works_as_the_first(tokenizer: Any, server: ServerProcess) -> None:
    """No loop is kept: each asyncio.run is another."""
    judged = manager(tokenizer, {"config": judge(server)})
    for quality in (3, 4, 5):
        data = make_batch(tokenizer, [f"right [[quality={quality}]]"], fresh("a"))
        assert run([judged], data)[0]["reward_score"] == quality + 1.0


def test_cached_rows_say_so(tokenizer: Any, server: ServerProcess) -> None:
    """Equal rollouts are asked once."""
    data = make_batch(tokenizer, ["right [[quality=7]]"] * 4, fresh("a", "b", "c", "d"))
    outs = run([manager(tokenizer, {"config": judge(server)})], data)
    assert sum(out["reward_extra_info"]["judge_cached"] for out in outs) == 3.0


def test_the_ledger_has_the_reward_verl_got(tokenizer: Any, server: ServerProcess, tmp_path: Path) -> None:
    """One reward line a rollout, with the group's terms, which no worker knows when its verdict lands."""
    texts = ["right [[quality=4]]" + "x" * 80, "right [[quality=6]]" + "y" * 80, "right [[quality=x]]"]
    data = make_batch(tokenizer, texts, fresh(*"aaa"))
    lines = {"ledger": {"dir": "runs"}, "missing": {"policy": "group_mean"}}
    length = {"shaping": {"scale": "native", "length": {"enable": True}}}
    made = [manager(tokenizer, {"config": judge(server, **lines, **length)}, n=3) for _ in range(2)]
    outs = run(made, data)
    close_all()
    found = [line for line in read(tmp_path / "runs") if isinstance(line, RewardLine)]
    assert sorted(line.value or 0.0 for line in found) == sorted(out["reward_score"] for out in outs)
    median = float(sorted(lengths(data))[1])
    assert {(line.length, line.median_length) for line in found} == {(length, median) for length in lengths(data)}
    short = next(line for line in found if line.length == min(lengths(data)))
    assert (short.penalty, short.judge, short.filled) == (1.0, None, "group_mean")
    step = build(read(tmp_path / "runs")).steps[0]
    assert (step.rewards, step.filled) == (2, 1)
    assert step.reward_mean == pytest.approx(6.0)


def test_the_ledger_says_where_verl_got_nothing(tokenizer: Any, server: ServerProcess, tmp_path: Path) -> None:
    """abstain: the rollout failed, and its reward line has no value."""
    data = make_batch(tokenizer, ["right [[quality=x]]"], fresh("a"))
    made = manager(tokenizer, {"config": judge(server, ledger={"dir": "runs"}, missing={"abort_above": 1.0})})
    assert isinstance(run([made], data, errors=True)[0], UnscoredError)
    close_all()
    assert [line.value for line in read(tmp_path / "runs") if isinstance(line, RewardLine)] == [None]


@pytest.fixture
def ranks() -> Iterator[None]:
    """A judge of whole groups is known: a value is the share of siblings with a lower score."""
    with registered():
        yield


RANK = {"kind": KIND, "name": "rank", "ask_again": 0}


def ranked(server: ServerProcess, **sections: Any) -> dict[str, Any]:
    """A referee configuration with that judge."""
    return judge(server, **{"judge": RANK, "shaping": {"scale": "unit"}, **sections})


def texts_of(*marks: Any) -> list[str]:
    return [f"right [[quality={mark}]]" for mark in marks]


@pytest.mark.usefixtures("ranks")
def test_a_judge_of_groups_is_shown_all_siblings(tokenizer: Any, server: ServerProcess) -> None:
    """They reach different managers one by one; interleaved groups do not mix, and the rule counts as ever."""
    managers = [manager(tokenizer, {"config": ranked(server), "group_wait": 60}, n=4) for _ in range(3)]
    data = make_batch(tokenizer, texts_of(2, 9, 4, 7, 1, 10, 5, 3), fresh(*"abababab"))
    outs = run(managers, data)
    assert [out["reward_score"] for out in outs] == [1.25, 1.5, 1.5, 1.25, 1.0, 1.75, 1.75, 1.0]
    assert [set(out["reward_extra_info"]) for out in outs] == [set(KEYS)] * 8
    assert {out["reward_extra_info"]["original_score"] for out in outs} == {1.0}


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("policy", ["abstain", "group_mean", "value"])
def test_judges_of_both_kinds_penalty_and_policy_together(
    tokenizer: Any, server: ServerProcess, tmp_path: Path, policy: str
) -> None:
    """Median and mean are the group's, the ledger has each reward once, and verl's columns are numbers."""
    missing = {"policy": policy, **({"value": -1.0} if policy == "value" else {})}
    sections: dict[str, Any] = {
        "judge": [RANK, {"name": "taste", "kind": "score", "weight": 0.0}],
        "shaping": {"scale": "unit", "length": {"enable": True}},
        "ledger": {"dir": "runs"},
        "missing": missing,
    }
    managers = [manager(tokenizer, {"config": ranked(server, **sections), "group_wait": 60}, n=4) for _ in range(2)]
    texts = [text + "x" * 50 for text in texts_of(2, 9, 5)]
    outs = run(managers, make_batch(tokenizer, [*texts, texts_of("none")[0]], fresh("a") * 4), errors=True)
    assert [out["reward_score"] for out in outs[:3]] == pytest.approx([1.0, 1 + 2 / 3, 1 + 1 / 3])
    close_all()
    lines = [line for line in read(tmp_path / "runs") if isinstance(line, RewardLine)]
    short = next(line for line in lines if line.penalty)
    assert (len(lines), short.penalty, short.judge) == (4, 1.0, None)
    if policy == "abstain":
        assert isinstance(outs[3], UnscoredError)
        assert short.value is None
    else:
        assert outs[3]["reward_score"] == pytest.approx(4 / 3 if policy == "group_mean" else -1.0)
        assert (short.value, short.filled) == (outs[3]["reward_score"], policy)
        assert all(value == value for name, value in outs[3]["reward_extra_info"].items() if "taste" not in name)
    found = build(read(tmp_path / "runs"))
    assert (found.steps[0].rewards, found.steps[0].filled) == (3, int(policy != "abstain"))


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("v1", [True, False])
def test_a_group_is_judged_with_what_is_there(
    tokenizer: Any, server: ServerProcess, caplog: pytest.LogCaptureFixture, v1: bool
) -> None:
    """After group_wait. The one that comes later is not scored, with a warning that says why and what to set."""
    referee = {"config": ranked(server, missing={"abort_above": 1.0}), "group_wait": 1.0}
    managers = [manager(tokenizer, referee, n=3, v1=v1) for _ in range(2)]
    uid = fresh("a")
    early = run(managers, make_batch(tokenizer, texts_of(2, 9), uid * 2))
    assert [out["reward_score"] for out in early] == [1.0, 1.5]
    (late,) = run(managers, make_batch(tokenizer, texts_of(10), uid), errors=True)
    (said,) = [r.getMessage() for r in caplog.records if "came after its siblings" in r.getMessage()]
    assert uid[0] in said
    if v1:
        assert isinstance(late, UnscoredError)
        assert "group_wait = 1 s" in str(late)
    else:
        assert late["reward_score"] == 1.25  # their mean
        assert late["reward_extra_info"]["judge_scored"] == 0.0


@pytest.mark.usefixtures("ranks")
def test_a_validation_row_is_a_group_of_one(tokenizer: Any, server: ServerProcess) -> None:
    """It waits for nobody; what such a group is worth is the judge's to say."""
    data = make_batch(tokenizer, texts_of(5), fresh("a"), extra=[{"split": "test"}])
    (out,) = run([manager(tokenizer, {"config": ranked(server), "group_wait": 600}, n=8)], data)
    assert out["reward_score"] == 1.0


@pytest.mark.usefixtures("ranks")
def test_an_error_of_the_judging_is_an_error_of_all_siblings(tokenizer: Any) -> None:
    """A wrong key is the clear error it is elsewhere, in every rollout; nobody waits."""
    with start_server_process(ProviderSpec(key="sk-right")) as strict:
        managers = [manager(tokenizer, {"config": ranked(strict), "group_wait": 60}, n=3) for _ in range(2)]
        outs = run(managers, make_batch(tokenizer, texts_of(2, 9, 5), fresh("a") * 3), errors=True)
    assert [type(out) for out in outs] == [EndpointClosed] * 3


@pytest.mark.usefixtures("ranks")
def test_a_rollout_that_is_given_up_does_not_lose_its_siblings(tokenizer: Any, server: ServerProcess) -> None:
    """It is compared all the same, whoever judges the group."""
    made = [manager(tokenizer, {"config": ranked(server), "group_wait": 60}, n=3) for _ in range(3)]
    data = make_batch(tokenizer, texts_of(2, 9, 5), fresh("a") * 3)

    async def main() -> list[Any]:
        first = [asyncio.create_task(made[row].run_single(data[row : row + 1])) for row in (0, 1)]
        await made[2].run_single(make_batch(tokenizer, texts_of(5), fresh("b"), extra=[{"split": "test"}]))
        first[0].cancel()
        last = asyncio.create_task(made[2].run_single(data[2:3]))
        return [(await task)["reward_score"] for task in (first[1], last)]

    assert asyncio.run(main()) == pytest.approx([1 + 2 / 3, 1 + 1 / 3])


@pytest.mark.usefixtures("ranks")
def test_a_rollout_that_cannot_be_judged_fails_by_itself(tokenizer: Any, server: ServerProcess) -> None:
    """An image in one prompt of a group: its siblings are judged without it, and do not wait for it."""
    made = [manager(tokenizer, {"config": ranked(server), "group_wait": 3600.0}, n=3) for _ in range(2)]
    talk: list[Any] = [[{"role": "user", "content": "Q"}]] * 2
    talk.append([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}]}])
    data = make_batch(tokenizer, texts_of(2, 9, 5), fresh("a") * 3, raw_prompt=talk)
    one, two, image = run(made, data, errors=True)
    assert [one["reward_score"], two["reward_score"]] == [1.0, 1.5]
    assert type(image).__name__ == "InputError"
