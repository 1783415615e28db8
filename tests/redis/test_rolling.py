"""Two replicas as users run them, restarted in turn under load."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.rolling import BUDGET, CONCURRENCY, POOR, TEAMS, rolling
from tests.redis.server import BINARY


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(BINARY is None, reason="redis-server is not installed")
def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    """SIGTERM and kill -9: every ticket comes back right, and no more is asked twice than a replica has in flight."""
    found = rolling(tmp_path, seconds=1.0, clients=4, batch=8)
    assert (found.lost, found.wrong) == (0, 0)
    assert found.exits == [0, 0]
    assert found.reloads > 0
    assert found.tickets > 10
    assert found.elsewhere > 0
    assert found.asked - found.samples <= len(found.in_flight) * CONCURRENCY + found.cut_off


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(BINARY is None, reason="redis-server is not installed")
def test_a_rolling_restart_keeps_teams_and_their_budgets(tmp_path: Path) -> None:
    """Ten teams at once: tickets come back right, no budget is passed, and what was paid counts as spent."""
    found = rolling(tmp_path, seconds=1.0, batch=8, teams=True)
    assert (found.lost, found.wrong) == (0, 0)
    assert found.exits == [0, 0]
    assert found.refused > 0
    for name in TEAMS:
        assert found.rows_usd[name] <= found.spent_usd[name] + 1e-9
        assert found.spent_usd[name] <= BUDGET[name] + 1e-9
    assert found.billed_usd <= sum(found.spent_usd.values()) + 1e-9
    assert found.spent_usd[POOR] > BUDGET[POOR] / 2
