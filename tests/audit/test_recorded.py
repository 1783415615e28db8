"""What the live audit leaves in the ledger for report and `referee audit`."""

from __future__ import annotations

from pathlib import Path

from tests.audit.world import lines, world

from referee.ledger import AuditLine, MeasuresLine


def test_the_signals_numbers_are_recorded(tmp_path: Path) -> None:
    """At the batch with which 256 samples are full, for the curves of the report; the names are those of metrics()."""
    with world({"share": 0.0001}, ledger={"dir": str(tmp_path)}) as made:
        made.run(5, 64)
        made.settle()
        metrics = made.referee.metrics()
        made.run(4, 64, first=5)
        made.settle()
    first, second = lines(tmp_path, MeasuresLine)
    assert (first.step, second.step) == (3, 7)
    assert {"phrase", "length", "style"} <= {name for name in first.measures if f"audit/{name}" in metrics}


def test_what_was_shown_is_recorded(tmp_path: Path) -> None:
    """Of a live answer too, so that `referee audit` shows the same text with an alarm's samples as the log did."""
    with world({"share": 0.5}, ledger={"dir": str(tmp_path)}) as made:
        made.run(3)
        made.settle()
    shown = [line for line in lines(tmp_path, AuditLine) if line.what == "shadow"]
    assert shown
    assert all(line.answer.startswith("The answer ") for line in shown)
