"""The engine end to end in virtual time: nothing lost, nothing invented, nothing paid twice."""

from __future__ import annotations

import logging
import math
import re
from typing import Any

import pytest
from tests.engine.harness import HOST, expected, run, samples

from referee.errors import EndpointClosed, TooManyUnscored
from referee.records import Reason, Unscored
from referee.scoring.batch import Batch
from referee.scoring.local import Scorer
from referee.sim import ProviderSpec


def test_every_sample_gets_its_own_score() -> None:
    """Scores come back right and in order."""
    given = samples(50)
    done = run(given, ProviderSpec(latency_median=1.0, latency_sigma=0.5))
    assert [v.score for v in done.verdicts()] == expected(given)  # type: ignore[union-attr]
    assert done.error is None


def test_equal_requests_are_paid_once() -> None:
    """Forty samples with ten different responses are ten calls."""
    given = samples(40, distinct=10)
    done = run(given, ProviderSpec(latency_median=1.0))
    assert done.seen.received == 10
    assert [v.score for v in done.verdicts()] == expected(given)  # type: ignore[union-attr]
    assert done.metrics["shared"] == 30


def test_a_provider_that_refuses_loses_nothing() -> None:
    """Above its capacity it says 429; every sample is scored all the same."""
    done = run(samples(300), ProviderSpec(latency_median=1.0, latency_sigma=0.4, capacity=8, retry_after="none"))
    assert done.reasons() == {"scored": 300}
    assert done.seen.received <= 300 * 1.25


def test_retry_after_pauses_the_whole_endpoint() -> None:
    """Nobody is sent while the server asked us to stay away."""
    done = run(
        samples(20),
        ProviderSpec(latency_median=0.5, rpm=10, window=60.0, retry_after="seconds", rate_headers=False),
        seconds=600.0,
    )
    assert done.reasons() == {"scored": 20}
    assert done.seen.received <= 40


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (ProviderSpec(key="other"), "auth"),
        (ProviderSpec(faults={"quota": 1.0}), "quota"),
        (ProviderSpec(model="other"), "config"),
        (ProviderSpec(faults={"redirect": 1.0}), "config"),
    ],
)
def test_final_errors_close_the_endpoint_at_once(spec: ProviderSpec, reason: str) -> None:
    """A thousand queued samples fail together after the requests already in flight."""
    done = run(samples(1000), spec)
    assert done.reasons() == {reason: 1000}
    assert isinstance(done.error, EndpointClosed)
    assert done.error.reason == reason
    assert done.seen.received <= 64
    assert done.seconds < 1.0


def test_an_endpoint_that_never_answers_a_connection_is_closed_within_seconds() -> None:
    """A wrong host is one clear error, not five minutes of retries."""
    done = run(samples(5), {"a.test": ProviderSpec()}, endpoints=[{"url": "http://nowhere.test/v1"}])
    assert isinstance(done.error, EndpointClosed)
    assert done.error.reason == "connection"
    assert done.seconds < 20


def test_an_outage_is_waited_out() -> None:
    """Sixty seconds of 503 lose nothing and are not answered with a storm."""
    spec = ProviderSpec(latency_median=1.0, latency_sigma=0.3, capacity=40, mode="queue", outages=((10.0, 70.0),))
    done = run(samples(1500), spec)
    assert done.reasons() == {"scored": 1500}
    assert done.seen.received <= 1500 * 1.2


def test_the_deadline_is_kept_to_the_moment() -> None:
    """A provider that hangs costs a batch its deadline exactly; every sample has an end."""
    done = run(samples(30), ProviderSpec(faults={"hang": 1.0}), seconds=45.0)
    assert done.seconds == pytest.approx(45.0, abs=0.01)
    assert set(done.reasons()) <= {"deadline", "timeout"}


def test_without_a_batch_deadline_each_sample_has_its_own() -> None:
    """An open-ended batch gives up on a sample limits.deadline after its first attempt."""
    done = run(samples(3), ProviderSpec(faults={"hang": 1.0}), seconds=math.inf, limits={"deadline": 100.0})
    assert set(done.reasons()) <= {"timeout", "deadline"}
    assert done.seconds <= 110.0


def test_another_endpoint_takes_over() -> None:
    """With one endpoint in an outage the other scores everything."""
    specs = {"a.test": ProviderSpec(outages=((0.0, 1e6),)), "b.test": ProviderSpec(latency_median=0.5)}
    done = run(samples(100), specs)
    assert done.reasons() == {"scored": 100}
    assert done.stats["b.test"].answered == 100


def test_a_wrong_key_at_one_endpoint_leaves_the_other_working() -> None:
    """A closed endpoint is not an error while another is open."""
    done = run(samples(100), {"a.test": ProviderSpec(key="x"), "b.test": ProviderSpec(latency_median=0.5)})
    assert done.reasons() == {"scored": 100}
    assert done.error is None


def test_a_backup_is_used_only_in_need() -> None:
    """A healthy primary keeps the backup idle; a dead one hands over."""
    endpoints: list[dict[str, Any]] = [{}, {"backup": True}]
    both = {"a.test": ProviderSpec(latency_median=0.5), "b.test": ProviderSpec(latency_median=0.5)}
    healthy = run(samples(100), both, endpoints=endpoints)
    assert healthy.stats["b.test"].received == 0
    dead = run(samples(100), {**both, "a.test": ProviderSpec(key="x")}, endpoints=endpoints)
    assert dead.reasons() == {"scored": 100}


def test_a_refusal_is_unscored_and_asked_once() -> None:
    """A judge that declines is not pestered, and its refusal is no zero."""
    done = run(samples(10), ProviderSpec(faults={"refusal": 1.0}))
    assert done.reasons() == {"refused": 10}
    assert done.seen.received == 10


def test_a_refusal_is_taken_to_another_endpoint() -> None:
    """Somebody else may answer what the first judge declined."""
    specs = {"a.test": ProviderSpec(faults={"refusal": 1.0}), "b.test": ProviderSpec()}
    assert run(samples(10), specs).reasons() == {"scored": 10}


def test_replies_without_a_verdict_are_asked_again_a_bounded_number_of_times() -> None:
    """ask_again = 2 means three calls per form of asking, then unscored."""
    done = run(samples(4), ProviderSpec(faults={"no_verdict": 1.0}), judge={"reply": "text", "ask_again": 2})
    assert done.reasons() == {"no_verdict": 4}
    assert done.seen.received == 12


@pytest.mark.parametrize("fault", ["two_verdicts", "out_of_range", "nan_score", "empty_content", "tool_call", "length"])
@pytest.mark.parametrize("reply", ["schema", "text"])
def test_bad_replies_never_become_numbers(fault: str, reply: str) -> None:
    """Whatever is wrong with every reply, the sample is unscored."""
    done = run(samples(3), ProviderSpec(faults={fault: 1.0}), judge={"reply": reply})  # type: ignore[dict-item]
    assert "scored" not in done.reasons()


def test_a_truncated_reply_is_asked_for_once_more_with_more_room() -> None:
    """Two calls, the second with a larger token limit; then unscored."""
    done = run(samples(2), ProviderSpec(faults={"length": 1.0}), judge={"reply": "text"})
    assert done.reasons() == {"truncated": 2}
    assert done.seen.received == 4


def test_an_endpoint_without_schema_support_is_asked_for_text() -> None:
    """response_format refused: the verdicts come as text, and each sample is paid once."""
    given = samples(60)
    done = run(given, ProviderSpec(latency_median=0.5, unsupported=("response_format",)))
    assert [v.score for v in done.verdicts()] == expected(given)  # type: ignore[union-attr]
    assert {v.how for v in done.verdicts()} == {"tag"}  # type: ignore[union-attr]


def test_an_unsupported_parameter_is_left_out() -> None:
    """A model that takes no temperature is asked without one."""
    done = run(samples(20), ProviderSpec(latency_median=0.5, unsupported=("temperature",)))
    assert done.reasons() == {"scored": 20}


def test_the_budget_is_a_ceiling() -> None:
    """Spending stops below the limit; what is left is unscored for that reason."""
    done = run(
        samples(400),
        ProviderSpec(latency_median=0.5),
        endpoints=[{"price_in": 10.0, "price_out": 10.0}],
        limits={"budget_usd": 0.5},
        missing={"abort_above": 1.0},
    )
    assert set(done.reasons()) == {"scored", "budget"}
    assert 0.3 < done.metrics["cost_usd"] <= 0.5


def test_requests_per_minute_are_kept() -> None:
    """A configured pace is never passed, however fast the provider."""
    done = run(samples(100), ProviderSpec(latency_median=0.1), limits={"rpm": 60}, seconds=600.0)
    assert done.reasons() == {"scored": 100}
    assert done.seconds > 60


def test_one_request_that_always_fails_does_not_hold_the_rest() -> None:
    """A request the server chokes on is given up while others go on."""
    spec = ProviderSpec(latency_median=0.5, faults={"http_500": 0.3})
    done = run(samples(200), spec)
    assert done.reasons().get("scored", 0) >= 195
    assert set(done.reasons()) <= {"scored", "overloaded"}


def test_too_many_unscored_stop_the_run() -> None:
    """More than half of the last 256 without a score: the batch ends with an error that says why."""
    done = run(samples(600), ProviderSpec(latency_median=0.1, faults={"refusal": 0.9}))
    assert isinstance(done.error, TooManyUnscored)
    assert "refused" in str(done.error)
    assert done.reasons()["cancelled"] > 0


def test_stopping_a_batch_ends_every_sample_and_aborts_the_calls() -> None:
    """After a stop all samples have an end and nothing more is sent."""

    async def stop_soon(scorer: Scorer, batch: Batch) -> None:
        import asyncio

        await asyncio.sleep(5.0)
        scorer.cancel(batch, Unscored(reason=Reason.CANCELLED, detail="enough"))

    done = run(samples(2000), ProviderSpec(latency_median=2.0, capacity=20), during=stop_soon)
    assert done.seconds == pytest.approx(5.0, abs=0.1)
    assert set(done.reasons()) == {"scored", "cancelled"}


def test_gates_settle_without_a_call() -> None:
    """An empty answer costs nothing and gets the bottom of the scale."""
    given = samples(2)
    given[0] = type(given[0])(prompt="p", response="   ")
    done = run(given, ProviderSpec())
    assert done.seen.received == 1
    assert done.rewards[0] is not None
    assert done.rewards[0].settled.origin == "gate"
    assert done.rewards[0].value == 0.0


def test_the_same_seed_gives_the_same_run() -> None:
    """Faults, jitter and order replay exactly."""
    spec = ProviderSpec(
        latency_median=1.0, latency_sigma=0.5, capacity=20, faults={"http_503": 0.1, "reset": 0.05, "no_verdict": 0.05}
    )
    first, second = (run(samples(200), spec, seed=7) for _ in range(2))
    assert first.seconds == second.seconds
    assert first.verdicts() == second.verdicts()
    assert first.stats[HOST] == second.stats[HOST]


@pytest.mark.parametrize("seed", range(12))
def test_random_faults_lose_and_invent_nothing(seed: int) -> None:
    """Under a storm of faults every sample ends once, and every score is the one its response deserves."""
    spec = ProviderSpec(
        latency_median=1.0,
        latency_sigma=0.6,
        capacity=25,
        retry_after="float",
        faults={
            "throttle_seconds": 0.03,
            "throttle_ms": 0.02,
            "throttle_junk": 0.02,
            "http_500": 0.03,
            "http_529": 0.02,
            "reset": 0.03,
            "cut": 0.03,
            "cut_silent": 0.03,
            "html": 0.02,
            "malformed": 0.02,
            "hang": 0.01,
            "empty_content": 0.03,
            "two_verdicts": 0.03,
            "out_of_range": 0.02,
            "duplicate_score": 0.02,
            "refusal": 0.02,
        },
    )
    given = samples(250, name=f"seed {seed}")
    done = run(given, spec, seed=seed)
    for reward, right in zip(done.rewards, expected(given), strict=True):
        assert reward is not None
        if reward.scored:
            assert reward.verdict.score == right  # type: ignore[union-attr]
        else:
            assert reward.value is None
    assert done.reasons()["scored"] >= 200


def test_every_attempt_is_one_line_of_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    """Endpoint, number, outcome, seconds and tokens; nothing of what was asked or answered."""
    with caplog.at_level(logging.DEBUG, "referee.engine"):
        done = run(samples(40, name="secret words"), ProviderSpec(faults={"http_500": 0.3, "hang": 0.1}))
    said = [record.getMessage() for record in caplog.records if ": attempt " in record.getMessage()]
    assert len(said) == done.seen.received > 40
    assert any(
        re.fullmatch(r"a\.test: attempt 1: answered, \d+ tokens in, \d+ out, \d\.\d{3} s", line) for line in said
    )
    assert any("attempt 1: overloaded (status 500), " in line for line in said)
    assert any("attempt 2: " in line for line in said)
    assert any("timeout (no answer)" in line for line in said)
    assert "secret words" not in caplog.text
