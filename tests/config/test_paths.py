"""What a relative path in a configuration is relative to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.config.test_load import write

from referee.config import Config, anchored, load

FILES = '[judge]\nprompt_file = "a/t.txt"\n[redis]\nca_file = "ca.pem"\n[[endpoint]]\nkey_file = "k"\n[[endpoint]]\n'


def files(config: Config) -> list[str]:
    return [config.judge[0].prompt_file, config.redis.ca_file, *(endpoint.key_file for endpoint in config.endpoint)]


def test_files_lie_beside_the_configuration_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the current directory is, then or later; the caller's mapping is not written to."""
    (tmp_path / "sub").mkdir()
    path = write(tmp_path / "sub", FILES)
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "sub"
    assert files(load(path)) == [str(here / "a/t.txt"), str(here / "ca.pem"), str(here / "k"), ""]
    assert load("sub/referee.toml") == load(path)


def test_files_named_elsewhere_are_relative_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python and from the environment; a home directory and an absolute path stay what they are."""
    (tmp_path / "sub").mkdir()
    path = write(tmp_path / "sub", FILES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    source = {"judge": {"prompt_file": "t.txt"}, "redis": {"ca_file": "~/ca.pem"}, "endpoint": {"key_file": "/k"}}
    assert files(load(source)) == [str(tmp_path / "t.txt"), "/home/me/ca.pem", "/k"]
    assert source["judge"] == {"prompt_file": "t.txt"}
    assert load(path, {"REFEREE_JUDGE_PROMPT_FILE": "t.txt"}).judge[0].prompt_file == str(tmp_path / "t.txt")


def test_other_paths_stay_as_they_are_written(tmp_path: Path) -> None:
    """Cache and ledger are begun where the run is, not beside the configuration."""
    config = load(write(tmp_path, '[cache]\npath = "c.sqlite"\n[ledger]\ndir = "l"'))
    assert (config.cache.path, config.ledger.dir) == ("c.sqlite", "l")


def test_anchored_paths_do_not_follow_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path of a configuration, also of one made in Python; what is empty stays empty."""
    monkeypatch.chdir(tmp_path)
    config = anchored(load({"ledger": {"dir": "l"}, "judge": {"prompt_file": "t"}}))
    assert (config.cache.path, config.ledger.dir) == (str(tmp_path / ".referee/cache.sqlite"), str(tmp_path / "l"))
    assert files(config) == [str(tmp_path / "t"), "", ""]
    monkeypatch.chdir("/")
    assert anchored(config) == config
    assert anchored(load({"cache": {"path": ""}})).cache.path == ""


def test_the_digest_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    """The processes of one job name their settings alike, wherever each of them finds the files."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert load(write(tmp_path / "a", FILES)).digest() == load(write(tmp_path / "b", FILES)).digest()
    assert load({"judge": {"prompt_file": "x"}}).digest() != load({"judge": {"prompt_file": "y"}}).digest()
