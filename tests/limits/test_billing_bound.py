"""What a request can be billed for: the bound, and the excess of a provider that passes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from referee.limits.billing_bound import HEADROOM, Excess, bound


def test_within_the_bound_there_is_nothing_to_learn() -> None:
    """One token per byte and twice max_tokens are assumed of every provider."""
    excess = Excess()
    assert not excess.learn(bound(1000, 64), 1000, 128)
    assert (excess.prompt, excess.reply) == (1.0, 1.0)


def test_an_excess_is_assumed_from_then_on_with_headroom() -> None:
    """Three times the bound once: more than that from then on. A smaller one changes nothing."""
    excess = Excess()
    assert excess.learn(bound(1000, 64), 10, 384)
    assert (excess.prompt, excess.reply) == (1.0, 3 * HEADROOM)
    assert not excess.learn(bound(1000, 64), 10, 500)
    assert not excess.learn(bound(1000, 64), 10, 5)
    assert "4.50" in repr(excess)


@given(st.lists(st.tuples(st.integers(0, 10**5), st.integers(1, 2000), st.integers(0, 10**6), st.integers(0, 10**6))))
def test_every_call_seen_fits_into_the_assumption(calls: list[tuple[int, int, int, int]]) -> None:
    """After any calls, each was billed at most its bound times the excess."""
    excess = Excess()
    for size, most, tokens_in, tokens_out in calls:
        excess.learn(bound(size, most), tokens_in, tokens_out)
    for size, most, tokens_in, tokens_out in calls:
        expected = bound(size, most)
        assert tokens_in <= expected.prompt * excess.prompt * (1 + 1e-9)
        assert tokens_out <= expected.reply * excess.reply * (1 + 1e-9)
