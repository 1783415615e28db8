"""For all tests."""

from __future__ import annotations

import signal

import hypothesis
import pytest

from referee.trainers import record

# A shell that starts `make test` in the background has Ctrl-C ignored, and so would every process that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A property is not about time, and a busy machine would fail it.
hypothesis.settings.register_profile("referee", deadline=None)
hypothesis.settings.load_profile("referee")


@pytest.fixture(scope="session", autouse=True)
def _records(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Trainers' hooks keep their records outside of this folder."""
    record.RUNS = tmp_path_factory.mktemp("referee") / "runs"
