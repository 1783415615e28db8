"""The tests that docs/reliability.md and SECURITY.md stand on are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)(?:::(test_\w+))?|(test_\w+))`")


@pytest.mark.parametrize("page", ["docs/reliability.md", "SECURITY.md"])
def test_every_test_named_exists(page: str) -> None:
    """A promise whose test was renamed or taken away is noticed here."""
    found, source = 0, ""
    for file, test, alone in NAMED.findall((ROOT / page).read_text(encoding="utf-8")):
        if file:
            source = (ROOT / file).read_text(encoding="utf-8")
        if test or alone:
            found += 1
            assert f"def {test or alone}(" in source, f"{page} names {file} {test or alone}"
    assert found > 10
