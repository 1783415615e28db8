"""Transport faults and what they mean."""

from __future__ import annotations

from typing import get_args

import pytest

from referee.engine.port import FaultKind
from referee.records import Action, Reason
from referee.wire import from_fault

EXPECTED = {
    "timeout": (Reason.TIMEOUT, Action.BACK_OFF),
    "connect": (Reason.CONNECTION, Action.BACK_OFF),
    "dns": (Reason.CONNECTION, Action.BACK_OFF),
    "tls": (Reason.CONFIG, Action.CLOSE),
    "proxy": (Reason.CONFIG, Action.CLOSE),
    "reset": (Reason.CONNECTION, Action.RETRY),
    "cut": (Reason.CONNECTION, Action.RETRY),
    "protocol": (Reason.CONNECTION, Action.RETRY),
    "repeated": (Reason.CONNECTION, Action.RETRY),
    "too_large": (Reason.TOO_LARGE, Action.ASK_AGAIN),
}


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_every_kind_of_fault_has_a_meaning(kind: str) -> None:
    """All kinds the transport knows are mapped, and the detail is kept."""
    failure = from_fault(kind, "host unreachable")
    assert (failure.reason, failure.action) == EXPECTED[kind]
    assert failure.code == kind
    assert "host unreachable" in failure.detail


def test_an_unknown_fault_is_a_glitch() -> None:
    """A new kind of fault never closes an endpoint by surprise."""
    assert from_fault("gremlins").action is Action.RETRY


def test_a_key_in_a_fault_does_not_show() -> None:
    """Exception texts of HTTP clients may hold URLs and headers."""
    assert "canary" not in from_fault("connect", "https://u:canary@host refused, Bearer canary").detail
