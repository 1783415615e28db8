"""Short names for text (cache keys are made of them), the secret codes of the guard, and a token estimate."""

from __future__ import annotations

from hashlib import blake2b, sha256

CODE_BYTES = 8
"""64 bits: a policy that guesses a code once per rollout is right once in 10^19."""


def digest(text: str) -> str:
    """A name for this text: equal texts have equal names, and nobody finds two texts of one name."""
    return sha256(text.encode()).hexdigest()[:32]


def measure(text: str) -> tuple[str, int]:
    """The text's digest and about how many tokens it is.

    A quarter of a token per character, and 0.4 for each byte UTF-8 needs beyond one: 4 characters of English per
    token, about one token per Chinese character, two thirds per Cyrillic letter. Code and digits are denser than that;
    the provider's own count replaces the estimate when it comes.
    """
    data = text.encode()
    return sha256(data).hexdigest()[:32], _tokens(len(text), len(data))


def tokens_in(text: str) -> int:
    """About how many tokens the text is, as `measure` says."""
    return _tokens(len(text), len(text.encode()))


def _tokens(characters: int, size: int) -> int:
    return (5 * characters + 8 * (size - characters)) // 20 + 1


def key_of(secret: bytes) -> bytes:
    """The secret in a length the hash takes as its key; empty if there is none."""
    return blake2b(secret, digest_size=32).digest() if secret else b""


def code(content: str, key: bytes, use: bytes) -> str:
    """A code for this content that only the holder of the key can compute. Equal content gives equal codes."""
    return blake2b(content.encode(), digest_size=CODE_BYTES, key=key, person=use).hexdigest()
