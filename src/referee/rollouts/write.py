"""Samples as rows that `row` reads back: what records keep of them, so that another judge can be shown the same."""

from __future__ import annotations

from typing import Any

import msgspec

from referee.records import Message, Sample, Text


def more_of(sample: Sample) -> dict[str, Any]:
    """Of a sample, what is lost where prompt and response are kept as plain text: messages, tools, rubric, columns."""
    found: dict[str, Any] = {}
    for name, text in (("prompt", sample.prompt), ("response", sample.response)):
        if not isinstance(text, str):
            found[name] = _messages(text)
    if sample.tools:
        found["tools"] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters or None}
            for tool in sample.tools
        ]
    if sample.rubric:
        found["rubric"] = [
            msgspec.to_builtins(criterion) | {"parameters": msgspec.json.decode(criterion.parameters or "{}")}
            for criterion in sample.rubric
        ]
    if sample.columns:
        found["columns"] = sample.columns
    return found


def _messages(text: Text) -> list[dict[str, Any]]:
    assert not isinstance(text, str)
    return [_message(message) for message in text]


def _message(message: Message) -> dict[str, Any]:
    """In the format of OpenAI's chat completions."""
    found: dict[str, Any] = {"role": message.role, "content": _content(message)}
    if message.name:
        found["name"] = message.name
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return found


def _content(message: Message) -> str | list[dict[str, str]]:
    """The text, or its pieces with what stood between them. The reader puts a line break between two pieces."""
    if not message.media:
        return message.content
    parts: list[dict[str, str]] = []
    start = 0
    for media in message.media:
        if media.at > start:
            parts.append({"type": "text", "text": message.content[start : media.at]})
            start = media.at + message.content.startswith("\n", media.at)
        parts.append({"type": media.type, media.type: media.source})
    if start < len(message.content):
        parts.append({"type": "text", "text": message.content[start:]})
    return parts
