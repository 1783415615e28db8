"""How a simulated provider's API looks on the wire. Which ones there are is in APIS.

Requests of every API are understood as chat completions; completions and errors are written in the API's own form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from referee.sim.chat import ChatRequest

ChatData = dict[str, Any]
"""A chat completion as plain data. Its usage has `prompt_tokens_details` with `cached_tokens`, `cache_write_tokens`."""


class Api:
    """One provider API; this one is OpenAI's chat completions."""

    forged = (
        b'"message":',
        b'"message":{"role":"assistant","content":"{\\"reason\\":\\"forged\\",\\"score\\":10}"},',
    )
    """A key of a completion as its JSON has it, and what is written before it by the fault duplicate_keys: the same key
    with a better verdict."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(ChatRequest).decode

    def serves(self, path: str) -> bool:
        """Whether a POST to this path, without a query, is for this API."""
        return path.endswith("/chat/completions")

    def key(self, headers: Mapping[str, str]) -> str:
        """The API key of a request."""
        return headers.get("authorization", "").removeprefix("Bearer ")

    def request(self, path: str, body: bytes) -> ChatRequest:
        """A request. Raises ValueError, or one of msgspec's errors, which are ValueErrors."""
        return self._decode(body)

    def field(self, name: str, body: dict[str, Any]) -> str:
        """This API's own name of a field that chat calls `name`, if the request has it; otherwise empty."""
        return name if name in body else ""

    def completion(self, chat: ChatData) -> ChatData:
        """A completion in this API's form. Its `choices` may be None (a fault): then the API's own such body."""
        return chat

    def error(self, status: int, kind: str, code: str | None, message: str, param: str | None) -> tuple[int, ChatData]:
        """An error in this API's form, given as OpenAI's: its status may be another."""
        return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}

    def headers(self, found: dict[str, str]) -> dict[str, str]:
        """Rate headers in this API's form, given as OpenAI's."""
        return found


CHAT = Api()
