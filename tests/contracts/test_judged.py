"""The base of every adapter: one Referee per process and configuration, opened late, never pickled, never fatal."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.adapter_suite import NOWHERE, UNSCORED, Write, answers, broke_url, fair, sim_url, write_config

from referee.config import Secret, load
from referee.errors import ConfigError, EndpointClosed, InputError, TooManyUnscored, UnscoredError
from referee.records import Reason, Sample, Unscored
from referee.trainers import shared
from referee.trainers.shared import Judged, close_all, from_environment, number, unscored, values, why

__all__ = ["broke_url", "sim_url", "write_config"]

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
    assert pending.done()
    assert pending.waited_s >= 0

    async def again() -> list[float | None]:
        return values(await pending)

    assert asyncio.run(again()) == fair(3, 9)


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


def test_too_many_unscored_stop_the_run(write_config: Write) -> None:
    """abort_above is the user's own limit: past it, it is an error."""
    judged = Judged(write_config({"policy": "abstain", "abort_above": 0.01}))
    with pytest.raises(TooManyUnscored, match="abort_above"):
        judged.score(samples([f"{UNSCORED} {n}" for n in range(8)]))


def test_a_closed_endpoint_stops_the_run_by_the_same_limit(
    write_config: Write, broke_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty account is an outage first, said once; it ends the run when abort_above is passed, or never at 1."""
    judged = Judged(write_config({"policy": "abstain", "abort_above": 0.1}, broke_url))
    with caplog.at_level(logging.ERROR, "referee.trainers"):
        assert values(judged.score(samples(answers(*range(1, 11))))) == [None] * 10
        assert values(judged.score(samples(answers(*range(1, 11))))) == [None] * 10
    assert len([record for record in caplog.records if record.name == "referee.trainers"]) == 1
    with pytest.raises(EndpointClosed):
        judged.score(samples(answers(*range(1, 11))))
    patient = Judged(write_config({"policy": "abstain", "abort_above": 1.0}, broke_url))
    for _ in range(3):
        assert values(patient.score(samples([f"x {n}" for n in range(100)]))) == [None] * 100


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
