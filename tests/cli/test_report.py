"""report, watch, diff and plan on real records: a run that was interrupted and resumed looks like a whole one."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from tests.cli.conftest import Run, Start, rows, write_config, write_rollouts
from tests.cli.test_score import start_and_wait

pytestmark = pytest.mark.slow

COUNT = 600


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_resumed_run_looks_whole(how: signal.Signals, tmp_path: Path, referee: Run, provider: Start) -> None:
    """Interrupted or killed in the middle, then resumed: every sample counts once, scored, in all four commands."""
    server = provider(latency_median=0.05, capacity=10, mode="queue")
    write_rollouts(tmp_path / "in.jsonl", COUNT)
    write_config(tmp_path / "referee.toml", server.url, "[limits]\nconcurrency = 10", price_in=1.0, price_out=1.0)
    child = start_and_wait(tmp_path, server, 200)
    os.kill(child.pid, how)
    child.communicate(timeout=30)
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert done.returncode == 0, done.stderr
    assert referee("score", "in.jsonl", "-o", "whole.jsonl").returncode == 0
    assert [row["score"] for row in rows(tmp_path / "out.jsonl")] == [n % 10 + 1 for n in range(COUNT)]

    shot = json.loads(referee("watch", "out.run", "--json").stdout)
    report, metrics = shot["report"], shot["report"]["metrics"]
    assert (metrics["samples"], metrics["scored"], metrics["unscored"]) == (COUNT, COUNT, 0)
    assert shot["now"]["progress"] == {"samples": COUNT, "done": COUNT, "steps": 0, "begun": 0, "left_s": 0.0}
    assert [row["samples"] for row in report["steps"]] == [COUNT]
    assert report["steps"][0]["groups"] == COUNT // 4
    assert not [finding for finding in report["findings"] if finding["panel"] in ("unscored", "wait")]
    assert "waiting" not in referee("watch", "out.run", "--once").stdout

    found = json.loads(referee("diff", "out.run", "whole.run", "--json").stdout)
    assert (found["matched"], found["both"], found["only_a"], found["only_b"]) == (COUNT, COUNT, 0, 0)
    assert found["exact"] == 1.0

    load = json.loads(referee("plan", "out.run", "--json").stdout)["workload"]
    assert (load["samples"], load["work_s"]) == (COUNT, None)
    assert load["asked"] >= 0.95  # a call that was under way when the run ended may be in the cache and in no record

    pytest.importorskip("plotly")
    assert re.search(rf"\b{COUNT} samples", referee("report", "out.run", "-o", "page.html").stderr)


def test_a_run_begun_anew_looks_like_its_last_start(tmp_path: Path, referee: Run, provider: Start) -> None:
    """With --overwrite, also into a ledger that the configuration names, each rollout is one sample."""
    server = provider()
    write_rollouts(tmp_path / "in.jsonl", 8)
    for text, folder in (("", "out.run"), ('[ledger]\ndir = "book"', "book")):
        write_config(tmp_path / "referee.toml", server.url, text)
        for _ in range(2):
            assert referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite").returncode == 0
        shot = json.loads(referee("watch", folder, "--json").stdout)
        metrics = shot["report"]["metrics"]
        assert (metrics["samples"], metrics["scored"]) == (8, 8)
        assert (shot["now"]["progress"]["done"], shot["now"]["progress"]["samples"]) == (8, 8)


def test_summary_record_and_rewards_agree(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A short run with throttling: requests in summary and record agree, and scores in record and rewards."""
    server = provider(faults={"throttle_float": 0.3}, retry_after_s=0.01)
    write_rollouts(tmp_path / "in.jsonl", 40)
    write_config(tmp_path / "referee.toml", server.url)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) requests, .* (\d+) throttled", done.stderr)
    assert found is not None
    metrics = json.loads(referee("watch", "out.run", "--json").stdout)["report"]["metrics"]
    assert (metrics["requests"], metrics["throttled"]) == (int(found[1]), int(found[2]))
    assert metrics["throttled"] > 0

    compared = json.loads(referee("diff", "out.jsonl", "out.run", "--json").stdout)
    assert (compared["matched_by"], compared["exact"]) == ({"id": 40}, 1.0)
    labels = [json.dumps({"score": row["score"]}) for row in rows(tmp_path / "out.jsonl")]
    (tmp_path / "people.jsonl").write_text("\n".join(labels))
    compared = json.loads(referee("diff", "out.jsonl", "people.jsonl", "--json").stdout)
    assert (compared["matched_by"], compared["exact"]) == ({"position": 40}, 1.0)

    pytest.importorskip("plotly")
    assert re.search(r"\b40 samples.*record out\.run", referee("report", "out.jsonl", "-o", "page.html").stderr)
    for command in (["report", "in.jsonl", "-o", "other.html"], ["diff", "out.run", "in.jsonl"]):
        refused = referee(*command)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert len(refused.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "other.html").exists()
