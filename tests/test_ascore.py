"""Cancelling `ascore` stops the judging, also while the batch is still being submitted."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from referee import Referee, Sample
from referee.scoring.batch import Batch

CONFIG = {"endpoint": {"url": "http://127.0.0.1:9/v1", "model": "m", "key_env": ""}}


class SlowToStart:
    """A runtime whose first submit takes as long as a test wants."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.submitted: list[Batch] = []
        self.cancelled: list[Batch] = []

    def submit(self, batch: Batch) -> None:
        self.entered.set()
        assert self.go.wait(20.0)
        self.submitted.append(batch)

    def cancel(self, batch: Batch) -> None:
        self.cancelled.append(batch)

    def trouble(self, blocking: bool) -> str:
        return ""

    def close(self, seconds: float) -> None:
        return None


def test_cancelled_while_it_is_submitted() -> None:
    """The thread that submits cannot be stopped, so what it submits is cancelled as soon as it has."""
    runtime = SlowToStart()
    referee = Referee.from_config(CONFIG)
    slow: Any = runtime
    referee._runtime = slow

    async def main() -> None:
        task = asyncio.create_task(referee.ascore([Sample(prompt="p", response="r")]))
        await asyncio.to_thread(runtime.entered.wait, 20.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runtime.cancelled == []
        runtime.go.set()
        for _ in range(2000):
            if runtime.cancelled:
                break
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert runtime.cancelled == runtime.submitted != []


def test_a_notebook_is_told_once_that_score_blocks_its_loop(caplog: pytest.LogCaptureFixture) -> None:
    """A running loop is blocked by each call of score(); one warning a Referee says so."""

    async def main() -> None:
        with Referee.from_config(CONFIG) as referee:
            assert referee.score([]) == referee.score([]) == []

    asyncio.run(main())
    assert [record.message for record in caplog.records if "blocks the event loop" in record.message] == [
        "score() blocks the event loop it is called from; use `await referee.ascore(...)`"
    ]
