"""Requests that begin alike: on one replica, the first ahead of the others where that is cheaper, and never stuck."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.harness import Run, run
from tests.engine.test_bill import groups

from referee.config import load
from referee.engine import Endpoint
from referee.engine.replicas import Replicas
from referee.records import Ask, Criterion, Reply, Sample, Sampling, Verdict
from referee.sim import ProviderSpec
from referee.sim.billing import Prices, PromptCache

CACHE = PromptCache(min_tokens=1024, block=128)
PRICES = Prices(tokens_in=1.0, tokens_out=1.0, cached=0.1)
PRICED = {"price_in": 1.0, "price_out": 1.0, "price_cached": 0.1}
SPEC = ProviderSpec(latency_median=1.0, latency_sigma=0.3, prompt_cache=CACHE, prices=PRICES)


def judged(given: list[Sample], mode: str, hosts: int = 1, spec: ProviderSpec = SPEC, **sections: Any) -> Run:
    """Judge with this `prefix_cache`."""
    sections = {"limits": {"concurrency": 16, "deadline": 600.0}, **sections}
    return run(
        given,
        {f"h{n}": spec for n in range(hosts)},
        endpoints=[{**PRICED, "prefix_cache": mode}] * hosts,
        **sections,
    )


def share(done: Run) -> float:
    """Of the prompts' tokens, those from the providers' caches."""
    return done.metrics["tokens_cached"] / done.metrics["tokens_in"]


@pytest.mark.parametrize("hosts", [2, 4])
def test_siblings_go_to_one_replica_also_when_all_are_busy(hosts: int) -> None:
    """Four times as many requests as there are places: still almost every group stays on one replica."""
    given = groups(32 * hosts, 8, 900)
    apart, together = judged(given, "off", hosts), judged(given, "route", hosts)
    warm = judged(given, "warm", hosts)
    assert share(warm) > 0.7 > share(apart) + 0.5
    assert share(together) > share(apart)
    assert warm.seconds < 1.35 * apart.seconds
    loads = [seen.received for seen in warm.stats.values()]
    assert max(loads) < 1.5 * min(loads)


def _unread(request: Ask, reply: Reply) -> Verdict:
    raise AssertionError("nothing is sent")


def test_two_accounts_at_one_address_share_the_groups() -> None:
    """They differ in name alone; each has about half of the beginnings."""
    url = {"url": "http://judge.test/v1", "model": "m"}
    config = load({"endpoint": [{**url, "name": "first"}, {**url, "name": "second"}]})
    replicas = Replicas([Endpoint(each, config.limits, None) for each in config.endpoint])
    asks = [Ask((), Sampling(), (), "", 2000, read=_unread, prefixes=((str(n), 2000),)) for n in range(200)]
    owners = [found.label for ask in asks if (found := replicas.of(ask, None, frozenset()))]
    assert 60 < owners.count("first") < 140


def test_by_default_the_first_goes_ahead_where_cached_tokens_are_cheaper() -> None:
    """And not where the beginning is too short to be cached, or cached tokens cost the same."""
    assert share(judged(groups(8, 8, 900), "")) > 0.7
    same = run(groups(2, 8, 900), SPEC, endpoints=[{"price_in": 1.0, "price_out": 1.0}])
    short = judged(groups(2, 8, 100), "")
    assert same.seen.max_open == short.stats["h0"].max_open == 16


def test_the_criteria_of_one_response_wait_for_its_first() -> None:
    """One question for each criterion: the response is sent in full once."""
    rubric = tuple(Criterion(f"It names fact {n}.", name=f"f{n}") for n in range(6))
    given = [
        Sample(prompt="Why?", response=f"[[quality=7]] {n} " + "because of this. " * 600, rubric=rubric)
        for n in range(4)
    ]
    judge = {"kind": "rubric", "criteria_per_call": 1}
    apart, warm = judged(given, "off", judge=judge), judged(given, "warm", judge=judge)
    assert warm.reasons() == {"scored": 4}
    assert warm.stats["h0"].received == 24
    assert share(apart) < 0.05
    assert share(warm) > 0.75


def test_others_go_when_the_first_fails_hangs_or_is_left() -> None:
    """No request waits for one that will not come back: all end, in about the time of a run without the setting."""
    given = groups(6, 8, 900)
    for faults in ({"http_500": 0.4}, {"hang": 0.2}, {"throttle_seconds": 0.4}, {"reset": 0.4}):
        spec = ProviderSpec(latency_median=1.0, prompt_cache=CACHE, faults=faults)
        limits = {"concurrency": 16, "deadline": 600.0, "attempt_timeout": 10.0}
        done = judged(given, "warm", spec=spec, limits=limits)
        assert done.reasons() == {"scored": 48}, faults
        assert done.seconds < judged(given, "off", spec=spec, limits=limits).seconds + 35.0


def test_a_deadline_holds_for_requests_that_wait_for_the_first() -> None:
    """They are not held when the time left is little more than one answer, and are told when it is over."""
    spec = ProviderSpec(latency_median=8.0, prompt_cache=CACHE)
    done = judged(groups(2, 8, 900), "warm", spec=spec, seconds=20.0)
    assert done.reasons() == {"scored": 16}
    stuck = judged(
        groups(2, 8, 900), "warm", spec=ProviderSpec(outages=((0.0, 1e6),)), seconds=10.0, missing={"abort_above": 1.0}
    )
    assert "scored" not in stuck.reasons()
    assert stuck.seconds <= 11.0


def test_held_requests_do_not_keep_other_groups_from_being_begun() -> None:
    """Sixteen places are sixteen groups' first requests, not two groups'."""
    done = judged(groups(64, 8, 900), "warm")
    assert done.stats["h0"].max_open == 16
    assert done.seconds < 1.3 * judged(groups(64, 8, 900), "off").seconds


def test_a_replica_that_is_down_loses_its_requests_to_the_others() -> None:
    """All are judged, and the replica gets back what belongs to it afterwards."""
    down = ProviderSpec(latency_median=1.0, prompt_cache=CACHE, outages=((5.0, 60.0),))
    done = run(
        groups(60, 8, 900),
        {"a": SPEC, "b": down},
        endpoints=[{**PRICED}, {**PRICED}],
        limits={"concurrency": 8, "deadline": 600.0},
    )
    assert done.reasons() == {"scored": 480}
    alone = run(groups(60, 8, 900), {"a": SPEC}, endpoints=[PRICED], limits={"concurrency": 8, "deadline": 600.0})
    assert done.seconds < alone.seconds * 1.1
