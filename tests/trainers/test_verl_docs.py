"""Every example of docs/verl.md, its translation and examples/verl_grpo runs; the promised signatures are there."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from hydra import compose, initialize_config_module
from tests.trainers.verl_batches import make_batch, make_tokenizer
from tests.trainers.verl_real import loading
from tests.trainers.verl_rule import contains

from referee.config import load
from referee.errors import ConfigError
from referee.sim import ProviderSpec, ServerProcess, start_server_process
from referee.trainers import verl as names
from referee.trainers.shared import close_all
from referee.trainers.verl.loop_settings import loop_settings

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "verl_grpo"
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """The code of a page: language and text."""
    return BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


BLOCKS = blocks("verl.md")


def of(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's referee.toml, and the variables the page names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("QIANFAN_API_KEY", "sk-test")
    (tmp_path / "referee.toml").write_text(of("toml")[0])
    (tmp_path / "my_reward.py").write_text("def compute_score(**_):\n    return 1.0\n")
    yield tmp_path
    close_all()


def composed(overrides: list[str]) -> Any:
    """verl's own configuration with these lines."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides)


def test_the_chinese_page_has_the_same_code() -> None:
    """Both pages were written side by side and stay so."""
    assert blocks("verl.zh-CN.md") == BLOCKS
    assert {name for name, _ in BLOCKS} == {"bash", "hydra", "python", "text", "toml", "yaml"}


def test_toml_is_a_configuration() -> None:
    """It loads, with nothing unknown in it."""
    for text in [*of("toml"), (EXAMPLE / "referee.toml").read_text()]:
        load(tomllib.loads(text))


@pytest.mark.parametrize("lines", of("hydra"))
def test_config_lines_compose_and_load(lines: str) -> None:
    """Through hydra and verl's loader, to a manager or a function of ours."""
    config = composed(lines.split())
    manager = loading.load_reward_manager(config, make_tokenizer())
    if "RefereeRewardManager" in lines:
        assert isinstance(manager, names.RefereeRewardManager)
        assert manager.settings.asks
    else:
        assert manager.is_async_reward_score


def test_the_rate_limited_keys_of_the_page_are_refused() -> None:
    """Each with the setting the table gives."""
    page = (ROOT / "docs" / "verl.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\+reward\.\w+=\d+)` \| `\[limits\] (\w+ = \d+)`", page, re.MULTILINE)
    assert len(rows) == 4
    for override, setting in rows:
        config = composed([*of("hydra")[0].split(), override])
        with pytest.raises(ConfigError, match=re.escape(setting)):
            loop_settings(config)


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """The judge that stands in for the page's."""
    with start_server_process(ProviderSpec()) as started:
        yield started


def test_python_runs(server: ServerProcess) -> None:
    """As it stands, but for the judge's address."""
    tokenizer = make_tokenizer()
    scope: dict[str, Any] = {
        "tokenizer": tokenizer,
        "my_rule": contains,
        "batch": make_batch(tokenizer, ["right [[quality=7]]", "wrong"], ["a", "a"]),
        "api_key": "sk-test",
        "api_endpoint": server.url,
        "system_prompt": "1 to 10, digits only.",
    }
    for text in of("python"):
        exec(text.replace("https://qianfan.baidubce.com/v2/chat/completions", server.url), scope)
    assert scope["out"]["reward_tensor"].sum().item() == pytest.approx(
        1.7 - sum(scope["out"]["reward_extra_info"]["length_penalty"])
    )
    assert len(scope["scores"]) == 2
    assert None not in scope["scores"]


def test_the_command_that_checks_a_command_line() -> None:
    """It names the new keys."""
    line = next(text for text in of("bash") if "python -m" in text)
    done = subprocess.run([sys.executable, *shlex.split(line)[1:]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "reward.custom_reward_function.path=my.py" in done.stdout
    assert "reward.num_workers=4" in done.stdout


def test_the_example_composes() -> None:
    """All of its lines are verl's or ours, and none is an old key."""
    lines = [line for line in (EXAMPLE / "overrides.txt").read_text().splitlines() if line and line[0] != "#"]
    config = composed(lines)
    names.refuse_legacy_keys(config)
    config.reward.referee.config = str(EXAMPLE / config.reward.referee.config)
    found = loop_settings(config)
    assert (found.siblings, found.workers, found.config.limits.max_concurrency) == (8, 8, 60)


def test_the_example_scores(tmp_path: Path) -> None:
    """try_it.py: four rollouts, a reward each."""
    run = [sys.executable, "-W", "ignore", str(EXAMPLE / "try_it.py")]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("= rule") == 4


def test_signatures_are_the_promised_ones() -> None:
    """Names, order and defaults of the documents."""
    manager = inspect.signature(names.LengthPenaltyRewardManager).parameters
    assert list(manager) == ["tokenizer", "num_examine", "compute_score", "reward_fn_key", "length_penalty_config"]
    assert manager["reward_fn_key"].default == "data_source"
    judge = inspect.signature(names.AsyncOpenAIManager).parameters
    wanted = ["api_key", "model_name", "api_endpoint", "system_prompt", "reward_coefficient", "max_concurrent"]
    assert list(judge)[:6] == wanted
    assert (judge["reward_coefficient"].default, judge["max_concurrent"].default) == (1.0, 10)
    assert list(inspect.signature(names.compute_score).parameters)[:4] == [
        "response",
        "ground_truth",
        "dataset_name",
        "extra_info",
    ]
