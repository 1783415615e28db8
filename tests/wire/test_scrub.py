"""Nothing that looks like a key is ever shown."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.wire.scrub import LONGEST, label, scrub

ALNUM = string.ascii_letters + string.digits

# What surrounds a key in the words of providers and gateways; {} is the key.
PLACES = [
    "{}",
    "Incorrect API key provided: {}. You can find your API key at https://platform.openai.com/account/api-keys.",
    "invalid api_key={}",
    '{{"authorization": "Bearer {}"}}',
    "Authorization: Bearer {}",
    "x-api-key: {}",
    "The key '{}' is not known",
    "https://user:{}@host/v1 refused",
    "GET https://host/v1?key={} failed",
    "token is: {}",
]


@given(
    st.sampled_from(PLACES),
    st.sampled_from(["sk-", "sk-proj-", "gsk_", "hf_", "xai-", "", "AIza", "bce-v3/"]),
    st.text(ALNUM, min_size=24, max_size=80).filter(lambda t: any(c.isdigit() for c in t[:16])),
    st.integers(0, 40),
)
@settings(max_examples=300, deadline=None)
def test_a_canary_key_never_shows(place: str, prefix: str, secret: str, padding: int) -> None:
    """Wherever a key stands in an error, no eight characters of it in a row come out."""
    shown = scrub("error " * padding + place.format(prefix + secret))
    for start in range(len(secret) - 8):
        assert secret[start : start + 8] not in shown, shown


@pytest.mark.parametrize(
    "echo",
    [
        "Incorrect API key provided: sk-abcd****************wxyz.",
        "Incorrect API key provided: abcd••••••wxyz.",
        "Invalid key: sk-ab...........wxyz",
        "bad key abcdXXXXXXXXwxyz",
    ],
)
def test_partly_starred_keys_are_hidden_whole(echo: str) -> None:
    """The first and last characters a provider leaves visible do not show either."""
    shown = scrub(echo)
    assert "abcd" not in shown
    assert "sk-ab" not in shown
    assert "wxyz" not in shown


@pytest.mark.parametrize("secret", ["hunter2", "s3cr3t!", "short"])
def test_a_short_key_is_hidden_where_its_place_is_named(secret: str) -> None:
    """A key of no known shape is known by what stands before it."""
    for text in (
        f"Incorrect API key provided: {secret}",
        f"Bearer {secret}",
        f'"api_key": "{secret}"',
        f"key '{secret}'",
    ):
        assert secret not in scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "The model `gpt-4o-mini-2024-07-18` does not exist",
        "organization_usage_limit_exceeded",
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000. Please try again in 2s.",
        "meta-llama/Llama-3.3-70B-Instruct is overloaded",
    ],
)
def test_plain_errors_are_left_as_they_are(text: str) -> None:
    """Parameter names, model names and figures are what the reader needs."""
    assert scrub(text) == text


def test_text_becomes_one_bounded_line() -> None:
    """Line breaks, escapes and length from outside do not reach a log."""
    shown = scrub("a\nb\x1b[31m\t" + "word " * 500)
    assert len(shown) <= LONGEST
    assert shown.isprintable()
    assert shown.startswith("a b [31m word")


def test_half_a_key_at_the_cut_does_not_show() -> None:
    """A key that begins just before the part that is read ends there is left out whole."""
    for length in range(960, 1001):
        text = "a1" * (length // 2) + " sk-0a1b2c3d4e5f6g7h8i9j"
        shown = scrub(text + " and more" * 9)
        assert "sk-" not in shown
        assert "0a1" not in shown


@given(st.text(max_size=3000))
@settings(max_examples=100, deadline=None)
def test_any_text_is_scrubbed_without_complaint(text: str) -> None:
    """Whatever comes, the result is short and printable, and scrubbing it again changes nothing."""
    shown = scrub(text)
    assert len(shown) <= LONGEST
    assert shown.isprintable()


def test_labels_are_short_words_or_nothing() -> None:
    """A code or id is a word; anything else is not shown as one."""
    assert label(" rate_limit_exceeded ") == "rate_limit_exceeded"
    assert label("two words") == ""
    assert label("x" * 65) == ""
    assert label("naïve") == ""
    assert label("a\nb") == ""
