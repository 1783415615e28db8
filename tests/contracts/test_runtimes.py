"""What every runtime promises, wherever it runs: order, no hang, no leak; fork, loops, exit and Ctrl-C included."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from referee.config import Config, load
from referee.errors import EndpointClosed, InputError, TicketCancelled, TicketTimeout, WrongContext
from referee.records import Sample
from referee.referee import Referee
from referee.scorer import Scorer, build_scorer
from referee.sim import Provider, ProviderSpec, SimTransport

RUNTIMES = ["thread", "inline"]
BASE: dict[str, Any] = {
    "endpoint": {"url": "http://sim.test/v1", "model": "m", "key_env": ""},
    "cache": {"path": ""},
}


def builder(spec: ProviderSpec) -> Callable[[Config], Scorer]:
    return lambda config: build_scorer(config, SimTransport(Provider(spec, 1)))


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(runtime: str) -> Iterator[Callable[..., Referee]]:
    made: list[Referee] = []

    def build(spec: ProviderSpec | None = None, **sections: Any) -> Referee:
        config = load({**BASE, **sections, "runtime": runtime})
        made.append(Referee(config, builder(spec or ProviderSpec())))
        return made[-1]

    yield build
    for referee in made:
        referee.close()


def samples(count: int) -> list[Sample]:
    return [Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}", id=str(n)) for n in range(count)]


def scores(rewards: list[Any]) -> list[float]:
    return [reward.verdict.score for reward in rewards]


def test_rewards_come_back_in_order(make: Callable[..., Referee]) -> None:
    """Twenty samples, twenty rewards, each its own."""
    assert scores(make().score(samples(20))) == [n % 10 + 1 for n in range(20)]


def test_a_second_batch_works_as_the_first(make: Callable[..., Referee]) -> None:
    """Nothing is used up by a batch."""
    referee = make()
    assert scores(referee.score(samples(3))) == scores(referee.score(samples(3)))
    assert referee.metrics()["cache_hits"] == 3


def test_an_empty_batch_is_no_work(make: Callable[..., Referee]) -> None:
    """No samples, no rewards, no error."""
    assert make().score([]) == []


def test_iteration_gives_every_reward_once(make: Callable[..., Referee]) -> None:
    """Iterating a ticket yields as many rewards as were submitted."""
    assert sorted(r.index for r in make().submit(samples(9))) == list(range(9))


def test_ascore_leaves_the_callers_loop_free(make: Callable[..., Referee]) -> None:
    """Other tasks of the caller's loop run while the judge works."""
    referee = make(ProviderSpec(latency_median=0.05))

    async def main() -> tuple[int, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        beat = asyncio.create_task(tick())
        rewards = await referee.ascore(samples(2))
        beat.cancel()
        return len(rewards), ticks

    count, ticks = asyncio.run(main())
    assert count == 2
    assert ticks > 0


def test_every_new_loop_can_await(make: Callable[..., Referee]) -> None:
    """A Referee outlives the loops of its callers."""
    referee = make()
    for _ in range(3):
        assert len(asyncio.run(referee.ascore(samples(2)))) == 2


def test_score_inside_a_running_loop_blocks_but_answers(make: Callable[..., Referee]) -> None:
    """Notebooks and async actors call the blocking form too; it must not die there."""
    referee = make()

    async def main() -> int:
        return len(referee.score(samples(4)))

    assert asyncio.run(main()) == 4


def test_threads_can_share_a_referee(make: Callable[..., Referee]) -> None:
    """Several threads score at once and each gets its own rewards."""
    referee = make()
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        results[number] = scores(referee.score(samples(number + 1)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: len(found) for number, found in results.items()} == {0: 1, 1: 2, 2: 3, 3: 4}


def test_a_closed_endpoint_is_one_clear_error(make: Callable[..., Referee]) -> None:
    """A wrong key fails the batch with the setting to change, and without the key."""
    referee = make(ProviderSpec(key="right"))
    with pytest.raises(EndpointClosed, match="key_env") as caught:
        referee.score(samples(30))
    assert caught.value.reason == "auth"
    assert len(caught.value.rewards) == 30


def test_a_closed_referee_says_so(make: Callable[..., Referee]) -> None:
    """After close nothing is judged; closing twice is fine."""
    referee = make()
    referee.score(samples(1))
    referee.close()
    referee.close()
    with pytest.raises(WrongContext, match="closed"):
        referee.score(samples(1))


def test_nothing_is_left_after_close(make: Callable[..., Referee]) -> None:
    """No thread of ours outlives close."""
    referee = make()
    referee.score(samples(3))
    referee.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("referee")]


def test_the_deadline_ends_a_batch_that_hangs(make: Callable[..., Referee]) -> None:
    """A judge that never answers costs the batch its deadline and no more."""
    referee = make(ProviderSpec(faults={"hang": 1.0}), limits={"deadline": 0.2})
    rewards = referee.score(samples(5))
    assert {str(r.verdict.reason) for r in rewards} <= {"deadline", "timeout"}  # type: ignore[union-attr]
    assert all(r.value is None for r in rewards)


def test_thread_caller_timeout_leaves_the_work_running() -> None:
    """A short wait raises TicketTimeout; the same ticket gives the rewards later."""
    referee = Referee(load(BASE), builder(ProviderSpec(latency_median=0.2)))
    ticket = referee.submit(samples(2))
    with pytest.raises(TicketTimeout):
        ticket.result(timeout=0.01)
    assert len(ticket.result(timeout=30)) == 2
    referee.close()


def test_thread_cancel_ends_the_batch() -> None:
    """Cancelling leaves every sample with an end: unscored, cancelled."""
    referee = Referee(load(BASE), builder(ProviderSpec(latency_median=60.0)))
    ticket = referee.submit(samples(5))
    ticket.cancel()
    assert {str(r.verdict.reason) for r in ticket.result(timeout=30)} == {"cancelled"}  # type: ignore[union-attr]
    referee.close()


def test_thread_close_fails_whoever_waits() -> None:
    """Closing while others wait gives them an end, not a hang."""
    referee = Referee(load(BASE), builder(ProviderSpec(latency_median=60.0)))
    ticket = referee.submit(samples(2))
    closer = threading.Timer(0.1, referee.close)
    closer.start()
    try:
        rewards = ticket.result(timeout=30)
    except TicketCancelled:
        rewards = []
    assert all(r.value is None for r in rewards)
    closer.join()


def test_thread_refuses_to_wait_for_itself() -> None:
    """A blocking call on the engine's own loop would deadlock; it raises instead."""
    referee = Referee(load(BASE), builder(ProviderSpec(latency_median=0.5)))
    ticket = referee.submit(samples(1))
    found: list[BaseException] = []
    asked = threading.Event()

    def ask() -> None:
        try:
            ticket.result()
        except BaseException as error:
            found.append(error)
        asked.set()

    referee._runtime._loop.call_soon_threadsafe(ask)  # type: ignore[attr-defined]
    assert asked.wait(30)
    assert isinstance(found[0], WrongContext)
    ticket.result(timeout=30)
    referee.close()


SCRIPT = """
import os, signal, sys, threading
from referee.config import load
from referee.records import Sample
from referee.referee import Referee
from referee.scorer import build_scorer
from referee.sim import Provider, ProviderSpec, SimTransport

def make(spec, **sections):
    base = {"endpoint": {"url": "http://sim.test/v1", "model": "m", "key_env": ""}, "cache": {"path": ""}}
    return Referee(load({**base, **sections}), lambda c: build_scorer(c, SimTransport(Provider(spec, 1))))

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


def test_a_referee_that_is_dropped_takes_its_thread_along() -> None:
    """Forgetting close leaks no thread."""
    done = run_script("""
        import gc
        for _ in range(3):
            make(ProviderSpec()).score(samples(2))
        gc.collect()
        for thread in threading.enumerate():
            if thread.name == "referee":
                thread.join(10)
        print(sum(t.name == "referee" for t in threading.enumerate()))
    """)
    assert done.stdout.strip() == "0", done.stderr


def test_a_deadline_that_is_no_time_is_refused(make: Callable[..., Referee]) -> None:
    """A string or a NaN is named before anything is spent."""
    for wrong in ("300", float("nan"), 0, True):
        with pytest.raises(InputError, match="deadline"):
            make().submit(samples(1), deadline=wrong)  # type: ignore[arg-type]


def test_a_forked_child_cannot_wait_for_the_parents_ticket() -> None:
    """The work is in the parent: the child is told so at once."""
    done = run_script("""
        from referee.errors import TicketCancelled
        referee = make(ProviderSpec(latency_median=1.0))
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


@pytest.mark.parametrize("fault", ["{}", "{'hang': 1.0}"])
def test_exit_with_work_in_flight_ends(fault: str) -> None:
    """A program that forgets its tickets still exits, quietly."""
    done = run_script(f"""
        referee = make(ProviderSpec(latency_median=30.0, faults={fault}))
        referee.submit(samples(50))
        print("leaving")
    """)
    assert done.returncode == 0
    assert done.stdout.strip() == "leaving"
    assert "Traceback" not in done.stderr


def test_ctrl_c_reaches_a_waiting_caller(tmp_path: Path) -> None:
    """KeyboardInterrupt comes through a blocking wait, and what was judged is on record."""
    body = f"""
        referee = make(ProviderSpec(latency_median=0.01), ledger={{"dir": {str(tmp_path)!r}}})
        referee.score(samples(3))
        slow = make(ProviderSpec(latency_median=60.0))
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
