"""`referee rejudge`: the samples of a run, as they were, by another judge."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run, Server, Start, rows, write_config

CALLS = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "calc", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "4"},
    {"role": "assistant", "content": "It is 4."},
]


def write(tmp_path: Path, server: Server) -> None:
    given = [
        {"id": "a", "prompt": "2 + 2?", "response": CALLS, "group": "g", "topic": "sums", "reference": "4"},
        {"id": "b", "prompt": "2 + 2?", "response": "It is 5.", "group": "g", "topic": "sums", "truncated": True},
        {"id": "c", "prompt": "3 + 2?", "response": "It is 5.", "topic": "more sums", "rule_score": 0.5, "step": 3},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    (tmp_path / "template.txt").write_text("{{columns.topic}} {{prompt}} {{response}}")
    write_config(tmp_path / "referee.toml", server.url, '[judge]\nview = "full"\nprompt_file = "template.txt"')


def test_the_same_judge_is_asked_nothing_new(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Messages, columns, references and flags come out of the ledger as they went in: every request is in the cache."""
    write(tmp_path, provider())
    assert referee("score", "in.jsonl", "-o", "a.jsonl").returncode == 0
    done = referee("rejudge", "a.run", "-o", "b.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["matched"], found["exact"]) == (3, 1.0)
    first, again = rows(tmp_path / "a.jsonl"), rows(tmp_path / "b.jsonl")
    assert {row["id"]: row["reward"] for row in first} == {row["id"]: row["reward"] for row in again}
    assert {row["origin"] for row in again} == {"cache", "gate"}


def test_another_judge_is_compared_with_the_first(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Also where the rewards are named and not their ledger."""
    server = provider()
    write(tmp_path, server)
    assert referee("score", "in.jsonl", "-o", "a.jsonl").returncode == 0
    write_config(tmp_path / "other.toml", server.url, '[judge]\nkind = "yes_no"')
    done = referee("rejudge", "a.jsonl", "-c", "other.toml", "-o", "b.jsonl")
    assert done.returncode == 0, done.stderr
    assert "scored by both" in done.stdout
    assert "3" in done.stdout


def test_what_holds_no_texts_is_refused(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Before anything is asked."""
    write(tmp_path, provider())
    config = (tmp_path / "referee.toml").read_text()
    (tmp_path / "referee.toml").write_text(config + "\n[ledger]\ncontent = false\n")
    assert referee("score", "in.jsonl", "-o", "a.jsonl").returncode == 0
    done = referee("rejudge", "a.run", "-o", "b.jsonl")
    assert done.returncode == 2
    assert "content = false" in done.stderr
    (tmp_path / "alone.jsonl").write_text((tmp_path / "a.jsonl").read_text())
    done = referee("rejudge", "alone.jsonl", "-o", "b.jsonl")
    assert done.returncode == 2
    assert "hold no prompts" in done.stderr
    assert not (tmp_path / "b.jsonl").exists()


def test_the_run_that_is_judged_again_is_not_overwritten(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Neither by name nor as the rewards that its ledger belongs to."""
    write(tmp_path, provider())
    assert referee("score", "in.jsonl", "-o", "a.jsonl").returncode == 0
    before = (tmp_path / "a.jsonl").read_bytes()
    for run in ("a.run", "a.jsonl", "./a.run/"):
        for more in ("--resume", "--overwrite"):
            done = referee("rejudge", run, "-o", "a.jsonl", more)
            assert done.returncode == 2
            assert "Give -o another name" in done.stderr
    assert (tmp_path / "a.jsonl").read_bytes() == before


def test_an_error_names_the_run_and_no_temporary_file(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The samples are handed on in a file of ours that no one can open."""
    server = provider()
    (tmp_path / "in.jsonl").write_text('{"prompt": "2 + 2?", "response": "4"}\n')
    write_config(tmp_path / "referee.toml", server.url)
    assert referee("score", "in.jsonl", "-o", "a.jsonl").returncode == 0
    write_config(tmp_path / "other.toml", server.url, '[judge]\nkind = "reference"')
    done = referee("rejudge", "a.run", "-c", "other.toml", "-o", "b.jsonl")
    assert done.returncode == 2
    assert 'error: a.run: judge.kind = "reference"' in done.stderr
