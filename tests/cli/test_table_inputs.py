"""Every command that reads a file of rows reads tables too, with --map, and names what it cannot read in one line."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from tests.cli.conftest import Run, Start, write_config
from typer.testing import CliRunner

from referee.cli import source
from referee.cli.main import app
from referee.errors import InputError

NOWHERE = "http://127.0.0.1:9/v1"
ROWS = [
    {"q": f"p{n}", "a": f"[[quality={n + 1}]]", "human": n + 1, "kind": "xy"[n % 2], "response_id": n} for n in range(6)
]
MAPS = ("--map", "prompt=q", "--map", "response=a")


def write_table(path: Path) -> None:
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(ROWS), path)
        return
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)


def said(referee: Run, *args: str) -> Any:
    done = referee(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["in.csv", "in.parquet"])
def test_tables_are_planned_attacked_calibrated_and_compared(
    tmp_path: Path, referee: Run, provider: Start, name: str
) -> None:
    """As the lines of JSON they stand for would be."""
    write_table(tmp_path / name)
    write_config(tmp_path / "referee.toml", provider().url)
    assert said(referee, "plan", name, *MAPS)["rollouts"]["samples"] == 6
    assert said(referee, "attack", name, *MAPS, "--prompts", "2")["judge"]["prompts"] == 2
    (judge,) = said(referee, "calibrate", name, *MAPS, "--label", "human", "--by", "kind")["judges"]
    assert judge["n"] == 6
    assert judge["spearman"] == pytest.approx(1.0)
    assert referee("score", name, *MAPS, "-o", "out.csv").returncode == 0
    found = said(referee, "diff", "out.csv", name, *MAPS, "--map", "score=human")
    assert (found["matched_by"], found["exact"]) == ({"text": 6}, 1.0)
    assert said(referee, "compare", name, name, *MAPS)["pairs"] == 6


def test_a_run_is_judged_again_from_its_table(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The table of rewards leads to the record beside it, which holds the prompts."""
    write_table(tmp_path / "in.csv")
    write_config(tmp_path / "referee.toml", provider().url)
    assert referee("score", "in.csv", *MAPS, "-o", "out.csv").returncode == 0
    found = said(referee, "rejudge", "out.csv", "-o", "again.jsonl.gz")
    assert (found["matched"], found["exact"]) == (6, 1.0)
    refused = referee("rejudge", "out.csv", "-o", "out.csv.jsonl")
    assert refused.returncode == 2, "the record would be the same folder"
    assert "Give -o another name" in refused.stderr


@pytest.mark.parametrize("command", ["score", "plan", "attack", "calibrate", "compare"])
def test_what_no_command_reads_is_named_in_one_line(tmp_path: Path, referee: Run, command: str) -> None:
    """A database, a sheet, a page, a pickle, prose: never a list of lines that are not JSON."""
    write_config(tmp_path / "referee.toml", NOWHERE)
    sqlite3.connect(tmp_path / "a.db").execute("create table t (a)").connection.close()
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04 ...")
    (tmp_path / "a.html").write_text("<html>\n" * 30)
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04\x95\n\x00\n" * 30)
    (tmp_path / "a.yaml").write_text("- prompt: a\n  response: b\n" * 30)
    for file in ("a.db", "a.xlsx", "a.html", "a.pkl", "a.yaml"):
        more = {"score": ["-o", "out.jsonl"], "compare": [file]}.get(command, [])
        done = referee(command, file, *more)
        assert done.returncode == 2, done.stdout
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("using ")]
        assert file in line
        assert "this is " in line


@pytest.mark.parametrize("given", ["in.csv", "-"])
def test_a_full_temporary_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """It is not the input that cannot be read; another folder is one variable away."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    write_table(tmp_path / "in.csv")
    monkeypatch.chdir(tmp_path)

    @contextlib.contextmanager
    def scratch() -> Iterator[tuple[IO[bytes], Path]]:
        with full.open("wb", buffering=0) as stream:
            yield stream, full

    monkeypatch.setattr(source, "scratch", scratch)
    run = CliRunner().invoke(app, ["score", given, "-o", "out.jsonl"], input=(tmp_path / "in.csv").read_bytes())
    assert isinstance(run.exception, InputError)
    assert f"no room for a temporary copy of {given}; the variable TMPDIR" in str(run.exception)
