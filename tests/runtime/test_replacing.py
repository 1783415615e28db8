"""Workers that die, stop, or cannot be started again: what comes in their place, and what callers hear."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.harness import expected, samples
from tests.runtime.test_processes import PATIENCE, Make, make, pids, until

from referee.errors import RefereeError, TicketCancelled
from referee.referee import Referee
from referee.runtime import child as children
from referee.runtime import processes
from referee.sim import ProviderSpec

pytestmark = pytest.mark.slow

__all__ = ["make"]


def scores(referee: Referee, name: str) -> None:
    """Twenty samples, judged as they should be."""
    given = samples(20, name)
    assert [r.verdict.score for r in referee.score(given, PATIENCE)] == expected(given)  # type: ignore[union-attr]


def test_a_process_that_cannot_be_made_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses once, as it does when memory is short; the next attempt brings the worker back."""
    referee, _ = make(workers=2)
    scores(referee, "before")
    popen, refused = subprocess.Popen, list[str]()

    def once(*args: Any, **more: Any) -> Any:
        if not refused:
            refused.append("once")
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return popen(*args, **more)

    monkeypatch.setattr(children.subprocess, "Popen", once)
    os.kill(pids(referee)[0], signal.SIGKILL)
    until(lambda: refused)
    until(lambda: len(pids(referee)) == 2)
    scores(referee, "after")


def test_given_up_and_begun_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker can be replaced: what was judged can still be collected, what waits gets one clear error, and the next
    batch starts new workers."""
    referee, _ = make(ProviderSpec(latency_median=0.2), workers=2, limits={"concurrency": 4})
    done = referee.submit(samples(10, "done"))
    until(done.done)
    waiting = referee.submit(samples(400, "waiting"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        os.kill(pids(referee)[0], signal.SIGKILL)
        with pytest.raises(TicketCancelled, match="could not be replaced"):
            waiting.result(PATIENCE)
    scores(referee, "at once")
    assert all(reward.scored for reward in done.result())
    with pytest.raises(TicketCancelled, match="could not be replaced"):
        waiting.result()
    scores(referee, "later")


def test_a_worker_that_stands_still_is_ended(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not dead, and says nothing: another does its work."""
    monkeypatch.setattr(processes, "LOOK", 0.25)
    referee, _ = make(ProviderSpec(latency_median=0.05), workers=2, limits={"concurrency": 8})
    scores(referee, "before")
    stopped = pids(referee)[0]
    given = samples(100, "stopped")
    ticket = referee.submit(given)
    os.kill(stopped, signal.SIGSTOP)
    assert [r.verdict.score for r in ticket.result(PATIENCE)] == expected(given)  # type: ignore[union-attr]
    assert "sent nothing" in caplog.text
    assert stopped not in pids(referee)


def test_workers_without_work_may_be_silent(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is ended for having nothing to say."""
    monkeypatch.setattr(processes, "LOOK", 0.02)
    referee, _ = make(workers=2)
    scores(referee, "before")
    crew = referee._runtime._pool  # type: ignore[attr-defined]
    before, looks = pids(referee), []
    monkeypatch.setattr(crew.tracker, "has_work", lambda rank: bool(looks.append(rank)))
    until(lambda: len(looks) > 3 * 2 * processes.LOOKS)
    assert pids(referee) == before


def test_places_that_are_no_text_are_passed_over(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python itself ignores such an entry of sys.path."""
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    referee, _ = make(workers=1)
    scores(referee, "with a path")


def test_one_that_ends_while_others_start_is_replaced(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ready, and gone before all were: it is missed once they are."""
    ready, ended = processes.WorkerPool._ready, list[int]()

    def kill_the_first(crew: processes.WorkerPool, rank: int, child: children.Child, message: Any) -> None:
        ready(crew, rank, child, message)
        if not ended:
            ended.append(child.process.pid)
            child.end()

    monkeypatch.setattr(processes.WorkerPool, "_ready", kill_the_first)
    referee, _ = make(workers=3)
    scores(referee, "three")
    until(lambda: len(pids(referee)) == 3)
    assert ended[0] not in pids(referee)


def test_workers_that_all_fail_at_the_start_are_one_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many, and nobody waits for those that would be tried again."""
    referee, _ = make(workers=5)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RefereeError, match="worker process"):
        referee.submit(samples(3))
