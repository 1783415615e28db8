"""Output rows: written whole, resumed from any state an interruption can leave."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from referee.cli.rows import Digests, Row, RowWriter, consolidate, partial, read_rows, row_of
from referee.config import load
from referee.records import Reply, Reward, Sample, Settled, Verdict
from referee.rollouts import ALIASES


def row(line: int, reward: float | None = 0.5, **fields: str) -> Row:
    return Row(line=line, id=str(line), reward=reward, **fields)


def lines(path: Path) -> list[int]:
    return [r.line for r in read_rows(path)]


def test_a_finished_run_replaces_the_output_whole(tmp_path: Path) -> None:
    """Until finish, the output itself is not touched."""
    out = tmp_path / "r.jsonl"
    writer = RowWriter(str(out), io.BytesIO())
    writer.write([row(1), row(2)])
    assert not out.exists()
    assert lines(partial(out)) == [1, 2]
    writer.finish()
    assert lines(out) == [1, 2]
    assert not partial(out).exists()
    assert out.stat().st_mode & 0o777 == 0o600


def test_a_row_says_which_provider_and_server_answered(tmp_path: Path) -> None:
    """OpenAI, llama.cpp and routers name them in every reply; a row keeps both, also when it is read again."""
    given = Settled(
        verdict=Verdict(score=1.0, value=1.0),
        reply=Reply(text="", model="m", provider="deepinfra", fingerprint="fp_1"),
    )
    out = tmp_path / "r.jsonl"
    writer = RowWriter(str(out), io.BytesIO())
    writer.write([row_of(1, "d", Reward(index=0, id="a", group="", value=1.0, settled=given)), row(2)])
    writer.finish()
    assert [(r.provider, r.fingerprint) for r in read_rows(out)] == [("deepinfra", "fp_1"), ("", "")]
    assert "fingerprint" not in out.read_text().splitlines()[1]


def test_a_torn_line_is_not_a_row(tmp_path: Path) -> None:
    """A kill in the middle of a write costs that line only."""
    out = tmp_path / "r.jsonl"
    writer = RowWriter(str(out), io.BytesIO())
    writer.write([row(1), row(2), row(3)])
    writer.finish()
    for cut in range(1, 60):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(out.read_bytes()[:-cut])
        assert lines(torn) in ([1, 2], [1])


def test_consolidating_joins_a_partial_run_with_the_one_before(tmp_path: Path) -> None:
    """Newer rows win; older rows beyond them are kept."""
    out = tmp_path / "r.jsonl"
    first = RowWriter(str(out), io.BytesIO())
    first.write([row(1, None, unscored="timeout"), row(2), row(3)])
    first.finish()
    second = RowWriter(str(out), io.BytesIO())
    second.write([row(1, 0.9)])
    second.abandon()
    assert [(r.line, r.reward) for r in read_rows(out)] == [(1, 0.9), (2, 0.5), (3, 0.5)]
    assert not partial(out).exists()


def test_consolidating_nothing_is_no_work(tmp_path: Path) -> None:
    """No partial file, no change."""
    consolidate(tmp_path / "none.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_rows_stop_at_a_line_out_of_order(tmp_path: Path) -> None:
    """Rows that go back cannot be this run's output."""
    path = tmp_path / "r.jsonl"
    path.write_text('{"line":2,"id":"a","reward":1.0}\n{"line":1,"id":"b","reward":1.0}\n')
    assert lines(path) == [2]


def test_digests_follow_what_shapes_a_reward_and_nothing_else() -> None:
    """Another judge or sample is another digest; another cache path is not."""
    sample = Sample(prompt="p", response="r")
    plain = Digests(load({})).of(sample)
    assert plain == Digests(load({"cache": {"path": "elsewhere"}, "limits": {"rpm": 5}})).of(sample)
    assert plain != Digests(load({"judge": {"criteria": "kindness"}})).of(sample)
    assert plain != Digests(load({"shaping": {"coefficient": 0.5}})).of(sample)
    assert plain != Digests(load({})).of(Sample(prompt="p", response="r", rule_score=1.0))


def test_an_address_counts_unless_the_server_has_a_name_of_its_own() -> None:
    """Where known_as is given, rows are kept wherever the server is now; elsewhere another address is another judge."""

    def digest(url: str, **more: str) -> str:
        return Digests(load({"endpoint": {"url": url, "key_env": "", **more}})).of(Sample(prompt="p", response="r"))

    here, there = "http://127.0.0.1:4001/v1", "http://127.0.0.1:4002/v1"
    assert digest(here) != digest(there)
    assert digest(here, known_as="a") == digest(there, known_as="a")
    assert digest(here, known_as="a") != digest(here, known_as="b")
    assert digest(here, known_as="a") != digest(here, known_as="a", model="other")
    assert digest(here, known_as="a") != digest("http://127.0.0.1:4001/v2", known_as="a")


def test_the_template_counts_by_its_text(tmp_path: Path) -> None:
    """A template edited under its name is another judge; the same text in another place is the same one."""
    sample = Sample(prompt="p", response="r")
    for name, text in (("a.txt", "one"), ("b.txt", "one"), ("c.txt", "two")):
        (tmp_path / name).write_text(text)

    def digest(name: str) -> str:
        return Digests(load({"judge": {"prompt_file": str(tmp_path / name)}})).of(sample)

    assert digest("a.txt") == digest("b.txt")
    assert digest("a.txt") != digest("c.txt")


def test_gaps_are_filled_from_the_run_before(tmp_path: Path) -> None:
    """A stopped run leaves gaps; rows of an earlier one that lie in them are kept."""
    out = tmp_path / "r.jsonl"
    first = RowWriter(str(out), None)
    first.write([row(1), row(2), row(4)])
    first.finish()
    second = RowWriter(str(out), None)
    second.write([row(1, 0.9), row(3, 0.9), row(9, 0.9)])
    assert second.abandon() == out
    assert [(r.line, r.reward) for r in read_rows(out)] == [(1, 0.9), (2, 0.5), (3, 0.9), (4, 0.5), (9, 0.9)]


def test_every_field_is_documented() -> None:
    """docs/rollouts.md says what each column of input and output means."""
    page = (Path(__file__).parents[2] / "docs" / "rollouts.md").read_text(encoding="utf-8")
    rollouts, rewards = page.split("## Rewards")
    for names, text in (
        (Sample.__struct_fields__, rollouts),
        ([alias for more in ALIASES.values() for alias in more], rollouts),
        (Row.__struct_fields__, rewards),
    ):
        assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("row", "whole"),
    [
        ({}, True),
        ({"parts": [{"name": "b", "unscored": "refused"}]}, True),
        ({"parts": [{"name": "b", "unscored": "budget"}]}, False),
        ({"parts": [{"name": "juror", "parts": [{"unscored": "cancelled"}]}]}, False),
        ({"judges": {"a": {"unscored": "deadline"}}}, False),
        ({"judges": {"a": {"parts": [{"unscored": "budget"}]}}}, False),
    ],
)
def test_a_row_of_which_the_end_of_a_run_left_something_out_is_not_whole(row: dict[str, Any], whole: bool) -> None:
    """A comparison that was not paid for is judged when the run goes on; one that failed has failed."""
    assert Row(line=1, id="a", reward=0.5, value=0.5, **row).whole is whole
