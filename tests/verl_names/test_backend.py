"""Where the judge of a manager runs, and what happens when it cannot run there."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from referee.errors import (
    ConfigError,
    EndpointClosed,
    MissingKeyError,
    RefereeError,
    TicketCancelled,
    TooManyUnscored,
    UnscoredError,
)
from referee.records import Sample
from referee.runtime.thread import ThreadRuntime
from referee.sim import ServerProcess
from referee.ticket import Ticket
from referee.trainers.verl import backend as module
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


MODES: list[dict[str, Any]] = [{}, {"use_async_io": True}, {"num_async_workers": 2}]


def documented(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines under the logger that the documents name."""
    return [r.getMessage() for r in caplog.records if (r.name, r.levelname) == ("verl.workers.reward_manager", "INFO")]


def values(judge: Backend, batch: list[Sample]) -> list[float | None]:
    return [reward.value for reward in judge.collect(judge.submit(batch))]


@pytest.mark.parametrize("given", MODES)
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


def test_a_machine_without_threads_judges_synchronously(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the event loop's thread nor the one that tells the progress can start: the same rewards."""

    start = threading.Thread.start

    def broken(self: threading.Thread) -> None:
        if self.name.startswith("referee"):
            raise RuntimeError("can't start new thread")
        start(self)

    server = serve()
    monkeypatch.setattr(threading.Thread, "start", broken)
    judge = backend(server, use_async_io=True)
    assert values(judge, samples(3, 9)) == [4.0, 10.0]
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


@pytest.mark.parametrize("given", MODES)
def test_rows_that_are_not_asked_about_do_not_hide_a_dead_judge(serve: Serve, given: dict[str, Any]) -> None:
    """A wrong key where most answers are wrong by the rule: those need no judge, and prove none."""
    judge = backend(serve(key="sk-right"), api_key="sk-wrong", **given)
    with pytest.raises(EndpointClosed, match="auth"):
        values(judge, [*samples(1, 2), *samples(*[3] * 6, rule=0.0)])


def test_a_judge_whose_replies_are_never_read_stops_the_run(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """However few answers it is asked about: one warning with a reply, and an error after 129 of those."""
    judge = backend(serve(faults={"no_verdict": 1.0}), use_async_io=True, referee={"judge": {"ask_again": 0}})
    batch = [*samples(*range(10)), *samples(*range(40), rule=-1.0)]
    with caplog.at_level(logging.WARNING, "referee"):
        for _ in range(12):
            values(judge, batch)
        with pytest.raises(TooManyUnscored, match="129 of the last 129"):
            values(judge, batch)
    said = [record.getMessage() for record in caplog.records if "no sample of a batch" in record.getMessage()]
    assert len(said) == 1
    assert "no_verdict 10" in said[0]


def test_managers_of_equal_settings_share_and_do_not_close_each_other(serve: Serve) -> None:
    """Training and validation have a manager each: one limit for both, open until the last lets go."""
    server = serve(latency_median=0.05)
    one, two = backend(server, use_async_io=True), backend(server, use_async_io=True)
    one.start()
    ticket = two.submit(samples(7))
    one.close()
    assert [reward.value for reward in two.collect(ticket)] == [8.0]
    two.close()


@pytest.mark.parametrize("given", MODES)
def test_the_log_says_how_a_batch_is_judged(
    serve: Serve, caplog: pytest.LogCaptureFixture, given: dict[str, Any]
) -> None:
    """The documents' lines, word for word, once for each batch."""
    caplog.set_level(logging.INFO)
    judge = backend(serve(), **given)
    for batch in (samples(2, 4, 10), samples(5)):
        values(judge, batch)
    line = (
        "Using TRUE ASYNC I/O for batch with {} responses (zero GPU wait)"
        if given
        else "Using synchronous method for batch with {} responses (set use_async_io=True for async)"
    )
    assert documented(caplog) == [line.format(3), line.format(1)]


@pytest.mark.parametrize("given", MODES)
def test_the_log_says_how_far_a_batch_is(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """In every mode, by verdicts: one large group, whose rewards become final together, is not at 0 % until then."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "PROGRESS", 0.02)
    limits = {"limits": {"concurrency": 1}}
    judge = backend(serve(latency_median=0.05), referee=limits, **given)
    assert values(judge, samples(*[5] * 12)) == [6.0] * 12
    lines = documented(caplog)[1:] if not given else [line for line in documented(caplog) if "Waiting" in line]
    shares = [re.fullmatch(r"Waiting for OpenAI results... (\d+\.\d)% complete", line) for line in lines]
    found = [float(share[1]) for share in shares if share is not None]
    assert len(found) == len(lines) > 1
    assert found == sorted(found)
    assert any(0 < share < 100 for share in found)


def test_without_a_judge_the_log_promises_none(caplog: pytest.LogCaptureFixture) -> None:
    """Neither of the documents' lines; once, that the judge is off."""
    caplog.set_level(logging.INFO)
    judge = backend(None, enable=True)
    for _ in range(3):
        judge.start()
        values(judge, samples(1, 2))
    assert documented(caplog) == []
    assert ["no judge" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("given", MODES[1:])
def test_shut_down_before_the_first_verdict_is_an_error(serve: Serve, given: dict[str, Any]) -> None:
    """Numbers without the judge would look like rewards."""
    judge = backend(serve(latency_median=60.0), **given)
    ticket = judge.submit(samples(2, 4, 6))
    judge.close()
    with pytest.raises(TicketCancelled, match=r"shutdown_workers\(\).*submit the batch again"):
        judge.collect(ticket)


def stopped_halfway(serve: Serve, **missing: Any) -> tuple[Backend, Ticket]:
    """Two groups: one is in the cache and judged, the other waits for its turn when the judge is shut down."""
    more = {"limits": {"concurrency": 2}, "missing": missing} if missing else {"limits": {"concurrency": 2}}
    judge = backend(serve(rpm=2, retry_after_s=60.0), use_async_io=True, referee=more)
    assert values(judge, samples(2, 4)) == [3.0, 5.0]
    ticket = judge.submit([*samples(2, 4), *samples(9, 9, group="h")])
    first = iter(ticket)
    assert {next(first).group, next(first).group} == {"g"}
    judge.close()
    return judge, ticket


def test_shut_down_halfway_keeps_what_is_judged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Verdicts that are there count; the others are unscored, with the reason and a warning."""
    judge, ticket = stopped_halfway(serve)
    rewards = judge.collect(ticket)
    assert [reward.value for reward in rewards] == [3.0, 5.0, None, None]
    assert [reward.scored for reward in rewards] == [True, True, False, False]
    said = [record.getMessage() for record in caplog.records]
    assert any("2 of 4 responses had no verdict" in line and "group_mean" in line for line in said)


def test_shut_down_halfway_goes_by_the_policy(serve: Serve) -> None:
    """The one that was set: an error, or a value."""
    judge, ticket = stopped_halfway(serve, policy="raise")
    with pytest.raises(UnscoredError, match="cancelled"):
        judge.collect(ticket)
    judge, ticket = stopped_halfway(serve, policy="value", value=-1.0)
    assert [reward.value for reward in judge.collect(ticket)] == [3.0, 5.0, -1.0, -1.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"api_key": "k", "api_endpoint": "judge.test/v1"}, "api_endpoint: must be an http"),
        ({"api_key": "k", "model_name": ""}, "model_name: must name"),
        ({"penalty_scale": -1.0}, "penalty_scale: must be a number"),
        ({"api_key": "k", "reward_coefficient": 1e12}, "reward_coefficient: must be a number from"),
    ],
)
def test_errors_name_the_keys_they_were_written_as(given: dict[str, Any], words: str) -> None:
    """Not the settings that referee makes of them."""
    with pytest.raises(ConfigError, match=words) as caught:
        backend(None, use_async_io=True, **given).start()
    assert not re.search(r"endpoint[.\[]|shaping|key_env", str(caught.value))


def test_a_key_over_plain_http_is_refused_with_the_way_to_allow_it(serve: Serve) -> None:
    """A judge in the local network: the message's own words make it work."""
    url = {"api_endpoint": "http://10.1.2.3:8000/v1/chat/completions", "use_async_io": True}
    with pytest.raises(ConfigError, match=r"unencrypted to 10.1.2.3") as caught:
        backend(None, api_key="sk-canary-123", **url).start()
    assert "sk-canary" not in str(caught.value)
    for words, key in (
        ('referee={"endpoint": {"key_over_http": True}}', "sk-canary-123"),
        ('referee={"endpoint": {"key_env": ""}}', None),
    ):
        assert words in str(caught.value)
        more = eval(words.removeprefix("referee="))
        backend(None, api_key=key, enable_openai_reward=True, referee=more, **url).start()


def test_a_refused_key_is_the_users_own(serve: Serve) -> None:
    """What the provider said, and which of the user's keys to look at."""
    judge = backend(serve(key="sk-right"), use_async_io=True, api_key="sk-wrong")
    with pytest.raises(EndpointClosed, match="check api_key or api_key_env"):
        values(judge, samples(1, 2))
