"""What a run will come to, said beforehand: in the record once, with the next batch, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee import Referee, Sample
from referee.ledger import TotalLine, read

ENDPOINT = {"url": "http://127.0.0.1:9/v1", "model": "m", "key_env": ""}
EMPTY = [Sample(prompt="p", response="")]
"""Settled by a gate: nothing is sent."""


@pytest.mark.parametrize("runtime", ["inline", "thread"])
def test_it_is_recorded_when_it_changes(runtime: str, tmp_path: Path) -> None:
    """Once for each total, however many batches come and however often it is said."""
    config = {"endpoint": ENDPOINT, "runtime": runtime, "ledger": {"dir": str(tmp_path)}}
    with Referee.from_config(config) as referee:
        referee.score(EMPTY)
        for samples in (10, 10, 20):
            referee.expect(samples, steps=3, resumed=samples == 20)
            referee.score(EMPTY)
    found = [(line.samples, line.steps, line.resumed) for line in read(tmp_path) if isinstance(line, TotalLine)]
    assert found == [(10, 3, False), (20, 3, True)]


def test_without_a_record_nothing_happens(tmp_path: Path) -> None:
    """Rewards come as they would."""
    with Referee.from_config({"endpoint": ENDPOINT, "ledger": {"dir": ""}}) as referee:
        referee.expect(10)
        assert len(referee.score(EMPTY)) == 1
