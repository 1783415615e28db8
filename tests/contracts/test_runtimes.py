"""Every runtime passes the same suite; fork, exit and Ctrl-C included, which need programs of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.group_suite import KINDS, BackgroundGroupContract, LostGroupContract, ShippedGroupContract
from tests.contracts.runtime_suite import (
    BackgroundContract,
    GroupContract,
    LossContract,
    RuntimeContract,
    open_in_process,
    open_over_http,
)

from referee.referee import Referee
from referee.sim import ProviderSpec

RUNTIMES = ["thread", "inline", "processes"]
BACKGROUND = ["thread", "processes"]


class TestInline(RuntimeContract, GroupContract, ShippedGroupContract):
    """In the caller's own thread."""

    def open(self, spec: ProviderSpec, sections: dict[str, Any], stack: contextlib.ExitStack) -> Referee:
        return open_in_process("inline", spec, sections)


class TestThread(BackgroundContract, GroupContract, BackgroundGroupContract):
    """On a background event loop."""

    def open(self, spec: ProviderSpec, sections: dict[str, Any], stack: contextlib.ExitStack) -> Referee:
        return open_in_process("thread", spec, sections)


@pytest.mark.slow
class TestProcesses(BackgroundContract, LossContract, LostGroupContract):
    """In worker processes."""

    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        """Of a judge of groups that asks in rounds. Processes take long to start."""
        return KINDS["pairwise, swiss in one order"]

    def open(self, spec: ProviderSpec, sections: dict[str, Any], stack: contextlib.ExitStack) -> Referee:
        return open_over_http("processes", spec, sections, stack)

    def lose(self, referee: Referee) -> None:
        """Kill its first worker."""
        os.kill(referee._runtime._pool.children[0].process.pid, signal.SIGKILL)  # type: ignore[attr-defined]


SCRIPT = """
import os, signal, sys, threading
from referee.config import load
from referee.records import Sample
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport, start_server_process

servers = []

def make(spec, **sections):
    base = {"endpoint": {"url": "http://sim.test/v1", "model": "m", "key_env": ""}, "cache": {"path": ""}}
    if sections.get("runtime") == "processes":
        servers.append(start_server_process(spec, 1))
        base["endpoint"]["url"] = servers[-1].url
        return Referee(load({**base, **sections}))
    return Referee(load({**base, **sections}), worker_with(lambda: SimTransport(Provider(spec, 1))))

def samples(count):
    return [Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}") for n in range(count)]
"""


def run_script(body: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run a small program of its own; the timeout only stops a hang."""
    text = SCRIPT + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=50, **kwargs)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_forked_child_can_score(runtime: str) -> None:
    """A child forked from a process that has scored gets a loop of its own, and both go on."""
    done = run_script(f"""
        referee = make(ProviderSpec(latency_median=0.01), runtime={runtime!r})
        assert len(referee.score(samples(4))) == 4
        pid = os.fork()
        if pid == 0:
            ok = [r.value for r in referee.score(samples(6))] == [n / 9 for n in range(6)]
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert len(referee.score(samples(5))) == 5
        print("both")
    """)
    assert done.stdout.strip() == "both", done.stderr


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_child_that_only_exits_leaves_the_parents_connections_alone(runtime: str) -> None:
    """What a child inherits of sockets and poll sets is the parent's; its exit must not touch them."""
    done = run_script(f"""
        from referee.sim import start_server_process
        with start_server_process(ProviderSpec()) as server:
            config = {{"endpoint": {{"url": server.url, "model": "m", "key_env": ""}}, "cache": {{"path": ""}}}}
            referee = Referee(load({{**config, "runtime": {runtime!r}, "limits": {{"deadline": 20.0}}}}))
            referee.score(samples(3))
            pid = os.fork()
            if pid == 0:
                sys.exit(0)
            os.waitpid(pid, 0)
            print(sum(r.scored for r in referee.score(samples(9)[4:])))
            referee.close()
    """)
    assert done.stdout.strip() == "5", done.stderr


def test_inline_ctrl_c_leaves_nothing_of_the_batch_behind() -> None:
    """After an interrupted batch the next one is judged alone and at once."""
    done = run_script("""
        referee = make(ProviderSpec(latency_median=0.3), runtime="inline", limits={"deadline": 20.0})
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            referee.score(samples(500))
        except KeyboardInterrupt:
            print(sum(r.scored for r in referee.score(samples(2))), referee.metrics()["samples"])
    """)
    assert done.stdout.split() == ["2", "2.0"], done.stderr


@pytest.mark.parametrize("runtime", BACKGROUND)
def test_a_referee_that_is_dropped_takes_its_thread_along(runtime: str) -> None:
    """Forgetting close leaks no thread."""
    done = run_script(f"""
        import gc
        for _ in range(3):
            make(ProviderSpec(), runtime={runtime!r}).score(samples(2))
        gc.collect()
        for thread in threading.enumerate():
            if thread.name.startswith("referee"):
                thread.join(10)
        print(sum(t.name.startswith("referee") for t in threading.enumerate()))
    """)
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize("runtime", BACKGROUND)
def test_a_forked_child_cannot_wait_for_the_parents_ticket(runtime: str) -> None:
    """The work is in the parent: the child is told so at once."""
    done = run_script(f"""
        from referee.errors import TicketCancelled
        referee = make(ProviderSpec(latency_median=1.0), runtime={runtime!r})
        ticket = referee.submit(samples(2))
        pid = os.fork()
        if pid == 0:
            try:
                ticket.result()
            except TicketCancelled:
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(ticket.result()))
    """)
    assert done.stdout.split() == ["7", "2"], done.stderr


@pytest.mark.parametrize("runtime", BACKGROUND)
@pytest.mark.parametrize("fault", ["{}", "{'hang': 1.0}"])
def test_exit_with_work_in_flight_ends(fault: str, runtime: str) -> None:
    """A program that forgets its tickets still exits, quietly."""
    done = run_script(f"""
        referee = make(ProviderSpec(latency_median=30.0, faults={fault}), runtime={runtime!r})
        referee.submit(samples(50))
        print("leaving")
    """)
    assert done.returncode == 0
    assert done.stdout.strip() == "leaving"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("runtime", BACKGROUND)
def test_ctrl_c_reaches_a_waiting_caller(tmp_path: Path, runtime: str) -> None:
    """KeyboardInterrupt comes through a blocking wait, and what was judged is on record."""
    body = f"""
        referee = make(ProviderSpec(latency_median=0.01), ledger={{"dir": {str(tmp_path)!r}}}, runtime={runtime!r})
        referee.score(samples(3))
        slow = make(ProviderSpec(latency_median=60.0), runtime={runtime!r})
        ticket = slow.submit(samples(3))
        try:
            print("waiting", flush=True)
            ticket.result()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "waiting"
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert out.strip() == "interrupted", err
    lines = "".join(path.read_text() for path in tmp_path.iterdir())
    assert lines.count('"type":"verdict"') == 3
