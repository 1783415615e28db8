"""Samples as rows that `row` reads back: what records keep of them, so that another judge can be shown the same."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from referee.records import Media, Message, Sample, Text
from referee.rollouts.images import read_image

LONGEST_SOURCE = 500
"""Characters of a URL or file name that are kept; data is longer."""


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
        parts.append({"type": media.type, media.type: _kept(media)})
    if start < len(message.content):
        parts.append({"type": "text", "text": message.content[start:]})
    return parts


def _kept(media: Media) -> str:
    """Of data, what it was: records would grow by megabytes a line."""
    image = read_image(media)
    if image is not None:
        return image.described
    source = media.source
    return source if len(source) <= LONGEST_SOURCE else f"{len(source)} characters, sha256 {_digest(source)}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
