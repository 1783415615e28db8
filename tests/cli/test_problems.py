"""What is wrong with a file of rollouts is said in few lines, whatever its size and format."""

from __future__ import annotations

import bz2
import json
import lzma
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run, Server, write_config
from typer.testing import CliRunner

from referee.cli.main import app
from referee.cli.problems import SHOWN, Problems
from referee.errors import InputError
from referee.rollouts import BadLine

ROWS = [{"prompt": f"p{n}", "response": "r"} for n in range(3)]


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jsonl", "{}")


FORMATS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "zip": ("in.xlsx", zipped, "ZIP"),
    "bzip2": ("in.bz2", lambda path: path.write_bytes(bz2.compress(json.dumps(ROWS[0]).encode())), "bzip2 -dc in.bz2"),
    "xz": ("in.xz", lambda path: path.write_bytes(lzma.compress(json.dumps(ROWS[0]).encode())), "xz -dc in.xz"),
    "utf-16": ("in.txt", lambda path: path.write_text(json.dumps(ROWS[0]), encoding="utf-16"), "UTF-16"),
    "utf-16 csv": ("in.csv", lambda path: path.write_text("prompt,response\na,b\n", encoding="utf-16"), "UTF-16"),
    "sheet called csv": ("in.csv", zipped, "ZIP"),
    "sqlite": ("in.db", lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(99)), "an SQLite database"),
    "pickle": ("in.pkl", lambda path: path.write_bytes(pickle.dumps(ROWS)), "a Python pickle"),
    "git lfs": (
        "train.parquet",
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n"),
        "git lfs pull",
    ),
    "picture": ("in.png", lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "binary data"),
    "document": ("in.json", lambda path: path.write_text(json.dumps({"data": ROWS}, indent=2)), "several lines"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_is_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With how to convert it, and with and without --skip-bad."""
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1")
    file, write, word = FORMATS[name]
    write(tmp_path / file)
    for options in ([], ["--skip-bad"]):
        with pytest.raises(InputError) as error:
            CliRunner().invoke(app, ["score", file, "-o", "out.jsonl", *options], catch_exceptions=False)
        assert "\n" not in str(error.value)
        assert "JSON Lines" in str(error.value)
        assert word in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([file, "referee.toml"])


def test_a_table_with_other_column_names_says_how_to_name_them(tmp_path: Path, referee: Run) -> None:
    """The error has the columns that there are and the option that reads a field from one of them."""
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1")
    (tmp_path / "in.csv").write_text("question,model_answer,human\n2 + 2?,4,yes\n1 + 1?,3,no\n")
    for command in (
        ["score", "in.csv", "-o", "out.jsonl"],
        ["plan", "in.csv", "-c", "referee.toml"],
        ["compare", "in.csv", "in.csv"],
        ["calibrate", "in.csv", "--label", "human"],
    ):
        done = referee(*command)
        assert done.returncode == 2, done.stderr
        assert "Its columns are question, model_answer, human." in done.stderr
        assert "--map response=COLUMN" in done.stderr


def test_a_wrong_name_of_a_column_is_answered_with_those_there_are(tmp_path: Path, referee: Run) -> None:
    """In --map and in --label."""
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1")
    (tmp_path / "in.csv").write_text("question,model_answer,human\n2 + 2?,4,yes\n")
    done = referee("score", "in.csv", "--map", "response=answer", "-o", "out.jsonl")
    assert "Columns are question, model_answer, human." in done.stderr
    done = referee("calibrate", "in.csv", "--map", "response=model_answer")
    assert "no row has a label in column `label`" in done.stderr
    assert "Its columns are question, human, response. Name one of them with --label." in done.stderr


def test_rewards_without_texts_point_to_the_record_beside_them(tmp_path: Path, referee: Run) -> None:
    """Labels that people gave have texts and no id, rows of rewards an id and no texts: the run's record has both."""
    (tmp_path / "rewards.jsonl").write_text('{"line":1,"id":"1","reward":1.0,"score":1.0,"value":1.0}\n')
    people = '{"prompt":"p","response":"r","score":1}\n{"prompt":"p","response":"q","score":0}\n'
    (tmp_path / "people.jsonl").write_text(people)
    assert "the record" not in referee("diff", "rewards.jsonl", "people.jsonl").stderr
    (tmp_path / "rewards.run").mkdir()
    done = referee("diff", "rewards.jsonl", "people.jsonl")
    assert done.returncode == 1
    assert "compare rewards.run" in done.stderr


def test_what_only_looks_like_a_table_is_not_named_one(tmp_path: Path, referee: Run) -> None:
    """A sentence with a comma, old line ends, a damaged gzip: one message each, and no traceback."""
    for text in (b"Hello, world", b"a,b\rc,d\r", b'"prompt,response\rx', b"\x1f\x8b\x08 no gzip", b"\x1f\x8b"):
        (tmp_path / "in.jsonl").write_bytes(text)
        done = referee("score", "in.jsonl", "-o", "out.jsonl")
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert "CSV" not in done.stderr


def test_a_name_with_a_space_is_not_put_into_a_command(tmp_path: Path, referee: Run) -> None:
    """What is shown can be pasted into a shell."""
    (tmp_path / "my file.json").write_text(json.dumps({"data": ROWS}, indent=2))
    shown = referee("score", "my file.json", "-o", "out.jsonl")
    assert "To convert it: jq -c . in > in.jsonl" in shown.stderr


def test_one_kind_of_problem_is_said_once(tmp_path: Path, referee: Run) -> None:
    """2,000 rows of chat messages: what is missing, what is expected instead, and how often."""
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1")
    row = {"messages": [{"role": "user", "content": "Q"}]}
    (tmp_path / "in.jsonl").write_text((json.dumps(row) + "\n") * 2000)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    [said] = [line for line in done.stderr.splitlines() if "messages: " in line]
    assert "there is no assistant message after the last user message" in said
    assert "(the same on 1999 more lines)" in said
    assert len(done.stderr.splitlines()) <= 4


def test_bad_lines_are_counted_and_not_kept() -> None:
    """The first of each kind, up to a number of kinds; the lines themselves are let go."""
    problems = Problems()
    for n in range(10_000):
        problems.add(BadLine(n + 1, "", f"not valid JSON at byte {n % 5000}", b"x" * 100))
    said = problems.complaint("in.jsonl", "Correct them.").splitlines()
    assert said[0] == "in.jsonl: 10000 lines cannot be used. Nothing was spent."
    assert said[1] == "  line 1: not valid JSON at byte 0 (the same on 1 more line)"
    assert said[SHOWN + 1 :] == ["  … and 9960 more lines with other problems", "Correct them."]
    assert all(not item.raw for item, _ in problems._kinds.values())


def test_counts_of_one_are_singular(tmp_path: Path, referee: Run, provider: Callable[..., Server]) -> None:
    """One rollout, one request, one verdict, one unusable line."""
    write_config(tmp_path / "referee.toml", provider().url)
    (tmp_path / "in.jsonl").write_text('{"prompt": "p", "response": "[[quality=7]]", "lenght": 3}\n{}\n')
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--skip-bad")
    stats = referee("cache", "stats").stdout
    said = done.stderr + stats
    for words in (
        "1 rollout: ",
        "1 request, ",
        "1 unusable line set",
        "1 of the first 1 row has `lenght`",
        "1 verdict, ",
    ):
        assert words in said, said


def test_a_dead_host_leaves_nothing_in_the_cache_and_says_nothing_of_it(tmp_path: Path, referee: Run) -> None:
    """What was judged is in the cache only where something was judged."""
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "stopped before the first reward; nothing was written." in done.stderr
    assert "in the cache" not in done.stderr


@pytest.mark.parametrize("command", ["score", "plan", "attack"])
def test_a_configuration_in_the_place_of_rollouts_is_told_so(tmp_path: Path, referee: Run, command: str) -> None:
    """Its first line would make it a broken JSON array."""
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1")
    done = referee(command, "referee.toml", *(["-o", "out.jsonl"] if command == "score" else ["-c", "referee.toml"]))
    assert done.returncode == 2
    assert "name it with -c" in done.stderr
