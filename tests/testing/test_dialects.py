"""What `check_dialect` finds in a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from referee.config import EndpointConfig, Secret
from referee.records import Action, Failure, Reason, Reply
from referee.testing import check_dialect
from referee.wire import CHAT, Chat


class Unversioned(Chat):
    name = "mine"


class Elsewhere(Chat):
    def url(self, endpoint: EndpointConfig) -> str:
        return "https://elsewhere.example/v1"


class Keyless(Chat):
    def headers(self, key: Secret | None) -> dict[str, str]:
        return super().headers(None)


class Trusting(Chat):
    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        return Reply(text=body.decode("utf-8", "replace"))


class Hasty(Chat):
    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        return Failure(reason=Reason.OVERLOADED, action=Action.RETRY)


class Forgetful(Chat):
    """Its encoder keeps what the first request asked for."""

    def encoder(self, endpoint: EndpointConfig) -> Any:
        inner, first = super().encoder(endpoint), []

        class Encoder:
            def encode(self, request: Any, adaptation: Any = frozenset(), max_tokens: int | None = None) -> bytes:
                first.append(inner.encode(request, adaptation, max_tokens))
                return first[0]

        return Encoder()


def test_chat_completions_pass() -> None:
    """The shipped dialect keeps to what is asked of others."""
    check_dialect(CHAT)


@pytest.mark.parametrize(
    ("dialect", "says"),
    [
        (Unversioned(), "must end in a version"),
        (Elsewhere(), "is not on the host of"),
        (Keyless(), "does not hold the key"),
        (Trusting(), "was read as a Reply"),
        (Hasty(), "must be close"),
        (Forgetful(), "encoding twice gives two bodies"),
    ],
)
def test_a_fault_is_named(dialect: Chat, says: str) -> None:
    """In the words of what is wrong."""
    with pytest.raises(AssertionError, match=says):
        check_dialect(dialect)
