"""A provider in a process of its own, and the command line as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from referee.sim import ProviderSpec, ServerProcess, start_server_process

Run = Callable[..., "subprocess.CompletedProcess[str]"]
KEY = "sk-canary-0123456789abcdef"


@pytest.fixture
def provider() -> Iterator[Callable[..., ServerProcess]]:
    """Starts simulated providers and stops them after the test."""
    servers: list[ServerProcess] = []

    def start(**spec: Any) -> ServerProcess:
        servers.append(start_server_process(ProviderSpec(**spec), seed=1))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def environment(**more: str) -> dict[str, str]:
    """Ours without anything of referee's or a provider's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("REFEREE_", "OPENAI_"))}
    return {**kept, "COLUMNS": "200", **more}


@pytest.fixture
def referee(tmp_path: Path) -> Run:
    """Runs `referee …` in the test's folder; the timeout only stops a hang."""

    def run(*args: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "referee.cli.main", *args],
            cwd=tmp_path,
            env=environment(**env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=55,
        )

    return run


def write_rollouts(path: Path, count: int, **fields: Any) -> None:
    """Rollouts whose right score the simulated judge can read."""
    with path.open("w") as stream:
        for n in range(count):
            row = {
                "id": f"r{n}",
                "group": f"g{n // 4}",
                "prompt": "p",
                "response": f"[[quality={n % 10 + 1}]] {n}",
                **fields,
            }
            stream.write(json.dumps(row) + "\n")


def write_config(path: Path, url: str, text: str = "", **endpoint: Any) -> None:
    """A configuration for one simulated endpoint."""
    settings = {"url": url, "model": "simulated", "key_env": "", **endpoint}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    path.write_text(f"[endpoint]\n{lines}\n{text}\n")


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an output file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
