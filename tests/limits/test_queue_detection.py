"""Telling a line in front of the server from slow replies: who is served before whom."""

from __future__ import annotations

import pytest

from referee.limits.queue_detection import FIRST_ANSWERS, LATE, QueueDetector

SENT = 10
"""Requests sent at time 0 in these tests."""


def first_answer(in_flight: int = SENT - 1) -> QueueDetector:
    """After the first answer, at 1 s."""
    line = QueueDetector()
    line.over(True, 1.0, in_flight, 1.0)
    return line


def test_the_first_answers_overtake_nobody() -> None:
    """They were sent together with the rest."""
    line = QueueDetector()
    for i in range(SENT):
        line.over(True, 1.0 + i, SENT - 1, 1.0 + i)
        assert not line.overtaken


def test_one_sent_later_and_answered_sooner_overtakes() -> None:
    """Also if it was sent in the moment of the first answer."""
    line = first_answer()
    line.over(True, 1.5, SENT - 1, 0.5)
    assert line.overtaken


@pytest.mark.parametrize(("done", "overtaken"), [(3, True), (4, True), (5, False)])
def test_most_of_those_before_must_still_be_out(done: int, overtaken: bool) -> None:
    """Nine were left: with four of them gone, five are most of them; with five gone, the four left are merely slow."""
    line = first_answer()
    for i in range(done):
        line.over(True, 2.0 + i / 100, SENT - 1, 2.0 + i / 100)
    line.over(True, 3.0, SENT - 1, 0.5)
    assert line.overtaken is overtaken


def test_half_of_those_before_are_not_most() -> None:
    """Of eight that were left, four."""
    line = first_answer(8)
    for _ in range(4):
        line.over(True, 2.0, 8, 2.0)
    line.over(True, 3.0, 8, 0.5)
    assert not line.overtaken


def test_those_who_gave_up_are_no_longer_ahead() -> None:
    """They timed out together; what is served next was not served before them."""
    line = first_answer()
    for _ in range(5):
        line.over(False, 60.0, SENT - 1, 60.0)
    line.over(True, 61.0, SENT - 1, 30.0)
    assert not line.overtaken


def test_a_refusal_overtakes_nobody() -> None:
    """It was not served; and it is no first answer either."""
    line = QueueDetector()
    line.over(False, 0.5, SENT - 1, 0.5)
    line.over(True, 1.0, SENT - 2, 1.0)
    line.over(False, 1.5, SENT - 2, 0.2)
    assert not line.overtaken
    line.over(True, 1.5, SENT - 2, 0.8)
    assert not line.overtaken
    line.over(True, 1.6, SENT - 2, 0.3)
    assert line.overtaken


def test_it_begins_anew() -> None:
    """What was overtaken before is no sign of now, and the next answer is the first one."""
    line = first_answer()
    line.over(True, 1.5, SENT - 1, 0.5)
    line.begin()
    assert not line.overtaken
    line.over(True, 5.0, SENT - 1, 0.1)
    assert not line.overtaken
    line.over(True, 5.5, SENT - 1, 4.0)
    assert not line.overtaken
    line.over(True, 5.5, SENT - 1, 0.2)
    assert line.overtaken


def test_a_few_answers_tell_what_is_usual() -> None:
    """The third one; failures are not counted, later ones change nothing."""
    line = QueueDetector()
    assert line.done(1, 10, 1e9) == 1.0
    for latency in (0.1, 2.0, 3.0, 9.0):
        line.over(False, latency, SENT - 1, latency)
        line.over(True, latency, SENT - 1, latency)
    assert FIRST_ANSWERS == 3
    assert line.done(4, 10, LATE * 3.0) == 1.0
    assert line.done(4, 10, LATE * 3.0 + 0.1) == pytest.approx(0.4)


def test_where_somebody_was_overtaken_nothing_is_late() -> None:
    """Few are done, but they do not stand in line."""
    line = first_answer()
    for _ in range(3):
        line.over(True, 1.0, SENT - 1, 1.0)
    assert line.done(4, 10, 100.0) == pytest.approx(0.4)
    line.over(True, 1.5, SENT - 1, 0.25)
    assert line.done(5, 10, 100.0) == 1.0
