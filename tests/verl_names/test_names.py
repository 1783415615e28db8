"""The public names: there, lazy, and cheap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import referee.trainers.verl as package


def test_every_name_is_there() -> None:
    """What the issue lists, and sorted."""
    assert list(package.__all__) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__name__ == name


def test_importing_it_imports_no_framework() -> None:
    """verl is 6 seconds and 370 MB."""
    code = (
        "import sys, referee.trainers.verl as v\n"
        "[getattr(v, name) for name in v.__all__]\n"
        "found = {'verl', 'torch', 'ray', 'transformers', 'omegaconf'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


def test_the_example_says_what_it_needs() -> None:
    """Without verl: what to install, and no traceback."""
    path = Path(__file__).parents[2] / "examples" / "verl_grpo" / "try_it.py"
    code = f"import runpy, sys\nsys.modules['hydra'] = None\nrunpy.run_path({str(path)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 1
    assert "not installed here" in done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr
