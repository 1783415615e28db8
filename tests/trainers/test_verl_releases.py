"""Our managers on older releases of verl, each in a process of its own.

REFEREE_VERL_RELEASES names a folder with one unpacked wheel in each subfolder, called by its version: `0.6.1/verl/…`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("verl")

from referee.sim import ProviderSpec, ServerProcess, start_server_process

pytestmark = [pytest.mark.timeout(300)]

VARIABLE = "REFEREE_VERL_RELEASES"
FOLDER = Path(os.environ.get(VARIABLE, ""))
RELEASES = sorted(path.parent.name for path in FOLDER.glob("*/verl")) if os.environ.get(VARIABLE) else []
CHILD = Path(__file__).with_name("verl_release.py")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A judge without faults."""
    with start_server_process(ProviderSpec()) as started:
        yield started


@pytest.mark.parametrize(
    "release", RELEASES or [pytest.param("", marks=pytest.mark.skip(reason=f"{VARIABLE} names no folder of releases"))]
)
def test_an_older_release_runs_our_managers(release: str, server: ServerProcess, tmp_path: Path) -> None:
    """Loaded by its own loader and configuration, on its own DataProto, beside its own managers."""
    for entry in (FOLDER.absolute() / release).iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    if release in ("0.4.1", "0.5.0"):
        # These look the manager up before they read the user's function, so importing us there would be too late.
        (tmp_path / "sitecustomize.py").write_text("import referee.trainers.verl\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(CHILD), release, server.url],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "LengthPenaltyRewardManager" in json.loads(done.stdout.splitlines()[-1])[0]


def test_a_named_folder_has_releases() -> None:
    """A folder that is named on purpose and holds nothing would leave everything untested without a word."""
    assert RELEASES or not os.environ.get(VARIABLE)
