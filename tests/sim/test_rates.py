"""Windows and the headers that tell about them."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.sim.rates import Rates, Window, duration, retry_after
from referee.sim.spec import ProviderSpec


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 5)), max_size=60), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_no_window_gives_more_than_its_limit(steps: list[tuple[float, int]], limit: int) -> None:
    """However requests come, what is admitted within one window stays within the limit."""
    window = Window(limit * 6, 10.0)
    at, admitted = 0.0, dict[int, int]()
    for pause, amount in steps:
        at += pause
        if window.remaining(at) >= amount:
            window.take(at, amount)
            admitted[int(at // 10)] = admitted.get(int(at // 10), 0) + amount
    assert all(total <= limit for total in admitted.values())


def test_a_refused_request_is_told_when_the_window_ends() -> None:
    """The wait reaches exactly to the next window, and refusing costs nothing."""
    rates = Rates(ProviderSpec(rpm=2))
    assert [rates.admit(at, 10) for at in (0.0, 10.0, 45.0, 50.0, 60.0)] == [None, None, 15.0, 10.0, None]


def test_tokens_are_limited_too() -> None:
    """A request that does not fit the tokens left is refused without using up the requests."""
    rates = Rates(ProviderSpec(rpm=10, tpm=100))
    assert rates.admit(0.0, 80) is None
    assert rates.admit(1.0, 30) == 59.0
    assert rates.admit(1.0, 20) is None
    assert rates.headers(6.0) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "8",
        "x-ratelimit-reset-requests": "54s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "54s",
    }


def test_a_shorter_window_has_its_share() -> None:
    """600 a minute is 10 in a window of one second."""
    rates = Rates(ProviderSpec(rpm=600, window=1.0))
    assert [rates.admit(0.5, 0) for _ in range(11)] == [None] * 10 + [0.5]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.017, "17ms"), (8.64, "8.64s"), (60.0, "1m0s"), (372.5, "6m12.5s"), (3723.0, "1h2m3s")]
)
def test_durations_look_like_openai(seconds: float, shown: str) -> None:
    """Headers use the notation clients have to read in the wild."""
    assert duration(seconds) == shown


def test_retry_after_has_all_its_forms() -> None:
    """Each form says the same wait, rounded up where the form is coarse."""
    assert retry_after("seconds", 1.2, 0.0) == {"retry-after": "2"}
    assert retry_after("float", 1.2, 0.0) == {"retry-after": "1.200"}
    assert retry_after("ms", 1.2, 0.0) == {"retry-after-ms": "1200"}
    assert retry_after("none", 1.2, 0.0) == {}
    assert retry_after("junk", 1.2, 0.0)["retry-after"].isalpha()
    assert float(retry_after("negative", 1.2, 0.0)["retry-after"]) < 0
    assert float(retry_after("far", 1.2, 0.0)["retry-after"]) >= 1e9
    date = parsedate_to_datetime(retry_after("date", 1.2, 1_700_000_000.0)["retry-after"])
    assert date.timestamp() == 1_700_000_002
