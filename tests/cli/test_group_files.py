"""`referee score` with judges of groups: rows of a group anywhere in the file, resumed runs, the fields of a row."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, Start, environment, rows, write_config

from referee import clock

LISTWISE = '[judge]\nkind = "listwise"\n'
PAIRWISE = '[judge]\nkind = "pairwise"\nschedule = "all"\nstrength = "win_rate"\n'
KINDS = pytest.mark.parametrize("judge", [LISTWISE, PAIRWISE], ids=["listwise", "pairwise"])


def write_groups(path: Path, groups: int, size: int = 4) -> list[int]:
    """Groups of different qualities, their rows all over the file; the ranks within the groups, in order of rows."""
    given = [(group, rank) for group in range(groups) for rank in range(size)]
    random.Random(1).shuffle(given)
    with path.open("w") as stream:
        for group, rank in given:
            response = f"[[quality={2 * rank + 1 + group % 3}]] {group}"
            row = {"id": f"{group}-{rank}", "group": f"g{group}", "prompt": f"p{group}", "response": response}
            stream.write(json.dumps(row) + "\n")
    return [rank for _, rank in given]


def in_order(found: list[dict[str, Any]], ranks: list[int]) -> bool:
    """Whether every row has the value that its rank in the group deserves: of listwise its score, of pairwise the share
    of siblings it beats."""
    return all(
        row["value"] == pytest.approx((row["score"] - 1) / 9 if row["how"] == "listwise" else rank / 3)
        for row, rank in zip(found, ranks, strict=True)
    )


@KINDS
def test_rows_of_a_group_may_be_anywhere(tmp_path: Path, referee: Run, provider: Start, judge: str) -> None:
    """Each is judged with its siblings, and the rows come back in the file's order with the fields of any judge."""
    ranks = write_groups(tmp_path / "in.jsonl", 60)
    server = provider()
    write_config(tmp_path / "referee.toml", server.url, judge)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert in_order(found, ranks)
    assert [row["line"] for row in found] == list(range(1, 241))
    assert all(row["reward"] == row["value"] for row in found)
    assert server.stats().received == (60 if judge is LISTWISE else 60 * 12)
    if judge is PAIRWISE:
        one = found[0]
        group = one["group"][1:]
        assert {part["name"] for part in one["parts"]} == {f"{group}-{n}" for n in range(4)} - {one["id"]}
        assert {part["verdict"] for part in one["parts"]} <= {"won", "lost", "tied"}
        assert len(one["parts"]) == 6


@KINDS
def test_a_finished_run_is_resumed_and_repeated_for_nothing(
    tmp_path: Path, referee: Run, provider: Start, judge: str
) -> None:
    """Nothing is asked twice: not for rows that are there, and not for groups that are in the cache."""
    write_groups(tmp_path / "in.jsonl", 10)
    server = provider()
    write_config(tmp_path / "referee.toml", server.url, judge)
    assert referee("score", "in.jsonl", "-o", "out.jsonl").returncode == 0
    before, paid = rows(tmp_path / "out.jsonl"), server.stats().received
    assert "40 kept" in referee("score", "in.jsonl", "-o", "out.jsonl", "--resume").stderr
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "--overwrite").returncode == 0
    assert [row["value"] for row in rows(tmp_path / "out.jsonl")] == [row["value"] for row in before]
    assert server.stats().received == paid


@KINDS
def test_a_killed_run_is_resumed_in_whole_groups(tmp_path: Path, referee: Run, provider: Start, judge: str) -> None:
    """After kill -9: every row has the value that it has among all of its siblings, and what was answered is not asked
    again."""
    ranks = write_groups(tmp_path / "in.jsonl", 60)
    server = provider(latency_median=0.02, capacity=10, mode="queue")
    write_config(tmp_path / "referee.toml", server.url, judge + "[limits]\nconcurrency = 10\n")
    enough = 20 if judge is LISTWISE else 300
    child = subprocess.Popen(
        [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-o", "out.jsonl"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    for _ in range(3000):
        if server.stats().answered >= enough:
            break
        clock.pause(0.01)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(timeout=30) == -9
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert [row["line"] for row in found] == list(range(1, 241))
    assert in_order(found, ranks)
    whole = 60 if judge is LISTWISE else 60 * 12
    assert server.stats().answered < 2 * whole, "what was answered before the kill was asked again"


def test_unscored_siblings_are_judged_again_with_their_group(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A group that had no verdict in the first run has one after --resume, and rows without siblings stay alone."""
    ranks = write_groups(tmp_path / "in.jsonl", 3)
    with (tmp_path / "in.jsonl").open("a") as stream:
        stream.write(json.dumps({"id": "single", "prompt": "p", "response": "[[quality=5]]"}) + "\n")
    write_config(tmp_path / "referee.toml", provider(faults={"refusal": 1.0}).url, LISTWISE)
    assert referee("score", "in.jsonl", "-o", "out.jsonl").returncode == 3
    write_config(tmp_path / "referee.toml", provider().url, LISTWISE)
    referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    *found, single = rows(tmp_path / "out.jsonl")
    assert in_order(found, ranks)
    assert (single["unscored"], single["reward"]) == ("alone", None)
