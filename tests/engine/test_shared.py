"""The engine and a cache that others fill too: it searches before it asks, and lets go of what it claimed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import pytest
from tests.engine.harness import expected, run, samples

from referee.cache import Claim, Entry, MemoryCache
from referee.cache.port import Found
from referee.records import Reason, Reply, Unscored, Verdict
from referee.scoring.batch import Batch
from referee.scoring.local import Scorer
from referee.sim import ProviderSpec


class FakeClaim:
    """Remembers what happened to it."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.released = 0

    def release(self) -> None:
        self.released += 1

    def end(self, result: tuple[str, Entry] | None) -> None:
        """What Redis would say, unless nobody listens any more."""
        if not self.released:
            self.found(result)


class FakeShared(MemoryCache):
    """Answers every search after a while: with a verdict of 7, with nothing, or never."""

    def __init__(self, answer: str, seconds: float = 0.5) -> None:
        super().__init__(1000)
        self.answer = answer
        self.seconds = seconds
        self.claims: list[FakeClaim] = []
        self.patience: list[float] = []
        self.finished = 0

    def claim(self, keys: Sequence[str], patience: float, found: Found, team: str = "") -> Claim | None:
        if self.answer == "away":
            return None
        claim = FakeClaim(found)
        self.claims.append(claim)
        self.patience.append(patience)
        seven = Entry(verdict=Verdict(score=7, value=0.7), reply=Reply(text="x"), cost=0.5, endpoint="far")
        if self.answer != "never":
            result = (keys[0], seven) if self.answer == "found" else None
            asyncio.get_running_loop().call_later(self.seconds, functools.partial(claim.end, result))
        return claim

    async def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeShared:
    """Put in the place of the configured cache."""
    cache = FakeShared(request.param)
    monkeypatch.setattr("referee.scoring.build.open_cache", lambda *_: cache)
    return cache


def given(answer: str) -> Any:
    return pytest.mark.parametrize("shared", [answer], indirect=True)


@given("found")
def test_what_others_have_judged_is_not_asked(shared: FakeShared) -> None:
    """Their verdict is the end, and counts as a hit; the same sample twice is two hits of one search."""
    result = run(samples(6, distinct=3), ProviderSpec())
    assert [getattr(verdict, "score", None) for verdict in result.verdicts()] == [7] * 6
    assert result.seen.received == 0
    assert len(shared.claims) == 3
    assert result.metrics["cache_hits"] == 6
    assert [claim.released for claim in shared.claims] == [1] * 3
    assert shared.finished == 1


@given("nothing")
def test_what_nobody_has_is_asked_once_and_let_go(shared: FakeShared) -> None:
    """After a search in vain the judge is asked; the claim is released when the verdict is there."""
    batch = samples(8)
    result = run(batch, ProviderSpec(latency_median=1.0))
    assert [getattr(verdict, "score", None) for verdict in result.verdicts()] == expected(batch)
    assert result.seen.received == 8
    assert [claim.released for claim in shared.claims] == [1] * 8


@given("nothing")
def test_a_failure_lets_go_too(shared: FakeShared) -> None:
    """Others may try what failed here."""
    result = run(samples(3), ProviderSpec(faults={"http_503": 1.0}), limits={"deadline": 5})
    assert result.reasons().get("scored") is None
    assert [claim.released for claim in shared.claims] == [1] * 3


@given("never")
def test_a_search_that_does_not_end_is_ended_by_the_deadline(shared: FakeShared) -> None:
    """Every wait has an end, and patience with others is half of the time there is."""
    result = run(samples(3), ProviderSpec(), limits={"deadline": 20})
    assert result.reasons() == {str(Reason.DEADLINE): 3}
    assert shared.patience == [10.0] * 3
    assert [claim.released for claim in shared.claims] == [1] * 3


@given("never")
def test_a_cancelled_batch_releases_its_searches(shared: FakeShared) -> None:
    """Nobody searches for what nobody wants."""

    async def cancel(scorer: Scorer, batch: Batch) -> None:
        await asyncio.sleep(1)
        scorer.cancel(batch, Unscored(reason=Reason.CANCELLED, detail="enough"))
        assert scorer.engine.flying == 0

    result = run(samples(4), ProviderSpec(), during=cancel)
    assert result.reasons() == {str(Reason.CANCELLED): 4}
    assert [claim.released for claim in shared.claims] == [1] * 4


@given("never")
def test_closing_while_searching_ends_it(shared: FakeShared) -> None:
    """Close does not wait for others."""

    async def close(scorer: Scorer, batch: Batch) -> None:
        await asyncio.sleep(1)
        await scorer.aclose()

    result = run(samples(2), ProviderSpec(), during=close)
    assert result.reasons() == {str(Reason.CANCELLED): 2}
    assert [claim.released for claim in shared.claims] == [1] * 2


@given("away")
def test_with_nowhere_to_look_the_judge_is_asked_at_once(shared: FakeShared) -> None:
    """No search, no wait."""
    batch = samples(5)
    result = run(batch, ProviderSpec())
    assert [getattr(verdict, "score", None) for verdict in result.verdicts()] == expected(batch)
    assert shared.claims == []
