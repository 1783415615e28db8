"""A chat completion's JSON as a Reply. Any well-formed completion becomes one, also cut, refused or empty ones."""

from __future__ import annotations

from typing import Any

import msgspec

from referee.records import Reply
from referee.wire import loose
from referee.wire.error_body import holds_error

_decode = msgspec.json.Decoder().decode


def decoded(body: bytes) -> dict[str, Any] | None:
    """A completion's JSON, by a fast decoder. None: it may be something else, or give a name twice, of which that
    decoder takes the last."""
    try:
        data = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or holds_error(data):
        return None
    # Quotes inside a string are escaped, so a name found more often than this may be given twice.
    logprobs = choices[0].get("logprobs") if isinstance(choices[0], dict) else None
    contents = 1 + (isinstance(logprobs, dict) and "content" in logprobs)
    return data if body.count(b'"content"') <= contents and body.count(b'"choices"') == 1 else None


def _with_thoughts(asked: int, said: int, thought: int, total: int) -> int:
    """Tokens of a reply. Some servers (xAI, gateways to Gemini) count the reasoning beside it: their total says so."""
    return said + thought if asked and total == asked + said + thought else said


def read(data: dict[str, Any], request_id: str) -> Reply | None:
    """What is there; what is not of its type counts as absent. None: there is no choice to read."""
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
