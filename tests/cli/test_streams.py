"""Pipes, packed files, closed streams: what `referee score` reads from and writes to beside plain files."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import Run, environment, rows
from tests.cli.test_output import NOWHERE, Start, refused, setup

from referee.cli.rows import Digests
from referee.cli.score import _items
from referee.cli.stream import Item, stream
from referee.config import Config, JudgeConfig
from referee.errors import InputError
from referee.records import Sample
from referee.rollouts import BadLine


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, provider: Start) -> None:
    """The system's own words, and no traceback."""
    setup(tmp_path, provider().url)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-o", "-", "-q"],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=55,
        )
    assert done.returncode == 1
    assert "standard output: No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, provider: Start) -> None:
    """`| head`: the exit status is that of the signal, and nothing is said."""
    setup(tmp_path, provider().url, 40)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-o", "-", "-q"],
        cwd=tmp_path,
        env=environment(),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=55,
    )
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == "using referee.toml\n"


@pytest.mark.parametrize(("closing", "word"), [("-o - >&-", "standard output"), ("-o o.jsonl <&-", "standard input")])
def test_closed_streams_are_named(tmp_path: Path, closing: str, word: str) -> None:
    """A stream that is not there is said to be closed."""
    setup(tmp_path, NOWHERE)
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m referee.cli.main score - {closing}', sys.executable],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=55,
    )
    assert done.returncode == 2
    assert f"{word} is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """The record holds names as JSON, which such a name does not fit into."""
    setup(tmp_path, NOWHERE)
    done = subprocess.run(
        [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-o", b"out\xff.jsonl"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=55,
    )
    refused(done, "not UTF-8")


def test_a_pipe_and_a_packed_file_are_read(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A FIFO, `<(zcat …)` and a .gz hold rollouts like any file."""
    setup(tmp_path, provider().url)
    data = (tmp_path / "in.jsonl").read_bytes()
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(data))
    assert referee("score", "in.jsonl.gz", "-o", "a.jsonl").returncode == 0
    command = '"$0" -m referee.cli.main score <(cat {}) -o {}'
    for name, out in (("in.jsonl", "b.jsonl"), ("in.jsonl.gz", "c.jsonl")):
        shell = ["bash", "-c", command.format(name, out), sys.executable]
        done = subprocess.run(shell, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=55)
        assert done.returncode == 0, done.stderr
    for out in ("a.jsonl", "b.jsonl", "c.jsonl"):
        assert [row["score"] for row in rows(tmp_path / out)] == [1, 2, 3, 4]


def test_what_is_no_input_is_said(tmp_path: Path, referee: Run) -> None:
    """A folder, nothing at all, an empty file, a file of something else."""
    setup(tmp_path, NOWHERE)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "notes.txt").write_text("hello\n")
    refused(referee("score", ".", "-o", "out.jsonl"), "is a folder")
    refused(referee("score", "none.jsonl", "-o", "out.jsonl"), "no such file")
    empty = referee("score", "empty.jsonl", "-o", "out.jsonl")
    refused(empty, "empty.jsonl: there are no rollouts in this file.")
    assert "skip-bad" not in empty.stderr
    refused(referee("score", "notes.txt", "-o", "out.jsonl", "--skip-bad"), "One looks like this")


class Instant:
    """A Referee whose tickets hold what was submitted."""

    def submit(self, samples: list[Sample], deadline: float) -> Any:
        return SimpleNamespace(result=lambda: samples, cancel=lambda: None)


def test_groups_of_another_size_than_was_said_come_out_too() -> None:
    """Nothing that was read is thrown away, and the order is that of the input."""
    given = [Item(place, Sample(prompt="p", response="r", group=group), None) for place, group in enumerate("aabbbc")]
    referee: Any = Instant()
    found = list(stream(referee, given, {"a": 3, "b": 2}))
    assert [item.tag for item, _ in found] == list(range(6))


def test_a_line_that_was_not_known_to_be_bad_stops_the_run() -> None:
    """Its row would be missing from the output without a word."""
    bad, fine = BadLine(2, "response", "missing."), Sample(prompt="p", response="r")
    digests = Digests(Config(judge=(JudgeConfig(),)))
    assert len(list(_items(iter([(1, fine), (2, bad)]), 1, digests, iter(())))) == 1
    with pytest.raises(InputError, match="line 2: response: missing"):
        list(_items(iter([(1, fine), (2, bad)]), 0, digests, iter(())))
