"""Quota left by headers, less what was sent since: nothing refused, nothing unused, no endless wait."""

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


def after_headers(
    remaining: float, reset: float, limit: float | None = 600, sent: float = 0.0, now: float = 0.0
) -> HeaderQuota:
    """After one reply to a request of one."""
    quota = HeaderQuota()
    quota.on_headers(limit, remaining, reset, 1, sent, now)
    return quota


def test_without_headers_nothing_waits() -> None:
    """There is nothing to count down."""
    quota = HeaderQuota()
    quota.on_send(1e9, 0.0)
    assert quota.wait(1e9, 0.0) == 0.0


def test_less_than_needed_is_waited_for() -> None:
    """With 300 tokens left, a request of 800 waits and one of 300 may go."""
    quota = HeaderQuota()
    quota.on_headers(120_000, 300, 20.0, 800, 0.0, 0.0)
    assert quota.wait(300, 0.0) == 0.0
    assert quota.wait(800, 0.0) == pytest.approx(20.0)
    assert quota.wait(800, 20.0) == 0.0


def test_what_was_sent_since_is_subtracted() -> None:
    """Three left, three sent: the fourth waits for the reset."""
    quota = after_headers(3, 30.0)
    for second in (1.0, 2.0, 3.0):
        assert quota.wait(1, second) == 0.0
        quota.on_send(1, second)
    assert quota.wait(1, 4.0) == pytest.approx(26.0)


def test_headers_know_nothing_of_later_requests() -> None:
    """Those of a request sent at 1 and answered at 5 do not count the two sent in between."""
    quota = after_headers(10, 30.0)
    quota.on_send(1, 1.0)
    quota.on_send(1, 2.0)
    quota.on_send(1, 3.0)
    quota.on_headers(600, 2, 29.0, 1, 1.0, 5.0)
    assert quota.wait(1, 5.0) > 0.0


def test_older_headers_change_nothing() -> None:
    """Replies come in any order; the request sent last knows most."""
    quota = after_headers(0, 30.0, sent=10.0, now=11.0)
    quota.on_headers(600, 500, 40.0, 1, 2.0, 12.0)
    assert quota.wait(1, 12.0) > 0.0


def test_of_a_burst_the_largest_remainder_counts() -> None:
    """Ten sent at once are counted in some order by the server, and come back in any order."""
    for order in (range(10), reversed(range(10))):
        quota = after_headers(50, 60.0)
        for _ in range(10):
            quota.on_send(1, 1.0)
        for place in order:
            quota.on_headers(600, 49 - place, 59.0, 1, 1.0, 3.0)
        quota.on_send(39, 3.0)
        assert quota.wait(1, 3.0) == 0.0
        quota.on_send(1, 3.0)
        assert quota.wait(1, 3.0) > 0.0


def test_a_slow_reply_does_not_postpone_the_reset() -> None:
    """Its headers are as old as its latency; a quick reply is more exact."""
    quota = after_headers(0, 20.0, sent=0.0, now=0.1)
    quota.on_headers(600, 0, 19.0, 1, 1.0, 8.0)
    assert quota.wait(1, 8.0) == pytest.approx(12.1)


def test_at_the_reset_the_whole_limit_is_back() -> None:
    """Less what is sent from then on. Without new headers, the next reset ends all knowledge."""
    quota = after_headers(0, 10.0, limit=5)
    assert quota.wait(1, 10.0) == 0.0
    for _ in range(4):
        quota.on_send(1, 10.0)
    assert quota.wait(1, 10.0) > 0.0
    assert quota.wait(1, 10.0 + MAX_HEADER_WAIT_S) == 0.0
    quota.on_send(100, 10.0 + MAX_HEADER_WAIT_S)
    assert quota.wait(100, 10.0 + MAX_HEADER_WAIT_S) == 0.0


def test_headers_from_before_the_reset_do_not_count_after_it() -> None:
    """They describe a past window."""
    quota = after_headers(3, 10.0)
    quota.on_send(1, 9.0)
    assert quota.wait(1, 10.0) == 0.0
    quota.on_headers(600, 0, 1.0, 1, 9.0, 11.0)
    assert quota.wait(1, 11.0) == 0.0


def test_without_a_limit_the_reset_ends_the_wait() -> None:
    """How much is back is unknown, so nothing is held back."""
    quota = after_headers(0, 10.0, limit=None)
    assert quota.wait(1, 0.0) == pytest.approx(10.0)
    quota.wait(1, 10.0)
    quota.on_send(1e6, 10.0)
    assert quota.wait(1e6, 10.0) == 0.0


def test_more_than_the_whole_limit_is_not_waited_for() -> None:
    """Such a request, or a limit in other units than ours, can only be tried."""
    assert after_headers(0, 30.0, limit=100).wait(101, 0.0) == 0.0
    assert after_headers(0, 30.0, limit=100).wait(100, 0.0) > 0.0


@pytest.mark.parametrize("reset", [None, 0.0, -1.0, math.inf, math.nan])
def test_junk_is_ignored(reset: float | None) -> None:
    """A reset that is not a positive number of seconds."""
    quota = HeaderQuota()
    quota.on_headers(600, 0, reset, 1, 0.0, 0.0)
    assert quota.wait(1, 0.0) == 0.0


def test_with_a_continuous_refill_only_the_shortage_is_waited_for() -> None:
    """If headers show a refill of ten per second, one is back after a tenth, not after the minute."""
    quota = HeaderQuota()
    quota.on_headers(600, 590, 1.0, 1, 0.0, 0.0)
    quota.on_headers(600, 0, 60.0, 1, 10.0, 10.0)
    assert quota.wait(1, 10.0) == pytest.approx(0.1)
    assert quota.wait(1, 10.1) == 0.0


def test_without_a_continuous_refill_the_reset_is_waited_for() -> None:
    """Hardly used just after the reset, used up long before the next."""
    quota = HeaderQuota()
    quota.on_headers(600, 599, 59.0, 1, 0.0, 1.0)
    quota.on_headers(600, 0, 50.0, 1, 10.0, 10.0)
    assert quota.wait(1, 10.0) == pytest.approx(50.0)


class Server:
    """A limit per minute, reset at each full minute or refilled continuously. Headers describe the time of arrival."""

    def __init__(self, limit: float, even: bool) -> None:
        self.limit, self.even = limit, even
        self.level, self.at = limit, 0.0
        self.refused = 0

    def take(self, amount: float, now: float) -> tuple[bool, float, float]:
        """Whether it was accepted, what is left, and the seconds until all of it is back."""
        if self.even:
            self.level = min(self.limit, self.level + (now - self.at) * self.limit / 60)
        elif now // 60 > self.at // 60:
            self.level = self.limit
        self.at = now
        taken = amount <= self.level
        self.level -= amount * taken
        self.refused += not taken and now >= 60  # the limit is unknown before the first reply
        reset = (self.limit - self.level) * 60 / self.limit if self.even else 60 - now % 60
        return taken, math.floor(self.level), reset


def closed_loop(server: Server, amounts: list[float], at_once: int, seed: int) -> float:
    """Send all with that concurrency as soon as the quota allows; refused ones again. Returns the makespan."""
    rng, quota, now = random.Random(seed), HeaderQuota(), 0.0
    out: list[tuple[float, int, float, float, float, float]] = []
    waiting, serial = amounts[::-1], 0
    while waiting or out:
        wait = quota.wait(waiting[-1], now) if waiting and len(out) < at_once else math.inf
        if wait == 0.0:
            amount = waiting.pop()
            quota.on_send(amount, now)
            taken, left, reset = server.take(amount, now)
            serial += 1
            took = rng.lognormvariate(0.5, 0.5) if taken else 0.02
            heapq.heappush(out, (now + took, serial, amount if taken else -amount, now, left, reset))
        elif out and out[0][0] <= now + wait:
            now, _, amount, sent, left, reset = heapq.heappop(out)
            quota.on_headers(server.limit, left, reset, abs(amount), sent, now)
            if amount < 0:
                waiting.append(-amount)
        else:
            now += wait
    return now


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("at_once", [8, 60, 400])
@pytest.mark.parametrize("size", [1.0, 40.0])
def test_headers_alone_keep_within_the_rate(even: bool, at_once: int, size: float) -> None:
    """600 units per minute, in small or large requests: most of it is used, and next to nothing is refused."""
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
    """Any headers in any order: waits are bounded, and after them something may go."""
    quota, now = HeaderQuota(), 100.0
    for seconds, amount, limit, remaining, reset, ago in events:
        now += seconds
        quota.on_send(amount, now)
        quota.on_headers(limit, remaining, reset, amount, now - ago, now)
        wait = quota.wait(amount, now)
        assert 0.0 <= wait <= MAX_HEADER_WAIT_S
        at, waits = now, 0
        while (wait := quota.wait(amount, at)) > 0.0:
            at += max(wait, 1e-6)
            waits += 1
            assert waits < 5
        now = at
    assert "HeaderQuota(" in repr(quota)


HOUR = 3600.0


def say(bucket: Bucket, outcome: Outcome, sent: float, now: float, reset: float = HOUR) -> None:
    """A reply whose headers say that nothing is left."""
    bucket.on_headers(600, 0, reset, 1, outcome, sent, now)


def test_an_hour_with_nothing_left_is_probed_by_one_request() -> None:
    """After a second one may go; the next waits for its outcome."""
    bucket = Bucket(600)
    say(bucket, "ok", 0.0, 1.0)
    assert bucket.wait(1, 1.0) == pytest.approx(DistantReset.FIRST_PROBE_S)
    assert bucket.wait(1, 1.0 + DistantReset.FIRST_PROBE_S) == 0.0
    bucket.take(1, 1.0 + DistantReset.FIRST_PROBE_S)
    assert bucket.wait(1, 1.0 + DistantReset.FIRST_PROBE_S) > 0.5


def test_a_served_probe_refutes_such_headers_until_a_refusal() -> None:
    """They are ignored; after a refusal they count again, and the next probe is later."""
    bucket = Bucket(600)
    say(bucket, "ok", 0.0, 1.0)
    bucket.take(1, 2.0)
    say(bucket, "ok", 2.0, 3.0)
    say(bucket, "ok", 2.5, 3.0)
    assert bucket.wait(1, 3.0) == 0.0
    say(bucket, "throttled", 3.0, 4.0)
    assert bucket.wait(1, 4.0) == pytest.approx(2 * DistantReset.FIRST_PROBE_S)


def test_refused_probes_become_rare() -> None:
    """The wait doubles, up to a minute."""
    bucket, now, waits = Bucket(None), 0.0, []
    say(bucket, "ok", now, now)
    for _ in range(9):
        waits.append(bucket.wait(1, now))
        now += waits[-1]
        bucket.take(1, now)
        say(bucket, "throttled", now, now)
    assert waits == pytest.approx([min(MAX_HEADER_WAIT_S, DistantReset.FIRST_PROBE_S * 2**n) for n in range(9)])


def test_replies_to_earlier_requests_refute_nothing() -> None:
    """Requests in flight together may all be the last of their minute."""
    bucket = Bucket(600)
    for _ in range(5):
        say(bucket, "ok", 0.0, 1.0)
    assert bucket.wait(1, 1.0) > 0.0


def test_a_reset_within_a_minute_is_not_probed() -> None:
    """That is a limit per minute, and a probe would only be refused."""
    bucket = Bucket(600)
    say(bucket, "ok", 0.0, 1.0, reset=50.0)
    assert bucket.wait(1, 1.0) == pytest.approx(50.0)


def test_a_limit_of_zero_is_no_limit() -> None:
    """It is a broken header; the reset is waited for all the same."""
    assert after_headers(0, 30.0, 0).wait(1, 0.0) == pytest.approx(30.0)


def test_a_rounding_error_is_no_shortage() -> None:
    """A millionth of what is asked for, and of one at least."""
    assert after_headers(1e6 - 0.5, 30.0, 2e6).wait(1e6, 0.0) == 0.0
    assert after_headers(1e6 - 2.0, 30.0, 2e6).wait(1e6, 0.0) > 0.0
    assert after_headers(1 - 0.5e-6, 30.0, 600).wait(1, 0.0) == 0.0
    assert after_headers(1 - 1.5e-6, 30.0, 600).wait(1, 0.0) > 0.0


def test_a_slow_continuous_refill_is_detected() -> None:
    """Thirty per minute: one is back after two seconds."""
    quota = HeaderQuota()
    quota.on_headers(30, 29, 2.0, 1, 0.0, 0.0)
    quota.on_headers(30, 0, 60.0, 1, 10.0, 10.0)
    assert quota.wait(1, 10.0) == pytest.approx(2.0)


def test_headers_after_the_reset_count_alone() -> None:
    """Where the reset ended all knowledge, the next reply starts from nothing."""
    quota = after_headers(0, 10.0, None)
    assert quota.wait(1, 10.0) == 0.0
    quota.on_headers(None, 1, 30.0, 1, 11.0, 11.0)
    assert repr(quota) == "HeaderQuota(1)"
    assert quota.wait(1, 11.0) == 0.0
