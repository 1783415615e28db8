"""Telling a queue at the server from slow replies: by the order in which requests are served."""

from __future__ import annotations

import pytest

from referee.limits.queue_detection import QueueDetector

SENT = 10
"""Requests sent at time 0 in these tests."""


def first_reply(in_flight: int = SENT - 1) -> QueueDetector:
    """After the first reply, at 1 s."""
    queue = QueueDetector()
    queue.on_finished(True, 1.0, in_flight, 1.0)
    return queue


def test_replies_to_requests_sent_together_are_in_order() -> None:
    """None of them was sent after the first reply."""
    queue = QueueDetector()
    for i in range(SENT):
        queue.on_finished(True, 1.0 + i, SENT - 1, 1.0 + i)
        assert not queue.reordered


def test_a_later_request_served_earlier_rules_a_queue_out() -> None:
    """Even if sent in the moment of the first reply."""
    queue = first_reply()
    queue.on_finished(True, 1.5, SENT - 1, 0.5)
    assert queue.reordered


@pytest.mark.parametrize(("done", "reordered"), [(3, True), (4, True), (5, False)])
def test_most_of_the_earlier_requests_must_be_in_flight(done: int, reordered: bool) -> None:
    """Of the nine left, five are most; the last four are merely slow."""
    queue = first_reply()
    for i in range(done):
        queue.on_finished(True, 2.0 + i / 100, SENT - 1, 2.0 + i / 100)
    queue.on_finished(True, 3.0, SENT - 1, 0.5)
    assert queue.reordered is reordered


def test_timed_out_requests_are_no_longer_in_the_queue() -> None:
    """What is served next was not served before them."""
    queue = first_reply()
    for _ in range(5):
        queue.on_finished(False, 60.0, SENT - 1, 60.0)
    queue.on_finished(True, 61.0, SENT - 1, 30.0)
    assert not queue.reordered


def test_refusals_do_not_count_as_served() -> None:
    """Nor as the first reply."""
    queue = QueueDetector()
    queue.on_finished(False, 0.5, SENT - 1, 0.5)
    queue.on_finished(True, 1.0, SENT - 2, 1.0)
    queue.on_finished(False, 1.5, SENT - 2, 0.2)
    assert not queue.reordered
    queue.on_finished(True, 1.5, SENT - 2, 0.8)
    assert not queue.reordered
    queue.on_finished(True, 1.6, SENT - 2, 0.3)
    assert queue.reordered


def test_a_reset_starts_with_the_next_reply() -> None:
    """What was reordered before says nothing about now."""
    queue = first_reply()
    queue.on_finished(True, 1.5, SENT - 1, 0.5)
    queue.reset()
    assert not queue.reordered
    queue.on_finished(True, 5.0, SENT - 1, 0.1)
    assert not queue.reordered
    queue.on_finished(True, 5.5, SENT - 1, 4.0)
    assert not queue.reordered
    queue.on_finished(True, 5.5, SENT - 1, 0.2)
    assert queue.reordered


def test_the_service_time_comes_from_the_first_replies() -> None:
    """The third one; failures do not count, later replies change nothing."""
    queue = QueueDetector()
    assert queue.done_share(1, 10, 1e9) == 1.0
    for latency in (0.1, 2.0, 3.0, 9.0):
        queue.on_finished(False, latency, SENT - 1, latency)
        queue.on_finished(True, latency, SENT - 1, latency)
    assert queue.done_share(4, 10, QueueDetector.LATE * 3.0) == 1.0
    assert queue.done_share(4, 10, QueueDetector.LATE * 3.0 + 0.1) == pytest.approx(0.4)


def test_where_a_queue_is_ruled_out_nothing_is_late() -> None:
    """Few requests are done, but they are only slow."""
    queue = first_reply()
    for _ in range(3):
        queue.on_finished(True, 1.0, SENT - 1, 1.0)
    assert queue.done_share(4, 10, 100.0) == pytest.approx(0.4)
    queue.on_finished(True, 1.5, SENT - 1, 0.25)
    assert queue.done_share(5, 10, 100.0) == 1.0
