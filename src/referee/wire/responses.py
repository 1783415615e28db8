"""The dialect `responses`: OpenAI's Responses API, also of Azure, OpenRouter, vLLM and others. Errors are read in
`failure`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from referee.config import EndpointConfig
from referee.records import Ask, Failure, Message, Reply, Sampling, TokenChoice
from referee.wire import loose
from referee.wire.dialect import SCHEMA, TIER, Adaptation, Dialect, complete_url, pictures
from referee.wire.failure import inner_failure, odd_answer, open_answer, request_id
from referee.wire.turns import TurnEncoder, checked_extra

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


class ResponsesEncoder(TurnEncoder):
    """Bodies of requests to one endpoint."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        super().__init__()
        self._endpoint = endpoint
        checked_extra(endpoint, _RESERVED)

    def fixed(self, sampling: Sampling, adaptation: Adaptation, max_tokens: int) -> dict[str, Any]:
        """See TurnEncoder."""
        endpoint, extra = self._endpoint, self._endpoint.extra
        body: dict[str, Any] = {"model": endpoint.model, "max_output_tokens": max(LEAST_TOKENS, max_tokens)}
        if sampling.temperature is not None and "temperature" not in adaptation:
            body["temperature"] = sampling.temperature
        if sampling.schema is not None and SCHEMA not in adaptation:
            form = {"type": "json_schema", "name": sampling.schema_name, "strict": True, "schema": sampling.schema}
            body["text"] = {**extra.get("text", {}), "format": form}
            extra = {name: value for name, value in extra.items() if name != "text"}
        if sampling.top_logprobs and "logprobs" not in adaptation:
            body["include"] = [LOGPROBS]
            body["top_logprobs"] = sampling.top_logprobs
        if endpoint.tier and TIER not in adaptation:
            body["service_tier"] = endpoint.tier
        body["store"] = False  # the default keeps prompt and reply at the provider for 30 days
        return body | extra

    def said(self, request: Ask) -> dict[str, Any]:
        """See TurnEncoder."""
        first, *others = request.messages
        if others and first.role == "system":
            return {"instructions": first.content, "input": list(map(_item, others))}
        return {"input": list(map(_item, request.messages))}


def _item(message: Message) -> dict[str, Any]:
    if not message.media:
        return {"role": message.role, "content": message.content}
    parts: list[dict[str, str]] = []
    for label, image in pictures(message):
        parts.append({"type": "input_text", "text": label})
        parts.append({"type": "input_image", "image_url": image.source, "detail": "auto"})
    return {"role": message.role, "content": [*parts, {"type": "input_text", "text": message.content}]}


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
        data = open_answer(status, headers, body, wall, _ONCE)
        if isinstance(data, Failure):
            return data
        if not isinstance(data, dict) or "output" not in data:
            return odd_answer(status, headers, "JSON but no response; is endpoint.url one of the Responses API?")
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
