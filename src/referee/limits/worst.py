"""The most tokens a request can be billed for: a bound that needs no reply, and by how much a provider passes it. Pure.

A tokenizer makes at most one token of a byte, so a prompt's bytes are a bound that holds for digits, base64 and any
script. A reply has no such bound: hidden reasoning is billed whatever max_tokens says. So the largest excess seen is
expected of every later request, and of those in flight.
"""

from __future__ import annotations

from typing import NamedTuple

OVERHEAD = 64
"""Tokens that a chat format adds to the texts: roles, separators, a date."""
LONGER = 2
"""A reply that was cut short is asked for again with twice the token limit."""
HEADROOM = 1.5
"""How much more than the largest excess seen is expected: the next may be larger still."""


class Bound(NamedTuple):
    """The most tokens one request should be billed for."""

    prompt: int
    reply: int


def bound(prompt_bytes: int, max_tokens: int) -> Bound:
    """What can be said before anything is known of the provider."""
    return Bound(prompt_bytes + OVERHEAD, max_tokens * LONGER)


class Excess:
    """By how much a provider has passed those bounds, at most, with some headroom. It only grows."""

    __slots__ = ("prompt", "reply")

    def __init__(self) -> None:
        self.prompt = 1.0
        self.reply = 1.0

    def learn(self, bound: Bound, tokens_in: int, tokens_out: int) -> bool:
        """What a request of this bound was billed for. True: more than was expected."""
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
