"""A Ask as an OpenAI chat-completions request: URL, headers, body. Nothing here reads a reply."""

from __future__ import annotations

import operator
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee.config import EndpointConfig, Secret
from referee.records import Ask
from referee.version import VERSION

DIALECT = "openai-chat/1"
"""Names the wire format in cache keys. Change it when `encode` changes what a model gets to see."""


_COMPLETIONS = "/chat/completions"
_encode = msgspec.json.Encoder().encode


class Adaptation(Struct, frozen=True):
    """What an endpoint turned out not to take. Learned from its complaints, one at a time."""

    no_temperature: bool = False
    no_schema: bool = False
    no_logprobs: bool = False
    completion_tokens_name: bool = False
    """Send `max_completion_tokens` in place of `max_tokens`."""


PLAIN = Adaptation()

_STEPS: dict[str, str] = {
    "temperature": "no_temperature",
    "response_format": "no_schema",
    "logprobs": "no_logprobs",
    "max_tokens": "completion_tokens_name",
}


def adapt(adaptation: Adaptation, unsupported: str) -> Adaptation | None:
    """The next thing to try after `Failure.unsupported`, or None: nothing of ours can be left out to help."""
    step = _STEPS.get(unsupported)
    if step is None or getattr(adaptation, step):
        return None
    return replace(adaptation, **{step: True})


def chat_url(url: str) -> str:
    """The chat-completions URL, from itself, from its base (…/v1), or from a bare host."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith(_COMPLETIONS):
        path = (path or "/v1") + _COMPLETIONS
    return parts._replace(path=path, fragment="").geturl()


def headers(key: Secret | None) -> dict[str, str]:
    """Headers of every request. With a key this dict is a secret: it goes to the transport and nowhere else."""
    found = {
        "content-type": "application/json",
        "accept": "application/json",
        # A compressed body could unpack to any size behind the byte cap.
        "accept-encoding": "identity",
        "user-agent": f"referee/{VERSION}",
    }
    if key is not None:
        found["authorization"] = f"Bearer {key.reveal().strip()}"
    return found


class Encoder:
    """Request bodies for one endpoint. All but the last message is the same from one request to the next, and is
    encoded when it changes."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        self._endpoint = endpoint
        self._made_of: tuple[object, ...] = ()
        self._head = b""

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body. `max_tokens` replaces the judge's own cap, for a second try after a truncated reply."""
        *first, last = request.messages
        parts = (request.sampling, adaptation, max_tokens, last.role, *first)
        made_of = self._made_of
        if len(parts) != len(made_of) or not all(map(operator.is_, parts, made_of)):
            self._frame(request, adaptation, max_tokens)
            self._made_of = parts
        return b"%b%b}]}" % (self._head, _text(last.content))

    def _frame(self, request: Ask, adaptation: Adaptation, max_tokens: int | None) -> None:
        """What stands before the last message's text."""
        sampling, endpoint = request.sampling, self._endpoint
        body: dict[str, Any] = {"model": endpoint.model}
        cap = "max_completion_tokens" if adaptation.completion_tokens_name else "max_tokens"
        body[cap] = sampling.max_tokens if max_tokens is None else max_tokens
        if sampling.temperature is not None and not adaptation.no_temperature:
            body["temperature"] = sampling.temperature
        if sampling.schema is not None and not adaptation.no_schema:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": sampling.schema_name, "strict": True, "schema": sampling.schema},
            }
        if sampling.top_logprobs and not adaptation.no_logprobs:
            body["logprobs"] = True
            body["top_logprobs"] = sampling.top_logprobs
        body.update(endpoint.extra)
        *first, last = request.messages
        before = b"".join(b'{"role":%b,"content":%b},' % (_text(m.role), _text(m.content)) for m in first)
        self._head = b'%b,"messages":[%b{"role":%b,"content":' % (_encode(body)[:-1], before, _text(last.role))


def encode(
    endpoint: EndpointConfig, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None
) -> bytes:
    """One request body, see Encoder."""
    return Encoder(endpoint).encode(request, adaptation, max_tokens)


def _text(text: str) -> bytes:
    """A JSON string. Half of a surrogate pair, from a tokenizer that cut a character in two, no JSON can carry."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(_whole(text))


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
