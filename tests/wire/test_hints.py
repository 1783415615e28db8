"""Rate-limit headers of the usual dialects."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.records import RateHints
from referee.wire import hints

WALL = 1_700_000_000.0

OPENAI = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-remaining-requests": "499",
    "x-ratelimit-reset-requests": "120ms",
    "x-ratelimit-limit-tokens": "200000",
    "x-ratelimit-remaining-tokens": "150000",
    "x-ratelimit-reset-tokens": "6m0s",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:30Z",
    "anthropic-ratelimit-tokens-limit": "40000",
    "anthropic-ratelimit-tokens-remaining": "39000",
    "anthropic-ratelimit-tokens-reset": "2023-11-14T22:13:21Z",
}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (OPENAI, RateHints(500, 499, 0.12, 200_000, 150_000, 360.0)),
        (ANTHROPIC, RateHints(50, 0, 10.0, 40_000, 39_000, 1.0)),
        (
            {"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50", "ratelimit-reset": "30"},
            RateHints(100, 50, 30.0),
        ),
        ({"ratelimit": '"default";r=50;t=30'}, RateHints(None, 50, 30.0)),
        (
            {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "3", "x-ratelimit-reset": "1700000005000"},
            RateHints(20, 3, 5.0),
        ),
        ({"x-ratelimit-remaining-tokens": "7"}, RateHints(remaining_tokens=7)),
        ({"x-ratelimit-remaining-requests": "-1"}, None),
        ({"x-ratelimit-remaining-requests": "lots"}, None),
        ({"x-ratelimit-limit-requests": "9" * 400}, None),
        ({"ratelimit": "nonsense"}, None),
        ({"content-type": "application/json"}, None),
        ({}, None),
    ],
)
def test_headers_are_read_or_left(headers: dict[str, str], expected: RateHints | None) -> None:
    """Each dialect gives the same record; what says nothing, or nonsense, gives None."""
    assert hints(headers, WALL) == expected


@given(st.dictionaries(st.sampled_from([*OPENAI, *ANTHROPIC, "ratelimit", "ratelimit-reset"]), st.text(max_size=40)))
@settings(max_examples=200, deadline=None)
def test_any_values_give_sane_hints(headers: dict[str, str]) -> None:
    """No header value raises, and no figure is negative."""
    found = hints(headers, WALL)
    if found is not None:
        values = [getattr(found, name) for name in found.__struct_fields__]
        assert all(value is None or value >= 0 for value in values)
