"""The flex tier: half the price, no capacity now and then, and what is asked at the standard tier instead."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.harness import Run, run, samples

from referee.config import load
from referee.errors import ConfigError
from referee.records import Action, Reason
from referee.scoring.build import build_judges
from referee.sim import ProviderSpec
from referee.sim.billing import Prices
from referee.wire import find_dialect
from referee.wire.failure import failure

PRICES = Prices(tokens_in=2.0, tokens_out=8.0, flex=0.5)


def at_flex(spec: ProviderSpec, seconds: float = 3000.0, count: int = 60, **more: Any) -> Run:
    """Judge at the flex tier."""
    endpoint = {"provider": "openai", "tier": "flex", "price_in": 2.0, "price_out": 8.0, **more.pop("endpoint", {})}
    sections = {"limits": {"concurrency": 10, "deadline": 3000.0}, "missing": {"abort_above": 1.0}, **more}
    return run(samples(count), spec, endpoints=[endpoint], seconds=seconds, **sections)


def test_no_capacity_is_waited_out_and_is_not_our_rate() -> None:
    """Nothing counts as throttled, few requests are spent on the wait, and all is served at half the price."""
    spec = ProviderSpec(latency_median=1.0, prices=PRICES, flex_full=((0.0, 60.0),))
    done = at_flex(spec)
    assert done.reasons() == {"scored": 60}
    assert done.metrics["throttled"] == 0
    assert done.metrics["limit"] == 10
    assert done.seconds < 90
    assert done.seen.refused < 80
    assert done.metrics["cost_usd"] == pytest.approx(done.seen.billed_usd, abs=1e-9)


def test_an_adaptive_limit_is_not_cut_by_missing_capacity() -> None:
    """A limit that has grown is the same after a minute without capacity."""
    spec = ProviderSpec(latency_median=1.0, prices=PRICES, flex_full=((30.0, 90.0),))
    full = at_flex(spec, count=2000, limits={"deadline": 3000.0})
    free = at_flex(ProviderSpec(latency_median=1.0, prices=PRICES), count=2000, limits={"deadline": 3000.0})
    assert full.reasons() == {"scored": 2000}
    assert full.seconds < free.seconds + 75
    assert full.metrics["throttled"] == 0


def test_with_the_fallback_it_is_asked_at_the_standard_tier_and_price() -> None:
    """At once: nothing waits for capacity."""
    spec = ProviderSpec(latency_median=1.0, prices=PRICES, flex_full=((0.0, 3.0),))
    done = at_flex(spec, endpoint={"tier_fallback": True})
    assert done.reasons() == {"scored": 60}
    assert done.seconds < 10
    tiers = [reward.settled.reply.tier for reward in done.rewards if reward and reward.settled.reply]
    assert {"flex", "default"} == set(tiers)
    assert done.metrics["cost_usd"] == pytest.approx(done.seen.billed_usd, abs=1e-9)


def test_a_tier_that_is_shed_with_503_falls_back_too() -> None:
    """Google's way to say it. At the standard tier a 503 is an outage as ever."""
    google = {"provider": "gemini", "api": "gemini", "tier_fallback": True}
    spec = ProviderSpec(api="gemini", latency_median=1.0, prices=PRICES, flex_full=((0.0, 300.0),))
    done = at_flex(spec, endpoint=google)
    assert done.reasons() == {"scored": 60}
    assert done.seconds < 15
    assert done.metrics["cost_usd"] == pytest.approx(done.seen.billed_usd, abs=1e-9)
    down = at_flex(replace(spec, outages=((0.0, 60.0),)), endpoint=google)
    assert down.reasons() == {"scored": 60}
    assert down.seen.received < 60 + 120


def test_without_capacity_to_the_deadline_it_is_overloaded() -> None:
    """Not a rate limit, not a zero: unscored, and the reason says what was missing."""
    spec = ProviderSpec(latency_median=1.0, flex_full=((0.0, 1e6),))
    done = at_flex(spec, seconds=40.0, limits={"concurrency": 10, "deadline": 40.0})
    assert set(done.reasons()) <= {"overloaded", "deadline"}
    details = [getattr(verdict, "detail", "") for verdict in done.verdicts()]
    assert any("capacity" in detail for detail in details)


def test_a_slow_answer_at_flex_is_waited_for() -> None:
    """Longer than limits.attempt_timeout: flex requests may wait for capacity for minutes."""
    done = at_flex(ProviderSpec(latency_median=400.0), count=5)
    assert done.reasons() == {"scored": 5}
    assert done.seen.received == 5


def test_a_model_without_the_tier_is_asked_without_it_only_with_the_fallback() -> None:
    """The price would be twice the expected one, and nothing had said so."""
    spec = ProviderSpec(latency_median=1.0, unsupported=("service_tier",), prices=PRICES)
    assert at_flex(spec, count=5).reasons() == {"config": 5}
    done = at_flex(spec, count=5, endpoint={"tier_fallback": True})
    assert done.reasons() == {"scored": 5}
    assert done.metrics["cost_usd"] == pytest.approx(done.seen.billed_usd, abs=1e-9)


def test_an_api_without_tiers_is_refused() -> None:
    """Half the price would be counted for what was never asked for at that tier."""
    endpoint = {"provider": "openai", "api": "anthropic", "model": "m", "tier": "flex"}
    with pytest.raises(ConfigError, match=r"endpoint\.tier: api = 'anthropic'"):
        build_judges(load({"endpoint": endpoint}), b"")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, b'{"error": {"message": "Resource Unavailable", "type": "requests", "code": "resource_unavailable"}}'),
        (429, b'{"error": {"message": "Resource unavailable. Try again later.", "type": "insufficient_quota"}}'),
        (498, b'{"error": {"message": "Flex tier capacity exceeded", "type": "capacity_exceeded"}}'),
    ],
)
def test_no_capacity_is_told_from_a_rate_limit(status: int, body: bytes) -> None:
    """By label, by the first words, or by Groq's status."""
    found = failure(status, {"retry-after": "7"}, body, 0.0)
    assert (found.action, found.reason, found.retry_after) == (Action.WAIT, Reason.OVERLOADED, 7.0)


def test_words_inside_a_message_do_not_make_a_rate_limit_another() -> None:
    """An error may quote the request."""
    body = b'{"error": {"message": "Rate limit reached (resource unavailable)", "code": "rate_limit_exceeded"}}'
    assert failure(429, {}, body, 0.0).action is Action.PARK
    assert "tier" in find_dialect("chat").can_omit
