"""The dialect `responses`: OpenAI's Responses API, also of Azure, OpenRouter, vLLM and others. Errors are read in
`failure`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from referee.config import EndpointConfig
from referee.records import Action, Ask, Failure, Message, Reason, Reply, TokenChoice
from referee.wire import loose
from referee.wire.chat import ChatEncoder
from referee.wire.dialect import SCHEMA, TIER, Adaptation, Dialect, complete_url, json_text, pictures
from referee.wire.error_body import holds_error
from referee.wire.failure import failure, inner_failure, request_id, unreadable
from referee.wire.json_body import load_json
from referee.wire.turns import checked_extra

LEAST_TOKENS = 16
"""The API refuses a smaller cap."""

LOGPROBS = "message.output_text.logprobs"

_ONCE = ("output", "content", "text", "refusal", "status", "type", "phase", "error", "incomplete_details")
_FAILED = {"error": {"code": "server_error", "message": "the response failed, and no error says why"}}
_RESERVED = {
    "input": "judge.prompt_file",
    "instructions": "judge.prompt_file",
    "max_output_tokens": "judge.max_tokens",
    "text.format": "judge.reply",
    "include": "judge.kind",
}
_encode = msgspec.json.Encoder().encode


class ResponsesEncoder(ChatEncoder):
    """Bodies of requests, put together as those of chat completions are."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        super().__init__(endpoint)
        checked_extra(endpoint, _RESERVED)

    def _frame(self, request: Ask, adaptation: Adaptation, max_tokens: int | None) -> None:
        """Encode everything before the last message's text."""
        sampling, endpoint = request.sampling, self._endpoint
        body: dict[str, Any] = {"model": endpoint.model}
        body["max_output_tokens"] = max(LEAST_TOKENS, sampling.max_tokens if max_tokens is None else max_tokens)
        if sampling.temperature is not None and "temperature" not in adaptation:
            body["temperature"] = sampling.temperature
        if sampling.schema is not None and SCHEMA not in adaptation:
            form = {"type": "json_schema", "name": sampling.schema_name, "strict": True, "schema": sampling.schema}
            body["text"] = {**endpoint.extra.get("text", {}), "format": form}
        if sampling.top_logprobs and "logprobs" not in adaptation:
            body["include"] = [LOGPROBS]
            body["top_logprobs"] = sampling.top_logprobs
        if endpoint.tier and TIER not in adaptation:
            body["service_tier"] = endpoint.tier
        body["store"] = False  # the default keeps prompt and reply at the provider for 30 days
        body = {**body, **endpoint.extra, **({"text": body["text"]} if "text" in body else {})}
        *first, last = request.messages
        told = b""
        if first and first[0].role == "system":
            told = b'"instructions":%b,' % json_text(first.pop(0).content)
        before = b"".join(map(_item, first))
        self._head = b'%b,%b"input":[%b{"role":%b,"content":' % (
            _encode(body)[:-1],
            told,
            before,
            json_text(last.role),
        )

    def content(self, message: Message) -> bytes:
        """The text, or images and then the text."""
        return _content(message)


def _content(message: Message) -> bytes:
    """The text, or images and then the text."""
    if not message.media:
        return json_text(message.content)
    parts = b"".join(
        b'{"type":"input_text","text":%b},{"type":"input_image","image_url":%b,"detail":"auto"},'
        % (json_text(label), json_text(image.source))
        for label, image in pictures(message)
    )
    return b'[%b{"type":"input_text","text":%b}]' % (parts, json_text(message.content))


def _item(message: Message) -> bytes:
    return b'{"role":%b,"content":%b},' % (json_text(message.role), _content(message))


class Responses(Dialect):
    """OpenAI's Responses API."""

    name = "openai-responses/1"
    can_omit = frozenset({"temperature", SCHEMA, "logprobs", TIER})
    takes_images = True

    def url(self, endpoint: EndpointConfig) -> str:
        """endpoint.url may be the whole URL, its base (…/v1), a bare host, or that of the same server's chat
        completions."""
        return complete_url(endpoint.url.rstrip("/").removesuffix("/chat/completions"), "/responses")

    def encoder(self, endpoint: EndpointConfig) -> ResponsesEncoder:
        """See dialect.Dialect."""
        return ResponsesEncoder(endpoint)

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """See dialect.Dialect."""
        if not 200 <= status < 300:
            return failure(status, headers, body, wall)
        try:
            data = load_json(body, _ONCE)
        except ValueError as error:
            return unreadable(status, headers, body, error)
        if holds_error(data):
            return inner_failure(headers, data, wall)
        if not isinstance(data, dict) or "output" not in data:
            return Failure(
                reason=Reason.CONNECTION,
                action=Action.RETRY,
                detail=f"{status}, JSON but no response; is endpoint.url one of the Responses API?",
                status=status,
                request_id=request_id(headers),
            )
        if data.get("status") == "failed":
            return inner_failure(headers, _FAILED, wall)
        return _reply(data, request_id(headers))


def _reply(data: dict[str, Any], given_id: str) -> Reply:
    """What the model said: the text of its messages, without reasoning, tool calls and commentary on the way."""
    texts: list[str] = []
    refusals: list[str] = []
    tokens: list[tuple[TokenChoice, ...]] = []
    for item in loose.tables(data.get("output")):
        if item.get("type", "message") != "message" or item.get("phase") == "commentary":
            continue
        for part in loose.tables(item.get("content")):
            if part.get("type") == "refusal":
                refusals.append(loose.text(part.get("refusal")))
            elif part.get("type") in ("output_text", "text"):
                texts.append(loose.text(part.get("text")))
                tokens.append(loose.tokens(part.get("logprobs")))
    usage = loose.table(data.get("usage"))
    details = loose.table(usage.get("input_tokens_details"))
    return Reply(
        text="".join(texts),
        finish=_finish(data),
        refusal=" ".join(refusals),
        model=loose.text(data.get("model")),
        request_id=given_id or loose.text(data.get("id")),
        tokens_in=loose.count(usage.get("input_tokens")),
        tokens_out=loose.count(usage.get("output_tokens")),
        tokens_cached=loose.count(details.get("cached_tokens")),
        tokens_cache_write=loose.count(details.get("cache_write_tokens")),
        tier=loose.text(data.get("service_tier")),
        provider=loose.text(data.get("provider")),
        fingerprint=loose.text(data.get("system_fingerprint")),
        # Where one text has no log-probabilities, the places of the others' are not known.
        choices=tuple(choice for each in tokens for choice in each) if all(tokens) else (),
    )


def _finish(data: dict[str, Any]) -> str:
    """How it ended: completed, or why not."""
    status = data.get("status")
    if status == "incomplete":
        return loose.ending(loose.table(data.get("incomplete_details")).get("reason")) or "incomplete"
    return loose.ending(status)


RESPONSES = Responses()
