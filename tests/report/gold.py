"""Writes the gold files of the report's data: `python -m tests.report.gold`. Look at the change before keeping it."""

from __future__ import annotations

from tests.report.ledgers import rubric, small
from tests.report.test_data import GOLD, as_json

from referee.report import build

if __name__ == "__main__":
    GOLD.mkdir(exist_ok=True)
    (GOLD / "small.json").write_text(as_json(build(small())))
    (GOLD / "rubric.json").write_text(as_json(build(rubric())))
