"""What the rows say was paid is what the provider charges, for every usage, tier and state of its prompt cache."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.engine.harness import run

from referee.records import Sample
from referee.sim import ProviderSpec
from referee.sim.billing import Prices, PromptCache

NAMED = {"chat": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
"""A provider that speaks each API."""
money = st.none() | st.sampled_from([0.0, 0.0125, 0.075, 0.5, 3.75])


def groups(count: int, size: int, words: int) -> list[Sample]:
    """Groups of responses to long prompts."""
    return [
        Sample(prompt=f"{g} " + "why so? " * words, response=f"[[quality={n + 1}]] {g} {n}", group=str(g))
        for g in range(count)
        for n in range(size)
    ]


@settings(max_examples=20, deadline=None)
@given(
    api=st.sampled_from(sorted(NAMED)),
    chars=st.sampled_from([1.0, 3.3, 4.0]),
    hidden=st.sampled_from([0, 7, 900]),
    cache=st.none()
    | st.builds(
        PromptCache,
        min_tokens=st.sampled_from([64, 1024]),
        block=st.sampled_from([1, 64, 128]),
        ttl=st.sampled_from([0.5, 300.0]),
        writes=st.booleans(),
    ),
    cached=money,
    written=money,
    tier=st.sampled_from([{}, {"tier": "flex"}, {"tier": "flex", "tier_fallback": True}]),
    full=st.sampled_from([(), ((0.0, 3.0),)]),
    unread=st.sampled_from([0.0, 0.3]),
    hosts=st.integers(1, 3),
)
def test_rows_add_up_to_the_bill(
    api: str,
    chars: float,
    hidden: int,
    cache: PromptCache | None,
    cached: float | None,
    written: float | None,
    tier: dict[str, Any],
    full: tuple[tuple[float, float], ...],
    unread: float,
    hosts: int,
) -> None:
    """To the nano-dollar, also where replies held no verdict; and tokens are those of the provider's own count."""
    tier = tier if api != "anthropic" else {}  # which has no such tier
    if cache is not None and api == "gemini":  # its usage does not tell what was written
        cache = replace(cache, writes=False)
    spec = ProviderSpec(
        api=api,
        latency_median=0.5,
        latency_sigma=0.3,
        chars_per_token=chars,
        reasoning_tokens=hidden,
        prompt_cache=cache,
        prices=Prices(tokens_in=0.15, tokens_out=0.6, cached=cached, cache_write=written, flex=0.5),
        flex_full=full,
        faults={"no_verdict": unread},
    )
    prices = {"price_in": 0.15, "price_out": 0.6, "price_cached": cached, "price_cache_write": written}
    done = run(
        groups(4, 5, 700),
        {f"h{n}": spec for n in range(hosts)},
        endpoints=[{"provider": NAMED[api], "api": api, **prices, **tier}] * hosts,
        limits={"concurrency": 6, "budget_usd": 100.0},
        judge={"ask_again": 6},
        missing={"abort_above": 1.0},
        seconds=3000.0,
    )
    billed = sum((Fraction(seen.billed_usd) for seen in done.stats.values()), Fraction(0))
    paid = sum((Fraction(reward.settled.cost) for reward in done.rewards if reward is not None), Fraction(0))
    assert abs(paid - billed) < Fraction(1, 10**9)
    for name in ("tokens_in", "tokens_out", "tokens_cached", "tokens_cache_write"):
        assert done.metrics[name] == sum(getattr(seen, name) for seen in done.stats.values())
    assert done.metrics["cost_usd"] <= done.metrics["budget_spent_usd"] + 1e-9


def test_a_cached_verdict_saves_what_it_cost(tmp_path: Any) -> None:
    """With the prices of the provider's prompt cache and of the tier."""
    spec = ProviderSpec(prompt_cache=PromptCache(), prices=Prices(tokens_in=2.0, tokens_out=8.0, cached=0.2, flex=0.5))
    endpoint = {
        "provider": "openai",
        "tier": "flex",
        "price_in": 2.0,
        "price_out": 8.0,
        "price_cached": 0.2,
    }
    sections: dict[str, Any] = {"endpoints": [endpoint], "cache": {"path": str(tmp_path / "cache.sqlite")}}
    first = run(groups(1, 6, 900), spec, **sections)
    again = run(groups(1, 6, 900), spec, **sections)
    assert again.metrics["cost_usd"] == 0.0
    assert again.metrics["saved_usd"] > 0
    assert abs(again.metrics["saved_usd"] - first.seen.billed_usd) < 1e-9
