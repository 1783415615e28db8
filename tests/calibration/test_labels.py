"""What people said is read as they wrote it, and what cannot be read is one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.calibration.population import rows_of, write

from referee.calibration import Format, read_labels, yes_rule
from referee.calibration.truth import criterion_value, pairs, truth_of
from referee.config import JudgeConfig
from referee.errors import InputError
from referee.records import Criterion
from referee.rollouts import BadLine


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("yes", True),
        ("False", False),
        (True, True),
        (0, 0.0),
        ("7", 7.0),
        (0.25, 0.25),
        ("brilliant", "brilliant"),
        ("", None),
        (None, None),
        ("n/a", None),
    ],
)
def test_a_label_is_yes_or_no_a_number_or_a_word(tmp_path: Path, given: Any, means: Any) -> None:
    """As JSON has it or as text; nothing at all is no label."""
    path = write(tmp_path / "in.jsonl", [{"prompt": "p", "response": "r", "label": given}])
    (row,) = rows_of(path)
    assert row.label == means
    assert row.labelled is (means is not None)


def test_a_table_is_read_as_the_rows_it_stands_for(tmp_path: Path) -> None:
    """Commas, quotes and line breaks in cells; empty cells are left out; numbers are numbers."""
    path = tmp_path / "in.csv"
    path.write_text('\ufeffprompt,response,label,topic,length\n"a, b","two\nlines",yes,law,7\nq,r,,maths,\n')
    first, second = rows_of(path, by=("topic",))
    assert (first.sample.prompt, first.sample.response, first.sample.length) == ("a, b", "two\nlines", 7)
    assert (first.label, first.by) == (True, {"topic": "law"})
    assert not second.labelled


def test_reward_bench_rows_are_contests(tmp_path: Path) -> None:
    """Lists of chosen and rejected responses: each is a row, and all of a line compete."""
    row = {"id": "7", "prompt": "p", "chosen": ["a"], "rejected": ["b", "c"], "num_correct": 1, "subset": "Focus"}
    rows = rows_of(write(tmp_path / "in.jsonl", [row]), by=("subset",))
    assert [(one.sample.id, one.preferred) for one in rows] == [
        ("7/chosen", True),
        ("7/rejected 1", False),
        ("7/rejected 2", False),
    ]
    assert {one.contest for one in rows} == {"line 1"}
    truth = truth_of(rows, JudgeConfig(name="judge"))
    assert pairs(truth.values, [one.contest for one in rows]) == [(0, 1), (0, 2)]
    assert rows[0].by == {"subset": "Focus"}


TALK = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "p", "chosen": "a", "rejected": "b"},
        {"prompt": "p", "response_a": "a", "response_b": "b", "preferred": "A"},
        {"prompt": "p", "responses": ["b", "a"], "preferred": 1},
        {"prompt": "p", "responses": ["b", "a"], "preferred": "a"},
        {"prompt": "p", "chosen": TALK, "rejected": [TALK[0], {"role": "assistant", "content": "b"}]},
    ],
)
def test_preferences_come_in_several_shapes(tmp_path: Path, row: dict[str, Any]) -> None:
    """Pairs by name, by place, by text, and whole conversations."""
    rows = rows_of(write(tmp_path / "in.jsonl", [row]))
    said = {str(one.sample.response): one.preferred for one in rows}
    assert [one.preferred for one in rows].count(True) == 1
    best = next(text for text, preferred in said.items() if preferred)
    assert best == "a" or "content='a'" in best
    assert len({one.prompt for one in rows}) == 1


BAD = [
    ({"prompt": "p", "response": "r", "label": ["x"]}, "label"),
    ({"prompt": "p", "response": "r", "labels": ["x"]}, "labels"),
    ({"prompt": "p", "chosen": "a"}, "rejected"),
    ({"prompt": "p", "responses": ["a", "b"], "preferred": 5}, "preferred"),
    ({"prompt": "p", "responses": ["a", "b"], "preferred": [0, 1]}, "preferred"),
    ({"prompt": "p", "response": "r", "preferred": "somewhat"}, "preferred"),
    ({"prompt": "p", "label": "yes"}, "response"),
    (["not", "a", "row"], ""),
]


@pytest.mark.parametrize(("row", "field"), BAD)
def test_what_cannot_be_read_names_its_line_and_field(tmp_path: Path, row: Any, field: str) -> None:
    """A BadLine, never an exception, never a guess."""
    path = write(tmp_path / "in.jsonl", [{"prompt": "p", "response": "r", "label": 1}, row])
    found = list(read_labels(path, Format()))
    assert not isinstance(found[0], BadLine)
    (bad,) = found[1:]
    assert isinstance(bad, BadLine)
    assert (bad.line, bad.field) == (2, field)


def test_a_table_with_too_many_cells_is_said(tmp_path: Path) -> None:
    """A comma that should have been quoted moves all cells after it."""
    path = tmp_path / "in.csv"
    path.write_text("prompt,response,label\np,one, two,yes\n")
    with pytest.raises(InputError, match="line 2 has 4 cells, its header 3"):
        list(read_labels(path, Format()))


def labelled(tmp_path: Path, *labels: Any) -> Any:
    rows = [{"prompt": f"p{n}", "response": "r", "label": label} for n, label in enumerate(labels)]
    return rows_of(write(tmp_path / "in.jsonl", rows))


@pytest.mark.parametrize(
    ("kind", "labels", "yes", "means", "values"),
    [
        ("yes_no", ["yes", "no"], "", "binary", (1.0, 0.0)),
        ("yes_no", [0.25, 1], "", "ordinal", (0.25, 1.0)),
        ("score", [1, 0], "", "binary", (1.0, 0.0)),
        ("score", [1, 10, 5.5], "", "ordinal", (0.0, 1.0, 0.5)),
        ("score", [0.5, 1.0], "", "ordinal", (0.5, 1.0)),
        ("score", [4, 8], ">=5", "binary", (0.0, 1.0)),
        ("yes_no", ["good", "fair", "awful", 3], "good,fair", "binary", (1.0, 1.0, 0.0, 0.0)),
        ("listwise", [3, 250], "", "preference", (3.0, 250.0)),
    ],
)
def test_what_a_label_means_depends_on_the_judge(
    tmp_path: Path, kind: str, labels: list[Any], yes: str, means: str, values: tuple[float, ...]
) -> None:
    """Zeros and ones are no and yes; other numbers are on the judge's scale or in [0, 1]; groups need only an order."""
    truth = truth_of(labelled(tmp_path, *labels), JudgeConfig(name="judge", kind=kind), yes_rule(yes))
    assert truth.kind == means
    assert truth.values == values


@pytest.mark.parametrize(
    ("kind", "labels", "says"),
    [
        ("yes_no", [1, 5], "--yes"),
        ("score", [0, 100], "1 to 10"),
        ("score", ["brilliant", "poor"], "--yes good,fair"),
    ],
)
def test_labels_that_mean_nothing_to_a_judge_are_refused_with_what_to_do(
    tmp_path: Path, kind: str, labels: list[Any], says: str
) -> None:
    """One line that names the judge and the option."""
    with pytest.raises(InputError, match="judge") as error:
        truth_of(labelled(tmp_path, *labels), JudgeConfig(name="quality", kind=kind))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", [">4x", ">=", "<"])
def test_a_bound_that_is_none_is_refused(text: str) -> None:
    """--yes takes words or a bound."""
    with pytest.raises(InputError, match="bound"):
        yes_rule(text)


def test_labels_of_criteria_are_the_judges_own_words() -> None:
    """Yes and no say whether the sentence is true; a choice is worth what the rubric says."""
    plain = Criterion("Is it kind?", name="kind")
    graded = Criterion("How clear is it?", name="clear", choices=("murky", "fair", "clear"))
    assert criterion_value(True, plain) == 1.0
    assert criterion_value("fair", graded) == 0.5
    with pytest.raises(InputError, match="murky, fair, clear"):
        criterion_value("splendid", graded)
    with pytest.raises(InputError, match="neither yes nor no"):
        criterion_value(0.5, plain)


def test_a_file_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    """Named, without a traceback."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"prompt,response\n\xff\xfe,x\n")
    with pytest.raises(InputError, match="not UTF-8"):
        list(read_labels(path, Format()))


def test_json_that_is_broken_is_a_bad_line(tmp_path: Path) -> None:
    """With its number."""
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"prompt": "p", "response": "r"}) + '\n{"prompt": "p",\n')
    found = list(read_labels(path, Format()))
    assert isinstance(found[1], BadLine)
    assert found[1].line == 2


def test_choices_keep_their_words(tmp_path: Path) -> None:
    """A choice called good, fail or none is that choice; only yes and no are read by meaning."""
    choices = ("fail", "none", "good")
    criteria = (Criterion("How is it?", name="how", choices=choices), Criterion("Is it kind?", name="kind"))
    given = [{"prompt": "p", "response": "r", "labels": {"How": word, "kind": "good"}} for word in (*choices, "n/a")]
    rows = rows_of(write(tmp_path / "in.jsonl", given), criteria=criteria)
    assert [criterion_value(row.labels["How"], criteria[0]) for row in rows[:3]] == [0.0, 0.5, 1.0]
    assert criterion_value(rows[0].labels["kind"], criteria[1]) == 1.0
    assert "How" not in rows[3].labels
    assert criterion_value("wrong", criteria[1]) == 0.0


def test_a_quote_that_is_never_closed_is_one_error(tmp_path: Path) -> None:
    """It would make one cell of all rows below it."""
    path = tmp_path / "in.csv"
    path.write_text('prompt,response,label\np,r,yes\nq,"open,no\nr,s,yes\n')
    with pytest.raises(InputError, match=r"line 3: a quote .* never closed"):
        list(read_labels(path, Format()))


def test_a_row_of_several_responses_may_have_no_preference(tmp_path: Path) -> None:
    """null: people said nothing. A tie: they did, and no pair is told apart."""
    given = [{"prompt": "p", "response_a": "x", "response_b": "y", "preferred": said} for said in (None, "tie", "b")]
    rows = rows_of(write(tmp_path / "in.jsonl", given))
    assert [row.preferred for row in rows] == [None, None, False, False, False, True]
    truth = truth_of(rows, JudgeConfig(name="judge"))
    assert pairs(truth.values, [row.contest for row in rows]) == [(5, 4)]
