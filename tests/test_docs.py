"""Documents made from code are up to date, and the page about rubrics can be followed."""

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


RUBRICS = DOCS / "rubrics.md"


def block(language: str, containing: str) -> str:
    """The first block of a language on the page about rubrics that holds this text."""
    found = re.findall(rf"^```{language}\n(.*?)^```", RUBRICS.read_text(encoding="utf-8"), re.M | re.S)
    return next(text for text in found if containing in text)


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
