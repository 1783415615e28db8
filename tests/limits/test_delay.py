"""How long one request stays away after a failed attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.limits import retry_delay
from referee.limits.delay import MAX_DELAY_S, OVERLOAD_BASE_S, TRANSIENT_BASE_S
from referee.records import Action, Failure, Reason


def failed(action: Action) -> Failure:
    return Failure(reason=Reason.CONNECTION, action=action)


@pytest.mark.parametrize(
    ("action", "base"),
    [
        (Action.PARK, OVERLOAD_BASE_S),
        (Action.BACK_OFF, OVERLOAD_BASE_S),
        (Action.RETRY, TRANSIENT_BASE_S),
        (Action.ASK_AGAIN, TRANSIENT_BASE_S),
        (Action.CLOSE, TRANSIENT_BASE_S),
    ],
)
def test_first_wait_depends_on_what_happened(action: Action, base: float) -> None:
    """Up to a second after "too many", a tenth after a glitch."""
    assert retry_delay(failed(action), 1, 0.999999) == pytest.approx(base, rel=1e-3)


def test_waits_double() -> None:
    """Each further failure in a row doubles the span."""
    spans = [retry_delay(failed(Action.PARK), faults, 0.5) for faults in (1, 2, 3, 4)]
    assert spans == [0.5, 1.0, 2.0, 4.0]


def test_jitter_is_full() -> None:
    """The wait is spread over the whole span, so that those refused together do not come back together."""
    assert retry_delay(failed(Action.PARK), 3, 0.0) == 0.0


@given(st.sampled_from(list(Action)), st.integers(0, 10_000), st.floats(0.0, 1.0, exclude_max=True))
def test_never_negative_never_beyond_the_cap(action: Action, faults: int, chance: float) -> None:
    """However often it failed, the wait is between nothing and the cap."""
    assert 0.0 <= retry_delay(failed(action), faults, chance) <= MAX_DELAY_S
