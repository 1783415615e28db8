"""A chat completion's JSON as a Reply. Any well-formed completion becomes one, also cut, refused or empty ones."""

from __future__ import annotations

from typing import Any

import msgspec

from referee.records import Reply
from referee.wire import loose

_decode = msgspec.json.Decoder().decode
_ONCE = [(name, f'"{name}"'.encode()) for name in ("choices", "message", "content", "refusal", "finish_reason")]
"""What says the verdict, and stands in a completion once."""


def decoded(body: bytes) -> dict[str, Any] | None:
    """A completion's JSON, by a fast decoder. None: it may be something else, or give a name twice, of which that
    decoder takes the last."""
    try:
        data = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    choices = data.get("choices") if isinstance(data, dict) else None
    first = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if not isinstance(first, dict) or data.get("error") or first.get("error"):
        return None
    # Quotes inside a string are escaped, so a name found more often than this may be given twice.
    logprobs = first.get("logprobs")
    inside = logprobs if isinstance(logprobs, dict) else {}
    return data if all([body.count(quoted) <= 1 + (name in inside) for name, quoted in _ONCE]) else None


def read(data: dict[str, Any], request_id: str) -> Reply | None:
    """What is there; what is not of its type counts as absent. None: there is no choice to read."""
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        return None
    text, count, usage = loose.text, loose.count, loose.table(data.get("usage"))
    details, thinking = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached, written = usage.get("prompt_cache_hit_tokens"), usage.get("cache_creation_input_tokens")
    if isinstance(details, dict):
        cached, written = details.get("cached_tokens") or cached, details.get("cache_write_tokens") or written
    asked, said = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    thought = count(thinking.get("reasoning_tokens")) if isinstance(thinking, dict) else 0
    if thought and asked and count(usage.get("total_tokens")) == asked + said + thought:
        said += thought  # some servers (xAI, gateways to Gemini) count the reasoning beside the reply
    logprobs, refusal = first.get("logprobs"), message.get("refusal")
    return Reply(
        text=_content(message.get("content")),
        finish=loose.ending(first.get("finish_reason")),
        refusal=text(refusal) if refusal else "",
        model=text(data.get("model")),
        request_id=request_id or text(data.get("id")),
        tokens_in=asked,
        tokens_out=said,
        tokens_cached=count(cached) if cached else 0,
        tokens_cache_write=count(written) if written else 0,
        tier=text(data.get("service_tier")),
        provider=text(data.get("provider")),
        fingerprint=text(data.get("system_fingerprint")),
        choices=loose.tokens(logprobs.get("content")) if isinstance(logprobs, dict) else (),
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
