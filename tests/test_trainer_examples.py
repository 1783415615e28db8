"""Every trainer's example runs as it stands, and what the pages show of Python is taken from them."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "trainers"
FILES = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "simulated.py")
PAGES = sorted((ROOT / "docs" / "trainers").glob("*.md"))
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def lines(text: str) -> list[str]:
    """A text's lines without what only layout is about."""
    return [line.strip() for line in textwrap.dedent(text).splitlines() if line.strip()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """It ends without an error and says something."""
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_in_a_page_stands_in_an_example(page: Path) -> None:
    """Each block is a run of lines of an example that runs: nothing is shown that was never executed."""
    files = ["\n".join(lines(path.read_text(encoding="utf-8"))) for path in FILES]
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        wanted = "\n".join(lines(block))
        assert any(wanted in file for file in files), block


def test_every_page_is_in_the_table_and_every_link_leads_somewhere() -> None:
    """docs/trainers.md names all pages; links in all of them point to files that are there."""
    table = ROOT / "docs" / "trainers.md"
    text = table.read_text(encoding="utf-8")
    assert PAGES
    assert all(f"trainers/{page.name}" in text for page in PAGES)
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(path.name in shown for path in FILES), "an example that no page names"
    for page in [table, *PAGES]:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
