"""Where the judge of a manager runs, and what happens when it cannot run there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from referee.errors import EndpointClosed, MissingKeyError, RefereeError, UnscoredError
from referee.records import Sample
from referee.runtime.thread import ThreadRuntime
from referee.sim import ServerProcess
from referee.trainers.verl.backend import Backend
from referee.trainers.verl.config import LengthPenaltyConfig

Serve = Callable[..., ServerProcess]


def backend(server: ServerProcess | None, **given: Any) -> Backend:
    more = given.pop("referee", {})
    keys: dict[str, Any] = {"referee": {"cache": {"path": ""}, **more}, **given}
    if server is not None:
        keys |= {"api_endpoint": server.url, "enable_openai_reward": True}
    return Backend(LengthPenaltyConfig.of(keys))


def samples(*marks: object, rule: float = 1.0, group: str = "g") -> list[Sample]:
    return [
        Sample(prompt="p", response=f"[[quality={mark}]] {n}", rule_score=rule, group=group, length=10)
        for n, mark in enumerate(marks)
    ]


def values(judge: Backend, batch: list[Sample]) -> list[float | None]:
    return [reward.value for reward in judge.collect(judge.submit(batch))]


@pytest.mark.parametrize("given", [{}, {"use_async_io": True}, {"num_async_workers": 2}])
def test_every_mode_gives_the_same_rewards(serve: Serve, given: dict[str, Any]) -> None:
    """Rule plus coefficient times judge."""
    judge = backend(serve(), reward_coefficient=0.5, **given)
    mode = judge.mode
    judge.start()
    judge.start()
    assert values(judge, samples(2, 4, 10)) == [2.0, 3.0, 6.0]
    assert judge.mode == mode  # it ran where it was told to
    judge.close()
    judge.close()
    assert values(judge, samples(2)) == [2.0]  # opens again


def test_synchronous_is_one_call_after_another(serve: Serve) -> None:
    """use_async_io = False: for debugging, plainly."""
    server = serve(latency_median=0.01)
    judge = backend(server)
    assert judge.mode == "inline"
    assert values(judge, samples(*[5] * 12)) == [6.0] * 12
    assert server.stats().max_open == 1


def test_one_batch_is_one_wave(serve: Serve) -> None:
    """Groups are not judged one after another: calls of several groups are in flight together."""
    server = serve(latency_median=0.05)
    judge = backend(server, use_async_io=True, max_concurrent_requests=8, referee={"limits": {"concurrency": 8}})
    batch = [sample for group in range(8) for sample in samples(group + 1, group=str(group))]
    assert values(judge, batch) == [group + 2.0 for group in range(8)]
    assert server.stats().max_open > 1


def test_without_a_key_only_the_length_counts() -> None:
    """No judge, no error, no network: the penalty and the rule alone."""
    judge = backend(None, enable=True)
    judge.start()
    batch = [Sample(prompt="p", response="r", rule_score=1.0, group="g", length=n) for n in (100, 100, 160)]
    assert values(judge, batch) == [1.0, 1.0, 0.0]


def test_asynchronous_start_failing_is_one_warning_and_synchronous(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Never zeros: the same rewards, slowly, and said once."""

    def broken(self: ThreadRuntime) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadRuntime, "_launch", broken)
    judge = backend(serve(), use_async_io=True)
    with caplog.at_level(logging.WARNING, "referee.trainers"):
        assert values(judge, samples(3, 9)) == [4.0, 10.0]
        assert values(judge, samples(4)) == [5.0]
    said = [record.getMessage() for record in caplog.records if "synchronously" in record.getMessage()]
    assert len(said) == 1
    assert "can't start new thread" in said[0]
    assert judge.mode == "inline"


def test_a_mistake_is_no_reason_to_fall_back() -> None:
    """A missing key would be missing synchronously too."""
    judge = backend(None, enable_openai_reward=True, use_async_io=True)
    with pytest.raises(MissingKeyError):
        judge.submit(samples(1))


def test_unscored_rows_get_their_siblings_mean(serve: Serve) -> None:
    """The default in a batch: a row without a score moves its group's baseline nowhere."""
    judge = backend(serve(), use_async_io=True, referee={"judge": {"ask_again": 0}})
    assert values(judge, samples(2, "broken", 6)) == [3.0, 5.0, 7.0]


def test_other_policies_are_ones_own_choice(serve: Serve) -> None:
    """An explicit value, or an error."""
    server = serve()
    valued = backend(
        server, use_async_io=True, referee={"judge": {"ask_again": 0}, "missing": {"policy": "value", "value": -1.0}}
    )
    assert values(valued, samples(2, "broken")) == [3.0, -1.0]
    strict = backend(server, use_async_io=True, referee={"judge": {"ask_again": 0}, "missing": {"policy": "raise"}})
    with pytest.raises(UnscoredError):
        values(strict, samples(2, "broken"))


def test_a_dead_judge_is_one_clear_error(serve: Serve) -> None:
    """A wrong key, before anything was scored: stop, and say it."""
    judge = backend(serve(key="sk-right"), use_async_io=True, api_key="sk-wrong")
    with pytest.raises(EndpointClosed, match="auth") as caught:
        values(judge, samples(1, 2))
    assert isinstance(caught.value, RefereeError)
    assert "sk-wrong" not in str(caught.value)


def test_managers_of_equal_settings_share_and_do_not_close_each_other(serve: Serve) -> None:
    """Training and validation have a manager each: one limit for both, open until the last lets go."""
    server = serve(latency_median=0.05)
    one, two = backend(server, use_async_io=True), backend(server, use_async_io=True)
    one.start()
    ticket = two.submit(samples(7))
    one.close()
    assert [reward.value for reward in two.collect(ticket)] == [8.0]
    two.close()
