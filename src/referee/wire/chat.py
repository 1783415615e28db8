"""The dialect `chat`: OpenAI's chat completions, which most servers speak. A completion's own fields are read in
`chat_reply`, errors in `failure`."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import msgspec

from referee.config import EndpointConfig
from referee.records import Action, Ask, Failure, Message, Reason, Reply
from referee.wire import chat_reply
from referee.wire.dialect import PLAIN, SCHEMA, TIER, Adaptation, Dialect, complete_url, json_text, pictures
from referee.wire.failure import inner_failure, odd_answer, open_answer, request_id

_COMPLETIONS = "/chat/completions"
_encode = msgspec.json.Encoder().encode


def chat_url(url: str) -> str:
    """The chat-completions URL, from itself, from its base (…/v1), or from a bare host."""
    return complete_url(url, _COMPLETIONS)


class ChatEncoder:
    """Chat-completion bodies. All but the last message is the same from one request to the next, and is encoded when it
    changes."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        self._endpoint = endpoint
        self._made_of: tuple[object, ...] = ()
        self._head = b""

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body, see dialect.Encoder."""
        *first, last = request.messages
        parts = (request.sampling, adaptation, max_tokens, last.role, *first)
        made_of = self._made_of
        if len(parts) != len(made_of) or not all(map(operator.is_, parts, made_of)):
            self._frame(request, adaptation, max_tokens)
            self._made_of = parts
        return b"%b%b}]}" % (self._head, _content(last))

    def _frame(self, request: Ask, adaptation: Adaptation, max_tokens: int | None) -> None:
        """Encode everything before the last message's text."""
        sampling, endpoint = request.sampling, self._endpoint
        body: dict[str, Any] = {"model": endpoint.model}
        cap = "max_completion_tokens" if "max_tokens" in adaptation else "max_tokens"
        body[cap] = sampling.max_tokens if max_tokens is None else max_tokens
        if sampling.temperature is not None and "temperature" not in adaptation:
            body["temperature"] = sampling.temperature
        if sampling.schema is not None and SCHEMA not in adaptation:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": sampling.schema_name, "strict": True, "schema": sampling.schema},
            }
        if sampling.top_logprobs and "logprobs" not in adaptation:
            body["logprobs"] = True
            body["top_logprobs"] = sampling.top_logprobs
        if endpoint.tier and TIER not in adaptation:
            body["service_tier"] = endpoint.tier
        body.update(endpoint.extra)
        *first, last = request.messages
        before = b"".join(b'{"role":%b,"content":%b},' % (json_text(m.role), _content(m)) for m in first)
        self._head = b'%b,"messages":[%b{"role":%b,"content":' % (_encode(body)[:-1], before, json_text(last.role))


def _content(message: Message) -> bytes:
    """The text, or images and then the text."""
    if not message.media:
        return json_text(message.content)
    parts = b"".join(
        b'{"type":"text","text":%b},{"type":"image_url","image_url":{"url":%b}},'
        % (json_text(label), json_text(image.source))
        for label, image in pictures(message)
    )
    return b'[%b{"type":"text","text":%b}]' % (parts, json_text(message.content))


def _error_inside(data: Any) -> Any | None:
    """The first choice with an error in it, where some gateways put it."""
    choices = data.get("choices") if isinstance(data, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) and first.get("error") else None


class Chat(Dialect):
    """OpenAI chat completions."""

    name = "openai-chat/1"
    can_omit = frozenset({"temperature", SCHEMA, "logprobs", "max_tokens", TIER})
    """max_tokens is not left out but sent as max_completion_tokens."""
    takes_images = True

    def url(self, endpoint: EndpointConfig) -> str:
        """endpoint.url may be the whole URL, its base (…/v1) or a bare host."""
        return chat_url(endpoint.url)

    def encoder(self, endpoint: EndpointConfig) -> ChatEncoder:
        """See dialect.Dialect."""
        return ChatEncoder(endpoint)

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """See dialect.Dialect."""
        data = chat_reply.decoded(body) if 200 <= status < 300 else None
        if data is None:
            data = open_answer(status, headers, body, wall)
            if isinstance(data, Failure):
                return data
            error = _error_inside(data)
            if error is not None:
                return inner_failure(headers, error, wall)
            if not isinstance(data, dict) or "choices" not in data:
                what = "JSON but no chat completion; is endpoint.url a chat-completions URL?"
                return odd_answer(status, headers, what)
        what = "a completion without a message in choices"
        found = chat_reply.read(data, request_id(headers))
        return found or odd_answer(status, headers, what, Reason.EMPTY, Action.ASK_AGAIN)


CHAT = Chat()
