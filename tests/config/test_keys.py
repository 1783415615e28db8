"""A key in the wrong place is not shown, also where a configuration was made in Python and nothing checked it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from referee.config import EndpointConfig, Secret, is_variable, looks_like_key
from referee.config.keys import without_keys
from referee.engine import find_key
from referee.errors import ConfigError, MissingKeyError
from referee.server.listen import find_token

KEY = "sk-proj-CANARY0123456789abcdef"


@pytest.mark.parametrize("endpoint", [EndpointConfig(key_env=KEY), EndpointConfig(key_file=KEY)])
def test_a_key_instead_of_its_place_is_not_shown(endpoint: EndpointConfig) -> None:
    """Neither as the name of a variable nor as that of a file."""
    with pytest.raises(MissingKeyError, match="not shown") as caught:
        find_key(endpoint, {})
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("where", [{"api_key": Secret(KEY)}, {"key_file": "key"}])
def test_no_key_is_found_for_a_way_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: dict[str, Any]
) -> None:
    """Wherever the key is kept, and although nothing has checked this configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text(KEY)
    with pytest.raises(MissingKeyError, match="unencrypted"):
        find_key(EndpointConfig(url="http://10.0.0.5/v1", **where), {})
    assert find_key(EndpointConfig(url="http://10.0.0.5/v1", key_over_http=True, **where), {}) is not None


def test_a_token_instead_of_its_variable_is_not_shown() -> None:
    """`referee serve --token-env <the token>` is the same mistake."""
    with pytest.raises(ConfigError, match="not shown") as caught:
        find_token(KEY, {})
    assert "CANARY" not in str(caught.value)


def test_a_key_file_is_named_in_full_and_may_begin_with_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where it looked; a byte order mark is no part of the key."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingKeyError, match=str(tmp_path / "none")):
        find_key(EndpointConfig(key_file="none"), {})
    (tmp_path / "key").write_bytes(b"\xef\xbb\xbf" + KEY.encode() + b"\r\n")
    found = find_key(EndpointConfig(key_file="key"), {})
    assert found is not None
    assert found.reveal() == KEY


@pytest.mark.parametrize(
    "word", ["OPENAI_API_KEY", "risk-2024-assessment-run", "task_2_of_the_run", "gpt-4o-mini-2024-07-18"]
)
def test_words_are_not_taken_for_keys(word: str) -> None:
    """Names with digits in them are still names."""
    assert not looks_like_key(word)
    assert without_keys({"user": word}) == {"user": word}


def test_variables_have_plain_names() -> None:
    """Letters, digits and underscores, no digit first."""
    assert is_variable("A_1")
    assert not any(map(is_variable, ("", "1A", "a-b", "a b", "a.b", "ä")))
