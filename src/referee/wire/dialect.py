"""What one provider API is to the engine: `Dialect`. Which ones there are is in `registry`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

import msgspec

from referee.config import EndpointConfig, Secret
from referee.records import Ask, Failure, Message, RateHints, Reply
from referee.rollouts import Image, read_image
from referee.version import VERSION
from referee.wire.hints import hints

Adaptation = frozenset[str]
"""What a server turned out not to take, by the names of `Failure.unsupported`."""

PLAIN: Adaptation = frozenset()

SCHEMA = "response_format"
"""The name of a refused JSON schema in every dialect. It is not left out: the judge asks in text form instead."""


TIER = "tier"
"""The name of endpoint.tier in an adaptation. Leaving it out costs more: the engine does so only with
endpoint.tier_fallback."""

_encode = msgspec.json.Encoder().encode


class Encoder(Protocol):
    """Request bodies for one endpoint."""

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body. `max_tokens` replaces the judge's own cap, for a second try after a truncated reply."""
        ...


@runtime_checkable
class Dialect(Protocol):
    """One provider API. Pure: no network, no clock, no state between calls but what an encoder remembers.

    Subclass it: `name`, `url`, `encoder` and `read` are needed, the rest has defaults.
    """

    name: str
    """Names the wire format in cache keys, with a version: change it when the model gets to see something else."""
    can_omit: frozenset[str] = frozenset()
    """What an encoder can leave out, or write another way, when a server does not take it, by the names of
    `Failure.unsupported`: temperature, response_format, logprobs, max_tokens, or a name of its own."""
    first_without: Mapping[str, str] = MappingProxyType({})
    """By a name in can_omit, another one: what is tried first when that is refused, as another way to say the same."""

    takes_images: bool = False
    """Whether its encoders send what `Message.media` holds, all of which are then images; `pictures` reads them."""

    @abstractmethod
    def url(self, endpoint: EndpointConfig) -> str:
        """Where requests go: endpoint.url, completed. The host must stay: the key is bound to it."""

    def headers(self, key: Secret | None) -> dict[str, str]:
        """Headers of every request. With a key this dict is a secret: it goes to the transport and nowhere else."""
        found = common_headers()
        if key is not None:
            found["authorization"] = f"Bearer {key.reveal().strip()}"
        return found

    @abstractmethod
    def encoder(self, endpoint: EndpointConfig) -> Encoder:
        """The encoder for an endpoint. Raises ConfigError if endpoint.extra has a field that a setting fills in."""

    @abstractmethod
    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """What an answer is: a Reply, also a cut, refused or empty one, or a Failure. Never raises. Header names are
        lower case; `wall` is the time the answer came, for dates in headers."""

    def hints(self, headers: Mapping[str, str], wall: float) -> RateHints | None:
        """What the server says of its rate limits; None: nothing."""
        return hints(headers, wall)


def common_headers() -> dict[str, str]:
    """Headers of a JSON request, without a key."""
    return {
        "content-type": "application/json",
        "accept": "application/json",
        # A compressed body could unpack to any size behind the byte cap.
        "accept-encoding": "identity",
        "user-agent": f"referee/{VERSION}",
    }


def complete_url(url: str, tail: str, base: str = "/v1") -> str:
    """A URL that ends in `tail`, from itself, from the base of an API (…/v1), or from a bare host."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith(tail):
        path = (path or base) + tail
    return parts._replace(path=path, fragment="").geturl()


def pictures(message: Message) -> list[tuple[str, Image]]:
    """The images of a message, each with the label that stands before it. The text, which names them, comes after."""
    found = [read_image(media) for media in message.media]
    return [(f"[{image.name}]:", image) for image in found if image is not None]


def json_text(text: str) -> bytes:
    """A JSON string. JSON cannot carry half of a surrogate pair, left by a tokenizer that cut a character in two."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def json_bytes(data: Any) -> bytes:
    """JSON. Half of a surrogate pair is escaped: it cannot stand there otherwise."""
    try:
        return _encode(data)
    except UnicodeEncodeError:
        return json.dumps(data).encode()


def adapt(dialect: Dialect, adaptation: Adaptation, unsupported: str) -> Adaptation | None:
    """What to try after `Failure.unsupported`, or None: nothing that could be left out would help."""
    first = dialect.first_without.get(unsupported, unsupported)
    step = unsupported if first in adaptation else first
    if step in adaptation or step not in dialect.can_omit:
        return None
    return adaptation | {step}
