"""Rollout files: what fits is a Sample, what does not is a BadLine that says where and why, and nothing raises."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from referee import rollouts
from referee.errors import InputError
from referee.records import Message, Sample
from referee.rollouts import BadLine, check_file, first_rows, polarity_of_rows, read_rollouts, unread_columns
from referee.rollouts.row import KNOWN

GOOD = {"prompt": "p", "response": "r"}


def read(data: bytes) -> list[tuple[int, Sample | BadLine]]:
    return list(read_rollouts(io.BytesIO(data)))


def one(data: bytes | dict[str, Any]) -> Sample | BadLine:
    [(_, item)] = read(data if isinstance(data, bytes) else json.dumps(data).encode())
    return item


def bad(data: bytes | dict[str, Any]) -> BadLine:
    item = one(data)
    assert isinstance(item, BadLine)
    return item


def test_a_full_line_is_a_sample() -> None:
    """Every field of a Sample can be given under its own name."""
    sample = Sample(
        prompt="2+2?",
        response="4",
        id="x",
        group="g",
        reference="4",
        rule_score=-0.5,
        length=3,
        truncated=True,
        step=7,
    )
    assert one(msgspec.json.encode(sample)) == sample


def test_a_bare_line_gets_its_number_as_id() -> None:
    """Only prompt and response are needed; numbers count from 1 and count blank lines."""
    line = json.dumps(GOOD).encode()
    assert read(line + b"\n\n \r\n" + line) == [
        (1, Sample(prompt="p", response="r", id="1")),
        (4, Sample(prompt="p", response="r", id="4")),
    ]


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("question", "prompt"),
        ("completion", "response"),
        ("output", "response"),
        ("uid", "group"),
        ("ground_truth", "reference"),
    ],
)
def test_trainers_names_are_understood(alias: str, name: str) -> None:
    """An alias stands for its field; both may be given if they agree; if they differ, the line says so."""
    renamed = {**GOOD, alias: "text"}
    if name in GOOD:
        del renamed[name]
    assert getattr(one(renamed), name) == "text"
    assert getattr(one({**renamed, name: "text"}), name) == "text"
    problem = bad({**renamed, name: "other"})
    assert problem.field == name
    assert alias in problem.problem


def test_two_aliases_that_differ_are_refused() -> None:
    """completion and output cannot both be the response."""
    assert bad({"prompt": "p", "completion": "a", "output": "b"}).field == "response"


def test_other_columns_are_ignored() -> None:
    """People's files have more columns; `score` is not taken for a rule score."""
    assert one({**GOOD, "score": 1.0, "data_source": "gsm8k", "extra_info": {"a": [1, {"b": None}]}}) == Sample(
        prompt="p", response="r", id="1"
    )


def doubts(folder: Path, *given: dict[str, Any], first: int = 100) -> list[tuple[str, str, int, int]]:
    """What is doubtful in a file of these rows, as (column, meant, rows, seen)."""
    path = folder / "in.jsonl"
    path.write_bytes(b"\n".join(json.dumps({**GOOD, **row}).encode() for row in given))
    found = rollouts.doubtful_columns(rollouts.first_rows(path, first))
    assert all(f"`{doubt.column}`" in doubt.message and f"`{doubt.meant}`" in doubt.message for doubt in found)
    return [(doubt.column, doubt.meant, doubt.rows, doubt.seen) for doubt in found]


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        ("referense", "reference"),
        ("Reference", "reference"),
        ("ground-truth", "ground_truth"),
        ("groundTruth", "ground_truth"),
        ("rule_scroe", "rule_score"),
        ("lenght", "length"),
        ("group_id", "group"),
        ("gruop", "group"),
        ("truncate", "truncated"),
        ("steps", "step"),
        ("ID", "id"),
    ],
)
def test_a_misspelt_column_is_doubtful(tmp_path: Path, column: str, meant: str) -> None:
    """It is named with the name that is meant, once, and with the rows that have it."""
    assert doubts(tmp_path, {column: 1}, {}, {column: 2}) == [(column, meant, 2, 3)]


def test_columns_of_other_peoples_own_are_not_doubtful(tmp_path: Path) -> None:
    """What files have on purpose is passed over, short names too, and names that no terminal should be shown."""
    own = "data_source extra_info score reward label answer stop temp uuid idx gid model ability index finish_reason"
    assert doubts(tmp_path, dict.fromkeys(own.split(), 1)) == []
    assert doubts(tmp_path, {"reference\x1b[2J": 1, "reference" * 9: 1}) == []


def test_who_has_the_field_means_its_neighbour(tmp_path: Path) -> None:
    """A column is not doubtful beside the field it is like, under whichever name that is there."""
    assert doubts(tmp_path, {"length": 3, "lengths": [3]}, {"ground_truth": "g", "references": ["g"]}) == []
    assert doubts(tmp_path, {"prompt_id": 1, "responses": 2}) == []
    (tmp_path / "bare.jsonl").write_text('{"promt": "p"}')
    assert rollouts.doubtful_columns(rollouts.first_rows(tmp_path / "bare.jsonl")) == []  # said of the line itself
    assert doubts(tmp_path, {"length": 3, "lengths": [3]}, {"lengths": [3]}) == [("lengths", "length", 1, 2)]


def test_doubts_are_looked_for_in_the_first_rows_that_are_rows(tmp_path: Path) -> None:
    """The rest of a long file is not looked at, and lines that are no rows do not count."""
    assert doubts(tmp_path, {}, {}, {"lenght": 1}, first=2) == []
    path = tmp_path / "packed.jsonl.gz"
    lines = [b"\xef\xbb\xbf" + json.dumps({**GOOD, "lenght": 1}).encode(), b"", b"5", b'{"lenght": NaN}', b"[" * 9999]
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    assert [(doubt.rows, doubt.seen) for doubt in rollouts.doubtful_columns(rollouts.first_rows(path))] == [(1, 1)]


@pytest.mark.parametrize(("name", "misspelt"), [("prompt", "promt"), ("prompt", "questoin"), ("response", "Response")])
def test_a_missing_field_is_looked_for_under_a_misspelt_name(name: str, misspelt: str) -> None:
    """The error says which column of the row may be the one that is missing."""
    problem = bad({**{key: value for key, value in GOOD.items() if key != name}, misspelt: "x"})
    assert problem.field == name
    assert f"Is `{misspelt}` meant to be it?" in problem.problem
    assert rollouts.ALIASES[name][0] in problem.problem


def test_a_name_that_is_no_text_is_not_looked_at() -> None:
    """A row without a prompt whose column is not even UTF-8 is still one bad line."""
    assert bad(b'{"\xff": 1}').field == "prompt"


def test_a_row_may_be_one_conversation() -> None:
    """What follows the last user message is the response; both formats of it, and nothing else of the row is lost."""
    talk = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}]
    item = one({"messages": [*talk, {"role": "assistant", "content": "Hello"}], "uid": 3})
    assert item == Sample(
        prompt=(Message("system", "Be kind"), Message("user", "Hi")), response="Hello", id="1", group="3"
    )
    shared = one({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]})
    assert shared == Sample(prompt="Hi", response="Hello", id="1")


@pytest.mark.parametrize(
    "talk",
    [
        [{"role": "user", "content": "Hi"}],
        [{"role": "assistant", "content": "Hello"}],
        [{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Hi"}],
    ],
)
def test_a_conversation_without_an_answer_is_refused(talk: Any) -> None:
    """Nothing after the last user message is nothing to judge."""
    assert bad({"messages": talk}).field == "messages"


def test_a_conversation_beside_prompt_and_response_is_not_read() -> None:
    """Two accounts of one rollout: the explicit one counts, and the other is named as not read."""
    row = {**GOOD, "messages": [{"role": "user", "content": "Hi"}]}
    assert one(row) == Sample(prompt="p", response="r", id="1")
    assert unread(row) == ["messages"]


def unread(row: dict[str, Any], *shown: str) -> list[str]:
    return rollouts.unread_columns([msgspec.json.decode(json.dumps(row), type=dict[str, msgspec.Raw])], shown)


def test_columns_without_a_reader_are_named() -> None:
    """Own columns that hold something, and fields of messages, unless a template shows them."""
    row = {**GOOD, "policy": "p", "rubric": ["a"], "empty": None, "none": [], "id": 5}
    assert unread(row) == ["policy", "rubric"]
    assert unread(row, "rubric") == ["policy"]
    talk = [{"role": "user", "content": "q", "mood": "good", "id": "x", "weight": 1}]
    assert unread({**GOOD, "prompt": talk}) == ["prompt[].mood"]


def test_columns_that_templates_show_are_kept_as_text() -> None:
    """Text as it is, other values as JSON; what a row does not have is not made up."""
    line = json.dumps({**GOOD, "topic": "tides", "tags": ["a", 1], "gone": None}).encode()
    [(_, item)] = read_rollouts(io.BytesIO(line), ("topic", "tags", "gone", "other"))
    assert isinstance(item, Sample)
    assert item.columns == {"topic": "tides", "tags": '["a",1]'}


def test_what_is_not_text_is_refused_only_where_the_judge_reads_text() -> None:
    """The place and the type are named, and the setting that allows it."""
    row = {**GOOD, "prompt": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]}
    line = json.dumps(row).encode()
    [(_, refused)] = read_rollouts(io.BytesIO(line), text_only=True)
    assert isinstance(refused, BadLine)
    assert (refused.field, "image_url" in refused.problem, "judge.parts" in refused.problem) == (
        "prompt[0]",
        True,
        True,
    )
    assert isinstance(one(row), Sample)


def test_names_and_references_may_be_numbers() -> None:
    """Many files number their rollouts and groups, and many right answers are numbers."""
    item = one({"prompt": "p", "response": "r", "id": 7, "uid": 3, "ground_truth": 42, "reference": "42"})
    assert item == Sample(prompt="p", response="r", id="7", group="3", reference="42")


@pytest.mark.parametrize(
    ("change", "field", "word"),
    [
        ({"prompt": 5}, "prompt", "`int`"),
        ({"prompt": None}, "prompt", "`null`"),
        ({"prompt": []}, "prompt", "no messages"),
        ({"prompt": [5]}, "prompt[0]", "`int`"),
        ({"prompt": ["text"]}, "prompt[0]", "`str`"),
        ({"prompt": [{"content": "x"}]}, "prompt[0].role", "missing"),
        ({"prompt": [{"role": "user", "content": 5}]}, "prompt[0].content", "`int`"),
        ({"prompt": [{"role": "user", "content": [{"text": 5}]}]}, "prompt[0].content[0].text", "`int`"),
        ({"response": {"text": "x"}}, "response.role", "missing"),
        ({"completion": 5}, "completion", "`int`"),
        ({"id": True}, "id", "`bool`"),
        ({"group": None}, "group", "`null`"),
        ({"uid": 0.5}, "uid", "`float`"),
        ({"reference": True}, "reference", "`bool`"),
        ({"ground_truth": ["4"]}, "ground_truth", "`array`"),
        ({"rule_score": "0.5"}, "rule_score", "`str`"),
        ({"rule_score": True}, "rule_score", "`bool`"),
        ({"rule_score": None}, "rule_score", "`null`"),
        ({"rule_score": 10**400}, "rule_score", "out of range"),
        ({"rule_score": float("nan")}, "rule_score", "nan"),
        ({"rule_score": float("-inf")}, "rule_score", "-inf"),
        ({"length": "5"}, "length", "`str`"),
        ({"length": 5.0}, "length", "`float`"),
        ({"length": True}, "length", "`bool`"),
        ({"length": -1}, "length", ">= 0"),
        ({"length": 10**30}, "length", "<="),
        ({"truncated": 1}, "truncated", "`int`"),
        ({"truncated": "false"}, "truncated", "`str`"),
        ({"step": "3"}, "step", "`str`"),
        ({"step": 10**30}, "step", "<="),
        ({"other": float("nan")}, "other", "nan"),
        ({"other": [{"x": float("inf")}]}, "other", "inf"),
        ({"response": "\ud800"}, "response", "surrogate"),
    ],
)
def test_a_wrong_value_names_its_field(change: dict[str, Any], field: str, word: str) -> None:
    """Nothing is coerced, and the message has line, field and trouble."""
    problem = bad({**GOOD, **change})
    assert (problem.line, problem.field) == (1, field)
    assert word in problem.problem
    assert problem.message.startswith(f"line 1: {field}: ")


@pytest.mark.parametrize("name", ["prompt", "response"])
def test_a_missing_field_is_named(name: str) -> None:
    """With the names it may also have."""
    problem = bad({key: value for key, value in GOOD.items() if key != name})
    assert problem.field == name
    assert rollouts.ALIASES[name][0] in problem.problem


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"{", "JSON"),
        (b'{"prompt": "p", "response": "r"} {}', "JSON"),
        (b"hello", "JSON"),
        (b"[1, 2]", "object"),
        (b"5", "object"),
        (b"null", "object"),
        (b'"text"', "object"),
        (b"\x00", "JSON"),
        (b"\xff\xfe{\x00}\x00", "UTF-16"),
        (b'{"prompt": "p", "response": "r", "z": ' + b"[" * 100_000, "nested"),
    ],
)
def test_a_line_that_is_no_object_is_refused(line: bytes, word: str) -> None:
    """The line itself is at fault, and is kept as it was."""
    problem = bad(line)
    assert problem.field == ""
    assert word in problem.problem
    assert problem.message.startswith("line 1: ")
    assert problem.raw == line


def test_text_that_is_not_utf8_names_its_field() -> None:
    """Also where the bytes cannot be read as text."""
    problem = bad(b'{"prompt": "p", "response": "caf\xe9"}\n')
    assert (problem.field, problem.problem) == ("response", "not UTF-8.")
    assert problem.raw == b'{"prompt": "p", "response": "caf\xe9"}'


def test_huge_numbers_written_out_are_refused() -> None:
    """1e999 is not a float."""
    assert bad(b'{"prompt": "p", "response": "r", "rule_score": 1e999}').field == "rule_score"


def test_a_byte_order_mark_and_windows_lines_are_fine() -> None:
    """Files from other systems read the same; a mark is only skipped at the start."""
    line = json.dumps(GOOD).encode()
    items = [item for _, item in read(b"\xef\xbb\xbf" + line + b"\r\n" + line + b"\r\n")]
    assert items == [Sample(prompt="p", response="r", id="1"), Sample(prompt="p", response="r", id="2")]
    assert isinstance(read(line + b"\n\xef\xbb\xbf" + line)[1][1], BadLine)


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_of_nothing_says_so(data: bytes) -> None:
    """An empty input is a problem, not an empty success."""
    [(_, item)] = read(data)
    assert isinstance(item, BadLine)
    assert "no rollouts" in item.message


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_an_over_long_line_is_refused_and_passed_over(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    """Only its beginning is kept, and the next line is read; a line of exactly the limit is still read."""
    line = json.dumps(GOOD).encode()
    monkeypatch.setattr(rollouts.file, "LONGEST_LINE", len(line))
    monkeypatch.setattr(rollouts.file, "KEPT_OF_LONG_LINE", 4)
    long = json.dumps({**GOOD, "response": "r" * (3 << 20)}).encode()
    items = read(line + b"\n" + long + b"\n" + line + b"\n" + long + end)
    assert [number for number, _ in items] == [1, 2, 3, 4]
    assert [type(item) for _, item in items] == [Sample, BadLine, Sample, BadLine]
    refused = items[1][1]
    assert isinstance(refused, BadLine)
    assert refused.raw == long[:4]
    assert str(len(line)) in refused.problem


def test_one_bad_line_does_not_spoil_the_rest() -> None:
    """Lines before and after a bad one arrive."""
    line = json.dumps(GOOD).encode()
    assert [type(item) for _, item in read(line + b"\n{oops\n" + line + b"\n")] == [Sample, BadLine, Sample]


def test_checking_a_file_counts_and_lists(tmp_path: Path) -> None:
    """The first pass gives the number of samples and every problem, without holding the lines."""
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps({"prompt": "p"}) + "\n[]\n" + json.dumps(GOOD))
    count, problems = check_file(path)
    assert count == 2
    assert [(problem.line, problem.field, problem.raw) for problem in problems] == [(2, "response", b""), (3, "", b"")]
    assert check_file(str(path))[0] == 2


def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    """Missing files, folders and impossible names are named."""
    for path in (tmp_path / "none.jsonl", tmp_path, "a\0b"):
        with pytest.raises(InputError):
            check_file(path)


def test_reading_is_a_stream() -> None:
    """A line is handed on before the next is read."""

    class Endless(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            return json.dumps(GOOD).encode() + b"\n"

    lines = read_rollouts(Endless())
    assert [next(lines)[0] for _ in range(3)] == [1, 2, 3]


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["role", "content", "text", "x"]), inner)
    ),
    max_leaves=6,
)
FIELDS = sorted(KNOWN)


@given(st.one_of(st.binary(max_size=80), st.text('{}[]",:0123eE\n promtunidcl\\ud8NaI-', max_size=60).map(str.encode)))
@example(b'{"prompt":"\\ud800')
@example(b'{"prompt":"p","response":"r","rule_score":-Infinity')
@example(b'{"' + b"a" * 10 + b"\xff")
@settings(deadline=None, max_examples=400)
def test_any_bytes_are_samples_or_bad_lines(data: bytes) -> None:
    """Nothing is raised, whatever the file holds, and line numbers only grow."""
    items = read(data)
    assert items
    numbers = [number for number, _ in items]
    assert numbers == sorted(set(numbers))
    for number, item in items:
        assert isinstance(item, Sample) or item.line == number


@given(st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=3)), VALUES))
@settings(deadline=None, max_examples=150)
def test_any_object_is_a_sample_of_the_right_types_or_a_bad_line(row: dict[str, Any]) -> None:
    """What comes out as a Sample has the types a Sample promises, and what was given."""
    item = one(row)
    if isinstance(item, BadLine):
        assert item.problem
        return
    assert msgspec.convert(msgspec.to_builtins(item), Sample, strict=True) == item
    for name in ("id", "group", "reference", "length", "truncated", "step"):
        if name in row:
            assert getattr(item, name) == row[name]


def test_an_unread_column_that_is_not_utf8_stops_nothing(tmp_path: Path) -> None:
    """It is named among the columns that no judge sees; the rows are read."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"prompt": "p", "response": "r", "topic": "\xff", "extra_info": {"a": "\xff"}}\n')
    rows = first_rows(path)
    assert unread_columns(rows, (), True) == ["topic", "extra_info"]
    assert polarity_of_rows(rows).lines() == []
    [(_, sample)] = read_rollouts(path)
    assert isinstance(sample, Sample)
