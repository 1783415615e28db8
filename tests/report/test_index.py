"""The index of a folder of runs: which are found, what their rows say, what is read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.report.ledgers import CONFIG, HOSTILE, audited, shuffled, small
from typer.testing import CliRunner

from referee.cli import report as command
from referee.ledger import Ledger, Line, RunLine
from referee.report import build
from referee.report.index import row_of, rows_before, runs_in

pytest.importorskip("plotly")
app = typer.Typer()
app.command()(command.command)


def write(folder: Path, lines: list[Line]) -> Path:
    """A run in a folder of its own."""
    book = Ledger(folder)
    for line in lines:
        book.append(line)
    book.close()
    return folder


def make(*arguments: object) -> str:
    """`referee report` with these; what it says."""
    done = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_runs_are_found_wherever_they_are_below(tmp_path: Path) -> None:
    """At any of the first levels, also those of trainers' hooks; not in hidden folders of others."""
    wanted = [tmp_path / "a", tmp_path / "b" / "out.run", tmp_path / ".referee" / "runs" / "20261118T000000Z-0a1b2c3d"]
    for folder in (*wanted, tmp_path / ".git" / "x", tmp_path / "a" / "below"):
        write(folder, small())
    assert runs_in(tmp_path) == sorted([*wanted, tmp_path / "a" / "below"])
    assert runs_in(tmp_path / ".referee" / "runs") == [wanted[2]]


def test_a_row_says_what_the_run_says() -> None:
    """Numbers of its report, curves by step, settings without those of the record, no good findings."""
    report = build(small())
    row = row_of("one", report, {**CONFIG, "ledger": {"dir": "somewhere"}})
    assert row.metrics["samples"] == report.metrics["samples"] == 24
    assert row.unscored_share == pytest.approx(1 / 24)
    assert (row.kind, row.models, row.steps, row.x) == ("score", ["m"], 3, [1.0, 2.0, 3.0])
    assert row.curves["score_mean"] == [step.score_mean for step in report.steps]
    assert sum(row.bins) == 23
    assert row.settings["judge.high"] == "10"
    assert not [name for name in row.settings if name.startswith("ledger")]
    assert {one.level for one in row.findings} <= {"bad", "warn"}
    assert row_of("two", build(audited()), {}).alarms == 2
    assert row_of("three", build(shuffled()), {}).curves["score_mean"] == []


def test_an_index_is_written_and_only_what_has_changed_is_read_again(tmp_path: Path) -> None:
    """The page itself remembers; one that something else made, or a damaged one, is made anew."""
    runs, page = tmp_path / "runs", tmp_path / "index.html"
    for name in ("a", "b"):
        write(runs / name, small())
    assert "2 runs, 2 of them read" in make(runs, "-o", page)
    assert "2 runs, 0 of them read" in make(runs, "-o", page)
    write(runs / "b", shuffled())  # another file in it
    assert "2 runs, 1 of them read" in make(runs, "-o", page)
    assert rows_before(page)["b"].metrics["samples"] == 184
    text = page.read_text()
    page.write_text(text.replace('id="index">', 'id="index">AAAA'))
    assert "2 runs, 2 of them read" in make(runs, "-o", page)
    assert page.stat().st_mode & 0o777 == 0o600


def test_pages_stand_beside_it(tmp_path: Path) -> None:
    """With --pages each run has its own, made again only if the run is newer; without, the command is there."""
    runs, page = tmp_path / "runs", tmp_path / "index.html"
    write(runs / "a b" / "out.run", small())
    make(runs, "-o", page)
    (row,) = rows_before(page).values()
    assert (row.page, row.stale) == ("", False)
    assert row.command.startswith("referee report '")
    make(runs, "-o", page, "--pages")
    own = tmp_path / "index-a%20b%2Fout.run.html"
    (row,) = rows_before(page).values()
    assert (row.page, row.stale, own.is_file()) == ("index-a%2520b%252Fout.run.html", False, True)
    before = own.stat().st_mtime_ns
    assert "0 of them read" in make(runs, "-o", page, "--pages")
    assert own.stat().st_mtime_ns == before
    os.utime(own, (1, 1))
    make(runs, "-o", page)
    assert next(iter(rows_before(page).values())).stale
    assert "1 of them read" in make(runs, "-o", page, "--pages")


def test_a_run_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    """Its row says why."""
    write(tmp_path / "runs" / "good", small())
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "empty" / "ledger-20261118T000000Z-1.jsonl").write_text("no line of a ledger\n")
    make(tmp_path / "runs", "-o", tmp_path / "index.html")
    rows = rows_before(tmp_path / "index.html")
    assert rows["good"].trouble == ""
    assert "nothing that can be read" in rows["empty"].trouble


def test_a_folder_with_a_ledger_is_a_run_and_one_without_any_an_error(tmp_path: Path) -> None:
    """What was a page of one run stays one; nothing to show is said."""
    write(tmp_path / "run", small())
    assert "24 samples" in make(tmp_path / "run", "-o", tmp_path / "page.html")
    (tmp_path / "none").mkdir()
    refused = CliRunner().invoke(app, [str(tmp_path / "none"), "-o", str(tmp_path / "no.html")])
    assert refused.exit_code != 0
    assert not (tmp_path / "no.html").exists()


def test_text_of_a_ledger_is_no_markup(tmp_path: Path) -> None:
    """Neither a configuration nor a folder's name is part of the page but as packed data."""
    config: dict[str, Any] = {**CONFIG, "judge": {"kind": HOSTILE[0], "criteria": HOSTILE[1]}}
    write(tmp_path / "runs" / "<img src=x onerror=alert(1)>", [RunLine(config=config), *small()[1:]])
    make(tmp_path / "runs", "-o", tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    assert "onerror" not in page.partition('id="plotly"')[0]
    assert page.count("<script>") == 1
