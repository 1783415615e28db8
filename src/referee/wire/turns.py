"""An Ask's messages as APIs take them that keep the system prompt apart and want turns of user and model: texts and
images in order, one turn after the other.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from referee.config import EndpointConfig
from referee.errors import ConfigError
from referee.records import Ask, Message, Sampling
from referee.rollouts import Image
from referee.wire.dialect import PLAIN, Adaptation, json_text, pictures

SYSTEM = ("system", "developer")
MODEL = "assistant"

Piece = str | Image | None
"""A text; an image; None: here a part ends that other requests share."""

_encode = msgspec.json.Encoder().encode
_text = msgspec.json.Decoder(str).decode


class Turn(msgspec.Struct):
    """What one side says before the other does."""

    model: bool
    pieces: list[Piece]


class TurnEncoder(ABC):
    """Bodies of requests to one endpoint. What does not depend on the messages is encoded when it changes."""

    def __init__(self) -> None:
        self._made_of: tuple[object, ...] = ()
        self._head = b""

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body, see dialect.Encoder."""
        parts = (request.sampling, adaptation, max_tokens)
        if not self._made_of or not all(map(operator.is_, parts, self._made_of)):
            cap = request.sampling.max_tokens if max_tokens is None else max_tokens
            self._head = _encode(self.fixed(request.sampling, adaptation, cap))[:-1]
            self._made_of = parts
        try:
            said = _encode(self.said(request))
        except UnicodeEncodeError:
            whole = [replace(message, content=_text(json_text(message.content))) for message in request.messages]
            said = _encode(self.said(replace(request, messages=tuple(whole))))
        return b"%b,%b" % (self._head, said[1:])

    @abstractmethod
    def fixed(self, sampling: Sampling, adaptation: Adaptation, max_tokens: int) -> dict[str, Any]:
        """Fields that do not depend on the messages. At least one."""

    @abstractmethod
    def said(self, request: Ask) -> dict[str, Any]:
        """Fields that hold the messages."""


def divided(messages: Sequence[Message], cuts: Sequence[int] = ()) -> tuple[str, list[Turn]]:
    """The system prompt, and the turns. `cuts`: where in the last message's text shared parts end, in order."""
    told: list[str] = []
    turns: list[Turn] = []
    for number, message in enumerate(messages, 1):
        if message.role in SYSTEM:
            told.append(message.content)
            continue
        pieces = list(_pieces(message, cuts if number == len(messages) else ()))
        model = message.role == MODEL
        if turns and turns[-1].model == model:
            turns[-1].pieces += pieces
        else:
            turns.append(Turn(model, pieces))
    return "\n\n".join(told), turns


def _pieces(message: Message, cuts: Sequence[int]) -> Iterator[Piece]:
    for label, image in pictures(message):
        yield label
        yield image
    start = 0
    for cut in cuts:
        yield message.content[start:cut]
        yield None
        start = cut
    yield message.content[start:]


def checked_extra(endpoint: EndpointConfig, reserved: dict[str, str]) -> dict[str, Any]:
    """endpoint.extra; ConfigError if it has a field that a setting fills in. Names with a dot are one level down."""
    for path, setting in reserved.items():
        held: Any = endpoint.extra
        *tables, name = path.split(".")
        for table in tables:
            held = held.get(table, {})
            if not isinstance(held, dict):
                raise ConfigError(f"endpoint.extra: `{table}` must be a table.", setting="endpoint.extra")
        if name in held:
            problem = f"endpoint.extra: `{path}` is not for extra: {setting} says it."
            raise ConfigError(problem, setting="endpoint.extra")
    return endpoint.extra
