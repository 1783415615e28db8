"""What `referee score` says at its end."""

from __future__ import annotations

from referee.cli.summary import Summary
from referee.config import load
from referee.report.reward_rows import Row


def test_a_detail_is_one_line_that_cannot_act_on_the_terminal() -> None:
    """What a provider wrote of an error is shown as text, and a cut is marked."""
    config = load({"endpoint": {"url": "http://127.0.0.1:9/v1", "model": "m", "key_env": ""}})
    said = "limits.budget_usd = 0.002 has no room for another request: " + "x" * 70
    details = {"server": "bad\x1b[2J\nworse", "budget": said, "other": "y" * 500}
    summary = Summary(config)
    for line, (reason, detail) in enumerate(details.items(), 1):
        summary.add(Row(line=line, id="", reward=None, unscored=reason, detail=detail), kept=False)
    lines = summary.text({}).splitlines()
    assert r"  unscored, server: 1 (for example: bad\x1b[2J worse)" in lines
    assert f"  unscored, budget: 1 (for example: {said})" in lines
    assert lines[-1].endswith("y…)")
