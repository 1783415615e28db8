"""Back-off of one request after a failed attempt: exponential with full jitter. Chance in [0, 1) is an argument."""

from __future__ import annotations

from referee.records import Action, Failure

OVERLOAD_BASE_S, TRANSIENT_BASE_S = 1.0, 0.1
"""Longest first delay: after a refusal or an overload, and after a broken connection or reply."""
MAX_DELAY_S = 20.0


def retry_delay(failure: Failure, faults: int, chance: float, latency: float = OVERLOAD_BASE_S) -> float:
    """Seconds to wait before the next attempt, after that many failures in a row.

    Retry-After pauses the whole endpoint, not this request, so it does not count here. A throttled request goes back to
    the queue, where the lower limit holds it; `latency`, the usual one there, is when a slot may be free again, so a
    fast server is not waited for as long as a slow one.
    """
    if failure.action is Action.PARK:
        base = min(OVERLOAD_BASE_S, latency)
    elif failure.action in (Action.RETRY, Action.ASK_AGAIN, Action.CLOSE):
        base = TRANSIENT_BASE_S
    else:
        base = OVERLOAD_BASE_S
    return chance * min(MAX_DELAY_S, base * 2.0 ** min(10, max(0, faults - 1)))
