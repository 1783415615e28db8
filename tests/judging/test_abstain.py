"""judge.abstain_above: verdicts that are too uncertain are none, by name."""

from __future__ import annotations

import pytest
from tests.judging.made_of_judges import BROKEN, built, heard, member, missing_of, valued, verdict_of

from referee.records import Reason, Verdict
from referee.shaping.missing import UnscoredWatch


@pytest.mark.parametrize(("uncertainty", "scored"), [(None, True), (0.0, True), (0.3, True), (0.31, False)])
def test_what_is_more_uncertain_than_allowed_is_no_verdict(uncertainty: float | None, scored: bool) -> None:
    """What does not say how certain it is stays."""
    judge = built(member("one", kind="yes_no", abstain_above=0.3))
    [verdict] = heard(judge, [valued(0.6, uncertainty)]).verdicts
    assert isinstance(verdict, Verdict) is scored


def test_it_says_what_the_judge_said() -> None:
    """The value in words, and the parts it was made of."""
    judge = built(
        {"name": "panel", "kind": "jury", "members": ["one", "two"], "abstain_above": 0.2},
        member("one"),
        member("two"),
    )
    answers = {"one": valued(0.0), "two": valued(1.0)}
    missing = missing_of(heard(judge, lambda ask: answers[ask.pool]))
    assert missing.reason is Reason.UNCERTAIN
    assert "0.5" in missing.detail
    assert "judge.abstain_above is 0.2" in missing.detail
    assert [part.name for part in missing.parts] == ["one", "two"]


def test_repeats_are_what_it_goes_by() -> None:
    """Three answers that differ make an uncertain verdict."""
    judge = built(member("one", repeat=3, abstain_above=0.1))
    assert missing_of(heard(judge, [valued(0.1), valued(0.9), valued(0.5)])).reason is Reason.UNCERTAIN
    assert verdict_of(heard(judge, [valued(0.5), valued(0.6), valued(0.5)])).value == pytest.approx(1.6 / 3)
    assert missing_of(heard(judge, [BROKEN, BROKEN, BROKEN])).reason is Reason.NO_VERDICT


def test_it_does_not_stop_a_run() -> None:
    """It is the user's own bar, and no outage."""
    watch = UnscoredWatch(0.5)
    judge = built(member("one", kind="yes_no", abstain_above=0.3))
    [verdict] = heard(judge, [valued(0.6, 0.6)]).verdicts
    assert not any(watch.observe(verdict) for _ in range(1000))
