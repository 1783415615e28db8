"""A simulated judge over HTTP, and a clean slate around each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from referee.sim import ProviderSpec, ServerProcess, start_server_process
from referee.trainers.shared import close_all

MONITOR_VARIABLES = (
    *("TRAIN_WITH_MONITOR", "MONITOR_MODEL_NAME", "MONITOR_CORRECT_REWARD", "MONITOR_WRONG_REWARD", "MONITOR_CACHE"),
    *("REBALANCE_MONITOR_REWARD", "MONITOR_MAX_CONCURRENT", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No variables of the machine's, no files outside the test's folder, nothing left open."""
    for name in MONITOR_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    close_all()


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerProcess]]:
    """Starts providers that end with the test."""
    started: list[ServerProcess] = []

    def start(**spec: object) -> ServerProcess:
        started.append(start_server_process(ProviderSpec(**spec)))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for server in started:
        server.stop()
