"""A chat completion's JSON as a Reply. Any well-formed completion becomes one, also cut, refused or empty ones."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from referee.records import Reply, TokenChoice
from referee.wire import loose


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


class _CompletionDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek."""
    cache_creation_input_tokens: int | None = None
    """Gateways to Anthropic."""


class _Body(Struct, gc=False):
    choices: list[_Choice]
    model: str | None = None
    id: str | None = None
    provider: str | None = None
    """OpenRouter."""
    system_fingerprint: str | None = None
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
        thought = usage.completion_tokens_details
        if thought is not None and thought.reasoning_tokens:
            tokens_out = _with_thoughts(
                tokens_in, tokens_out, _bounded(thought.reasoning_tokens), _bounded(usage.total_tokens)
            )
        details = usage.prompt_tokens_details
        cached = _bounded((details and details.cached_tokens) or usage.prompt_cache_hit_tokens)
        written = _bounded((details and details.cache_write_tokens) or usage.cache_creation_input_tokens)
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
        provider=data.provider or "",
        fingerprint=data.system_fingerprint or "",
        choices=_tokens(tokens) if tokens else (),
    )


def _with_thoughts(asked: int, said: int, thought: int, total: int) -> int:
    """Tokens of a reply. Some servers (xAI, gateways to Gemini) count the reasoning beside it: their total says so."""
    return said + thought if asked and total == asked + said + thought else said


def _bounded(count: int | None) -> int:
    return count if count and 0 < count <= loose.MOST_TOKENS else 0


def _tokens(content: list[_Token]) -> tuple[TokenChoice, ...]:
    return tuple(TokenChoice(t.token, tuple((top.token, top.logprob) for top in t.top_logprobs or ())) for t in content)


def unusual(data: dict[str, Any], request_id: str) -> Reply | None:
    """The tolerant way: takes what is there, leaves out what is not of its type. None: there is no choice to read."""
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        return None
    usage = loose.table(data.get("usage"))
    details = loose.table(usage.get("prompt_tokens_details"))
    asked, said = loose.count(usage.get("prompt_tokens")), loose.count(usage.get("completion_tokens"))
    thought = loose.count(loose.table(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    return Reply(
        text=_content(message.get("content")),
        finish=loose.ending(first.get("finish_reason")),
        refusal=loose.text(message.get("refusal")),
        model=loose.text(data.get("model")),
        request_id=request_id or loose.text(data.get("id")),
        tokens_in=asked,
        tokens_out=_with_thoughts(asked, said, thought, loose.count(usage.get("total_tokens"))),
        tokens_cached=loose.count(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        tokens_cache_write=loose.count(details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens")),
        tier=loose.text(data.get("service_tier")),
        provider=loose.text(data.get("provider")),
        fingerprint=loose.text(data.get("system_fingerprint")),
        choices=loose.tokens(loose.table(first.get("logprobs")).get("content")),
    )


def _content(content: Any) -> str:
    """A string, or a list of parts of which the text ones count; thinking and images do not."""
    if not isinstance(content, list):
        return loose.text(content)
    found = []
    for part in content:
        if isinstance(part, str):
            found.append(loose.text(part))
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text"):
            found.append(loose.text(part.get("text")))
    return "".join(found)
