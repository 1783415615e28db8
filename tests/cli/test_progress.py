"""Progress of a run: a bar in a terminal, plain lines elsewhere, silence when asked."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from referee import clock, progress
from referee.progress import Meter

NUMBERS = {"samples": 30.0, "in_flight": 4.0, "limit": 8.0, "cache_hits": 5.0, "unscored": 1.0, "cost_usd": 0.5}


def wait_for(text: str, shown: Any) -> str:
    """What is shown, once `text` is in it."""
    seen = ""
    for _ in range(3000):
        seen += shown()
        if text in seen:
            break
        clock.pause(0.01)
    return seen


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Share, counts, speed and cost, one line at a time, without control characters."""
    monkeypatch.setattr(progress, "LINE_EVERY", 0.01)
    with Meter(60, lambda: NUMBERS):
        seen = wait_for("50 % complete (30/60)", lambda: capsys.readouterr().err)
    line = seen.splitlines()[0]
    assert "50 % complete (30/60)" in line
    assert "4/8 in flight" in line
    assert "1 unscored" in line
    assert "$0.5000" in line
    assert line.isprintable()


def test_silence_when_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """--quiet starts no thread and prints nothing."""
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with Meter(60, lambda: NUMBERS, quiet=True) as meter:
        meter.advance(10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("width", [80, 140])
def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """A terminal gets one line that is redrawn and gone at the end."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=width, color_system=None, legacy_windows=False)
    monkeypatch.setattr(progress, "Console", lambda **_: terminal)
    monkeypatch.setattr(progress, "REFRESH", 0.01)
    with Meter(60, lambda: NUMBERS):
        seen = wait_for("30/60", screen.getvalue)
    assert "4/8 in flight" in seen


def test_what_was_kept_from_an_earlier_run_counts_as_done() -> None:
    """A resumed run starts where the last one ended, and its speed is of what was judged now."""
    meter = Meter(100, dict, quiet=True)
    meter.advance(40, kept=40)
    assert meter.line().startswith("40 % complete (40/100) 0.0/s")
    assert Meter(0, dict, quiet=True).line().startswith("100 % complete (0/0)")
