"""The dialect `anthropic`: the Messages API. Errors are read in `failure`.

A JSON schema goes out as structured outputs (`output_config.format`); to a model without them as the input of a tool
that it must use. Either way the JSON is the Reply's text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from referee.config import EndpointConfig, Secret
from referee.records import Ask, Failure, Reply, Sampling
from referee.rollouts import Image
from referee.wire import loose
from referee.wire.dialect import SCHEMA, Adaptation, Dialect, common_headers, complete_url
from referee.wire.failure import odd_answer, open_answer, request_id
from referee.wire.turns import Turn, TurnEncoder, checked_extra, divided

VERSION = "2023-06-01"
"""The next one, 2026-10-21, takes no temperature; under this one the models that have it still do, and of the others it
is learned from their refusal."""
OUTPUT_CONFIG = "output_config"
"""Structured outputs in an adaptation: refused, the schema is sent as a tool's."""
CACHED_FROM = 4096
"""Characters: about 1024 tokens, the least that most models cache. The mark on a shorter beginning has no effect."""

_RESERVED = {
    "system": "judge.prompt_file",
    "output_config.format": "judge.reply",
    "output_format": "judge.reply",
    "tools": "judge.reply",
    "tool_choice": "judge.reply",
}
_MARK = {"type": "ephemeral"}
_KEYWORDS = frozenset({"type", "enum", "const", "properties", "required", "items", "anyOf", "allOf", "description"})
"""Of JSON schema, what structured outputs take among what judges use. A range is in the prompt, and its keeping is
checked when the reply is read."""


class AnthropicEncoder(TurnEncoder):
    """Bodies of requests to one endpoint. The beginning that requests share is marked for the prompt cache where the
    endpoint's prices say that this saves money."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        super().__init__()
        self._model = endpoint.model
        self._extra = checked_extra(endpoint, _RESERVED)
        price, cached = endpoint.price_in, endpoint.price_cached
        self._marks = price is not None and cached is not None and cached < price
        # Of requests that go out together each would pay for the write.
        self._waits = self._marks and endpoint.prefix_cache in ("", "warm")

    def fixed(self, sampling: Sampling, adaptation: Adaptation, max_tokens: int) -> dict[str, Any]:
        """See TurnEncoder."""
        body: dict[str, Any] = {"model": self._model, "max_tokens": max_tokens}
        if sampling.temperature is not None and "temperature" not in adaptation:
            body["temperature"] = sampling.temperature
        body.update(self._extra)
        if sampling.schema is not None and SCHEMA not in adaptation:
            if OUTPUT_CONFIG in adaptation:
                body["tools"] = [{"name": sampling.schema_name, "input_schema": sampling.schema}]
                body["tool_choice"] = {"type": "tool", "name": sampling.schema_name}
            else:
                form = {"type": "json_schema", "schema": _narrowed(sampling.schema)}
                body["output_config"] = {**self._extra.get("output_config", {}), "format": form}
        return body

    def said(self, request: Ask) -> dict[str, Any]:
        """See TurnEncoder."""
        system, turns = divided(request.messages, _shared(request) if self._waits else ())
        messages = [_turn(turn) for turn in turns]
        if not system:
            return {"messages": messages}
        long = self._marks and len(system) >= CACHED_FROM
        told = [{"type": "text", "text": system, "cache_control": _MARK}] if long else system
        return {"system": told, "messages": messages}


def _shared(request: Ask) -> list[int]:
    """Where in the last message parts end that other requests share, if they are long enough to be cached: the task,
    before the paragraph with the nonce; and the response, where several questions are asked about it."""
    *first, last = request.messages
    text, nonce = last.content, request.nonce
    at = text.find(nonce) if nonce else -1
    close = f"\n{nonce} response>>>"
    ends = [text.rfind("\n\n", 0, max(at, 0)) + 2]
    if at > 0 and len(request.prefixes) > 1 and close in text:
        ends.append(text.rfind(close) + len(close))
    before = sum([len(message.content) for message in first])
    return [end for end in ends if end > 1 and before + end >= CACHED_FROM]


def _turn(turn: Turn) -> dict[str, Any]:
    role = "assistant" if turn.model else "user"
    if len(turn.pieces) == 1 and isinstance(turn.pieces[0], str):
        return {"role": role, "content": turn.pieces[0]}
    content: list[dict[str, Any]] = []
    for piece in turn.pieces:
        if piece is not None:
            content.append(_block(piece))
        elif content:
            content[-1]["cache_control"] = _MARK
    return {"role": role, "content": content}


def _block(piece: str | Image) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    if piece.url:
        return {"type": "image", "source": {"type": "url", "url": piece.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": piece.media_type, "data": piece.data}}


def _narrowed(schema: Any) -> Any:
    """The schema with what structured outputs take, and objects closed, which they insist on."""
    if isinstance(schema, list):
        return [_narrowed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name in _KEYWORDS}
    for name in ("items", "anyOf", "allOf"):
        if name in kept:
            kept[name] = _narrowed(kept[name])
    if isinstance(kept.get("properties"), dict):
        kept["properties"] = {name: _narrowed(value) for name, value in kept["properties"].items()}
    if kept.get("type") == "object":
        kept["additionalProperties"] = False
    return kept


class Anthropic(Dialect):
    """Anthropic's Messages API. It has no log-probabilities: none are asked for, and replies hold none."""

    name = "anthropic-messages/1"
    can_omit = frozenset({"temperature", OUTPUT_CONFIG, SCHEMA})
    first_without = MappingProxyType({SCHEMA: OUTPUT_CONFIG})
    takes_images = True

    def url(self, endpoint: EndpointConfig) -> str:
        """endpoint.url may be the whole URL, its base (…/v1) or a bare host."""
        return complete_url(endpoint.url, "/messages")

    def headers(self, key: Secret | None) -> dict[str, str]:
        """See dialect.Dialect."""
        found = {**common_headers(), "anthropic-version": VERSION}
        if key is not None:
            found["x-api-key"] = key.reveal().strip()
        return found

    def encoder(self, endpoint: EndpointConfig) -> AnthropicEncoder:
        """See dialect.Dialect."""
        return AnthropicEncoder(endpoint)

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """See dialect.Dialect."""
        data = open_answer(status, headers, body, wall, None)
        if isinstance(data, Failure):
            return data
        if not isinstance(data, dict) or "content" not in data:
            return odd_answer(status, headers, "JSON but no message; is endpoint.url one of the Messages API?")
        return _reply(data, request_id(headers))


def _reply(data: dict[str, Any], given_id: str) -> Reply:
    """What the model said: its text, or what it gave the tool that it had to use. Thinking is neither."""
    texts: list[str] = []
    inputs: list[str] = []
    for block in loose.tables(data.get("content")):
        if block.get("type") == "text":
            texts.append(loose.text(block.get("text")))
        elif block.get("type") == "tool_use":
            inputs.append(_json(block.get("input")))
    usage = loose.table(data.get("usage"))
    cached = loose.count(usage.get("cache_read_input_tokens"))
    written = loose.count(usage.get("cache_creation_input_tokens"))
    finish = loose.ending(data.get("stop_reason"))
    details = loose.table(data.get("stop_details"))
    return Reply(
        text="\n".join(inputs) if inputs else "".join(texts),
        finish=finish,
        refusal=loose.text(details.get("explanation")) if finish == "refusal" else "",
        model=loose.text(data.get("model")),
        request_id=given_id or loose.text(data.get("id")),
        tokens_in=loose.count(usage.get("input_tokens")) + cached + written,
        tokens_out=loose.count(usage.get("output_tokens")),
        tokens_cached=cached,
        tokens_cache_write=written,
    )


def _json(value: Any) -> str:
    try:
        return loose.text(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return ""


ANTHROPIC = Anthropic()
