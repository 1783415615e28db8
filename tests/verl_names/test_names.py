"""The public names: there, lazy, and cheap."""

from __future__ import annotations

import subprocess
import sys

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
