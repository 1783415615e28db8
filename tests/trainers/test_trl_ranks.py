"""A real TRL run on two ranks that have parts of groups, with a judge of groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.trainers.trl_tiny import OFFLINE

from referee.sim import ProviderSpec, start_server_process
from referee.trainers.rows import to_sample
from referee.trainers.shared import Judged, close_all

pytest.importorskip("trl")
pytestmark = pytest.mark.timeout(600)


def test_two_ranks_judge_their_common_group_as_one(tmp_path: Path) -> None:
    """Every answer has the value it gets among all four to its prompt, of which the ranks generated two each."""
    server = start_server_process(ProviderSpec(), seed=1)
    try:
        path = tmp_path / "referee.toml"
        path.write_text(
            f'[judge]\nkind = "listwise"\ngates = {{ truncated = "off" }}\n[cache]\npath = ""\n'
            f'[endpoint]\nurl = "{server.url}"\nmodel = "simulated"\nkey_env = ""\n'
        )
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        done = subprocess.run(
            [*command, str(Path(__file__).with_name("trl_rank.py")), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
            env={**os.environ, **OFFLINE, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        prompts, answers, rewards, _ = json.loads((tmp_path / "given.json").read_text())
        assert len(rewards) == 2 * 12
        rows = [to_sample(*row) for row in zip(prompts, answers, strict=True)]
        whole = [replace(row, group=str(number // 4)) for number, row in enumerate(rows)]
        assert rewards == pytest.approx([reward.value for reward in Judged(path).score(whole)])
        assert len({round(reward, 6) for reward in rewards}) > 3
    finally:
        close_all()
        server.stop()
