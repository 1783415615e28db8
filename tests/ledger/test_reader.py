"""The reader: everything that is whole, nothing that is not, and a count of the difference."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.errors import InputError
from referee.ledger import BatchLine, Reading, RunLine, VerdictLine, read, reader

LINES = [RunLine(version="1"), VerdictLine(id="é\n", score=1.0), BatchLine(batch="b")]
DATA = b"".join(msgspec.json.encode(line) + b"\n" for line in LINES)


def reading(folder: Path, data: bytes) -> Reading:
    path = folder / "ledger.jsonl"
    path.write_bytes(data)
    return read(path)


def test_lines_are_read_in_order(tmp_path: Path) -> None:
    """As they were written, one by one."""
    found = reading(tmp_path, DATA)
    assert next(found) == LINES[0]
    assert list(found) == LINES[1:]
    assert (found.skipped, found.unknown, found.torn) == (0, 0, 0)


def test_a_file_cut_anywhere_gives_its_whole_lines(tmp_path: Path) -> None:
    """As after kill -9 or a full disk: what ends in a newline is read, the rest is torn, nothing is invented."""
    for cut in range(len(DATA) + 1):
        found = reading(tmp_path, DATA[:cut])
        whole = DATA[:cut].count(b"\n")
        assert list(found) == LINES[:whole]
        assert found.torn == (not DATA[:cut].endswith(b"\n") and cut > 0)
        assert found.skipped == 0


@pytest.mark.parametrize(
    "junk",
    [
        b"{",
        b"[]",
        b"5",
        b"{}",
        b'{"type": 5}',
        b'{"type": "verdict", "score": "7"}',
        b'{"type": "verdict", "cost": null}',
        b'{"type": "verdict", "id": "\xff"}',
        b"\xff\x00\xfe",
        b'{"type": "verdict", "zzz": ' + b"[" * 100_000,
        DATA.splitlines()[1][:20] + DATA.splitlines()[2],
    ],
)
def test_a_corrupt_line_is_skipped_and_counted(tmp_path: Path, junk: bytes) -> None:
    """Its neighbours are read."""
    found = reading(tmp_path, DATA + junk + b"\n" + DATA)
    assert list(found) == LINES * 2
    assert (found.skipped, found.unknown) == (1, 0)


def test_lines_and_fields_of_newer_versions_are_passed_over(tmp_path: Path) -> None:
    """An unknown type is counted apart; unknown fields and reasons are no obstacle."""
    newer = b'{"type":"shadow","x":1}\n{"type":"verdict","id":"a","unscored":"moon_phase","aura":{"x":[1]}}\n\n'
    found = reading(tmp_path, newer)
    assert list(found) == [VerdictLine(id="a", unscored="moon_phase")]
    assert (found.skipped, found.unknown, found.torn) == (0, 1, 0)


@pytest.mark.parametrize(("end", "skipped", "torn"), [(b"\n", 2, 0), (b"", 1, 1)])
def test_an_over_long_line_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes, skipped: int, torn: int
) -> None:
    """Without being held in memory, and the next line is read; at the very end it counts as torn."""
    monkeypatch.setattr(reader, "MAX_LINE", max(map(len, DATA.splitlines())))
    long = b'{"type":"batch","batch":"' + b"x" * (3 << 20) + b'"}'
    found = reading(tmp_path, long + b"\n" + DATA + long + end)
    assert list(found) == LINES
    assert (found.skipped, found.torn) == (skipped, torn)


def test_a_folder_is_read_in_the_order_its_files_were_begun(tmp_path: Path) -> None:
    """By time, then process, then number; other files are not touched."""
    order = [
        "ledger-20250101T000000Z-9.jsonl",
        "ledger-20250101T000000Z-10.jsonl",
        "ledger-20250101T000000Z-10-1.jsonl",
        "ledger-20250101T000000Z-10-2.jsonl",
        "ledger-20250101T000000Z-10-10.jsonl",
        "ledger-20260101T000000Z-3.jsonl",
    ]
    for name in reversed(order):
        (tmp_path / name).write_bytes(msgspec.json.encode(BatchLine(batch=name)) + b"\n")
    (tmp_path / "rewards.jsonl").write_text("not ours\n")
    found = read(tmp_path)
    assert [line.batch for line in found if isinstance(line, BatchLine)] == order
    assert found.skipped == 0


def test_what_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    """A missing file and a folder without ledgers are named."""
    with pytest.raises(InputError, match="none"):
        read(tmp_path / "none")
    with pytest.raises(InputError, match="no ledger"):
        read(str(tmp_path))


def test_a_file_that_vanishes_is_an_input_error(tmp_path: Path) -> None:
    """Also between looking and reading."""
    found = reading(tmp_path, DATA)
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(InputError, match=r"ledger\.jsonl"):
        list(found)


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(DATA.splitlines(keepends=True))), max_size=8))
@settings(deadline=None, max_examples=200)
def test_any_bytes_can_be_read(pieces: list[bytes]) -> None:
    """Nothing is raised, whatever the file holds, and every line is read or counted."""
    data = b"".join(pieces)
    with tempfile.TemporaryDirectory() as folder:
        found = reading(Path(folder), data)
        count = sum(1 for _ in found)
    blank = sum(1 for line in data.split(b"\n")[:-1] if not line.strip(b" \t\r\x0b\x0c"))
    assert count + found.skipped + found.unknown + blank == data.count(b"\n")
