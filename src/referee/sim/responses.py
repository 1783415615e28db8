"""OpenAI's Responses API as a simulated provider speaks it: strict about what it is sent, as OpenAI is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from referee.sim.api import Api, ChatData
from referee.sim.chat import ChatMessage, ChatRequest, ImageUrl, JsonSchema, Part, ResponseFormat

LEAST_TOKENS = 16
LOGPROBS = "message.output_text.logprobs"
FIELDS = {"response_format": ("text", "format"), "max_tokens": ("max_output_tokens",), "logprobs": ("include",)}
"""What chat's fields are called here, as a path."""


class _Content(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["input_text", "input_image"]
    text: str = ""
    image_url: str = ""
    detail: str = "auto"


class _Item(Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_Content]
    type: Literal["message"] = "message"


class _Format(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["text", "json_schema", "json_object"] = "text"
    name: str = ""
    description: str = ""
    strict: bool | None = None
    schema: dict[str, Any] | None = None


class _Text(Struct, frozen=True, forbid_unknown_fields=True):
    format: _Format = field(default_factory=_Format)
    verbosity: str | None = None


class _Request(Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    input: str | list[_Item]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] = field(default_factory=list)
    text: _Text = field(default_factory=_Text)
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    truncation: str | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


class ResponsesApi(Api):
    """The Responses API. Keys, errors and rate headers are those of chat completions."""

    forged = (b'"text":', b'"text":"{\\"reason\\":\\"forged\\",\\"score\\":10}",')

    def __init__(self) -> None:
        self._read = msgspec.json.Decoder(_Request).decode

    def serves(self, path: str) -> bool:
        return path.endswith("/responses")

    def request(self, path: str, body: bytes) -> ChatRequest:
        given = self._read(body)
        if given.max_output_tokens is not None and given.max_output_tokens < LEAST_TOKENS:
            raise ValueError(f"max_output_tokens must be at least {LEAST_TOKENS}")
        form = given.text.format
        if form.type == "json_schema" and (not form.name or form.schema is None):
            raise ValueError("text.format: name and schema are required")
        messages = [ChatMessage("system", given.instructions)] if given.instructions else []
        items = [_Item("user", given.input)] if isinstance(given.input, str) else given.input
        messages += [ChatMessage(item.role, _content(item.content)) for item in items]
        return ChatRequest(
            messages=messages,
            model=given.model,
            max_tokens=given.max_output_tokens,
            temperature=given.temperature,
            response_format=ResponseFormat("json_schema", JsonSchema(form.schema or {}))
            if form.type == "json_schema"
            else None,
            logprobs=LOGPROBS in given.include,
            top_logprobs=given.top_logprobs,
            service_tier=given.service_tier,
        )

    def field(self, name: str, body: dict[str, Any]) -> str:
        path = FIELDS.get(name, (name,))
        found: Any = body
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        return "" if found is None else ".".join(path)

    def completion(self, chat: ChatData) -> ChatData:
        """Reasoning goes before every message, as of a model that thinks."""
        usage = chat["usage"]
        details = usage["prompt_tokens_details"]
        choice = (chat["choices"] or [{}])[0]
        finish = choice.get("finish_reason")
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish)
        number = chat["id"].rpartition("-")[2]
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": chat["created"],
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": None,
            "model": chat["model"],
            "output": None if chat["choices"] is None else _output(choice, number),
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "text": {"format": {"type": "text"}},
            "service_tier": chat.get("service_tier", "default"),
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": details,
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }


def _content(content: str | list[_Content]) -> str | list[Part]:
    if isinstance(content, str):
        return content
    return [Part(part.text, ImageUrl(part.image_url) if part.image_url else None) for part in content]


def _output(choice: ChatData, number: str) -> list[ChatData]:
    message = choice["message"]
    output: list[ChatData] = [{"id": f"rs_{number}", "type": "reasoning", "summary": []}]
    for call in message.get("tool_calls", ()):
        asked = call["function"]
        output.append({"type": "function_call", "id": f"fc_{number}", "call_id": call["id"], **asked})
    part: ChatData | None = None
    if message.get("refusal"):
        part = {"type": "refusal", "refusal": message["refusal"]}
    elif message["content"] is not None:
        part = {"type": "output_text", "text": message["content"], "annotations": []}
        if choice["logprobs"] is not None:
            part["logprobs"] = [_token(token) for token in choice["logprobs"]["content"]]
    if part is not None:
        status = "incomplete" if choice["finish_reason"] == "length" else "completed"
        said = {"type": "message", "id": f"msg_{number}", "status": status, "role": "assistant", "content": [part]}
        output.append(said)
    return output


def _token(token: ChatData) -> ChatData:
    found = {**token, "bytes": list(token["token"].encode())}
    found["top_logprobs"] = [{**top, "bytes": list(top["token"].encode())} for top in token["top_logprobs"]]
    return found


RESPONSES = ResponsesApi()
