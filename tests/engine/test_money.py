"""What a provider bills and counts, by its own books: never more than the budget and the rate limit allow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.harness import Run, run, samples
from tests.engine.network import Books, Claiming

from referee.engine.port import Response
from referee.sim import ProviderSpec

PRICE = 10.0


def spend(spec: ProviderSpec, books: Books, budget: float, dying: float = 0.0, **limits: object) -> Run:
    """Judge until the money is gone."""
    return run(
        samples(600),
        spec,
        network=books.network(dying),
        endpoints=[{"price_in": PRICE, "price_out": PRICE}],
        limits={"budget_usd": budget, **limits},
        judge={"max_tokens": 64},
        missing={"abort_above": 1.0},
        seconds=3000.0,
    )


@settings(max_examples=25, deadline=None)
@given(
    chars=st.floats(1.0, 6.0),
    hidden=st.sampled_from([0, 60, 500, 5000]),
    dying=st.sampled_from([0.0, 0.15]),
    concurrency=st.integers(1, 60),
    budget=st.floats(0.02, 0.6),
)
def test_no_more_is_billed_than_the_budget(
    chars: float, hidden: int, dying: float, concurrency: int, budget: float
) -> None:
    """Dense text and dead connections never pass it; hidden reasoning only by what no earlier reply could tell."""
    books = Books()
    spec = ProviderSpec(latency_median=0.5, latency_sigma=0.3, chars_per_token=chars, reasoning_tokens=hidden)
    done = spend(spec, books, budget, dying, concurrency=concurrency)
    assert set(done.reasons()) <= {"scored", "budget"}
    assert books.billed(PRICE) <= budget + books.unforeseen(PRICE, 64) + 1e-9


@pytest.mark.parametrize(
    ("chars", "hidden", "dying"), [(1.0, 0, 0.0), (1.3, 0, 0.2), (4.0, 0, 0.2), (4.0, 900, 0.0), (2.0, 5000, 0.1)]
)
def test_a_budget_is_used_and_not_passed(chars: float, hidden: int, dying: float) -> None:
    """Base64, lost connections, reasoning that is billed and not shown: most of the money is spent, and no more."""
    books = Books()
    spec = ProviderSpec(latency_median=0.5, chars_per_token=chars, reasoning_tokens=hidden)
    done = spend(spec, books, 2.0, dying, concurrency=20)
    assert done.reasons()["budget"] > 0
    assert 0.5 * 2.0 < books.billed(PRICE) <= 2.0


def test_tokens_are_those_of_every_reply() -> None:
    """Also of replies that held no verdict and were asked for again."""
    spec = ProviderSpec(latency_median=0.5, faults={"no_verdict": 0.4})
    done = run(samples(50), spec, judge={"ask_again": 5}, missing={"abort_above": 1.0}, seconds=3000.0)
    assert done.metrics["requests"] > 60
    assert done.metrics["tokens_in"] == done.seen.tokens_in
    assert done.metrics["tokens_out"] == done.seen.tokens_out


def test_what_is_said_when_there_is_no_room() -> None:
    """The message names what is spent and what the next request could cost, not that all of it is spent."""
    done = spend(ProviderSpec(latency_median=0.5), Books(), 0.05)
    spent = done.metrics["budget_spent_usd"]
    details = {verdict.detail for verdict in done.verdicts() if not hasattr(verdict, "score")}
    assert len(details) == 1
    (detail,) = details
    assert detail.startswith(f"limits.budget_usd = 0.05 has no room for another request: {spent:.4g} is spent, and one")
    assert 0 < spent < 0.05


def test_a_count_without_the_reply_is_no_count() -> None:
    """A server that reports the prompt's tokens and not the reply's may bill both: the worst case is counted."""
    books = Books()

    class Silent(books.network()):  # type: ignore[misc]
        async def post(self, *request: Any) -> Response:
            answer = await super().post(*request)
            body = msgspec.json.decode(answer.body)
            del body["usage"]["completion_tokens"]
            return Response(answer.status, answer.headers, msgspec.json.encode(body))

    done = run(
        samples(50),
        ProviderSpec(latency_median=0.5),
        network=Silent,
        endpoints=[{"price_in": PRICE, "price_out": PRICE}],
    )
    assert done.reasons() == {"scored": 50}
    assert done.metrics["budget_spent_usd"] > books.billed(PRICE) > done.metrics["cost_usd"]


@settings(max_examples=12, deadline=None)
@given(
    rpm=st.sampled_from([7, 60, 200]),
    latency=st.floats(0.01, 3.0),
    spread=st.floats(0.0, 0.99),
    dying=st.sampled_from([0.0, 0.15]),
)
def test_no_minute_of_the_servers_holds_more_than_rpm(rpm: int, latency: float, spread: float, dying: float) -> None:
    """However late requests arrive, up to a second, and however many were sent again: by the server's clock."""
    books = Books()
    run(
        samples(2 * rpm + 5),
        ProviderSpec(latency_median=latency, latency_sigma=0.3),
        network=books.network(dying, spread),
        limits={"rpm": rpm},
        seconds=3000.0,
    )
    assert rpm // 2 <= books.busiest_minute() <= rpm


def test_a_request_that_is_sent_again_is_counted_as_one() -> None:
    """A kept connection that dies costs an attempt, a place in the pace and money, and no score."""
    books = Books()
    done = spend(ProviderSpec(latency_median=0.1), books, 100.0, 0.2)
    assert done.reasons() == {"scored": 600}
    assert done.metrics["attempts"] == done.metrics["requests"] == done.seen.received > 700
    assert done.metrics["budget_spent_usd"] > books.billed(PRICE) > done.metrics["cost_usd"]


@pytest.mark.parametrize("limits", [{"concurrency": 10}, {"concurrency": 1}, {"rpm": 6000}, {}])
def test_a_server_that_serves_though_it_says_nothing_is_left_is_not_waited_for(limits: dict[str, int]) -> None:
    """One request tries it after a second; it is served, and the rest goes as if nothing had been said."""
    done = run(samples(300), ProviderSpec(latency_median=0.02), network=Claiming, limits=limits, seconds=60.0)
    assert done.reasons() == {"scored": 300}
    assert done.seconds < 15.0


def test_a_server_that_has_nothing_left_is_asked_now_and_then() -> None:
    """Refused, one request at a time tries again, ever more rarely; once it is served, so is the rest."""

    class Daily(Claiming):
        serves, opens = 50, 200.0

    done = run(samples(300), ProviderSpec(latency_median=0.1), network=Daily, limits={"concurrency": 8}, seconds=600.0)
    assert done.reasons() == {"scored": 300}
    assert done.seen.received - 300 < 20
    assert done.seconds < 300.0
