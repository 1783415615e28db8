"""A chat completion's JSON as a Reply. Any well-formed completion becomes one, also cut, refused or empty ones."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Struct

from referee.records import Reply, TokenChoice

_MOST_TOKENS = 10**9
"""A usage figure above this is nonsense and counts as not given."""


class _Top(Struct, gc=False):
    token: str
    logprob: float


class _Token(Struct, gc=False):
    token: str
    top_logprobs: list[_Top] | None = None


class _Logprobs(Struct, gc=False):
    content: list[_Token] | None = None


class _Message(Struct, gc=False):
    content: str | None = None
    refusal: str | None = None


class _Choice(Struct, gc=False):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    error: Any = None


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class _Body(Struct, gc=False):
    choices: list[_Choice]
    model: str | None = None
    id: str | None = None
    usage: _Usage | None = None
    service_tier: str | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Body).decode


def usual(body: bytes, request_id: str) -> Reply | None:
    """The fast way, for a body of the documented shape. None: `unusual` or a Failure."""
    try:
        data = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not data.choices or data.error:
        return None
    choice = data.choices[0]
    tokens = choice.logprobs.content if choice.logprobs is not None else None
    # Quotes inside a string are escaped, so a name found more often than this may be given twice.
    if (
        choice.error
        or body.count(b'"content"') > len(data.choices) + (tokens is not None)
        or body.count(b'"choices"') > 1
    ):
        return None
    usage = data.usage
    tokens_in = tokens_out = cached = written = 0
    if usage is not None:
        tokens_in = _bounded(usage.prompt_tokens)
        tokens_out = _bounded(usage.completion_tokens)
        details = usage.prompt_tokens_details
        cached = _bounded((details and details.cached_tokens) or usage.prompt_cache_hit_tokens)
        written = _bounded(details.cache_write_tokens) if details is not None else 0
    return Reply(
        text=choice.message.content or "",
        finish=choice.finish_reason or "",
        refusal=choice.message.refusal or "",
        model=data.model or "",
        request_id=request_id or data.id or "",
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        tokens_cached=cached,
        tokens_cache_write=written,
        tier=data.service_tier or "",
        choices=_tokens(tokens) if tokens else (),
    )


def _bounded(count: int | None) -> int:
    return count if count and 0 < count <= _MOST_TOKENS else 0


def _tokens(content: list[_Token]) -> tuple[TokenChoice, ...]:
    return tuple(TokenChoice(t.token, tuple((top.token, top.logprob) for top in t.top_logprobs or ())) for t in content)


def unusual(data: dict[str, Any], request_id: str) -> Reply | None:
    """The tolerant way: takes what is there, leaves out what is not of its type. None: there is no choice to read."""
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        return None
    usage = data.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached = details.get("cached_tokens")
    logprobs = first.get("logprobs")
    return Reply(
        text=_content(message.get("content")),
        finish=_finish(first.get("finish_reason")),
        refusal=_text(message.get("refusal")),
        model=_text(data.get("model")),
        request_id=request_id or _text(data.get("id")),
        tokens_in=_count(usage.get("prompt_tokens")),
        tokens_out=_count(usage.get("completion_tokens")),
        tokens_cached=_count(cached or usage.get("prompt_cache_hit_tokens")),
        tokens_cache_write=_count(details.get("cache_write_tokens")),
        tier=_text(data.get("service_tier")),
        choices=_loose_tokens(logprobs.get("content")) if isinstance(logprobs, dict) else (),
    )


def _content(content: Any) -> str:
    """A string, or a list of parts of which the text ones count; thinking and images do not."""
    if not isinstance(content, list):
        return _text(content)
    found = []
    for part in content:
        if isinstance(part, str):
            found.append(_text(part))
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text"):
            found.append(_text(part.get("text")))
    return "".join(found)


def _text(value: Any) -> str:
    """A string fit to be stored: a lone half of a surrogate pair becomes a question mark."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _finish(value: Any) -> str:
    """A number or an object is an unknown ending, not an absent one."""
    return _text(value if isinstance(value, str) else "" if value is None else str(value)[:100])


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= _MOST_TOKENS else 0


def _loose_tokens(content: Any) -> tuple[TokenChoice, ...]:
    found = []
    for item in content if isinstance(content, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("token"), str):
            return ()  # a gap would shift every later token
        tops = item.get("top_logprobs")
        pairs = [
            (_text(top["token"]), float(top["logprob"]))
            for top in (tops if isinstance(tops, list) else ())
            if isinstance(top, dict) and isinstance(top.get("token"), str) and _finite(top.get("logprob"))
        ]
        found.append(TokenChoice(_text(item["token"]), tuple(pairs)))
    return tuple(found)


def _finite(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**53
    return isinstance(value, float) and math.isfinite(value)
