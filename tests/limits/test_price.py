"""What tokens cost: their own prices for cached and written ones, the tier's share, and a true upper bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.config import EndpointConfig
from referee.limits.price import FLEX, STANDARD, Price, tier_share
from referee.records import Reply
from referee.sim.billing import Bill, Prices, Usage

PRICES = {"price_in": 2.0, "price_out": 8.0}


def cost(reply: Reply, **settings: Any) -> float:
    """Dollars at OpenAI's, which has a flex tier at half the price."""
    return Price(EndpointConfig(**{**PRICES, **settings})).cost(reply)


def test_cached_and_written_tokens_have_their_own_prices() -> None:
    """Of a million prompt tokens, 600,000 from the cache and 300,000 into it."""
    reply = Reply(text="", tokens_in=10**6, tokens_out=0, tokens_cached=600_000, tokens_cache_write=300_000)
    assert cost(reply, price_cached=0.5, price_cache_write=2.5) == pytest.approx(0.3 + 0.75 + 0.2)
    assert cost(reply, price_cached=0.5) == pytest.approx(0.3 + 0.8)
    assert cost(reply) == pytest.approx(2.0)


def test_the_tier_that_is_billed_counts() -> None:
    """Half the price at flex; the standard price when the provider says that it served at the standard tier."""
    reply = Reply(text="", tokens_in=1000, tokens_out=1000, tier=FLEX)
    assert cost(reply, tier=FLEX) == pytest.approx(0.005)
    assert cost(Reply(text="", tokens_in=1000, tokens_out=1000, tier=STANDARD), tier=FLEX) == pytest.approx(0.01)
    assert tier_share(EndpointConfig(tier=FLEX)) == 0.5
    assert tier_share(EndpointConfig()) == 1.0


def test_more_cached_tokens_than_there_are_make_nothing_cheaper_than_all_cached() -> None:
    """A provider's odd usage must not make a cost negative."""
    reply = Reply(text="", tokens_in=100, tokens_out=0, tokens_cached=500, tokens_cache_write=500)
    assert cost(reply, price_cached=1.0) == pytest.approx(100e-6)


def test_without_prices_nothing_is_counted() -> None:
    """The cost is unknown then, and said to be."""
    price = Price(EndpointConfig())
    assert not price.known
    assert price.cost(Reply(text="", tokens_in=5, tokens_out=5)) == 0.0


money = st.none() | st.floats(0.0, 100.0)


@given(
    tokens=st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)),
    shares=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    prices=st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 100.0), money, money),
    tier=st.sampled_from(["", FLEX, STANDARD]),
)
def test_cost_is_the_bill_and_never_above_the_most(
    tokens: tuple[int, int],
    shares: tuple[int, int],
    prices: tuple[float, float, float | None, float | None],
    tier: str,
) -> None:
    """To the nano-dollar what the simulated provider charges; the worst case is a bound whatever was cached."""
    cached = min(shares[0], tokens[0])
    written = min(shares[1], tokens[0] - cached)
    price_in, price_out, price_cached, price_written = prices
    bill = Bill(
        Prices(tokens_in=price_in, tokens_out=price_out, cached=price_cached, cache_write=price_written, flex=0.5)
    )
    bill.add(Usage(*tokens, cached, written, tier == FLEX))
    price = Price(
        EndpointConfig(
            price_in=price_in, price_out=price_out, price_cached=price_cached, price_cache_write=price_written
        )
    )
    reply = Reply(
        text="", tokens_in=tokens[0], tokens_out=tokens[1], tokens_cached=cached, tokens_cache_write=written, tier=tier
    )
    assert abs(Fraction(price.cost(reply)) - bill.total) < Fraction(1, 10**9)
    assert price.cost(reply) <= price.most(*tokens) * (1 + 1e-12)
