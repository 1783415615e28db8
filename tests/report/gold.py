"""Writes the gold files of the report's data: `python -m tests.report.gold`. Look at the difference before keeping it."""

from __future__ import annotations

from referee.report import build
from tests.report.ledgers import small
from tests.report.test_data import GOLD, as_json

if __name__ == "__main__":
    GOLD.mkdir(exist_ok=True)
    (GOLD / "small.json").write_text(as_json(build(small())))
