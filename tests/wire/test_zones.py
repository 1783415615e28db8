"""Dates with a zone, durations of several pieces, and moments just at hand."""

from __future__ import annotations

import pytest

from referee.wire.times import date, duration, retry_after

WALL = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    "text",
    [
        "Tue, 14 Nov 2023 22:13:20 GMT",
        "Tue, 14 Nov 2023 23:13:20 +0100",
        "Tue, 14 Nov 2023 17:13:20 -0500",
        "Tue, 14 Nov 2023 22:13:20",
        "2023-11-14T23:13:20+01:00",
    ],
)
def test_zones_are_counted(text: str) -> None:
    """The same moment, wherever it was written."""
    assert date(text) == WALL


@pytest.mark.parametrize(("text", "seconds"), [("1s500ms", 1.5), ("2m250ms", 120.25), ("1d1h1m1s", 90061.0)])
def test_pieces_add_up(text: str, seconds: float) -> None:
    """Each in its own unit."""
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("second", "seconds"), [(19, None), (20, None), (21, 1.0), (22, 2.0)])
def test_a_date_of_now_says_nothing(second: int, seconds: float | None) -> None:
    """One second ahead is a wish; now and before is not."""
    assert retry_after({"retry-after": f"Tue, 14 Nov 2023 22:13:{second} GMT"}, WALL) == seconds
