"""How long one request stays away after a failed attempt. Full jitter; the chance in [0, 1) is an argument."""

from __future__ import annotations

from referee.records import Action, Failure

THROTTLED, GLITCH = 1.0, 0.1
"""Seconds of the first wait at most: after "too many" or "not now", and after a broken connection or reply."""
CAP = 20.0


def retry_delay(failure: Failure, faults: int, chance: float, latency: float = THROTTLED) -> float:
    """Seconds to wait before asking again, after so many failures in a row.

    A server's Retry-After is obeyed by the whole endpoint, not by this one request, so it is not counted here. A
    throttled request goes back to the queue, where the shrunken limit holds it; `latency`, what an answer usually
    takes there, is when a place may be free again, so a fast server is not waited for as long as a slow one.
    """
    if failure.action is Action.PARK:
        return chance * min(CAP, min(THROTTLED, latency) * 2.0 ** min(10, max(0, faults - 1)))
    base = GLITCH if failure.action in (Action.RETRY, Action.ASK_AGAIN, Action.CLOSE) else THROTTLED
    return chance * min(CAP, base * 2.0 ** min(10, max(0, faults - 1)))
