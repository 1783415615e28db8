"""Chat messages, in the formats of OpenAI (chat completions and Responses), Anthropic and ShareGPT, as our own records.

Takes what JSON decodes to, and objects with the same attributes (a client library's, a trainer's). Everything a judge
could need is kept: roles, names, tool calls and results, reasoning, the place of what is not text. What has an unknown
shape is a MessageError that names the place; nothing is guessed and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from referee.records import Media, Message, Text, Tool, ToolCall
from referee.rollouts.reading import ReadError
from referee.rollouts.reading import as_json as _json
from referee.rollouts.reading import field as _field
from referee.rollouts.reading import held as _held
from referee.rollouts.reading import named as _named

ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
    "function_response": "tool",
    "tool_response": "tool",
}
"""Other names of the roles; ShareGPT's, mostly."""
PLAIN_ROLES = ("user", "assistant", "system", "developer")
"""A single message of one of these that is nothing but text is taken for that text."""
PLAIN_FIELDS = {"role", "content"}
TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields that hold what a model thought."""
ATTACHED = ("audio", "audios", "image", "images", "video", "videos", "file", "files", "attachments")
"""Fields of a message that hold what is not text."""
READ = frozenset(
    {"role", "from", "content", "value", "name", "type", "channel", "refusal", "tool_calls", "function_call"}
    | {"tool_call_id", "call_id", "tool_use_id", "arguments", "output", "summary", *THOUGHTS, *ATTACHED}
)
"""Fields of a message that are read."""
UNIMPORTANT = frozenset(
    {"id", "status", "index", "weight", "timestamp", "created_at", "metadata", "annotations", "logprobs", "signature"}
    | {"cache_control", "reasoning_details", "encrypted_content", "object", "model", "usage", "finish_reason"}
)
"""Fields that say nothing a judge would read."""


class MessageError(ReadError):
    """Messages of an unknown shape."""


def read_text(value: Any, where: str = "") -> Text:
    """A prompt or response: text as it is, messages as records. `where`: its name, for errors.

    One message that is nothing but text becomes that text: both ways to write it are then one request.
    """
    if isinstance(value, str):
        return str.__str__(value)
    single = isinstance(value, Mapping) or hasattr(value, "content")
    if not single and (not isinstance(value, Iterable) or isinstance(value, bytes)):
        raise MessageError(where, f"must be text or a list of messages, not {_named(value)}")
    given = [value] if single else list(value)
    if not given:
        raise MessageError(where, "a list of no messages")
    found: list[Message] = []
    calls: dict[str, str] = {}
    for number, item in enumerate(given):
        if isinstance(item, Message):
            found.append(item)
            continue
        found += _messages(item, where if single else f"{where}[{number}]", calls)
    if len(found) == 1 and found[0] == Message(found[0].role, found[0].content) and found[0].role in PLAIN_ROLES:
        return found[0].content
    return tuple(found)


def read_tools(value: Any, where: str = "tools") -> tuple[Tool, ...]:
    """The tools a policy was offered: a list of OpenAI's or Anthropic's descriptions, or the same as JSON text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.strip() else []
        except msgspec.DecodeError:
            raise MessageError(where, "text that is not JSON; give a list of tools") from None
    if value is None:
        return ()
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise MessageError(where, f"must be a list of tools, not {_named(value)}")
    return tuple([_tool(item, f"{where}[{number}]") for number, item in enumerate(value)])


def unread_fields(value: Any) -> set[str]:
    """Names of fields in messages that are not read and hold something."""
    found: set[str] = set()
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, Mapping):
            names = {str(name) for name, value in item.items() if _held(value)}
            found |= names - READ - UNIMPORTANT
    return found


def _messages(item: Any, where: str, calls: dict[str, str]) -> list[Message]:
    """One entry of a list of messages. `calls`: names of the tools called so far, by the call's id."""
    if type(item) is dict and item.keys() == PLAIN_FIELDS:  # nearly every message of most rollouts
        role, content = item["role"], item["content"]
        if type(role) is str and role in PLAIN_ROLES and type(content) is str and content:
            return [Message(role, content)]
    if not isinstance(item, Mapping) and not hasattr(item, "content") and not hasattr(item, "type"):
        raise MessageError(where, f"must be a message (an object with role and content), not {_named(item)}")
    if _field(item, "parts") is not None:
        raise MessageError(f"{where}.parts", "is not read; give the message's text as `content`")
    role = _first(item, "role", "from")
    if role is None:
        return _response_item(item, where, calls)
    if not isinstance(role, str):
        raise MessageError(f"{where}.role", f"must be text, not {_named(role)}")
    return _chat(item, ROLES.get(role.lower(), role), where, calls)


def _chat(item: Any, role: str, where: str, calls: dict[str, str]) -> list[Message]:
    content = _field(item, "content")
    if content is None:
        content = _field(item, "value")
    pieces, thoughts, called, results = _pieces(content, f"{where}.content", calls)
    thoughts += [_joined(_field(item, name)) for name in THOUGHTS[:1] if _given(_field(item, name))]
    if not thoughts:
        thoughts = [_joined(_field(item, name)) for name in THOUGHTS[1:] if _given(_field(item, name))][:1]
    if role == "function_call" or role == "tool_call":  # ShareGPT: the call is the message
        role, called, pieces = "assistant", [ToolCall("", "\n".join(p for p in pieces if isinstance(p, str)))], []
    if _field(item, "channel") == "analysis":  # OpenAI's harmony
        thoughts, pieces = [*thoughts, *(piece for piece in pieces if isinstance(piece, str))], []
    refusal = _field(item, "refusal")
    if isinstance(refusal, str) and refusal:
        pieces.append(refusal)
    pieces += [Media(name) for name in ATTACHED if _given(_field(item, name))]
    given, single = _field(item, "tool_calls"), _field(item, "function_call")
    given = given if _given(given) else [single] if _given(single) else []
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise MessageError(f"{where}.tool_calls", f"must be a list of calls, not {_named(given)}")
    called += [_call(call, f"{where}.tool_calls[{number}]", calls) for number, call in enumerate(given)]
    name = _field(item, "name")
    if not isinstance(name, str):
        name = calls.get(str(_field(item, "tool_call_id")), "") if role == "tool" else ""
    text, media = _content(pieces)
    own = Message(role, text, name, "\n".join(filter(None, thoughts)), tuple(called), media)
    if results and own == Message(role):
        return results  # Anthropic: a user message of nothing but tool results
    return [*results, own]


def _pieces(
    content: Any, where: str, calls: dict[str, str]
) -> tuple[list[str | Media], list[str], list[ToolCall], list[Message]]:
    """Text and media, thoughts, tool calls and tool results of a message's content."""
    pieces: list[str | Media] = []
    thoughts: list[str] = []
    called: list[ToolCall] = []
    results: list[Message] = []
    if content is None:
        return pieces, thoughts, called, results
    if isinstance(content, str):
        return [content] if content else [], thoughts, called, results
    if not isinstance(content, Iterable) or isinstance(content, bytes):
        raise MessageError(where, f"must be text or a list of parts, not {_named(content)}")
    for number, part in enumerate([content] if isinstance(content, Mapping) else content):
        place = f"{where}[{number}]"
        kind, text = ("text", part) if isinstance(part, str) else (_field(part, "type"), _field(part, "text"))
        if not isinstance(part, str | Mapping) and kind is None:
            raise MessageError(place, f"must be a part of a message, not {_named(part)}")
        if text is not None and not isinstance(text, str) and kind in (None, "", *TEXTS):
            raise MessageError(f"{place}.text", f"must be text, not {_named(text)}")
        if isinstance(text, str) and kind in (None, "", *TEXTS):
            pieces.append(text)
        elif kind in ("thinking", "reasoning"):
            thoughts.append(_joined(_first(part, "thinking", "text", "summary")))
        elif kind == "redacted_thinking":
            thoughts.append("(redacted by the provider)")
        elif kind in ("tool_use", "tool_call", "server_tool_use"):
            called.append(_call(part, place, calls))
        elif kind in ("tool_result", "function_call_output") or str(kind).endswith("_tool_result"):
            results.append(_result(part, place, calls))
        elif kind == "refusal":
            pieces.append(_joined(_field(part, "refusal")))
        elif isinstance(kind, str) and kind and kind not in TEXTS:
            pieces.append(Media(kind, _source(part, kind)))
        else:
            raise MessageError(place, "a part without a type or a text")
    return pieces, thoughts, called, results


def _response_item(item: Any, where: str, calls: dict[str, str]) -> list[Message]:
    """An item of OpenAI's Responses API that is no message: a call, its result, or reasoning."""
    kind = _field(item, "type")
    if kind in ("function_call", "custom_tool_call", "mcp_call"):
        call = _call(item, where, calls)
        result = _first(item, "output", "error")  # an MCP call carries its own result
        answer = [] if result is None else [Message("tool", _json(result), call.name)]
        return [Message("assistant", tool_calls=(call,)), *answer]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return [_result(item, where, calls)]
    if kind == "reasoning":
        found = [_joined(_field(item, name)) for name in ("content", "summary")]
        return [Message("assistant", reasoning="\n".join(filter(None, found)))]
    if kind is None:
        raise MessageError(f"{where}.role", "missing")
    raise MessageError(where, f"a message of type {str(kind)[:40]!r} without a role is not known")


def _call(call: Any, where: str, calls: dict[str, str]) -> ToolCall:
    function = _field(call, "function")
    if function is None or isinstance(function, str):
        function = call
    name = _field(function, "name")
    if not isinstance(name, str):
        raise MessageError(f"{where}.name", "a tool call without the tool's name")
    for field in ("id", "call_id"):
        if _field(call, field) is not None:
            calls[str(_field(call, field))] = name
    for field in ("arguments", "input", "args"):
        if _field(function, field) is not None:
            return ToolCall(name, _json(_field(function, field)))
    return ToolCall(name)


def _result(part: Any, where: str, calls: dict[str, str]) -> Message:
    named = _first(part, "tool_use_id", "call_id", "tool_call_id")
    content = _field(part, "content")
    if content is None:
        content = _field(part, "output")
    if isinstance(content, Mapping) and "type" not in content:
        content = _json(content)
    pieces, _, _, _ = _pieces(content, f"{where}.content", calls)
    if _given(_field(part, "is_error")):
        pieces.insert(0, "(the tool reported an error)")
    text, media = _content(pieces)
    return Message("tool", text, calls.get(str(named), ""), media=media)


def _tool(item: Any, where: str) -> Tool:
    function = _field(item, "function")
    tool = item if function is None else function
    name = _first(tool, "name", "type")
    if not isinstance(name, str):
        raise MessageError(f"{where}.name", "a tool without a name")
    schema = _first(tool, "parameters", "input_schema")
    return Tool(name, _joined(_field(tool, "description")), "" if schema is None else _json(schema))


def _given(value: Any) -> bool:
    """True of what holds something and is not False or 0."""
    number = isinstance(value, int | float) or getattr(value, "shape", None) == ()
    return bool(value) if number else _held(value)


def _first(item: Any, *names: str) -> Any:
    """The first of these fields that holds something; None if none does."""
    return next((value for name in names if _given(value := _field(item, name))), None)


def _content(pieces: Sequence[str | Media]) -> tuple[str, tuple[Media, ...]]:
    """The texts as one, and where in it the rest stood."""
    text, media = "", []
    for piece in pieces:
        if isinstance(piece, str):
            text += f"\n{piece}" if text else piece
        else:
            media.append(Media(piece.type, piece.source, len(text)))
    return text, tuple(media)


def _source(part: Any, kind: str) -> str:
    """Where a piece that is not text is, if its part says so in one of the usual ways."""
    held = next((found for name in (kind, "source", "image_url") if (found := _field(part, name)) is not None), None)
    media_type, data = _field(held, "media_type"), _field(held, "data")
    if isinstance(media_type, str) and isinstance(data, str):  # Anthropic
        return f"data:{media_type};base64,{data}"
    for name in ("url", "data", "file_id"):
        found = _field(held, name)
        if isinstance(found, str):
            return found
    return held if isinstance(held, str) else ""


def _joined(value: Any) -> str:
    """Text, or the texts of a list of parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        return _json(value)
    texts = [item if isinstance(item, str) else _first(item, "text", "thinking") for item in value]
    return "\n".join([text for text in texts if isinstance(text, str)])
