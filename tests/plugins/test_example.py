"""The example plug-in, installed: its own tests, `referee score`, worker processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.plugins.install import EXAMPLE, install_example

from referee.sim import ProviderSpec, ServerProcess, start_server_process

SETTINGS = """
runtime = "{runtime}"

[judge]
kind = "safe_score"
options = {{ rule = "Is the response free of harm?" }}

[endpoint]
api = "azure"
url = "{url}"
model = "judge"
key_env = ""

[cache]
path = ""
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the example is installed."""
    folder = install_example(tmp_path_factory.mktemp("plugin"))
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A simulated judge."""
    with start_server_process(ProviderSpec(), seed=1) as server:
        yield server


def test_its_own_tests_pass(installed: dict[str, str], tmp_path: Path) -> None:
    """As its author runs them, away from our suite and its settings."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(EXAMPLE / "tests")]
    done = subprocess.run(
        [*command, "--rootdir", str(EXAMPLE)], cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("runtime", ["thread", "processes"])
def test_a_file_is_scored_with_it(
    runtime: str, installed: dict[str, str], server: ServerProcess, tmp_path: Path
) -> None:
    """Judge and dialect are named in TOML, and are found in this process and in workers."""
    (tmp_path / "referee.toml").write_text(
        SETTINGS.format(runtime=runtime, url=server.url.removesuffix("/v1/chat/completions"))
    )
    marks = [9, 2, 7, 4]
    rows = [{"prompt": "2 + 2?", "response": f"Answer {n}. [[quality={mark}]]"} for n, mark in enumerate(marks)]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = subprocess.run(
        [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-c", "referee.toml", "-o", "out.jsonl"],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["score"] for row in found] == [9.0, 1.0, 7.0, 1.0], "what is below 5 breaks the rule"
    assert {row["how"] for row in found} == {"terms"}


def test_plan_and_doctor_know_it(installed: dict[str, str], server: ServerProcess, tmp_path: Path) -> None:
    """A judge that asks two questions is planned as two, and checked like a shipped one."""
    (tmp_path / "referee.toml").write_text(SETTINGS.format(runtime="thread", url="http://127.0.0.1:9"))
    (tmp_path / "in.jsonl").write_text('{"prompt": "2 + 2?", "response": "4"}\n{"prompt": "2 + 2?", "response": ""}\n')

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "referee.cli.main", *words, "-c", "referee.toml"]
        done = subprocess.run(command, cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=50)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "2 rollouts: 2 requests, 0 equal to another, 0 in the cache, 1 without a call" in run("plan", "in.jsonl")
    assert "judge judge: safe_score" in run("doctor", "--offline")
