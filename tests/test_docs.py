"""Documents made from code are up to date, and the pages about rubrics and groups can be followed."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from referee.cli.main import app
from referee.sim import ProviderSpec, start_server_process

DOCS = Path(__file__).parent.parent / "docs"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "cli.md"])
def test_generated_documents_are_current(name: str) -> None:
    """What `python docs/generate.py` would write is what is there."""
    assert (DOCS / name).read_text(encoding="utf-8") == generator().DOCUMENTS[name](), "run: python docs/generate.py"


RUBRICS, GROUPS = DOCS / "rubrics.md", DOCS / "groups.md"


def blocks(language: str, page: Path = RUBRICS) -> list[str]:
    """All blocks of a language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def block(language: str, containing: str, page: Path = RUBRICS) -> str:
    """The first of them that holds this text."""
    return next(text for text in blocks(language, page) if containing in text)


@pytest.fixture
def rubric_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's rollouts and configuration, with a simulated judge in the place of the one it names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rollouts.jsonl").write_text(block("json", "aspirin"))
    (tmp_path / "referee.toml").write_text(block("toml", "rubric"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-example")
    with start_server_process(ProviderSpec()) as server:
        monkeypatch.setenv("REFEREE_ENDPOINT_URL", server.url)
        yield tmp_path


def test_the_page_about_rubrics_can_be_followed(rubric_folder: Path) -> None:
    """Its commands run on its file, and rows and parts have the fields and names that it shows."""
    for line in block("bash", "referee score").splitlines():
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (rubric_folder / "rewards.jsonl").read_text().splitlines()]
    shown = json.loads(block("json", '"parts"'))
    for row in rows:
        assert shown.keys() <= row.keys()
        assert [part.keys() for part in row["parts"]] == [part.keys() for part in shown["parts"]]
        for key in ("name", "text", "weight", "true_is"):
            assert [part[key] for part in row["parts"]] == [part[key] for part in shown["parts"]]
    for row in (*rows, shown):
        points = sum(part["weight"] * part["value"] * (1 if part["true_is"] == "good" else -1) for part in row["parts"])
        assert row["score"] == pytest.approx(points / 8)


def test_the_program_of_the_page_about_rubrics_judges(rubric_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sample's own rubric, as the dataset has it, beside the judge's criteria."""
    exec(block("python", "Sample(prompt="))
    said = capsys.readouterr().out
    assert [name for name in ("language", "short", "criterion 1", "criterion 2") if f"('{name}', '" not in said] == []


@pytest.mark.parametrize("settings", blocks("toml", GROUPS), ids=range(len(blocks("toml", GROUPS))))
def test_the_configurations_of_the_page_about_groups_judge_its_file(
    settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the endpoint of the first one, and a simulated judge there. Rows and parts have the fields it shows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rollouts.jsonl").write_text(block("json", "baseline", GROUPS))
    endpoint = "" if "[endpoint]" in settings else "[endpoint]" + blocks("toml", GROUPS)[0].partition("[endpoint]")[2]
    (tmp_path / "referee.toml").write_text(settings + endpoint)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-example")
    with start_server_process(ProviderSpec()) as server:
        monkeypatch.setenv("REFEREE_ENDPOINT_URL", server.url)
        done = CliRunner().invoke(app, shlex.split("score rollouts.jsonl -c referee.toml -o rewards.jsonl -q"))
    rows = [json.loads(line) for line in (tmp_path / "rewards.jsonl").read_text().splitlines()]
    assert all(row["how"] in ("listwise", "pairwise") for row in rows[:3]), done.output
    judged_alone = 'schedule = "anchor"' in settings or "alone =" in settings
    assert rows[3].get("unscored") == (None if judged_alone else "alone")
    if "pairwise" in settings:
        shown = json.loads(block("json", '"parts"', GROUPS))
        assert shown.keys() <= rows[0].keys()
        assert rows[0]["parts"][0].keys() == shown["parts"][0].keys()


REWARD_MODELS = DOCS / "reward_models.md"
TEXTLESS_FILE = """\
{"prompt": "What is 2 + 2?", "response": "[[quality=2]] It is 4.", "reference": "4", "id": "a"}
{"prompt": "What is 2 + 2?", "response": "[[quality=-1]] It is 5.", "reference": "4", "id": "b"}
"""


@pytest.mark.parametrize("settings", blocks("toml", REWARD_MODELS), ids=range(len(blocks("toml", REWARD_MODELS))))
def test_the_configurations_of_the_page_about_reward_models_judge(
    settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with a simulated server of its API: the better answer has the higher reward. doctor, plan, report work."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rollouts.jsonl").write_text(TEXTLESS_FILE)
    (tmp_path / "referee.toml").write_text(settings)
    monkeypatch.setenv("TYPESAFE_API_KEY", "sk-example")
    [api] = re.findall(r'^api = "(.*)"$', settings, re.M)
    with start_server_process(ProviderSpec(api=api)) as server:
        monkeypatch.setenv("REFEREE_ENDPOINT_URL", server.url.partition("/v1")[0])
        for line in (
            "doctor -c referee.toml",
            "plan rollouts.jsonl -c referee.toml",
            "score rollouts.jsonl -c referee.toml -o rewards.jsonl -q",
            "report rewards.jsonl -o report.html",
        ):
            done = CliRunner().invoke(app, shlex.split(line))
            assert done.exit_code == 0, f"{line}: {done.output}"
    good, bad = [json.loads(line) for line in (tmp_path / "rewards.jsonl").read_text().splitlines()]
    assert good["how"] == ("rubric" if api == "decision" else "reward_model")
    assert good["reward"] > bad["reward"]
    if 'activation = "raw"' in settings:
        assert (good["reward"], bad["reward"]) == (2.0, -1.0)
        assert good["cost"] > 0


def test_the_table_of_the_page_about_groups_is_what_was_measured() -> None:
    """Its rows hold the figures of bench/results.json, at 15 % of noise."""
    measured = json.loads((DOCS.parent / "bench" / "results.json").read_text())["groups"]["rows"]
    found = re.findall(r"^\| ((?:score|listwise|pairwise)\b[^|]*) \| (\d+ .*) \|$", GROUPS.read_text("utf-8"), re.M)
    assert len(found) > 10
    for name, cells in found:
        wanted = [
            cell
            for size in ("8", "16")
            for row in [measured[size][name]]
            for cell in (
                str(row["calls"]),
                f"{row['tokens']:,}",
                *(f"{row['found'][key][0]:.2f}" for key in ("0.0 0.15", "0.2 0.15")),
            )
        ]
        assert cells.split(" | ") == wanted, name


def test_the_page_about_comparing_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its two commands run on its two files; the second takes everything from the cache and has the fields it names."""
    page = DOCS / "compare.md"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.jsonl").write_text(block("json", "reflects the sea", page))
    (tmp_path / "tuned.jsonl").write_text(block("json", "scatters", page))
    (tmp_path / "referee.toml").write_text(block("toml", "pairwise", page))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-example")
    first, second = block("bash", "referee compare", page).splitlines()
    with start_server_process(ProviderSpec()) as server:
        monkeypatch.setenv("REFEREE_ENDPOINT_URL", server.url)
        shown = CliRunner().invoke(app, shlex.split(first, comments=True)[1:])
        data = CliRunner().invoke(app, shlex.split(second.partition(">")[0])[1:])
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "compare.html").exists()
    found = json.loads(data.stdout)
    assert found["about"]["requests"] == 0
    fields = re.search(r"^`--json` is one object with all of it: (.*)$", page.read_text(encoding="utf-8"), re.M)
    assert fields is not None
    assert set(re.findall(r"`(\w+)`", fields[1])) <= found.keys()
