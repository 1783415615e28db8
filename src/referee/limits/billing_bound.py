"""The most tokens a request can be billed for: an a-priori bound, and the largest factor by which a provider passed it.

A tokenizer makes at most one token of a byte, so a prompt's bytes bound its tokens for digits, base64 and any script.
A reply has no such bound: hidden reasoning is billed whatever max_tokens says. So the largest excess seen is assumed
for every later request, and for those in flight.
"""

from __future__ import annotations

from typing import NamedTuple

CHAT_FORMAT_TOKENS = 64
"""What a chat format adds to the texts: roles, separators, a date."""
RETRY_FACTOR = 2
"""A truncated reply is asked for again with this multiple of max_tokens."""
HEADROOM = 1.5
"""Multiple of the largest excess seen that is assumed: the next may be larger still."""


class Bound(NamedTuple):
    """The most tokens one request should be billed for."""

    prompt: int
    reply: int


def bound(prompt_bytes: int, max_tokens: int) -> Bound:
    """The bound before anything is known of the provider."""
    return Bound(prompt_bytes + CHAT_FORMAT_TOKENS, max_tokens * RETRY_FACTOR)


class Excess:
    """Largest factors by which a provider has passed those bounds, with headroom. They only grow."""

    __slots__ = ("prompt", "reply")

    def __init__(self) -> None:
        self.prompt = 1.0
        self.reply = 1.0

    def learn(self, bound: Bound, tokens_in: int, tokens_out: int) -> bool:
        """Record what a request of this bound was billed for. True if that raised a factor."""
        prompt, reply = tokens_in / bound.prompt, tokens_out / max(1, bound.reply)
        if prompt <= self.prompt and reply <= self.reply:
            return False
        if prompt > self.prompt:
            self.prompt = prompt * HEADROOM
        if reply > self.reply:
            self.reply = reply * HEADROOM
        return True

    def __repr__(self) -> str:
        return f"Excess(prompt {self.prompt:.2f}, reply {self.reply:.2f})"
