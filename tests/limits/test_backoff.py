"""Back-off of one request after a failed attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.limits import retry_delay
from referee.limits.backoff import MAX_DELAY_S, OVERLOAD_BASE_S, TRANSIENT_BASE_S
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
def test_every_delay_doubles_from_its_base_to_the_maximum(action: Action, base: float) -> None:
    """A second after a refusal or an overload, a tenth after a broken connection or reply."""
    delays = [retry_delay(failed(action), faults, 1.0) for faults in (0, 1, 2, 3, 50)]
    assert delays == pytest.approx([base, base, 2 * base, 4 * base, MAX_DELAY_S])


def test_jitter_is_full() -> None:
    """Requests refused together do not come back together."""
    assert retry_delay(failed(Action.PARK), 3, 0.0) == 0.0


@given(st.sampled_from(list(Action)), st.integers(0, 10_000), st.floats(0.0, 1.0, exclude_max=True))
def test_never_negative_never_above_the_maximum(action: Action, faults: int, chance: float) -> None:
    """However often it failed."""
    assert 0.0 <= retry_delay(failed(action), faults, chance) <= MAX_DELAY_S


def test_a_fast_server_is_not_waited_for_as_long_as_a_slow_one() -> None:
    """After a refusal the base is its usual latency, even after many refusals."""
    assert retry_delay(failed(Action.PARK), 1, 1.0, latency=0.001) == pytest.approx(0.001)
    assert retry_delay(failed(Action.PARK), 50, 1.0, latency=0.001) < MAX_DELAY_S / 10
