"""Whether one request is tried again. Plain decisions: no clock, no waiting, no endpoint is touched here."""

from __future__ import annotations

from referee.records import Action, Failure, Reason, Unscored

UNREAD = frozenset({Reason.EMPTY, Reason.NO_VERDICT, Reason.AMBIGUOUS, Reason.OUT_OF_RANGE, Reason.SCHEMA})
"""Reasons that are worth a new attempt: the model may do better."""
MAX_FAULTS = 5
"""Failed attempts of one request while its endpoint served others: then the request itself is at fault."""


class RetryState:
    """The attempts of one request so far, and whether another is allowed."""

    __slots__ = ("_ask_again", "_failed_at", "_own_faults", "_patience", "doubtful", "failures", "longer")

    def __init__(self, ask_again: int, patience: float) -> None:
        """`patience`: seconds after which one failure while the endpoint served others is enough to give up."""
        self._ask_again = ask_again
        self._patience = patience
        self._failed_at = float("inf")
        self._own_faults = 0
        self.doubtful = False
        """It has failed for longer than `patience`, and nothing shows whether the request or the endpoint is at fault:
        a request that was answered before would tell."""
        self.failures = 0
        """Attempts without a reply, for the length of the next wait."""
        self.longer = False
        """Ask with twice the token limit: the reply was cut short."""

    def after_unread(self, verdict: Unscored, others: bool) -> bool:
        """True: a reply came without a verdict, and another attempt is worth it. `others`: another endpoint is left."""
        if verdict.reason is Reason.REFUSED:
            return others
        if verdict.reason is Reason.TRUNCATED:
            again = not self.longer and self._ask_again > 0
            self.longer = True
            return again
        self._ask_again -= 1
        return verdict.reason in UNREAD and self._ask_again >= 0

    def after_failure(self, failure: Failure, served: float, now: float, sent_first: float) -> bool:
        """True: no reply came, and another attempt may bring one.

        Throttling and outages are waited out, by deadline. But a request that fails again and again while its
        endpoint answers others is at fault itself: `served` is when the latest request that was answered there was
        sent, and a failure counts if that was after the failure before it.
        """
        self.failures += 1
        if failure.action is Action.GIVE_UP:
            return False
        if failure.action is Action.ASK_AGAIN:
            self._ask_again -= 1
            return self._ask_again >= 0
        self.doubtful = False
        if failure.action in (Action.BACK_OFF, Action.RETRY):
            own = served > self._failed_at
            late = now - sent_first >= self._patience
            self._own_faults += own
            self._failed_at = now
            self.doubtful = late and not own
            return self._own_faults < MAX_FAULTS and not (late and own)
        return True  # throttled, or closed: elsewhere, and if there is no other endpoint, admission says so

    def given_up(self, failure: Failure, attempts: int, endpoint: str) -> Unscored:
        """What to say of a request that is not tried again."""
        detail = failure.detail
        if failure.action in (Action.BACK_OFF, Action.RETRY):
            detail += f" ({attempts} attempts failed while {endpoint} answered other requests)"
        return Unscored(reason=failure.reason, detail=detail)
