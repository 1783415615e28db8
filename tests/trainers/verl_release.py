"""Run by test_verl_releases.py in a process of its own, with one release of verl first on the path.

    python tests/trainers/verl_release.py <release> <url of a simulated judge>

Does with our managers what that release's trainer does, loaded the way docs/verl.md says, and fails where it does not
work. Prints what was run, as JSON. Its neighbours are imported without a package: verl's wheels bring a package named
`tests` of their own.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import hydra
import torch
import verl
import verl.workers.reward_manager as managers
import verl_rule
from omegaconf import OmegaConf
from ray import cloudpickle
from verl_batches import lengths, make_batch, make_tokenizer

TEXTS = [
    "right [[quality=4]]" + "b" * 80,
    "wrong [[quality=9]]",
    "right [[quality=6]]" + "c" * 80,
    "right [[quality=x]]",
]
UIDS = ["a", "b", "a", "b"]
WANTED = [1.4, 0.0, 1.6, 0.0]
"""Rule plus a tenth of the judge's score, which is asked only about right answers. The judge gives the last row no
score, so it has its sibling's reward. No length is far from its group's median."""
KEYS: dict[str, Any] = {
    "enable": True,
    "enable_openai_reward": True,
    "reward_coefficient": 0.1,
    "use_async_io": True,
    "max_concurrent_requests": 10,
    "referee": {"cache": {"path": ""}, "judge": {"ask_again": 0}},
}
DAPO = {"max_resp_len": 64, "overlong_buffer_cfg": OmegaConf.create({"enable": False, "len": 8})}
"""Most releases of it do not work without."""
RULE = "import referee.trainers.verl\nfrom verl_rule import contains\n"
"""A user's reward file, where importing us enters the manager in verl's registry."""


def overrides(prefix: str, values: dict[str, Any]) -> list[str]:
    """Settings as a command line has them."""
    lines: list[str] = []
    for name, value in values.items():
        path = f"{prefix}.{name}"
        lines += overrides(path, value) if isinstance(value, dict) else [f"+{path}={json.dumps(value)}"]
    return lines


def trainer_config(*lines: str) -> Any:
    """The release's own trainer configuration with these overrides, as its command line reads them."""
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with hydra.initialize_config_dir(str(folder), version_base=None):
        return hydra.compose("ppo_trainer", overrides=list(lines))


def same(data: Any, tensor: Any, wanted: list[float]) -> None:
    """These rewards, on the last valid token and nowhere else."""
    assert tensor.dtype == torch.float32, tensor.dtype
    expected = torch.zeros(data.batch["responses"].shape)
    for row, (length, value) in enumerate(zip(lengths(data), wanted, strict=True)):
        expected[row, length - 1] = value
    assert torch.allclose(tensor, expected), (tensor.sum(-1).tolist(), wanted)


def check_batch_manager(manager: Any, tokenizer: Any) -> None:
    """Called as a trainer calls it: the tensor, the columns in batch order, the caller's data as it was."""
    data = make_batch(tokenizer, TEXTS, UIDS)
    out = manager(data, return_dict=True)
    same(data, out["reward_tensor"], WANTED)
    info = out["reward_extra_info"]
    assert info["original_score"] == [1.0, 0.0, 1.0, 1.0], info
    assert info["judge_scored"] == [1.0, 1.0, 1.0, 0.0], info
    assert info["response_length"] == lengths(data)
    assert all(len(values) == len(data) for values in info.values())
    assert data.non_tensor_batch["extra_info"][0] == {"index": 0}
    same(data, manager(data), WANTED)
    ticket = manager.submit(data)
    same(data, manager.collect(ticket, data), WANTED)


def check_beside_verls(tokenizer: Any) -> list[str]:
    """Without judge and penalty we give what the release's naive manager gives; our function serves its managers."""
    from referee.trainers.verl import LengthPenaltyRewardManager, compute_score

    data = make_batch(tokenizer, TEXTS, UIDS)
    ours = LengthPenaltyRewardManager(tokenizer=tokenizer, num_examine=0, compute_score=verl_rule.contains)
    theirs = managers.NaiveRewardManager(tokenizer=tokenizer, num_examine=0, compute_score=verl_rule.contains)
    assert torch.equal(theirs(data), ours(data))
    served = []
    for name in ("NaiveRewardManager", "BatchRewardManager", "DAPORewardManager"):
        if hasattr(managers, name):
            data = make_batch(tokenizer, ["so\nright", "so\nwrong"], ["a", "a"])
            more = DAPO if name.startswith("DAPO") else {}
            made = getattr(managers, name)(tokenizer=tokenizer, num_examine=0, compute_score=compute_score, **more)
            same(data, made(data), [1.0, 0.0])
            served.append(f"compute_score in {name}")
    return served


def load_batch_manager(release: tuple[int, ...], url: str, tokenizer: Any, folder: Path) -> tuple[str, Any]:
    """By the release's own loader and configuration, while it knows batch managers by name; else by hand."""
    keys = {**KEYS, "api_endpoint": url}
    if not (0, 4, 1) <= release <= (0, 7, 0):
        from referee.trainers.verl import LengthPenaltyRewardManager

        made = LengthPenaltyRewardManager(tokenizer, 0, verl_rule.contains, length_penalty_config=keys)
        return "made by hand", made
    reward = importlib.import_module("verl.trainer.ppo.reward")
    file = folder / "rule.py"
    file.write_text(RULE)
    how = ["reward_model.reward_manager=length_penalty"]
    if release == (0, 7, 0):
        how = [
            "reward_manager.source=importlib",
            "reward_manager.name=LengthPenaltyRewardManager",
            "reward_manager.module.path=pkg://referee.trainers.verl",
            "reward_model.use_reward_loop=False",
        ]
    config = trainer_config(
        f"custom_reward_function.path={file}",
        "custom_reward_function.name=contains",
        *overrides("reward_model.reward_kwargs.length_penalty_config", keys),
        *how,
    )
    more = config.reward_model.get("reward_kwargs", {})
    # Only what the user is told to do may have loaded us before verl looks for the manager.
    assert ("referee.trainers.verl" in sys.modules) == (release < (0, 6))
    found = reward.load_reward_manager(config, tokenizer, num_examine=0, **more)
    assert type(found).__name__ == "LengthPenaltyRewardManager"
    check_compute_reward(reward.compute_reward, found, tokenizer)
    return "loaded by " + how[0], found


def check_function_by_path(release: tuple[int, ...], tokenizer: Any, folder: Path) -> list[str]:
    """compute_score in the release's own batch manager, by the lines of docs/verl.md: up to 0.6.1 from a file."""
    if not (0, 4, 0) <= release <= (0, 6, 1):
        return []
    file = folder / "my_reward.py"
    file.write_text("from referee.trainers.verl import compute_score\n")
    config = trainer_config(
        f"custom_reward_function.path={file}",
        "custom_reward_function.name=compute_score",
        "reward_model.reward_manager=batch",
    )
    sys.modules.pop("custom_module", None)  # verl reads one file in a process
    manager = importlib.import_module("verl.trainer.ppo.reward").load_reward_manager(config, tokenizer, num_examine=0)
    assert type(manager).__name__ == "BatchRewardManager"
    data = make_batch(tokenizer, ["so\nright", "so\nwrong"], ["a", "a"])
    same(data, manager(data), [1.0, 0.0])
    return ["compute_score by path"]


def check_compute_reward(compute_reward: Any, manager: Any, tokenizer: Any) -> None:
    """Through the trainer's own wrapper."""
    data = make_batch(tokenizer, TEXTS, UIDS)
    tensor, info = compute_reward(data, manager)
    same(data, tensor, WANTED)
    assert info["judge_scored"] == [1.0, 1.0, 1.0, 0.0], info


def check_loop_manager(url: str, tokenizer: Any, folder: Path) -> None:
    """The reward loop's manager by the release's own loader, since the batch managers are no longer called."""
    reward = importlib.import_module("verl.trainer.ppo.reward")
    config = trainer_config(
        "reward.reward_manager.source=importlib",
        "reward.reward_manager.name=RefereeRewardManager",
        "reward.reward_manager.module.path=pkg://referee.trainers.verl",
        f"reward.custom_reward_function.path={verl_rule.__file__}",
        "reward.custom_reward_function.name=contains",
        "actor_rollout_ref.rollout.n=2",
        *overrides("reward.referee.length_penalty", {**KEYS, "api_endpoint": url}),
    )

    async def run() -> list[Any]:
        manager = reward.load_reward_manager(config, tokenizer)
        data = make_batch(tokenizer, TEXTS, UIDS)
        return await asyncio.gather(*(manager.run_single(data[row : row + 1]) for row in range(len(data))))

    found = [row["reward_score"] for row in asyncio.run(run())]
    assert torch.allclose(torch.tensor(found), torch.tensor(WANTED)), found


def main(label: str, url: str) -> None:
    """Everything this release can be asked for."""
    release = tuple(int(part) for part in label.split(".")[:3])
    assert verl.__version__ == label, f"verl {verl.__version__} was imported, not {label}"
    tokenizer = make_tokenizer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        how, manager = load_batch_manager(release, url, tokenizer, folder)
        check_batch_manager(manager, tokenizer)
        check_batch_manager(
            cloudpickle.loads(cloudpickle.dumps(manager)), tokenizer
        )  # as a trainer sends it to a Ray task
        ran = [f"LengthPenaltyRewardManager, {how}", *check_beside_verls(tokenizer)]
        ran += check_function_by_path(release, tokenizer, folder)
        if hasattr(managers, "get_reward_manager_cls"):
            assert managers.get_reward_manager_cls("length_penalty") is type(manager)
        if release > (0, 7, 0):
            check_loop_manager(url, tokenizer, folder)
            ran.append("RefereeRewardManager")
        manager.shutdown_workers()
    sys.stdout.write("\n" + json.dumps(ran) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
