"""Worker processes for real: shared limits, deaths, keys, what is left behind. The provider is a process of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.harness import expected, samples

from referee import clock
from referee.config import Secret, load
from referee.errors import ConfigError, MissingKeyError, RefereeError
from referee.referee import Referee
from referee.runtime import child as children
from referee.sim import ProviderSpec, start_server_process
from referee.sim.process import ServerProcess
from referee.sim.stats import key_label

pytestmark = pytest.mark.slow

PATIENCE = 50.0
"""Seconds to wait for something that must come. Nothing is asserted about time."""
Make = Callable[..., tuple[Referee, ServerProcess]]


@pytest.fixture
def make() -> Iterator[Make]:
    """Opens a Referee with workers and its provider; closes both."""
    with contextlib.ExitStack() as stack:

        def make(spec: ProviderSpec | None = None, **sections: Any) -> tuple[Referee, ServerProcess]:
            server = stack.enter_context(start_server_process(spec or ProviderSpec(), 1))
            endpoint = {"url": server.url, "model": "m", "key_env": "", **sections.pop("endpoint", {})}
            config = {"cache": {"path": ""}, "runtime": "processes", **sections, "endpoint": endpoint}
            referee = Referee(load(config))
            stack.callback(referee.close)
            return referee, server

        yield make


def until(found: Callable[[], object]) -> None:
    """Wait for something to become true."""
    end = clock.monotonic() + PATIENCE
    while not found():
        assert clock.monotonic() < end, "it did not happen"
        clock.pause(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def pids(referee: Referee) -> list[int]:
    """The workers of a Referee."""
    return [child.process.pid for child in referee._runtime._pool.children]  # type: ignore[attr-defined]


def verdict_lines(folder: Path) -> list[dict[str, Any]]:
    """All verdict lines of a folder of ledgers."""
    lines = [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]
    return [line for line in lines if line["type"] == "verdict"]


def test_the_limit_holds_for_all_workers_together(make: Make) -> None:
    """Four workers, ten at once: the provider never counts more."""
    referee, server = make(ProviderSpec(latency_median=0.02, latency_sigma=0.5), workers=4, limits={"concurrency": 10})
    for part in range(3):
        given = samples(150, str(part))
        assert [r.verdict.score for r in referee.score(given)] == expected(given)  # type: ignore[union-attr]
    assert len(pids(referee)) == 4
    assert server.stats().max_open <= 10


def test_identical_samples_meet(make: Make) -> None:
    """Equal requests go to the same worker: each is paid once."""
    referee, server = make(ProviderSpec(latency_median=0.1), workers=3)
    tickets = [referee.submit(samples(60, distinct=6)) for _ in range(3)]
    assert all(r.scored for ticket in tickets for r in ticket.result(PATIENCE))
    assert server.stats().received == 6
    metrics = referee.metrics()
    assert metrics["calls"] == 6
    assert metrics["shared"] + metrics["cache_hits"] == 174


def test_answers_with_different_thoughts_meet(make: Make) -> None:
    """The judge sees no reasoning, so these are equal requests."""
    referee, server = make(ProviderSpec(latency_median=0.1), workers=3)
    given = [
        replace(sample, response=f"<think>thought {at}</think>\n{sample.response}")
        for at, sample in enumerate(samples(60, distinct=6))
    ]
    assert all(r.scored for r in referee.score(given, PATIENCE))
    assert server.stats().received == 6


def test_a_budget_holds_for_all_workers_together(make: Make) -> None:
    """Money runs out for everybody; what was spent is within the budget, and the batch ends."""
    referee, server = make(
        ProviderSpec(latency_median=0.01),
        endpoint={"price_in": 10.0, "price_out": 10.0},
        limits={"budget_usd": 0.5, "concurrency": 8},
        judge={"max_tokens": 64},
        missing={"abort_above": 1.0},
    )
    rewards = referee.score(samples(300))
    reasons = {"scored" if r.scored else str(r.verdict.reason) for r in rewards}
    stats = server.stats()
    assert reasons == {"scored", "budget"}
    assert (stats.tokens_in + stats.tokens_out) * 10.0 / 1e6 <= 0.5
    assert referee.metrics()["budget_spent_usd"] <= 0.5


def test_workers_whose_requests_cost_more_than_foreseen_run_out_of_money(make: Make) -> None:
    """Replies are billed far above max_tokens: the batch ends because the money is gone, not at its deadline."""
    referee, _ = make(
        ProviderSpec(latency_median=0.01, reasoning_tokens=4000),
        endpoint={"price_in": 10.0, "price_out": 10.0},
        limits={"budget_usd": 0.5, "concurrency": 8},
        judge={"max_tokens": 64},
        missing={"abort_above": 1.0},
    )
    rewards = referee.score(samples(300))
    assert {"scored" if r.scored else str(r.verdict.reason) for r in rewards} == {"scored", "budget"}


def test_a_killed_worker_is_replaced_and_nothing_is_lost(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGKILL in the middle of a batch: every sample is scored, and stands in the ledger once."""
    referee, server = make(ProviderSpec(latency_median=0.05), limits={"concurrency": 8}, ledger={"dir": str(tmp_path)})
    given = samples(200)
    with caplog.at_level(logging.WARNING, "referee"):
        ticket = referee.submit(given)
        until(lambda: ticket.landed() > 20)
        killed = pids(referee)[0]
        os.kill(killed, signal.SIGKILL)
        rewards = ticket.result(PATIENCE)
    assert [r.verdict.score for r in rewards] == expected(given)  # type: ignore[union-attr]
    assert "exit code -9" in caplog.text
    until(lambda: len(pids(referee)) == 2)
    assert killed not in pids(referee)
    assert not alive(killed)
    referee.close()
    lines = verdict_lines(tmp_path)
    assert sorted(line.get("index", 0) for line in lines) == list(range(200))
    assert sorted(line["seq"] for line in lines) == list(range(1, 201))
    assert server.stats().max_open <= 16  # what a dead worker had in flight, the provider notices a moment later


def test_all_workers_killed_at_once(make: Make) -> None:
    """Nobody is left for a moment; the batch does not notice."""
    referee, _ = make(ProviderSpec(latency_median=0.05), limits={"concurrency": 8})
    ticket = referee.submit(samples(100))
    until(lambda: ticket.landed() > 5)
    for pid in pids(referee):
        os.kill(pid, signal.SIGKILL)
    assert all(r.scored for r in ticket.result(PATIENCE))


def test_a_key_reaches_the_workers_and_nothing_else(make: Make, tmp_path: Path) -> None:
    """A key given in Python travels over the pipe: not in a command line, an environment or a ledger."""
    key = "sk-canary-5f0c1d"
    referee, server = make(ProviderSpec(key=key), endpoint={"api_key": Secret(key)}, ledger={"dir": str(tmp_path)})
    assert all(r.scored for r in referee.score(samples(20)))
    assert list(server.stats().by_key) == [key_label(f"Bearer {key}")]
    for pid in pids(referee):
        for name in ("cmdline", "environ"):
            assert key.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    assert key not in repr(referee._runtime.__dict__)
    referee.close()
    assert all(key.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_a_key_from_the_environment_is_found_before_anything_starts(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent reads it; a missing one is the usual error."""
    monkeypatch.setenv("JUDGE_KEY", "sk-from-env")
    referee, _ = make(ProviderSpec(key="sk-from-env"), endpoint={"key_env": "JUDGE_KEY"})
    monkeypatch.delenv("JUDGE_KEY")
    assert all(r.scored for r in referee.score(samples(4)))
    with pytest.raises(MissingKeyError):
        make(endpoint={"key_env": "JUDGE_KEY"})


def test_no_worker_outlives_close(make: Make) -> None:
    """After close they are gone, with work in flight too."""
    referee, _ = make(ProviderSpec(latency_median=60.0))
    referee.submit(samples(20))
    workers = pids(referee)
    assert len(workers) == 2
    referee.close()
    until(lambda: not any(alive(pid) for pid in workers))


SCRIPT = """
import os, signal, sys
from referee.config import load
from referee.records import Sample
from referee.referee import Referee
config = {"endpoint": {"url": sys.argv[1], "model": "m", "key_env": ""}, "cache": {"path": ""}, "runtime": "processes"}
referee = Referee(load(config))
ticket = referee.submit([Sample(prompt="p", response=f"[[quality=3]] {n}") for n in range(50)])
pids = [child.process.pid for child in referee._runtime._pool.children]
"""


def start_script(body: str, url: str) -> subprocess.Popen[str]:
    """A program of its own with workers, which says their process ids first."""
    text = SCRIPT + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", text, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def first_pids(script: subprocess.Popen[str]) -> list[int]:
    """What it said first."""
    assert script.stdout is not None
    return [int(word) for word in script.stdout.readline().split()]


@pytest.mark.parametrize("forked", [False, True])
def test_a_killed_parent_takes_its_workers_along(forked: bool) -> None:
    """kill -9 leaves no worker behind, even if a forked child of the parent lives on."""
    with start_server_process(ProviderSpec(latency_median=60.0)) as server:
        fork = """
            if os.fork() == 0:
                signal.pause()
        """
        script = start_script(
            textwrap.dedent(fork if forked else "") + "\nprint(*pids, os.getpgid(0), flush=True)\nsignal.pause()\n",
            server.url,
        )
        *workers, _ = first_pids(script)
        assert len(workers) == 2
        assert all(alive(pid) for pid in workers)
        orphan = _child_of(script.pid, workers) if forked else None
        script.kill()
        try:
            until(lambda: not any(alive(pid) for pid in workers))
        finally:
            if orphan:
                os.kill(orphan, signal.SIGKILL)
        script.communicate(timeout=PATIENCE)


def _child_of(parent: int, workers: list[int]) -> int:
    """The forked child, which is neither a worker nor anything else of ours."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (orphan,) = {int(pid) for pid in found} - set(workers)
    return orphan


def test_ctrl_c_is_for_the_parent_alone() -> None:
    """Workers are out of the terminal's reach: the parent goes on as it likes."""
    with start_server_process(ProviderSpec(latency_median=0.5)) as server:
        script = start_script(
            """
            signal.signal(signal.SIGINT, lambda *_: None)
            for pid in pids:
                os.kill(pid, signal.SIGINT)
            assert all(os.getpgid(pid) != os.getpgid(0) for pid in pids)
            print(sum(r.scored for r in ticket.result(40)), flush=True)
            print([child.process.pid for child in referee._runtime._pool.children] == pids, flush=True)
            """,
            server.url,
        )
        out, err = script.communicate(timeout=PATIENCE)
    assert out.split() == ["50", "True"], err


def test_workers_that_cannot_start_are_one_clear_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is refused with what to change; no thread and no process stays behind."""
    monkeypatch.setattr(children, "_BOOT", "raise SystemExit(3)")
    referee, _ = make()
    with pytest.raises(RefereeError, match="exit code 3"):
        referee.score(samples(3))
    monkeypatch.undo()
    assert all(r.scored for r in referee.score(samples(3)))


def test_an_interpreter_that_is_not_there_is_one_clear_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such program: said, not hung."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(RefereeError, match="could not be started"):
        make_without_server().score(samples(3))


def make_without_server() -> Referee:
    """A Referee whose provider is never asked."""
    endpoint = {"url": "http://127.0.0.1:9/v1", "model": "m", "key_env": ""}
    return Referee(load({"endpoint": endpoint, "cache": {"path": ""}, "runtime": "processes"}))


def test_what_a_worker_refuses_is_told_as_it_is(make: Make, tmp_path: Path) -> None:
    """A file that is gone by the time workers start is the same error as elsewhere."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("[user]\nFrom {{low}} to {{high}}:\n{{prompt}}\n{{response}}\n{{reply}}\n")
    referee, _ = make(judge={"prompt_file": str(prompt)})
    prompt.unlink()
    with pytest.raises(ConfigError, match="prompt_file"):
        referee.score(samples(2))


def test_a_pace_holds_for_all_workers_together(make: Make) -> None:
    """With `rpm` set, the provider refuses nothing."""
    referee, server = make(ProviderSpec(rpm=1200), limits={"rpm": 1200}, workers=3)
    assert all(r.scored for r in referee.score(samples(40)))
    assert server.stats().refused == 0


def test_a_builder_cannot_cross() -> None:
    """A scorer made by the caller's own function would be lost silently; it is refused."""
    config = load({"endpoint": {"url": "http://127.0.0.1:9/v1", "key_env": ""}, "runtime": "processes"})
    with pytest.raises(ConfigError, match="builder"):
        Referee(config, lambda *_: None)


def test_warnings_of_workers_reach_the_parents_log(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """What a worker has to say is said where the user looks."""
    referee, _ = make(ProviderSpec(unsupported=("response_format",)))
    with caplog.at_level(logging.WARNING, "referee"):
        assert all(r.scored for r in referee.score(samples(5)))
        until(lambda: "response_format" in caplog.text)


def test_attempts_of_workers_reach_the_parents_log(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A level set on the engine's logger alone holds in the workers too."""
    with caplog.at_level(logging.DEBUG, "referee.engine"):
        referee, server = make(ProviderSpec())
        assert all(r.scored for r in referee.score(samples(5)))
        until(lambda: caplog.text.count(": attempt 1: answered, ") == server.stats().received == 5)


def test_both_workers_share_one_cache_file(make: Make, tmp_path: Path) -> None:
    """What one run paid for, the next finds, with another number of workers too."""
    path = str(tmp_path / "cache.sqlite")
    referee, server = make(cache={"path": path})
    referee.score(samples(40))
    referee.close()
    other, second = make(cache={"path": path}, workers=3, endpoint={"url": server.url})
    assert {r.settled.origin for r in other.score(samples(40))} == {"cache"}
    assert server.stats().received == 40
    assert second.stats().received == 0


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_refused(workers: int) -> None:
    """`workers` is at least 1."""
    with pytest.raises(ConfigError, match="workers"):
        load({"runtime": "processes", "workers": workers})
