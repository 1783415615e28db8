"""Tables in Python: the same table back with columns of rewards, and what a notebook shows."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from referee import InputError, Referee, Sample, progress, rewards_to_pandas, score_table
from referee.testing import fake_referee

ROWS = [{"text": "p", "response": f"[[quality={n + 1}]]", "n": n} for n in range(3)]
MAP = {"prompt": "text"}
SETTINGS: dict[str, Any] = {"endpoint": {"model": "m"}}
NEW = ["reward", "score", "cost", "why", "unscored", "detail"]


@pytest.fixture
def referee() -> Iterator[Referee]:
    """Scores what names its score, and nothing else."""
    with fake_referee(SETTINGS | {"missing": {"abort_above": 1.0}}) as made:
        yield made


def to_pandas(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows, index=[9] * len(rows))


def to_arrow(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pylist(rows)


def to_dataset(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_list(rows[::-1]).select(range(len(rows) - 1, -1, -1))


def as_rows(data: Any) -> list[dict[str, Any]]:
    """What a table holds, whatever it is."""
    if hasattr(data, "to_pylist"):
        return list(data.to_pylist())
    return list(data.to_dict("records") if hasattr(data, "itertuples") else data)


@pytest.mark.parametrize("make", [list, tuple, to_pandas, to_arrow, to_dataset])
@pytest.mark.parametrize(("keep", "kept"), [("all", ["text", "response", "n"]), (["n"], ["n"]), ("none", [])])
def test_the_same_kind_comes_back(referee: Referee, make: Callable[[Any], Any], keep: Any, kept: list[str]) -> None:
    """In the order of its rows, with the columns that were to stay and new ones; the given table is as it was."""
    given = make(ROWS)
    found = score_table(given, referee, map=MAP, keep=keep)
    assert type(found) is (list if make is tuple else type(given))
    rows = as_rows(found)
    assert [list(row) for row in rows] == [[*kept, *NEW]] * 3
    assert [row["score"] for row in rows] == [1.0, 2.0, 3.0]
    assert [row["reward"] for row in rows] == pytest.approx([0.0, 1 / 9, 2 / 9])
    assert [row["unscored"] for row in rows] == [""] * 3
    assert [row.get("n") for row in rows] == ([0, 1, 2] if "n" in kept else [None] * 3)
    assert as_rows(given) == ROWS
    if make is to_pandas:
        assert list(found.index) == [9] * 3


@pytest.mark.parametrize("make", [list, to_pandas])
def test_columns_may_be_numbers(referee: Referee, make: Callable[[Any], Any]) -> None:
    """As pandas names them that are given none."""
    found = score_table(make([{**row, 0: "zero"} for row in ROWS]), referee, map=MAP)
    assert [row[0] for row in as_rows(found)] == ["zero"] * 3


def test_audio_of_a_dataset_is_not_decoded(referee: Referee) -> None:
    """Its decoder, which may not be installed, is not asked for a column that no judge sees."""
    datasets = pytest.importorskip("datasets")
    given = to_dataset([{**row, "sound": {"bytes": b"RIFF", "path": None}} for row in ROWS])
    found = score_table(given.cast_column("sound", datasets.Audio()), referee, map=MAP, keep=["n", "sound"])
    assert found["score"][:] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("make", [list, to_pandas, to_arrow, to_dataset])
def test_what_is_unscored_is_none(make: Callable[[Any], Any]) -> None:
    """Never 0.0, also where no row has a score: columns of numbers stay such."""
    with fake_referee(SETTINGS | {"missing": {"abort_above": 1.0}}, lambda _: "no verdict") as referee:
        found = score_table(make(ROWS), referee, map=MAP)
    for row in as_rows(found):
        assert row["unscored"] == "no_verdict"
        assert row["reward"] is None or math.isnan(row["reward"])
    if make is to_pandas:
        assert str(found.dtypes["reward"]) == "float64"


def test_several_judges_have_a_column_each() -> None:
    """Beside what they say together."""
    settings = SETTINGS | {"judge": [{"name": "a"}, {"name": "b", "kind": "yes_no", "criteria": "Is it?"}]}
    with fake_referee(settings) as referee:
        (row,) = score_table([{"prompt": "p", "response": "[[quality=7]]"}], referee)
    assert row["score.a"] == 7.0
    assert row["score.b"] == 0.7


def test_it_works_inside_a_running_loop() -> None:
    """As in a notebook, with each runtime of one process."""

    async def cell(runtime: str) -> list[dict[str, Any]]:
        with fake_referee(SETTINGS | {"runtime": runtime}) as referee:
            return score_table(ROWS, referee, map=MAP)

    for runtime in ("thread", "inline"):
        assert [row["score"] for row in asyncio.run(cell(runtime))] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("data", "options", "problem"),
    [
        (ROWS, {"map": {"promt": "text"}}, "no field 'promt'"),
        (ROWS, {"map": {"prompt": "txt"}}, "no column 'txt'"),
        (ROWS, {"map": MAP, "keep": "some"}, '"all", "none" or a list'),
        (ROWS, {"map": MAP, "keep": ["m"]}, "no column 'm'. There are text"),
        ([ROWS[0] | {"score": 1}], {"map": MAP}, "a column 'score' already"),
        ([ROWS[0] | {"response": None}] * 5, {"map": MAP}, "5 of 5 rows cannot be judged.*row 0: response.*2 more"),
        ([ROWS[0] | {"response": "\ud800"}], {"map": MAP}, "row 0: .*surrogates"),
        ({"prompt": ["p"]}, {}, "list of mappings, not dict"),
        ([1], {}, "list of mappings, not list"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_name(
    referee: Referee, data: Any, options: dict[str, Any], problem: str
) -> None:
    """Before anything is spent."""
    with pytest.raises(InputError, match=problem):
        score_table(data, referee, **options)
    assert referee.metrics().get("samples", 0) == 0


def test_a_table_without_the_needed_columns_says_which_it_has(referee: Referee) -> None:
    """And how a field is named; not where only some rows lack it."""
    with pytest.raises(InputError, match=r"Columns are question, said; say which is the response: map=\{'response'"):
        score_table([{"question": "p", "said": "r"}], referee)
    with pytest.raises(InputError, match=r"No row has anything in 'q\.b', which is taken for the prompt"):
        score_table([{"q": {"a": "p"}, "response": "r"}], referee, map={"prompt": "q.b"})
    with pytest.raises(InputError, match=r"No row has anything in 'response'"):
        score_table([{"prompt": "p", "response": None}], referee)
    with pytest.raises(InputError) as error:
        score_table([{"prompt": "p", "response": "r"}, {"prompt": "p", "response": None}], referee)
    assert "Columns are" not in str(error.value)


def test_tables_of_no_rows_have_the_columns_all_the_same(referee: Referee) -> None:
    """So that what follows need not ask."""
    assert score_table([], referee) == []
    empty = to_pandas(ROWS).iloc[:0]
    assert list(score_table(empty, referee, map=MAP).columns) == ["text", "response", "n", *NEW]


def test_two_columns_of_one_name_are_refused(referee: Referee) -> None:
    """Only pandas has such tables."""
    frame = to_pandas(ROWS)
    frame.columns = ["text", "text", "n"]
    with pytest.raises(InputError, match="two columns are called 'text'"):
        score_table(frame, referee, map=MAP)


def test_cells_of_pandas_are_understood(referee: Referee) -> None:
    """Empty cells of every type are no value, numbers that became floats are whole; own columns stay as they were."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "prompt": ["p", "p"],
            "response": ["[[quality=3]]", "[[quality=5]]"],
            "length": [3, math.nan],
            "id": [17.0, math.nan],
            "step": pandas.array([1, None], dtype="Int64"),
            "day": pandas.to_datetime(["2026-01-01", None]),
            "kind": pandas.Categorical(["x", None]),
        }
    )
    found = score_table(frame, referee)
    assert list(found["score"]) == [3.0, 5.0]
    pandas.testing.assert_frame_equal(found[list(frame.columns)], frame)


def test_rewards_become_a_frame(referee: Referee) -> None:
    """With the names of a row of rewards."""
    pytest.importorskip("pandas")
    rewards = referee.score([Sample(prompt="p", response="[[quality=2]]", id="a")])
    frame = rewards_to_pandas(rewards)
    assert list(frame.columns) == list(rewards[0].to_dict())
    assert frame.loc[0, "score"] == 2.0


def test_without_pandas_the_extra_is_named(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the error."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r'pip install "llm-referee\[tables\]"'):
        rewards_to_pandas([])


def test_values_show_themselves_in_notebooks(referee: Referee) -> None:
    """A reward as a table in which no text acts, a ticket as a bar."""
    ticket = referee.submit([Sample(prompt="p", response="[[quality=1]]", id="<script>alert(1)</script>")])
    (reward,) = ticket.result()
    shown = reward._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert ">score</th>" in shown, "also where it is 0"
    assert '<progress value="1" max="1">' in ticket._repr_html_()


def test_progress_is_drawn_in_a_notebook_cell(
    referee: Referee, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through IPython's own displays, updated to the end, and nothing on standard error."""
    drawn: list[str] = []
    display = ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]

    def show(html: str, display_id: bool) -> Any:
        drawn.append(html)
        return SimpleNamespace(update=drawn.append)

    display.display = show  # type: ignore[attr-defined]
    package = ModuleType("IPython")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    package.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert progress.notebook() is display
    score_table(ROWS, referee, map=MAP)
    score_table(ROWS[:2], referee, map=MAP, progress=True)
    assert '<progress value="0" max="3">' in drawn[0]
    assert '<progress value="2" max="2">' in drawn[-1]
    score_table(ROWS, referee, map=MAP, progress=False)
    assert '<progress value="2" max="2">' in drawn[-1]
    assert capsys.readouterr().err == ""
