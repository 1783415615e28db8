"""Own columns in rows of rewards, and rewards as CSV, Parquet and packed lines: nothing is lost, also after a kill."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Run, Start, rows, write_config
from tests.cli.test_score import start_and_wait

from referee import clock
from referee.cli import output_tables
from referee.cli.output_tables import make_table, working
from referee.cli.rows import Row, RowWriter, read_rows
from referee.report.reward_rows import IN_TABLES

OWN: list[dict[str, Any]] = [
    {"uid": 7, "seen": 1.5, "score": "A", "tags": ["x", None], "extra": {}, "day": "2026-01-01"},
    {"uid": 8, "seen": 2, "score": "B", "tags": [], "extra": {"k": "v"}, "mixed": 1},
    {"uid": 9, "seen": None, "score": "=1", "mixed": "one\ntwo, \"three\"", "input.score": True},
]  # fmt: skip
RECORDS = {".jsonl": "out.run", ".jsonl.gz": "out.jsonl.gz.run", ".csv": "out.csv.run", ".parquet": "out.parquet.run"}
"""The record of an output, by its ending: outputs that differ in their ending alone do not share one."""
ENDINGS = list(RECORDS)


def given(tmp_path: Path, url: str, count: int = 3, text: str = "") -> None:
    """Rollouts with columns of all types, some with names of ours."""
    made = [
        {"id": f"r{n}", "prompt": "p", "response": f"[[quality={n % 10 + 1}]] {n}", **OWN[n % 3]} for n in range(count)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    write_config(tmp_path / "referee.toml", url, text)


def table(path: Path) -> list[dict[str, Any]]:
    """What stands in an output, whatever it is."""
    if path.suffix == ".parquet":
        return list(pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist())
    if path.suffix == ".csv":
        with path.open(newline="") as stream:
            return list(csv.DictReader(stream))
    data = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]


@pytest.mark.parametrize(
    ("keep", "names"),
    [
        ((), {"seen", "score", "tags", "extra", "day"}),
        (("--keep", "none"), set()),
        (("--keep", "day, prompt,id"), {"day", "prompt"}),
        (("--keep", "all"), {"seen", "score", "tags", "extra", "day", "uid", "prompt", "response"}),
    ],
)
def test_rows_keep_own_columns(
    tmp_path: Path, referee: Run, provider: Start, keep: tuple[str, ...], names: set[str]
) -> None:
    """As they were, under `columns`: by default those that are no field of a rollout; a resumed run renews them."""
    given(tmp_path, provider().url)
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "--keep", "none").returncode == 0
    assert not any("columns" in row for row in rows(tmp_path / "out.jsonl"))
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--resume", *keep)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert set(found[0].get("columns", {})) == names
    sources = rows(tmp_path / "in.jsonl")
    for row, source in zip(found, sources, strict=True):
        assert row.get("columns", {}) == {name: source[name] for name in row.get("columns", {})}
    assert [row["score"] for row in found] == [1.0, 2.0, 3.0]


def test_a_column_that_no_row_has_cannot_be_kept(tmp_path: Path, referee: Run) -> None:
    """Said before anything is spent, with those that there are."""
    given(tmp_path, "http://127.0.0.1:9/v1")
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--keep", "uid,dya")
    assert done.returncode == 2
    assert "--keep dya: the first rows of in.jsonl have day," in done.stderr


def test_parquet_has_the_types_that_fit_all_cells(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Numbers stay numbers, lists lists; what no type holds is JSON text; names of ours become input.<name>."""
    given(tmp_path, provider().url)
    pytest.importorskip("pyarrow")
    done = referee("score", "in.jsonl", "-o", "out.parquet")
    assert done.returncode == 0, done.stderr
    found = table(tmp_path / "out.parquet")
    assert [row["uid"] for row in found] == [7, 8, 9]
    assert [row["seen"] for row in found] == [1.5, 2.0, None]
    assert [row["tags"] for row in found] == [["x", None], [], None]
    assert [row["input.score"] for row in found] == ["A", "B", "=1"]
    assert [row["input.input.score"] for row in found] == [None, None, True]
    assert [row["mixed"] for row in found] == [None, "1", 'one\ntwo, "three"']
    assert [row["score"] for row in found] == [1.0, 2.0, 3.0]
    assert [row["response"] for row in found] == [f"[[quality={n + 1}]] {n}" for n in range(3)]
    assert list(found[0])[-len(IN_TABLES) :] == list(IN_TABLES)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_finished_output_is_resumed_diffed_and_reported(
    tmp_path: Path, referee: Run, provider: Start, ending: str
) -> None:
    """Its rows are read back with all that they say; own columns stay; nothing is asked again."""
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    server = provider()
    given(tmp_path, server.url, 6, "[cache]\nenabled = false\n[shaping.length]\nenable = true")
    name = f"out{ending}"
    assert referee("score", "in.jsonl", "-o", name).returncode == 0
    before, asked = table(tmp_path / name), server.stats().received
    again = referee("score", "in.jsonl", "-o", name, "--resume")
    assert again.returncode == 0, again.stderr
    assert "6 kept from an earlier run" in again.stderr
    assert server.stats().received == asked
    assert table(tmp_path / name) == before
    assert referee("score", "in.jsonl", "-o", "plain.jsonl").returncode == 0
    same = json.loads(referee("diff", name, "plain.jsonl", "--json").stdout)
    assert (same["matched"], same["both"], same["exact"]) == (6, 6, 1.0)
    assert "6 samples" in referee("report", name, "-o", "page.html").stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("out")) == [name, RECORDS[ending]]


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_without_a_score_say_so_in_a_table(tmp_path: Path, referee: Run, provider: Start, ending: str) -> None:
    """No value where there is none, never 0; and they are rows to whatever reads the table."""
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    given(tmp_path, provider().url, 3, '[judge.gates]\nempty = "unscored"')
    with (tmp_path / "in.jsonl").open("a") as stream:
        stream.write('{"id": "empty", "prompt": "p", "response": ""}\n')
    name = f"out{ending}"
    assert referee("score", "in.jsonl", "-o", name).returncode == 0
    last = table(tmp_path / name)[-1]
    assert (last["id"], last["unscored"]) == ("empty", "empty")
    assert last["reward"] in (None, "")
    assert last.get("score") in (None, "")
    found = json.loads(referee("diff", name, name, "--json").stdout)
    assert (found["matched"], found["both"], found["unscored_both"]) == (4, 3, 1)


@pytest.mark.parametrize("ending", ENDINGS[2:])
def test_a_killed_run_loses_nothing(tmp_path: Path, referee: Run, provider: Start, ending: str) -> None:
    """Rows are beside the table as they come; the resumed run makes the table, and leaves nothing else, not even in the
    folder of temporary files."""
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    server = provider(latency_median=0.05, capacity=10, mode="queue")
    given(tmp_path, server.url, 600, "[limits]\nconcurrency = 10\n[cache]\nenabled = false")
    with (tmp_path / "in.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["id", "prompt", "response", "uid"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows(tmp_path / "in.jsonl"))
    name, temporary = f"out{ending}", tmp_path / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"], old = str(temporary), os.environ.get("TMPDIR")
    try:
        child = start_and_wait(tmp_path, server, 256, ("score", "in.csv", "-o", name))
        partial = tmp_path / f"{name}.rows.partial"
        while child.poll() is None and not (partial.exists() and partial.stat().st_size):
            clock.pause(0.01)
    finally:
        del os.environ["TMPDIR"]
        os.environ.update({"TMPDIR": old} if old is not None else {})
    os.kill(child.pid, signal.SIGKILL)
    child.communicate(timeout=30)
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / name).exists()
    kept, asked = partial.read_bytes().count(b"}\n"), server.stats().received
    assert 0 < kept < 600
    refused = referee("score", "in.csv", "-o", name)
    assert refused.returncode == 2
    assert f"{name}.rows.partial exists: --resume" in refused.stderr
    done = referee("score", "in.csv", "-o", name, "--resume")
    assert done.returncode == 0, done.stderr
    assert [float(row["score"]) for row in table(tmp_path / name)] == [n % 10 + 1 for n in range(600)]
    assert server.stats().received - asked == 600 - kept
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("out")) == [name, RECORDS[ending]]


@pytest.mark.parametrize("ending", ENDINGS[1:])
@pytest.mark.parametrize("text", ["one\rtwo", "\r", "one\r\ntwo\n", ' "a", b; c\t', "\u2028\0"])
def test_any_text_is_one_cell_of_a_table(tmp_path: Path, ending: str, text: str) -> None:
    """Of a judge's words or an own column: what would end a row stands between quotes."""
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    output = str(tmp_path / f"out{ending}")
    own = {"note": msgspec.Raw(msgspec.json.encode(text))}
    given = [Row(line=n, id=f"{text}{n}", reward=0.1, why=text, columns=own, digest="d") for n in (1, 2)]
    writer = RowWriter(working(output), None)
    writer.write(given)
    writer.finish()
    make_table(output)
    output_tables.reopen_table(output)
    assert list(read_rows(Path(working(output)))) == given


def test_a_table_that_cannot_be_written_leaves_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk while the table is made: the old one and all rows are there, and it can be made again."""
    output = str(tmp_path / "out.csv")
    Path(output).write_text("old")
    writer = RowWriter(working(output), None)
    writer.write([Row(line=1, id="a", reward=1.0)])
    writer.finish()

    def full(*_: object) -> dict[str, str]:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(output_tables, "flat", full)
        with pytest.raises(OSError, match="No space"):
            make_table(output)
    assert writer.abandon() == Path(working(output))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv", "out.csv.rows"]
    assert Path(output).read_text() == "old"
    make_table(output)
    assert [row["id"] for row in table(Path(output))] == ["a"]
    assert not Path(working(output)).exists()


def made(tmp_path: Path, name: str, columns: list[dict[str, bytes]]) -> list[dict[str, Any]]:
    """What a table holds of rows with these columns, given as JSON."""
    output = str(tmp_path / name)
    writer = RowWriter(working(output), None)
    own = [{column: msgspec.Raw(cell) for column, cell in row.items()} for row in columns]
    writer.write([Row(line=n, id=str(n), reward=1.0, columns=row) for n, row in enumerate(own, 1)])
    writer.finish()
    make_table(output)
    return table(Path(output))


def test_cells_that_no_type_holds_are_text(tmp_path: Path) -> None:
    """Also where that shows only late in a long table, or only when it is written."""
    pytest.importorskip("pyarrow")
    late: list[dict[str, bytes]] = [{"a": b"1", "b": b"1152921504606846977"} for _ in range(1500)]
    found = made(tmp_path, "late.parquet", [*late, {"a": b'"x"', "b": b"0.5"}])
    assert (found[0]["a"], found[-1]["a"]) == ("1", "x")
    assert (found[0]["b"], found[-1]["b"]) == ("1152921504606846977", "0.5")


@pytest.mark.parametrize(("cell", "kept"), [(b'"caf\xe9"', "caf\ufffd"), (b"1e999", "1e999")])
@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet"])
def test_a_broken_cell_of_an_unread_column_costs_no_rewards(
    tmp_path: Path, referee: Run, provider: Start, name: str, cell: bytes, kept: str
) -> None:
    """What is no UTF-8, or a number that no float is, in a column that no judge sees, is kept as text."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    write_config(tmp_path / "referee.toml", provider().url)
    row = b'{"prompt": "p", "response": "[[quality=3]]", "own": %s}\n'
    (tmp_path / "in.jsonl").write_bytes(row % cell)
    done = referee("score", "in.jsonl", "-o", name)
    assert done.returncode == 0, done.stderr
    assert [found.get("columns", found)["own"] for found in table(tmp_path / name)] == [kept]


@pytest.mark.parametrize("name", ["out.xlsx", "out.arrow", "out.csv.gz", "OUT.TSV"])
def test_other_formats_are_refused_by_name(tmp_path: Path, referee: Run, name: str) -> None:
    """In one line, which says what can be written."""
    given(tmp_path, "http://127.0.0.1:9/v1")
    done = referee("score", "in.jsonl", "-o", name)
    assert done.returncode == 2
    assert f"-o {name}: not" in done.stderr
    assert ".parquet can be written" in done.stderr


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.jsonl.gz", "out.csv.rows"])
def test_a_file_that_holds_no_rewards_is_not_replaced(tmp_path: Path, referee: Run, name: str) -> None:
    """Neither the output nor the file of its rows."""
    given(tmp_path, "http://127.0.0.1:9/v1")
    (tmp_path / name).write_text("id,prompt\n1,mine\n")
    done = referee("score", "in.jsonl", "-o", name.removesuffix(".rows"), "--resume")
    assert done.returncode == 2
    assert f"{name} exists and is no file of rewards" in done.stderr
    assert (tmp_path / name).read_text() == "id,prompt\n1,mine\n"
