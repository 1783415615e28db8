"""The audit on the command line: beside `referee score`, and asked of a finished run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run, Start, rows

TOML = """
[endpoint]
url = "{url}"
model = "m"
key_env = ""
[audit]
enable = true
"""


def write(path: Path, count: int) -> None:
    """Rollouts of some steps, each answer another one."""
    with path.open("w") as file:
        for n in range(count):
            quality = n * 7 % 10 + 1
            row = {
                "prompt": f"Question {n // 4}?",
                "response": f"Answer {n} is this. It is short. [[quality={quality}]]",
                "group": str(n // 4),
                "step": n // 16,
            }
            file.write(json.dumps(row) + "\n")


def test_score_ends_with_a_line_of_the_audit(tmp_path: Path, referee: Run, provider: Start) -> None:
    """What it found and what it asked; rows and exit status are those without it, also after --resume."""
    write(tmp_path / "rollouts.jsonl", 64)
    (tmp_path / "referee.toml").write_text(TOML.format(url=provider().url))
    done = referee("score", "rollouts.jsonl", "-o", "rewards.jsonl")
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("audit: ")]
    assert "requests of its own" in said
    with_audit = [row["reward"] for row in rows(tmp_path / "rewards.jsonl")]
    lines = (tmp_path / "rewards.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "rewards.jsonl").write_text("".join(lines[:40]))
    again = referee("score", "rollouts.jsonl", "-o", "rewards.jsonl", "--resume", REFEREE_AUDIT_ENABLE="false")
    assert again.returncode == 0, again.stderr
    assert "audit: " not in again.stderr
    assert [row["reward"] for row in rows(tmp_path / "rewards.jsonl")] == with_audit


def test_a_finished_run_can_be_asked_about(tmp_path: Path, referee: Run, provider: Start) -> None:
    """How many requests is said before; what was asked is among the signals."""
    write(tmp_path / "rollouts.jsonl", 64)
    (tmp_path / "referee.toml").write_text(TOML.format(url=provider().url))
    assert referee("score", "rollouts.jsonl", "-o", "rewards.jsonl", REFEREE_AUDIT_ENABLE="false").returncode == 0
    plain = json.loads(referee("audit", "rewards.run", "--json").stdout)
    assert plain["signals"]["probes"]["looked_at"] == 0
    done = referee("audit", "rewards.run", "--ask", "-c", "referee.toml", "--requests", "90", "--json")
    assert done.returncode in (0, 4), done.stderr
    assert "asking " in done.stderr
    signals = json.loads(done.stdout)["signals"]
    assert signals["probes"]["looked_at"] > 4
    assert signals["fixed"]["looked_at"] > 4
    refused = referee("audit", "rewards.run", "-c", "referee.toml")
    assert refused.returncode == 2
    assert "--ask" in refused.stderr
