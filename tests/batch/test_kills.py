"""A real `referee score --batch`, killed at random moments; the provider is another process and keeps the bill."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.batch.kills import killed_run


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("provider", "seed", "faults"), [("openai", 1, False), ("anthropic", 2, False), ("openai", 3, True)]
)
def test_killed_again_and_again(tmp_path: Path, provider: str, seed: int, faults: bool) -> None:
    """Every row is there once, every item is paid once, and what the rows cost is what the provider billed."""
    found = killed_run(tmp_path, provider, seed, 6, faults)
    assert found.kills == 6
    found.check(faults)
    assert not found.open_left
