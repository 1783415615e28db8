"""What a request can be billed for: a bound, and what is learned where a provider passes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from referee.limits.worst import HEADROOM, Excess, bound


def test_within_the_bound_there_is_nothing_to_learn() -> None:
    """One token for each byte and twice max_tokens are expected of everybody."""
    excess = Excess()
    assert not excess.learn(bound(1000, 64), 1000, 128)
    assert (excess.prompt, excess.reply) == (1.0, 1.0)


def test_what_was_seen_is_expected_again_with_some_room() -> None:
    """Three times the bound once: more than that from then on. Less teaches nothing, and is not forgotten."""
    excess = Excess()
    assert excess.learn(bound(1000, 64), 10, 384)
    assert (excess.prompt, excess.reply) == (1.0, 3 * HEADROOM)
    assert not excess.learn(bound(1000, 64), 10, 500)
    assert not excess.learn(bound(1000, 64), 10, 5)
    assert "4.50" in repr(excess)


@given(st.lists(st.tuples(st.integers(0, 10**5), st.integers(1, 2000), st.integers(0, 10**6), st.integers(0, 10**6))))
def test_nothing_seen_is_above_what_is_expected(calls: list[tuple[int, int, int, int]]) -> None:
    """After any calls, each of them fits into the expectation made of its own bound."""
    excess = Excess()
    for size, most, tokens_in, tokens_out in calls:
        excess.learn(bound(size, most), tokens_in, tokens_out)
    for size, most, tokens_in, tokens_out in calls:
        expected = bound(size, most)
        assert tokens_in <= expected.prompt * excess.prompt * (1 + 1e-9)
        assert tokens_out <= expected.reply * excess.reply * (1 + 1e-9)
