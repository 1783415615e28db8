"""The base of every adapter: one Referee per process and configuration, opened late, never pickled, never fatal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.adapter_suite import NOWHERE, UNSCORED, Write, answers, fair, sim_url, write_config

from referee.config import Secret, load
from referee.errors import ConfigError, EndpointClosed, InputError, TooManyUnscored, UnscoredError
from referee.records import Reason, Sample, Unscored
from referee.sim import ProviderSpec, start_server_process
from referee.trainers import shared
from referee.trainers.outcome import number, unscored, values, why
from referee.trainers.shared import Judged, close_all, from_environment

__all__ = ["sim_url", "write_config"]

ABSTAIN = {"policy": "abstain"}


def samples(texts: list[str], group: str = "g") -> list[Sample]:
    """The answers to one prompt."""
    return [Sample(prompt="q", response=text, group=group) for text in texts]


def threads() -> int:
    """Judging threads in this process."""
    return sum(thread.name == "referee" for thread in threading.enumerate())


def test_equal_configurations_share_one_judge(write_config: Write) -> None:
    """However they are written; another setting is another judge."""
    path = write_config(ABSTAIN)
    one, two = Judged(path), Judged(load(path))
    other = Judged(write_config({"policy": "value", "value": 1.0}))
    assert one == two
    assert hash(one) == hash(two)
    assert one.referee is two.referee
    assert other != one
    assert other.referee is not one.referee


def test_nothing_is_opened_before_it_is_used(write_config: Write) -> None:
    """Making, pickling and comparing start no thread; the first batch does."""
    before = threads()
    judged = pickle.loads(pickle.dumps(Judged(write_config(ABSTAIN))))
    assert threads() == before
    assert values(judged.score(samples(answers(5)))) == fair(5)
    assert threads() == before + 1
    judged.close()
    assert values(judged.score(samples(answers(6)))) == fair(6), "a closed one opens again"


def test_a_key_given_in_python_is_kept_apart_and_not_pickled(sim_url: str) -> None:
    """Two keys are two judges; neither shows nor travels."""
    configs: list[Any] = [
        {"endpoint": {"url": sim_url, "model": "m", "api_key": Secret(f"sk-canary-{n}")}} for n in range(2)
    ]
    one, two = Judged(configs[0]), Judged(configs[1])
    assert one != two
    assert "canary" not in repr(one)
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(one)


def test_mistakes_are_said_at_once(tmp_path: Path) -> None:
    """A wrong setting is an error where the adapter is made, not hours later."""
    with pytest.raises(ConfigError, match="no such file"):
        Judged(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="unknown key"):
        Judged({"endpont": {}})


def test_bad_samples_are_mistakes(write_config: Write) -> None:
    """What can never be judged is the caller's error, not an outage."""
    with pytest.raises(InputError):
        Judged(write_config(ABSTAIN)).score([Sample(prompt="q", response=3)])  # type: ignore[arg-type]


def test_survives_a_fork(write_config: Write) -> None:
    """A child made after the judge was used judges by itself."""
    judged = Judged(write_config(ABSTAIN))
    judged.score(samples(answers(5)))
    pid = os.fork()
    if pid == 0:
        try:
            ok = values(judged.score(samples(answers(7)))) == fair(7)
        except BaseException:
            ok = False
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert values(judged.score(samples(answers(8)))) == fair(8)


def test_submit_returns_before_the_judging(write_config: Write) -> None:
    """Pending can be asked twice, in a thread or on a loop."""
    pending = Judged(write_config(ABSTAIN)).submit(samples(answers(3, 9)))
    assert values(pending.result()) == fair(3, 9)
    assert pending.waited_s >= 0

    async def again() -> list[float | None]:
        return values(await pending)

    assert asyncio.run(again()) == fair(3, 9)


def test_a_second_waiter_can_still_be_cancelled(write_config: Write) -> None:
    """Also in the moment in which the rewards come."""
    judged = Judged(write_config(ABSTAIN))

    async def main() -> None:
        pending = judged.submit(samples(answers(3)))

        async def wait() -> list[float | None]:
            return values(await pending)

        async def wait_and_cancel() -> list[float | None]:
            found = await wait()
            second.cancel()
            return found

        first, second = asyncio.create_task(wait_and_cancel()), asyncio.create_task(wait())
        assert await first == fair(3)
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(main())


def test_cancelled_wait_stops_the_judging(write_config: Write) -> None:
    """A caller's loop that gives up leaves nothing behind; the next batch works."""
    judged = Judged(write_config(ABSTAIN, NOWHERE))

    async def main() -> None:
        task = asyncio.create_task(judged.ascore(samples(answers(3))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert values(Judged(write_config(ABSTAIN)).score(samples(answers(4)))) == fair(4)


def test_too_many_unscored_stop_the_run(write_config: Write, caplog: pytest.LogCaptureFixture) -> None:
    """abort_above is the user's own limit: past it, it is an error, and one in the log, because verl's V1 trainer and
    others swallow errors of a reward."""
    judged = Judged(write_config({"policy": "abstain", "abort_above": 0.01}))
    with pytest.raises(TooManyUnscored, match="abort_above"):
        judged.score(samples([f"{UNSCORED} {n}" for n in range(8)]))
    assert [one.levelname for one in caplog.records if "abort_above" in one.getMessage()] == ["ERROR"]


class Fickle(BaseHTTPRequestHandler):
    """A judge that gives everybody a 7, until its server's account is `empty`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """One chat completion, or the news that there is no money left."""
        self.rfile.read(int(self.headers["content-length"]))
        empty = bool(getattr(self.server, "empty", False))
        message = {"role": "assistant", "content": '{"reason": "good", "score": 7}'}
        completion = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        error = {"error": {"message": "You exceeded your current quota.", "code": "insufficient_quota"}}
        body = json.dumps(error if empty else completion).encode()
        self.send_response(429 if empty else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on standard error."""


@pytest.fixture
def fickle() -> Iterator[ThreadingHTTPServer]:
    """Such a judge, on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Fickle)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_judge_that_closes_later_is_an_outage(
    write_config: Write, fickle: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it has given a verdict, an account that runs dry is said once, and ends the run by abort_above."""
    url = f"http://127.0.0.1:{fickle.server_port}/v1"
    judged = Judged(write_config({"policy": "abstain", "abort_above": 0.1}, url))
    assert values(judged.score(samples(answers(5)))) == pytest.approx(fair(7))
    fickle.empty = True  # type: ignore[attr-defined]
    with caplog.at_level(logging.ERROR, "referee.trainers"):
        assert values(judged.score(samples([f"a {n}" for n in range(10)]))) == [None] * 10
        assert values(judged.score(samples([f"b {n}" for n in range(10)]))) == [None] * 10
    assert len([record for record in caplog.records if record.name == "referee.trainers"]) == 1
    with pytest.raises(EndpointClosed):
        judged.score(samples([f"c {n}" for n in range(10)]))


def test_answers_that_need_no_judge_do_not_hide_an_outage(
    write_config: Write, fickle: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    """One at a time, every other one settled by a gate: said once, and over by abort_above all the same."""
    url = f"http://127.0.0.1:{fickle.server_port}/v1"
    judged = Judged(write_config({"policy": "abstain", "abort_above": 0.1}, url))
    assert values(judged.score(samples(answers(5)))) == pytest.approx(fair(7))
    fickle.empty = True  # type: ignore[attr-defined]
    with caplog.at_level(logging.ERROR, "referee.trainers"):
        for n in range(25):
            assert values(judged.score(samples([f"a {n}"]))) == [None]
            assert values(judged.score(samples([""]))) == [0.0]
        with pytest.raises(EndpointClosed):
            judged.score(samples(["one more"]))
    assert len([record for record in caplog.records if record.name == "referee.trainers"]) == 1


def test_a_closed_endpoint_never_stops_the_run_at_abort_above_1(
    write_config: Write, fickle: ThreadingHTTPServer
) -> None:
    """That is the user's word for "go on whatever happens", once there has been a verdict."""
    url = f"http://127.0.0.1:{fickle.server_port}/v1"
    patient = Judged(write_config({"policy": "abstain", "abort_above": 1.0}, url))
    assert values(patient.score(samples(answers(5)))) == pytest.approx(fair(7))
    fickle.empty = True  # type: ignore[attr-defined]
    for step in range(3):
        assert values(patient.score(samples([f"{step} {n}" for n in range(100)]))) == [None] * 100


@pytest.mark.parametrize("reason", ["auth", "config", "connection", "quota"])
def test_a_judge_that_never_gave_a_verdict_stops_the_run(
    write_config: Write, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong key, model, address or an empty account is a mistake in the set-up: raised at once, and logged once."""
    faults: dict[str, ProviderSpec] = {
        "auth": ProviderSpec(key="another"),
        "config": ProviderSpec(model="another"),
        "quota": ProviderSpec(faults={"quota": 1.0}),
    }
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(start_server_process(faults[reason])).url if reason in faults else NOWHERE
        judged = Judged(write_config({"policy": "abstain", "abort_above": 1.0}, url))
        with caplog.at_level(logging.ERROR, "referee.trainers"):
            for _ in range(2):
                with pytest.raises(EndpointClosed) as caught:
                    judged.score(samples(["", *answers(5, 6)]))
        assert caught.value.reason == reason
        assert len(caught.value.rewards) == 3, "the empty one was settled by a gate, which says nothing about a judge"
        assert len([record for record in caplog.records if record.name == "referee.trainers"]) == 1


def test_a_cached_verdict_proves_no_judge(tmp_path: Path) -> None:
    """A second run with a wrong key finds what the first one paid for, and stops at the first answer it does not."""
    cache = {"path": str(tmp_path / "cache.sqlite")}
    with start_server_process(ProviderSpec(key="right")) as server:
        keyed = {"url": server.url, "model": "simulated"}
        first = Judged({"endpoint": {**keyed, "api_key": Secret("right")}, "cache": cache})
        assert values(first.score(samples(answers(5)))) == fair(5)
        first.close()
        second = Judged({"endpoint": {**keyed, "api_key": Secret("wrong")}, "cache": cache})
        assert values(second.score(samples(answers(5)))) == fair(5)
        with pytest.raises(EndpointClosed, match="auth"):
            second.score(samples(answers(6)))
        second.close()


def test_policies_hold_when_everything_breaks(write_config: Write) -> None:
    """A batch that dies as a whole is shaped and filled as one that was judged and failed."""
    config = load(write_config({"policy": "value", "value": -1.5}))
    rewards = unscored(samples(["a", "b"]), config, "the thread died")
    assert [(reward.value, reward.filled, reward.index) for reward in rewards] == [
        (-1.5, "value", 0),
        (-1.5, "value", 1),
    ]
    verdict = rewards[0].verdict
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.CONNECTION
    assert number(rewards[0], "nobody") == -1.5
    (missing,) = unscored(samples(["a"]), load(write_config(ABSTAIN)), "the thread died")
    assert why(missing) == "connection: the thread died"
    with pytest.raises(UnscoredError, match="the thread died"):
        number(missing, "A framework")


def test_the_environment_names_the_configuration(
    write_config: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REFEREE_CONFIG, or referee.toml here; the file is read once."""
    path = write_config(ABSTAIN)
    found = from_environment()
    assert found == Judged(path)
    assert from_environment() is found
    monkeypatch.delenv(shared.CONFIG_VARIABLE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="REFEREE_CONFIG"):
        from_environment()
    path.rename(tmp_path / "referee.toml")
    assert from_environment() == found
    close_all()


def test_works_where_it_is_unpickled(write_config: Write) -> None:
    """Another process gets the configuration and opens a judge of its own; importing costs no trainer."""
    path = write_config(ABSTAIN)
    data = pickle.dumps(Judged(path)).hex()
    code = (
        "import pickle, sys\n"
        "from referee.records import Sample\n"
        f"judged = pickle.loads(bytes.fromhex({data!r}))\n"
        "print(judged.score([Sample(prompt='q', response='[[quality=4]]')])[0].value)\n"
        "assert not {'torch', 'trl', 'verl', 'ray'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(fair(4)[0])
