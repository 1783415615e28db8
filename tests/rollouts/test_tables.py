"""Tables become the lines of JSON that the reader of rollouts reads."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from referee.errors import InputError
from referee.records import Sample
from referee.rollouts import BadLine, read_rollouts
from referee.rollouts.tables import encode, is_table, plain, read_mapping, table_lines


def samples(path: Path, *mapped: str) -> list[tuple[int, Sample]]:
    """What a file holds, by line; each must be readable."""
    lines = b"".join(table_lines(path, read_mapping(mapped)))
    found = list(read_rollouts(io.BytesIO(lines)))
    assert all(isinstance(item, Sample) for _, item in found), found
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_a_csv_is_read_with_the_lines_it_has(tmp_path: Path, packed: bool, separator: str) -> None:
    """BOM, CRLF, quoted line breaks and quotes, empty cells and numbers, also packed."""
    text = '\ufeffprompt,response,length\r\n"a ""b""\nc",x,3\r\n\r\nq,"y, z",\r\n'.replace(",", separator)
    path = tmp_path / ("in.csv.gz" if packed else "in.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert is_table(path)
    (first, one), (second, two) = samples(path)
    assert (first, one.prompt, one.response, one.length) == (2, 'a "b"\nc', "x", 3)
    assert (second, two.prompt, two.length) == (5, "q", None)


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_a_header_without_a_known_name_is_split_as_well(tmp_path: Path, separator: str) -> None:
    """So that an error can name the columns that there are."""
    (tmp_path / "in.csv").write_text(separator.join("ab") + "\n" + separator.join("xy") + "\n")
    assert [json.loads(line) for line in table_lines(tmp_path / "in.csv", {}) if line.strip()] == [{"a": "x", "b": "y"}]


def test_an_array_is_read_and_columns_are_mapped(tmp_path: Path) -> None:
    """Also from inside a column; a column that says the field otherwise does not contradict it."""
    rows = [{"q": f"p{n}", "question": "other", "out": "r", "reward_model": {"ground_truth": n}} for n in range(2)]
    (tmp_path / "in.json").write_text(json.dumps(rows, indent=1))
    given = samples(tmp_path / "in.json", "prompt=q", "response=out", "reference=reward_model.ground_truth")
    assert [(line, item.prompt, item.response, item.reference) for line, item in given] == [
        (1, "p0", "r", "0"),
        (2, "p1", "r", "1"),
    ]


def test_a_mapped_cell_of_a_csv_is_read_as_its_field_is(tmp_path: Path) -> None:
    """Numbers, truth values and messages as JSON text, whatever their column is called."""
    talk = json.dumps([{"role": "assistant", "content": "4"}, {"role": "tool", "content": "x"}]).replace('"', '""')
    (tmp_path / "in.csv").write_text(f'q,talk,n,acc,cut\n2+2?,"{talk}",12,0.5,True\n')
    mapped = ("prompt=q", "response=talk", "length=n", "rule_score=acc", "truncated=cut")
    ((_, one),) = samples(tmp_path / "in.csv", *mapped)
    assert (one.prompt, one.length, one.rule_score, one.truncated) == ("2+2?", 12, 0.5, True)
    assert [message.role for message in one.response if not isinstance(message, str)] == ["assistant", "tool"]


@pytest.mark.parametrize(
    ("name", "data", "mapped", "problem"),
    [
        ("in.csv", b"prompt,response\ncaf\xe9,x\n", (), "this CSV is not UTF-8"),
        ("in.csv", b'prompt,response\n"a,x\n', (), "line 2: a quote"),
        ("in.csv", b"prompt,response\na,b,c\n", (), "line 2 has 3 cells, its header 2"),
        ("in.csv", b"prompt,prompt\na,b\n", (), "two columns are called 'prompt'; is the first line a header?"),
        ("in.csv", b"prompt|response\na,b|c\n", (), "its header 1. Cells are separated by commas, tabs or semicolons."),
        ("in.json", b'[{"prompt": 1', (), "a JSON array that cannot be read"),
        ("in.json", b'[{"prompt": "a"}]', ("response=answer",), "no row has anything in `answer`"),
        ("in.json", b"[]", ("respnse=answer",), "--map respnse=answer: write FIELD=COLUMN"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line(
    tmp_path: Path, name: str, data: bytes, mapped: tuple[str, ...], problem: str
) -> None:
    """It names the place and what to change."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as error:
        samples(tmp_path / name, *mapped)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_dataset_is_named(tmp_path: Path) -> None:
    """And a DatasetDict of several splits says which there are."""
    with pytest.raises(InputError, match="is a folder and no dataset"):
        samples(tmp_path)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InputError, match=r"DatasetDict of 2 splits.*train, .*test"):
        samples(tmp_path)


def test_splits_of_a_dataset_are_not_mixed(tmp_path: Path) -> None:
    """Parquet files as the Hugging Face hub names them: train and test in one folder are two datasets."""
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        (tmp_path / f"{name}.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="holds the splits test, train"):
        samples(tmp_path)


def test_cells_of_pandas_and_numpy_become_plain_values() -> None:
    """Arrays of message dicts, as verl's files have them in pandas; NaN is no value."""
    numpy = pytest.importorskip("numpy")
    messages = numpy.array([{"role": "user", "content": "q"}], dtype=object)
    cells: dict[str, Any] = {"prompt": messages, "n": numpy.int64(3), "x": numpy.float32("nan"), "huge": 10**30}
    assert plain(cells) == {"prompt": [{"role": "user", "content": "q"}], "n": 3, "x": None, "huge": 10**30}


@pytest.mark.parametrize("number", ["nan", "inf", "-Infinity"])
def test_a_number_without_a_finite_value_is_refused(tmp_path: Path, number: str) -> None:
    """It is no empty cell, so it is not read as 0."""
    (tmp_path / "in.csv").write_text(f"prompt,response,rule_score\np,r,{number}\n")
    ((_, item),) = read_rollouts(io.BytesIO(b"".join(table_lines(tmp_path / "in.csv", {}))))
    assert isinstance(item, BadLine)
    assert item.field == "rule_score"
    ((_, item),) = read_rollouts(io.BytesIO(encode({"prompt": "p", "response": "r", "rule_score": float("inf")})))
    assert isinstance(item, BadLine)
    assert item.field == "rule_score"


def test_whole_numbers_that_pandas_wrote_as_floats_are_whole(tmp_path: Path) -> None:
    """A column of numbers with an empty cell comes as 3.0."""
    (tmp_path / "in.csv").write_text("prompt,response,length,step\np,r,3.0,7\np,r,,\np,r,2.5,\n")
    *_, bad = found = list(read_rollouts(io.BytesIO(b"".join(table_lines(tmp_path / "in.csv", {})))))
    assert [(item.length, item.step) for _, item in found[:2] if isinstance(item, Sample)] == [(3, 7), (None, None)]
    assert "length" in str(bad)
    assert encode({"id": 17.0, "group": 2.5, "x": 1.0}) == b'{"id":17,"group":2.5,"x":1.0}'


def test_parquet_and_dataset_folders_are_read(tmp_path: Path) -> None:
    """In verl's format, with pyarrow alone."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    rows = [{"prompt": [{"role": "user", "content": f"q{n}"}], "output": "r", "reward_model": {"ground_truth": str(n)}}
            for n in range(3)]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    (tmp_path / "ds").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "ds" / "data.arrow"), table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "ds" / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    for name in ("in.parquet", "ds"):
        found = samples(tmp_path / name, "reference=reward_model.ground_truth")
        assert [(item.prompt, item.reference) for _, item in found] == [("q0", "0"), ("q1", "1"), ("q2", "2")]
