"""Requests to simulate with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "integer", "minimum": 1, "maximum": 10}},
}
MakeBody = Callable[..., bytes]


@pytest.fixture
def body() -> MakeBody:
    """A function that makes the body of a chat request that asks for a score by schema; keywords change fields."""

    def make(text: str = "Two plus two is four.", **more: Any) -> bytes:
        messages = [{"role": "system", "content": "Grade from 1 to 10."}, {"role": "user", "content": text}]
        form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": SCHEMA}}
        return msgspec.json.encode({"model": "m", "messages": messages, "response_format": form, **more})

    return make
