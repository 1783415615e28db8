"""A run watched while it goes: the report's own numbers, in a frame, a line and as data."""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from rich.console import Console
from tests.report.ledgers import START, audited, several
from typer.testing import CliRunner

from referee.cli import watch as watch_command
from referee.cli.screen import ago, frame, line, over_time, rows, spark
from referee.errors import InputError
from referee.ledger import (
    AskLine,
    BatchLine,
    JudgeLine,
    Ledger,
    LimitsLine,
    Line,
    RewardLine,
    RunLine,
    TextLine,
    TotalLine,
    VerdictLine,
    read,
)
from referee.ledger.metrics import metrics
from referee.report.data import build
from referee.report.newest import LONGEST, NEWEST
from referee.report.shape import TimeRow
from referee.report.sums import covered
from referee.report.watch import Snapshot, Watch, pace

SECRET = "a rollout that is nobody else's"
HOSTILE = "[/bold]\x1b]0;owned\x07\x1b[2J\u202e[red]:smile:\x00</script>"
app = typer.Typer()
app.command()(watch_command.command)


def lines(step: int, start: float, text: str = "an answer") -> list[Line]:
    """One step of four samples: one unscored, one cached."""
    found: list[Line] = []
    for index in range(4):
        scored = index != 3
        value = index / 2 if scored else None
        origin = "cache" if index == 2 else "call"
        found.append(
            VerdictLine(
                wall=start + index,
                batch=f"b{step}",
                index=index,
                id=f"s{step}-{index}",
                group=f"g{step}",
                step=step,
                origin=origin,
                score=None if value is None else 1 + 9 * value,
                value=value,
                unscored="" if scored else "timeout",
                attempts=1,
                latency_s=2.0,
                cost=0.01,
                response=text,
                why=text,
            )
        )
        found.append(RewardLine(wall=start + index, batch=f"b{step}", index=index, step=step, value=value, length=10))
    found.append(LimitsLine(wall=start + 3, endpoint="a", limit=8.0, in_flight=3, queued=2, requests=3 * (step + 1)))
    found.append(BatchLine(wall=start + 4, batch=f"b{step}", samples=4, step=step, submitted=start, waited_s=1.0))
    return found


def ledger(folder: Path, *more: Line) -> Ledger:
    """A ledger that stays open, so that it can grow."""
    made = Ledger(folder)
    made.append(RunLine(wall=1000.0, config={"endpoint": [{"price_in": 1.0, "price_out": 1.0}]}))
    for each in more:
        made.append(each)
    made.flush()
    return made


def watched(folder: Path, wall: float = 1010.0) -> Snapshot:
    watch = Watch(folder)
    watch.catch_up()
    return watch.snapshot(wall)


def test_the_numbers_are_those_of_the_report(tmp_path: Path) -> None:
    """Followed in pieces or read at the end: the same report, the same metrics."""
    watch = Watch(tmp_path)
    book = ledger(tmp_path)
    for step in range(5):
        for each in lines(step, 1000.0 + 10 * step):
            book.append(each)
            book.flush()
            watch.update()
    book.close()
    shot = watch.snapshot(1050.0)
    assert msgspec.to_builtins(shot.report) == msgspec.to_builtins(build(read(tmp_path)))
    assert shot.report.metrics == metrics(read(tmp_path))
    assert shot.now.step == 4
    assert shot.newest[0].id == "s4-3"
    assert shot.now.last_s == pytest.approx(6.0)


def test_processes_that_write_at_once_add_up(tmp_path: Path) -> None:
    """Two files grow side by side: requests, limits and queues are of both, samples are counted once."""
    watch = Watch(tmp_path)
    books = [ledger(tmp_path), ledger(tmp_path)]
    for step in range(3):
        for book in books:
            for each in lines(step, 1000.0 + 10 * step):
                book.append(each)
            book.flush()
            watch.update()
    for book in books:
        book.close()
    shot = watch.snapshot(1025.0)
    assert shot.files == 2
    assert shot.report.metrics["samples"] == 24
    assert shot.report.metrics["requests"] == 18
    assert (shot.now.limit, shot.now.in_flight, shot.now.queued) == (16.0, 6.0, 4.0)
    assert shot.report.metrics["elapsed_s"] == 24.0
    assert shot.report.metrics["wait_s"] == 6.0
    assert shot.report.metrics["wait_fraction"] == pytest.approx(3 / 24)  # of the time each of them had
    assert watched(tmp_path, 1025.0).report.metrics == shot.report.metrics
    page = build(read(tmp_path)).metrics
    for name in ("samples", "requests", "elapsed_s", "wait_fraction", "flat_group_share"):
        assert page[name] == shot.report.metrics[name]


def test_gauges_of_a_process_that_is_gone_are_not_now(tmp_path: Path) -> None:
    """A minute after its last word nothing is in flight and nothing is fast."""
    ledger(tmp_path, *lines(0, 1000.0)).close()
    now = watched(tmp_path, 5000.0).now
    assert (now.limit, now.in_flight, now.samples_per_s) == (0.0, 0.0, 0.0)


def test_a_file_that_was_cut_is_counted_anew(tmp_path: Path) -> None:
    """No sample is counted twice after a file began again."""
    book = ledger(tmp_path, *lines(0, 1000.0))
    watch = Watch(tmp_path)
    watch.update()
    data = book.path.read_bytes()
    book.close()
    book.path.write_bytes(data[: data.index(b"\n", 200) + 1])
    watch.update()
    assert watch.snapshot(1001.0).report.metrics["samples"] < 4
    assert watch.snapshot(1001.0).restarts == 1


def test_memory_of_samples_is_bounded(tmp_path: Path) -> None:
    """Only the newest are kept, and only the beginning of their texts."""
    long = "x" * (2 * LONGEST)
    book = ledger(tmp_path, *(VerdictLine(wall=1000.0, id=str(n), response=long) for n in range(NEWEST * 2)))
    book.close()
    watch = Watch(tmp_path)
    watch.catch_up()
    newest = watch.snapshot(1010.0).newest
    assert [item.id for item in newest] == [str(n) for n in reversed(range(NEWEST, NEWEST * 2))]
    assert max(len(item.response) for item in newest) <= 400
    opened = watch.opened()
    assert opened.seqs == [item.seq for item in reversed(newest)]
    assert {len(row[2]) for row in unpacked(opened.parts["texts-0"])} == {LONGEST}


def unpacked(text: str) -> Any:
    """Data as the page's script unpacks it."""
    return msgspec.json.decode(zlib.decompress(base64.b64decode(text)))


def test_a_view_without_texts_opens_to_numbers_only(tmp_path: Path) -> None:
    """No text of a sample leaves it, neither in the list nor in an opened one."""
    private = {"asked": SECRET, "reply": SECRET, "why": SECRET, "detail": SECRET}
    more = {"more": {"columns": {"a": SECRET}}, "parts": [{"name": "c", "text": SECRET, "why": SECRET}], "value": 0.5}
    told = [TextLine(digest="s", text=SECRET), JudgeLine(judge="j", **private), AskLine(judge="j", **private)]
    ledger(
        tmp_path,
        *told,
        VerdictLine(id="one", prompt=SECRET, response=SECRET, reference=SECRET, system="s", **private, **more),
    ).close()
    for texts in (True, False):
        watch = Watch(tmp_path, texts=texts)
        watch.catch_up()
        shown = [msgspec.json.encode(watch.snapshot(1010.0).newest)]
        shown += [zlib.decompress(base64.b64decode(part)) for part in watch.opened().parts.values()]
        assert any(SECRET.encode() in data for data in shown) == texts
        assert any(b"one" in data for data in shown)


def text_of(shot: Snapshot, width: int = 100, height: int = 40) -> str:
    console = Console(width=width, file=io.StringIO(), markup=False, emoji=False, highlight=False)
    with console.capture() as shown:
        console.print(frame(shot, height))
    return shown.get()


def test_a_frame_shows_every_panel(tmp_path: Path) -> None:
    """Scores, unscored by reason, speed, latency, limit, cost and waiting, each with its history."""
    ledger(tmp_path, *lines(0, 1000.0), *lines(1, 1010.0)).close()
    shot = watched(tmp_path, 1015.0)
    shown = text_of(shot)
    for word in ("step 1", "timeout 2", "3 in flight of 8", "p95", "$0.08", "samples/s now", "of the run", "s1-3"):
        assert word in shown, word
    assert "█" in shown
    assert [name for name, _, _ in rows(shot)] == [
        "samples",
        "scores",
        "spread",
        "rewards",
        "unscored",
        "speed",
        "latency",
        "limit",
        "cost",
        "waiting",
    ]


def test_a_known_total_is_shown_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    """In the frame and in the line: how much is done, and how long the rest takes; columns have headings either way."""
    book = ledger(tmp_path, *lines(0, 1000.0))
    shot = watched(tmp_path, 1004.0)
    assert "done" not in [name for name, _, _ in rows(shot)]
    assert "left" not in text_of(shot) + line(shot)
    assert "sample" in text_of(shot).splitlines()[-5]
    book.append(TotalLine(wall=1004.0, samples=16))
    book.close()
    shot = watched(tmp_path, 1004.0)
    assert rows(shot)[0][:2] == ("done", "25%, 4 of 16 samples, about 12 s left")
    assert "4 of 16 samples, about 12 s left" in line(shot)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (200, 60)])
def test_any_terminal_is_wide_enough(tmp_path: Path, width: int, height: int) -> None:
    """No line is wider than the terminal."""
    ledger(tmp_path, *lines(0, 1000.0, "long " * 100)).close()
    assert max(map(len, text_of(watched(tmp_path), width, height).splitlines())) <= width


def test_text_of_rollouts_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """Escape sequences, markup and turned text are shown, not obeyed."""
    book = ledger(tmp_path, *lines(0, 1000.0, HOSTILE))
    book.append(VerdictLine(wall=1000.0, id=HOSTILE, unscored=HOSTILE))
    book.close()
    shown = text_of(watched(tmp_path), 160)
    assert "\\x1b" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_nothing_yet_is_said(tmp_path: Path) -> None:
    """Started before training: it waits. An empty ledger has numbers too."""
    assert "no ledger yet" in text_of(watched(tmp_path / "later"))
    assert "no ledger yet" in line(watched(tmp_path / "later"))
    ledger(tmp_path / "empty").close()
    assert "0: 0 called" in text_of(watched(tmp_path / "empty"))
    assert "0 samples" in line(watched(tmp_path / "empty"))


def test_a_folder_of_runs_names_the_one_written_to_last(tmp_path: Path) -> None:
    """`.referee/runs` itself never gets a ledger: waiting for one would be for ever."""
    for name, at in (("a", 3e8), ("b", 5e8), ("c", 4e8)):
        ledger(tmp_path / name).close()
        for file in (tmp_path / name).iterdir():
            os.utime(file, (at, at))
    with pytest.raises(InputError, match="a folder of 3 runs") as caught:
        CliRunner().invoke(app, [str(tmp_path)], catch_exceptions=False)
    assert str(caught.value).endswith(f"referee watch {tmp_path / 'b'}")


def test_histories_are_drawn_to_scale() -> None:
    """Low to high, gaps left open, long ones averaged."""
    assert spark([0.0, 1.0, 2.0]) == "▁▅█"
    assert spark([1.0, None, 2.0], low=None) == "▁ █"
    assert spark([]) == spark([None]) == ""
    assert spark([3.0, 3.0], low=None) == "▁▁"
    assert len(spark([float(n) for n in range(1000)])) == 40
    sparse = over_time([TimeRow(start=10.0), TimeRow(start=16.0)], 2.0)
    assert [row is not None for row in sparse] == [True, False, False, True]


def test_pace_is_of_the_last_minute() -> None:
    """A young run counts from its beginning, an old one the last sixty seconds."""
    times = [TimeRow(start=float(second), samples=3) for second in range(100)]
    assert pace(times, 1.0, 100.0) == pytest.approx(3.0, rel=0.05)
    assert pace(times[:10], 1.0, 10.0) == pytest.approx(3.0)
    assert pace([], 1.0, 10.0) == 0.0


def test_time_that_overlaps_counts_once() -> None:
    """Two processes side by side, a gap, and one more."""
    assert covered([(0.0, 10.0), (5.0, 12.0), (20.0, 21.0), (6.0, 7.0)]) == 13.0
    assert covered([]) == 0.0


def test_durations_are_said_as_people_do() -> None:
    """Seconds, minutes, hours, days."""
    assert [ago(seconds) for seconds in (5, 130, 8000, 200_000)] == ["5 s", "2 min", "2 h", "2 d"]


def test_the_command_shows_one_frame_or_data(tmp_path: Path) -> None:
    """--once prints a frame, --json the snapshot; a folder without a ledger is an error."""
    ledger(tmp_path / "run", *lines(0, 1000.0)).close()
    shown = CliRunner().invoke(app, [str(tmp_path / "run"), "--once"], catch_exceptions=False)
    assert "scores" in shown.stdout
    data: dict[str, Any] = msgspec.json.decode(CliRunner().invoke(app, [str(tmp_path / "run"), "--json"]).stdout)
    assert data["report"]["metrics"]["samples"] == 4
    assert CliRunner().invoke(app, [str(tmp_path / "none"), "--once"]).exit_code != 0


def test_an_old_terminal_without_unicode_does_not_stop_it(tmp_path: Path) -> None:
    """What cannot be written in its encoding becomes a question mark."""
    ledger(tmp_path, *lines(0, 1000.0, "日本語")).close()
    command = [sys.executable, "-m", "referee.cli.main", "watch", str(tmp_path), "--once"]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, timeout=55)
    assert done.returncode == 0, done.stderr
    assert b"scores" in done.stdout
    assert b"???" in done.stdout


def test_without_a_terminal_it_prints_lines_until_interrupted(tmp_path: Path) -> None:
    """Piped output gets plain lines; Ctrl-C ends it without an error."""
    ledger(tmp_path, *lines(0, 1000.0)).close()
    command = [sys.executable, "-m", "referee.cli.main", "watch", str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(50) == 0
    assert "4 samples" in first


def test_a_terminal_is_redrawn_as_the_run_goes_on(tmp_path: Path) -> None:
    """In a real terminal: waits for the run, shows it, follows it, and gives the terminal back at Ctrl-C."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "referee.cli.main", "watch", str(tmp_path), "--every", "0.1"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = until(ours, b"no ledger yet")
        book = ledger(tmp_path, *lines(0, 1000.0))
        seen += until(ours, b"4: 3 called")
        for each in lines(1, 1010.0):
            book.append(each)
        book.close()
        seen += until(ours, b"8: 6 called")
        process.send_signal(signal.SIGINT)
        seen += until(ours, b"")
        assert process.wait(50) == 0
    os.close(ours)
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1


def until(terminal: int, text: bytes) -> bytes:
    """What the terminal shows, up to `text`; to its end if that is empty."""
    seen = b""
    while not text or text not in seen:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        seen += data
    return seen


def test_open_alarms_have_a_line(tmp_path: Path) -> None:
    """Which, and what the audit asked; also where there is no terminal. Without an audit there is no word of it."""
    ledger(tmp_path / "with", *audited()).close()
    shot = watched(tmp_path / "with")
    assert ("audit", "1 alarm: canaries (critical); 9 questions, $0.0060", "") in rows(shot)
    assert line(shot).endswith("1 alarm: canaries (critical)")
    ledger(tmp_path / "without", *lines(0, 1000.0)).close()
    assert not any("audit" in name for name, _, _ in rows(watched(tmp_path / "without")))


def test_the_newest_samples_keep_their_scores(tmp_path: Path) -> None:
    """Long answers on a narrow terminal give way to them."""
    ledger(tmp_path, *lines(0, 1000.0, "a long answer " * 20)).close()
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(frame(watched(tmp_path)))
    assert "score" in console.export_text().splitlines()[-5].split()


def test_each_of_several_judges_has_a_line(tmp_path: Path) -> None:
    """In the frame and in the line; a lone judge has none of its own."""
    ledger = Ledger(tmp_path)
    for one in several():
        ledger.append(one)
    ledger.close()
    watch = Watch(tmp_path)
    watch.catch_up()
    shot = watch.snapshot(START + 60)
    shown = {name.strip(): text for name, text, _ in rows(shot)}
    assert shown["quality"].startswith("mean 0.")
    assert shown["safe"] == "mean 0.750, deviation 0.204, weight 0.2, 25.0% unscored, $0.0960"
    assert "safe 0.750" in line(shot)
    assert shot.newest[0].score == shot.newest[0].value
    assert "safe" in shown_text(frame(shot))


def shown_text(frame_: Any) -> str:
    """A frame as a terminal shows it."""
    console = Console(file=io.StringIO(), width=120)
    console.print(frame_)
    return str(console.file.getvalue())  # type: ignore[attr-defined]
