"""Counts by size: what Prometheus gets of durations and verdicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.ledger.histograms import Histogram, Scores
from referee.ledger.lines import JudgeLine, VerdictLine
from referee.ledger.metrics import Tally


@given(st.lists(st.floats(0.0, 1e5)))
def test_durations_are_counted_under_every_bound_they_do_not_exceed(durations: list[float]) -> None:
    """Cumulative, with all of them at the end, and their sum; a duration at a bound counts as either side of it."""
    histogram = Histogram()
    for seconds in durations:
        histogram.add(seconds)
    bounds, counts, total = histogram.buckets()
    assert len(counts) == len(bounds) + 1
    assert counts[-1] == len(durations)
    assert total == pytest.approx(sum(durations))
    for bound, count in zip(bounds, counts, strict=False):
        assert (
            sum(d < bound * (1 - 1e-9) for d in durations) <= count <= sum(d <= bound * (1 + 1e-9) for d in durations)
        )


@given(st.lists(st.integers(0, 1000)))
def test_verdicts_are_counted_by_tenths(verdicts: list[int]) -> None:
    """A verdict at a bound belongs to it, whatever the last digit of the float says."""
    scores = Scores()
    for verdict in verdicts:
        scores.add(verdict / 1000)
    bounds, counts, total = scores.buckets()
    assert bounds == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert counts == (*(sum(v <= 100 * tenth for v in verdicts) for tenth in range(11)), len(verdicts))
    assert total == pytest.approx(sum(verdicts) / 1000)
    scores.add(0.1 + 0.2)
    assert scores.buckets().counts[3] == counts[3] + 1


def test_what_is_subtracted_was_never_counted() -> None:
    """A sample that is judged again counts once."""
    tally = Tally()
    tally.add(VerdictLine(origin="call", value=0.4, attempts=1, latency_s=0.5))
    before = tally.histograms()["score"]
    tally.add(VerdictLine(origin="call", value=0.9, attempts=1, latency_s=0.5))
    tally.take_back(0.9, "", None)
    assert tally.histograms()["score"] == before


def test_each_of_several_judges_has_its_own() -> None:
    """By name; there is none of what they say as one."""
    tally = Tally(("a", "b"))
    tally.add(JudgeLine(judge="a", value=0.25))
    tally.add(JudgeLine(judge="b", value=None, unscored="refused"))
    tally.add(VerdictLine(origin="call", value=0.25))
    found = tally.histograms()
    assert set(found) == {"latency_s", "queue_s", "judge/a/score", "judge/b/score"}
    assert found["judge/a/score"].counts[-1] == 1
    assert found["judge/b/score"].counts[-1] == 0


def test_two_together_count_what_each_did() -> None:
    """As one histogram of all values would."""
    one, two, both = Histogram(), Histogram(), Histogram()
    for number in range(100):
        for histogram in (both, one if number % 3 else two):
            histogram.add(number / 7)
    together = one.buckets().plus(two.buckets())
    assert together.counts == both.buckets().counts
    assert together.total == pytest.approx(both.buckets().total)
