"""How servers write delays and moments."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.wire.times import MAX_DELAY, date, duration, retry_after, spoken_delay, until

WALL = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "2s"}, 2.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tuesday, 14-Nov-23 22:13:50 GMT"}, 30.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "1e9"}, MAX_DELAY),
        ({"retry-after": "1e308"}, MAX_DELAY),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, MAX_DELAY),
        ({"retry-after-ms": "99999999999"}, MAX_DELAY),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:00 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1_000"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "a while"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_every_form_of_retry_after(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, fractions, dates and milliseconds are understood; junk and the past say nothing; the rest is capped."""
    assert retry_after(headers, WALL) == expected


def test_a_date_counts_from_the_servers_own_clock() -> None:
    """A clock that is hours off does not stretch a half-minute pause."""
    headers = {"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT", "date": "Tue, 14 Nov 2023 22:13:20 GMT"}
    assert retry_after(headers, WALL - 9000) == 30.0
    assert retry_after(headers, WALL + 9000) == 30.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("120ms", 0.12),
        ("1h2m3.5s", 3723.5),
        ("1d", 86400.0),
        ("34.07s", 34.07),
        ("1.5", 1.5),
        ("12 s", 12.0),
        ("", None),
        ("s", None),
        ("1x", None),
        ("-1s", None),
        ("1s later", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    """The forms rate-limit headers use, and nothing else."""
    assert duration(text) == (pytest.approx(expected) if expected is not None else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30.0),
        ("1700000030", 30.0),
        ("1700000030000", 30.0),
        ("1699999990", 0.0),
        ("2023-11-14T22:13:50Z", 30.0),
        ("2023-11-14T22:13:50", 30.0),
        ("2023-11-14T23:13:50+01:00", 30.0),
        ("2023-11-14T22:00:00Z", 0.0),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_resets_in_any_form(text: str, expected: float | None) -> None:
    """Seconds from now, an epoch, or a date: always seconds from now, never negative."""
    assert until(text, WALL) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Rate limit reached. Please try again in 1.2s. Visit https://x", 1.2),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 6m0s.", 360.0),
        ("You exceeded your current quota. Please retry in 34.074824224s.", 34.074824224),
        ("try again in 20 s", 20.0),
        ("Please retry after 59 seconds.", 59.0),
        ("try again in 99999999s", MAX_DELAY),
        ("try again in a while", None),
        ("no delay at all", None),
    ],
)
def test_backoffs_in_words(message: str, expected: float | None) -> None:
    """Where only the sentence names the delay, the sentence is read."""
    assert spoken_delay(message) == (pytest.approx(expected) if expected is not None else None)


@given(st.text(max_size=60), st.floats(0, 4e9))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_a_sane_delay_or_none(text: str, wall: float) -> None:
    """No header can raise, freeze an endpoint for a day, or turn time back."""
    found = retry_after({"retry-after": text, "retry-after-ms": text, "date": text}, wall)
    assert found is None or 0 <= found <= MAX_DELAY
    later = until(text, wall)
    assert later is None or later >= 0
    assert date(text) is None or isinstance(date(text), float)
    spoken = spoken_delay(f"try again in {text}")
    assert spoken is None or 0 <= spoken <= MAX_DELAY
