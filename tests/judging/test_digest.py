"""Digests, secret codes and the token estimate."""

from __future__ import annotations

import pytest

from referee.judging.digest import code, digest, key_of, measure


def test_digests_tell_texts_apart() -> None:
    """Equal texts have equal names, others have others."""
    assert digest("a") == digest("a") == measure("a")[0]
    assert len({digest(text) for text in ("", "a", "b", "a ", "é")}) == 5
    assert len(digest("a")) == 32


def test_codes_need_the_key() -> None:
    """The same content has another code under another key and for another use."""
    one, other = key_of(b"one"), key_of(b"other" * 40)
    codes = {
        code("x", one, b"request"),
        code("x", other, b"request"),
        code("x", one, b"group"),
        code("y", one, b"request"),
    }
    assert len(codes) == 4
    assert code("x", one, b"request") == code("x", key_of(b"one"), b"request")
    assert all(len(item) == 16 and int(item, 16) >= 0 for item in codes)


def test_no_secret_is_no_key() -> None:
    """An empty secret is not turned into a key that anyone could compute."""
    assert key_of(b"") == b""


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 1),
        ("The quick brown fox jumps over the lazy dog. " * 20, 200, 240),
        ("这是一个测试答案" * 25, 180, 230),
        ("Быстрая лиса прыгает через собаку. " * 10, 120, 240),
        ("👍" * 20, 20, 50),
    ],
)
def test_token_estimates_are_near(text: str, least: int, most: int) -> None:
    """Within what common tokenizers make of English, Chinese, Russian and emoji."""
    assert least <= measure(text)[1] <= most
