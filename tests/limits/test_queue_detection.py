"""Telling a line in front of the server from slow replies: who is served before whom."""

from __future__ import annotations

import pytest

from referee.limits.queue_detection import QueueDetector

SENT = 10
"""Requests sent at time 0 in these tests."""


def first_answer(in_flight: int = SENT - 1) -> QueueDetector:
    """After the first answer, at 1 s."""
    queue = QueueDetector()
    queue.on_finished(True, 1.0, in_flight, 1.0)
    return queue


def test_the_first_answers_overtake_nobody() -> None:
    """They were sent together with the rest."""
    queue = QueueDetector()
    for i in range(SENT):
        queue.on_finished(True, 1.0 + i, SENT - 1, 1.0 + i)
        assert not queue.reordered


def test_one_sent_later_and_answered_sooner_overtakes() -> None:
    """Also if it was sent in the moment of the first answer."""
    queue = first_answer()
    queue.on_finished(True, 1.5, SENT - 1, 0.5)
    assert queue.reordered


@pytest.mark.parametrize(("done", "overtaken"), [(3, True), (4, True), (5, False)])
def test_most_of_those_before_must_still_be_out(done: int, overtaken: bool) -> None:
    """Nine were left: with four of them gone, five are most of them; with five gone, the four left are merely slow."""
    queue = first_answer()
    for i in range(done):
        queue.on_finished(True, 2.0 + i / 100, SENT - 1, 2.0 + i / 100)
    queue.on_finished(True, 3.0, SENT - 1, 0.5)
    assert queue.reordered is overtaken


def test_half_of_those_before_are_not_most() -> None:
    """Of eight that were left, four."""
    queue = first_answer(8)
    for _ in range(4):
        queue.on_finished(True, 2.0, 8, 2.0)
    queue.on_finished(True, 3.0, 8, 0.5)
    assert not queue.reordered


def test_those_who_gave_up_are_no_longer_ahead() -> None:
    """They timed out together; what is served next was not served before them."""
    queue = first_answer()
    for _ in range(5):
        queue.on_finished(False, 60.0, SENT - 1, 60.0)
    queue.on_finished(True, 61.0, SENT - 1, 30.0)
    assert not queue.reordered


def test_a_refusal_overtakes_nobody() -> None:
    """It was not served; and it is no first answer either."""
    queue = QueueDetector()
    queue.on_finished(False, 0.5, SENT - 1, 0.5)
    queue.on_finished(True, 1.0, SENT - 2, 1.0)
    queue.on_finished(False, 1.5, SENT - 2, 0.2)
    assert not queue.reordered
    queue.on_finished(True, 1.5, SENT - 2, 0.8)
    assert not queue.reordered
    queue.on_finished(True, 1.6, SENT - 2, 0.3)
    assert queue.reordered


def test_it_begins_anew() -> None:
    """What was overtaken before is no sign of now, and the next answer is the first one."""
    queue = first_answer()
    queue.on_finished(True, 1.5, SENT - 1, 0.5)
    queue.reset()
    assert not queue.reordered
    queue.on_finished(True, 5.0, SENT - 1, 0.1)
    assert not queue.reordered
    queue.on_finished(True, 5.5, SENT - 1, 4.0)
    assert not queue.reordered
    queue.on_finished(True, 5.5, SENT - 1, 0.2)
    assert queue.reordered


def test_a_few_answers_tell_what_is_usual() -> None:
    """The third one; failures are not counted, later ones change nothing."""
    queue = QueueDetector()
    assert queue.done_share(1, 10, 1e9) == 1.0
    for latency in (0.1, 2.0, 3.0, 9.0):
        queue.on_finished(False, latency, SENT - 1, latency)
        queue.on_finished(True, latency, SENT - 1, latency)
    assert QueueDetector.SERVICE_SAMPLE == 3
    assert queue.done_share(4, 10, QueueDetector.LATE * 3.0) == 1.0
    assert queue.done_share(4, 10, QueueDetector.LATE * 3.0 + 0.1) == pytest.approx(0.4)


def test_where_somebody_was_overtaken_nothing_is_late() -> None:
    """Few are done, but they do not stand in queue."""
    queue = first_answer()
    for _ in range(3):
        queue.on_finished(True, 1.0, SENT - 1, 1.0)
    assert queue.done_share(4, 10, 100.0) == pytest.approx(0.4)
    queue.on_finished(True, 1.5, SENT - 1, 0.25)
    assert queue.done_share(5, 10, 100.0) == 1.0
