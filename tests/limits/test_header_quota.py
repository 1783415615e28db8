"""What a server says is left, and what was sent since: nothing refused, nothing left unused, no wait without end."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.limits import Bucket
from referee.limits.header_quota import MAX_HEADER_WAIT_S, DistantReset, HeaderQuota
from referee.limits.limit import Outcome


def told(remaining: float, reset: float, limit: float | None = 600, sent: float = 0.0, now: float = 0.0) -> HeaderQuota:
    """After one answer to a request of one."""
    left = HeaderQuota()
    left.on_headers(limit, remaining, reset, 1, sent, now)
    return left


def test_nothing_heard_nothing_held_back() -> None:
    """Without headers there is nothing to count down."""
    left = HeaderQuota()
    left.on_send(1e9, 0.0)
    assert left.wait(1e9, 0.0) == 0.0


def test_less_than_needed_is_waited_for() -> None:
    """300 tokens left are none for a request of 800; a request of 300 may go."""
    left = HeaderQuota()
    left.on_headers(120_000, 300, 20.0, 800, 0.0, 0.0)
    assert left.wait(300, 0.0) == 0.0
    assert left.wait(800, 0.0) == pytest.approx(20.0)
    assert left.wait(800, 20.0) == 0.0


def test_what_was_sent_since_is_taken_off() -> None:
    """Three left, three sent: the fourth waits for the turn."""
    left = told(3, 30.0)
    for second in (1.0, 2.0, 3.0):
        assert left.wait(1, second) == 0.0
        left.on_send(1, second)
    assert left.wait(1, 4.0) == pytest.approx(26.0)


def test_an_answer_knows_nothing_of_what_was_sent_after_its_request() -> None:
    """Sent at 1 and answered at 5, it does not know of the two sent in between."""
    left = told(10, 30.0)
    left.on_send(1, 1.0)
    left.on_send(1, 2.0)
    left.on_send(1, 3.0)
    left.on_headers(600, 2, 29.0, 1, 1.0, 5.0)
    assert left.wait(1, 5.0) > 0.0


def test_older_answers_change_nothing() -> None:
    """Answers come in any order; the one whose request was sent last knows most."""
    left = told(0, 30.0, sent=10.0, now=11.0)
    left.on_headers(600, 500, 40.0, 1, 2.0, 12.0)
    assert left.wait(1, 12.0) > 0.0


def test_of_a_burst_the_first_knows_best() -> None:
    """Ten sent at once: each answer was counted at another place among them, whatever order they come back in."""
    for order in (range(10), reversed(range(10))):
        left = told(50, 60.0)
        for _ in range(10):
            left.on_send(1, 1.0)
        for place in order:
            left.on_headers(600, 49 - place, 59.0, 1, 1.0, 3.0)
        left.on_send(39, 3.0)
        assert left.wait(1, 3.0) == 0.0
        left.on_send(1, 3.0)
        assert left.wait(1, 3.0) > 0.0


def test_a_slow_answer_does_not_put_off_the_turn() -> None:
    """It tells the time left when its request came in; one that came back at once tells it better."""
    left = told(0, 20.0, sent=0.0, now=0.1)
    left.on_headers(600, 0, 19.0, 1, 1.0, 8.0)
    assert left.wait(1, 8.0) == pytest.approx(12.1)


def test_at_the_turn_all_of_it_is_there() -> None:
    """The whole limit, less what is sent from then on, until an answer says more; then as if nothing had been heard."""
    left = told(0, 10.0, limit=5)
    assert left.wait(1, 10.0) == 0.0
    for _ in range(4):
        left.on_send(1, 10.0)
    assert left.wait(1, 10.0) > 0.0
    assert left.wait(1, 10.0 + MAX_HEADER_WAIT_S) == 0.0
    left.on_send(100, 10.0 + MAX_HEADER_WAIT_S)
    assert left.wait(100, 10.0 + MAX_HEADER_WAIT_S) == 0.0


def test_answers_from_before_the_turn_do_not_count_after_it() -> None:
    """They speak of a window that is over."""
    left = told(3, 10.0)
    left.on_send(1, 9.0)
    assert left.wait(1, 10.0) == 0.0
    left.on_headers(600, 0, 1.0, 1, 9.0, 11.0)
    assert left.wait(1, 11.0) == 0.0


def test_without_a_limit_the_turn_ends_it() -> None:
    """How much there is again is not known, so nothing is held back."""
    left = told(0, 10.0, limit=None)
    assert left.wait(1, 0.0) == pytest.approx(10.0)
    left.wait(1, 10.0)
    left.on_send(1e6, 10.0)
    assert left.wait(1e6, 10.0) == 0.0


def test_more_than_the_whole_limit_can_only_be_tried() -> None:
    """A request larger than the limit, or a limit in other units than ours, is not waited for."""
    assert told(0, 30.0, limit=100).wait(101, 0.0) == 0.0
    assert told(0, 30.0, limit=100).wait(100, 0.0) > 0.0


@pytest.mark.parametrize("reset", [None, 0.0, -1.0, math.inf, math.nan])
def test_junk_is_not_heard(reset: float | None) -> None:
    """A reset that is none says nothing."""
    left = HeaderQuota()
    left.on_headers(600, 0, reset, 1, 0.0, 0.0)
    assert left.wait(1, 0.0) == 0.0


def test_a_limit_that_fills_evenly_is_waited_for_only_so_long() -> None:
    """Where the headers say that ten come back each second, one is there after a tenth, not after the minute."""
    left = HeaderQuota()
    left.on_headers(600, 590, 1.0, 1, 0.0, 0.0)
    left.on_headers(600, 0, 60.0, 1, 10.0, 10.0)
    assert left.wait(1, 10.0) == pytest.approx(0.1)
    assert left.wait(1, 10.1) == 0.0


def test_a_limit_that_comes_back_as_a_whole_is_waited_for() -> None:
    """Hardly used a moment after the turn, nearly used up long before the next: it does not fill in between."""
    left = HeaderQuota()
    left.on_headers(600, 599, 59.0, 1, 0.0, 1.0)
    left.on_headers(600, 0, 50.0, 1, 10.0, 10.0)
    assert left.wait(1, 10.0) == pytest.approx(50.0)


class Server:
    """So much a minute: either all of it at each full minute, or evenly. Its headers speak of the moment of arrival."""

    def __init__(self, limit: float, even: bool) -> None:
        self.limit, self.even = limit, even
        self.level, self.at = limit, 0.0
        self.refused = 0

    def take(self, amount: float, now: float) -> tuple[bool, float, float]:
        """Whether it was taken, what is left, and the seconds until all of it is there."""
        if self.even:
            self.level = min(self.limit, self.level + (now - self.at) * self.limit / 60)
        elif now // 60 > self.at // 60:
            self.level = self.limit
        self.at = now
        taken = amount <= self.level
        self.level -= amount * taken
        self.refused += not taken and now >= 60  # before the first answer nobody can know
        reset = (self.limit - self.level) * 60 / self.limit if self.even else 60 - now % 60
        return taken, math.floor(self.level), reset


def closed_loop(server: Server, amounts: list[float], at_once: int, seed: int) -> float:
    """Send all, so many at once, as soon as the bucket allows; refused ones again. Returns the end."""
    rng, bucket, now = random.Random(seed), Bucket(None), 0.0
    out: list[tuple[float, int, float, float, float, float]] = []
    waiting, serial = amounts[::-1], 0
    while waiting or out:
        wait = bucket.wait(waiting[-1], now) if waiting and len(out) < at_once else math.inf
        if wait == 0.0:
            amount = waiting.pop()
            bucket.take(amount, now)
            taken, left, reset = server.take(amount, now)
            serial += 1
            took = rng.lognormvariate(0.5, 0.5) if taken else 0.02
            heapq.heappush(out, (now + took, serial, amount if taken else -amount, now, left, reset))
        elif out and out[0][0] <= now + wait:
            now, _, amount, sent, left, reset = heapq.heappop(out)
            bucket._header_quota.on_headers(server.limit, left, reset, abs(amount), sent, now)
            if amount < 0:
                waiting.append(-amount)
        else:
            now += wait
    return now


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("at_once", [8, 60, 400])
@pytest.mark.parametrize("size", [1.0, 40.0])
def test_headers_alone_keep_within_the_rate(even: bool, at_once: int, size: float) -> None:
    """600 units a minute, in small or large requests: most of it is used, and next to nothing is refused."""
    rng = random.Random(5)
    amounts = [size if size == 1.0 else rng.uniform(0.5, 1.5) * size for _ in range(int(3000 / size))]
    server = Server(600, even)
    end = closed_loop(server, amounts, at_once, 7)
    assert server.refused <= 0.02 * len(amounts)
    assert end < max(330, 3000 / size / at_once * 2.0)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 30.0),
            st.floats(0.01, 1e4),
            st.none() | st.integers(-1, 1000),
            st.none() | st.integers(-1, 1000),
            st.none() | st.floats(-1.0, 1e5),
            st.floats(0.0, 60.0),
        ),
        max_size=60,
    )
)
def test_no_wait_is_longer_than_a_minute(
    events: list[tuple[float, float, int | None, int | None, float | None, float]],
) -> None:
    """Whatever is said, in whatever order: waits are finite, bounded, and after them something may go."""
    left, now = HeaderQuota(), 100.0
    for seconds, amount, limit, remaining, reset, ago in events:
        now += seconds
        left.on_send(amount, now)
        left.on_headers(limit, remaining, reset, amount, now - ago, now)
        wait = left.wait(amount, now)
        assert 0.0 <= wait <= MAX_HEADER_WAIT_S
        at, looks = now, 0
        while (wait := left.wait(amount, at)) > 0.0:
            at += max(wait, 1e-6)
            looks += 1
            assert looks < 5
        now = at
    assert "HeaderQuota(" in repr(left)


HOUR = 3600.0


def say(bucket: Bucket, outcome: Outcome, sent: float, now: float, reset: float = HOUR) -> None:
    """An answer whose headers say that nothing is left."""
    bucket.on_headers(600, 0, reset, 1, outcome, sent, now)


def test_an_hour_with_nothing_left_is_tried_by_one_request() -> None:
    """After a second one may go, the next waits for what becomes of it."""
    bucket = Bucket(600)
    say(bucket, "ok", 0.0, 1.0)
    assert bucket.wait(1, 1.0) == pytest.approx(DistantReset.FIRST_PROBE_S)
    assert bucket.wait(1, 1.0 + DistantReset.FIRST_PROBE_S) == 0.0
    bucket.take(1, 1.0 + DistantReset.FIRST_PROBE_S)
    assert bucket.wait(1, 1.0 + DistantReset.FIRST_PROBE_S) > 0.5


def test_a_try_that_is_served_refutes_it_until_something_is_refused() -> None:
    """Such words count for nothing then; after a refusal they count again, and are tried later than before."""
    bucket = Bucket(600)
    say(bucket, "ok", 0.0, 1.0)
    bucket.take(1, 2.0)
    say(bucket, "ok", 2.0, 3.0)
    say(bucket, "ok", 2.5, 3.0)
    assert bucket.wait(1, 3.0) == 0.0
    say(bucket, "throttled", 3.0, 4.0)
    assert bucket.wait(1, 4.0) == pytest.approx(2 * DistantReset.FIRST_PROBE_S)


def test_tries_that_are_refused_become_rare() -> None:
    """The wait doubles, up to a minute."""
    bucket, now, waits = Bucket(None), 0.0, []
    say(bucket, "ok", now, now)
    for _ in range(9):
        waits.append(bucket.wait(1, now))
        now += waits[-1]
        bucket.take(1, now)
        say(bucket, "throttled", now, now)
    assert waits == pytest.approx([min(MAX_HEADER_WAIT_S, DistantReset.FIRST_PROBE_S * 2**n) for n in range(9)])


def test_answers_to_what_was_sent_before_it_was_said_refute_nothing() -> None:
    """Requests that were in flight together may all be the last of their minute."""
    bucket = Bucket(600)
    for _ in range(5):
        say(bucket, "ok", 0.0, 1.0)
    assert bucket.wait(1, 1.0) > 0.0


def test_a_reset_within_a_minute_is_not_tried() -> None:
    """It is what limits per minute say, and a try would only be refused."""
    bucket = Bucket(600)
    say(bucket, "ok", 0.0, 1.0, reset=50.0)
    assert bucket.wait(1, 1.0) == pytest.approx(50.0)
