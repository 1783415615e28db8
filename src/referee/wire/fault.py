"""Transport faults as Failures: what it means that no complete answer came."""

from __future__ import annotations

from referee.records import Action, Failure, Reason
from referee.wire.scrub import scrub

_MEANING: dict[str, tuple[Reason, Action, str]] = {
    "timeout": (Reason.TIMEOUT, Action.BACK_OFF, "no whole answer within limits.attempt_timeout"),
    "connect": (Reason.CONNECTION, Action.BACK_OFF, "cannot connect to endpoint.url"),
    "dns": (Reason.CONNECTION, Action.BACK_OFF, "cannot resolve the host of endpoint.url"),
    "tls": (Reason.CONFIG, Action.CLOSE, "TLS failed, so endpoint.url or this machine's certificates are wrong"),
    "proxy": (Reason.CONFIG, Action.CLOSE, "the proxy refused us, so endpoint.proxy is wrong"),
    "reset": (Reason.CONNECTION, Action.RETRY, "the connection was reset"),
    "cut": (Reason.CONNECTION, Action.RETRY, "the answer was cut short"),
    "protocol": (Reason.CONNECTION, Action.RETRY, "the answer was not HTTP"),
    "repeated": (Reason.CONNECTION, Action.RETRY, "the server answered with an earlier answer"),
    "too_large": (Reason.TOO_LARGE, Action.ASK_AGAIN, "the answer passed the byte cap"),
}


def from_fault(kind: str, detail: str = "") -> Failure:
    """The Failure for one of the transport port's fault kinds. An unknown kind is retried as a connection error."""
    reason, action, meaning = _MEANING.get(kind, (Reason.CONNECTION, Action.RETRY, "the call failed"))
    said = scrub(detail)
    return Failure(reason=reason, action=action, code=kind, detail=f"{meaning} ({said})" if said else meaning)
