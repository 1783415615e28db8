"""Every example runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

ELSEWHERE = {"ray_data.py"}
"""Needs Ray: run by tests/trainers/test_ray_data.py."""


@pytest.mark.parametrize(
    "path", sorted(path for path in EXAMPLES.glob("*.py") if path.name not in ELSEWHERE), ids=lambda path: path.name
)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """It ends without an error and says something."""
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


CELLS = """
import ast, asyncio, inspect, json, sys

async def main():
    names = {}
    for cell in json.load(open(sys.argv[1]))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            if isinstance(tree.body[-1], ast.Expr):
                tree.body[-1] = ast.Assign([ast.Name("_", ast.Store())], tree.body[-1].value)
            ran = eval(compile(ast.fix_missing_locations(tree), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(ran):
                await ran
            last = names.pop("_", None)
            print(getattr(last, "_repr_html_", lambda: last)())

asyncio.run(main())
"""
"""A notebook's cells as a kernel runs them: in a running loop, with `await`, and the last value of each shown."""


def test_the_notebook_runs(tmp_path: Path) -> None:
    """All of its cells, without a key and without Jupyter."""
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", CELLS, str(EXAMPLES / "notebook.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert "refused" in done.stdout, "rows without a verdict are shown to be such"
    assert '<progress value="' in done.stdout
