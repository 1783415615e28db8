"""`referee score` on files with rubrics: what people have is read as it is, and every row says what it is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, Server, Start, rows

CONFIG = """
[judge]
kind = "rubric"
{more}
[endpoint]
url = "{url}"
model = "m"
key_env = ""
[cache]
path = ""
"""
HEALTHBENCH = {
    "prompt": [{"role": "user", "content": "My head hurts."}],
    "response": "Rest, and see a doctor. #doctor",
    "rubrics": [
        {"criterion": "Names a #doctor.", "points": 5, "tags": ["level:example"]},
        {"criterion": "Names #water.", "points": 10, "tags": []},
        {"criterion": "Names a #pill.", "points": -8, "tags": []},
    ],
}
RULED = {
    "prompt": "p",
    "response": "#doctor",
    "extra_info": {"reward_model": {"rubrics": [{"criterion": "Names a #doctor.", "points": 1}]}},
}


def write(tmp_path: Path, server: Server, *given: dict[str, Any], more: str = "") -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    (tmp_path / "referee.toml").write_text(CONFIG.format(url=server.url, more=more))


@pytest.mark.parametrize("per_call", ["1", "2", '"all"'])
def test_rows_say_what_each_criterion_said(tmp_path: Path, referee: Run, provider: Start, per_call: str) -> None:
    """HealthBench's arithmetic, from its own fields, however the criteria are asked. One by one they are probabilities,
    0.9 where the simulated judge says yes."""
    more = f'combine = "healthbench"\ncriteria_per_call = {per_call}\nask_again = 0\n'
    write(tmp_path, provider(), HEALTHBENCH, RULED, more=more)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    first, second = rows(tmp_path / "out.jsonl")
    expected = (5 * 0.9 + 10 * 0.1 - 8 * 0.1) / 15 if per_call == "1" else 5 / 15
    assert first["score"] == first["reward"] == pytest.approx(expected, abs=1e-3)
    assert [(part["verdict"], part["weight"], part["true_is"]) for part in first["parts"]] == [
        ("yes", 5.0, "good"),
        ("no", 10.0, "good"),
        ("no", 8.0, "bad"),
    ]
    assert all(part["why"] for part in first["parts"])
    assert second["reward"] == pytest.approx(0.9 if per_call == "1" else 1.0, abs=1e-3)
    assert "not read" not in done.stderr
    record = "".join(path.read_text() for path in (tmp_path / "out.run").glob("*.jsonl"))
    assert '"parts":[{"name":"criterion 1"' in record


def test_the_judges_own_criteria_come_from_tables_and_files(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Both are added to the rows' own, and a changed file is another rubric for --resume."""
    more = 'rubric_file = "own.json"\n[[judge.criterion]]\ntext = "At most 9 words."\ncheck = "max_words"\n'
    more += "parameters = '{\"max\": 9}'\n"
    (tmp_path / "own.json").write_text(json.dumps([{"criterion": "Names #rest.", "points": 2}]))
    write(tmp_path, provider(), HEALTHBENCH, more=more)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    [row] = rows(tmp_path / "out.jsonl")
    assert [part["text"] for part in row["parts"]][:2] == ["At most 9 words.", "Names #rest."]
    assert len(row["parts"]) == 5
    (tmp_path / "own.json").write_text(json.dumps([{"criterion": "Names #doctor.", "points": 2}]))
    referee("score", "in.jsonl", "-o", "out.jsonl", "--resume")
    [again] = rows(tmp_path / "out.jsonl")
    assert again["digest"] != row["digest"]
    assert again["parts"][1]["verdict"] == "yes"


def test_a_wrong_rubric_is_named_before_anything_is_spent(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Line and place; a judge's own file by its name; a function that the settings do not allow."""
    server = provider()
    broken = {**HEALTHBENCH, "rubrics": [{"criterion": "x", "points": "many"}]}
    write(tmp_path, server, HEALTHBENCH, broken)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "line 2: rubrics[0].points" in done.stderr
    (tmp_path / "own.toml").write_text("criteria = 5")
    write(tmp_path, server, HEALTHBENCH, more='rubric_file = "own.toml"')
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "own.toml" in done.stderr
    write(tmp_path, server, HEALTHBENCH, more='[[judge.criterion]]\ntext = "x"\ncheck = "os:system"')
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "os:system" in done.stderr
    assert server.stats().received == 0


LENGTHS = "[shaping.length]\nenable = true\n"


def test_a_group_that_lost_a_line_to_its_rubric_is_judged_without_it(
    tmp_path: Path, referee: Run, provider: Start
) -> None:
    """Group sizes are those of the lines that are judged: no row after a refused one is missing."""
    fine = {**RULED, "group": "a"}
    broken = {**fine, "extra_info": {"reward_model": {"rubrics": [{"criterion": "x", "points": "many"}]}}}
    write(tmp_path, provider(), fine, broken, {**fine, "response": "#doctor!"}, {**RULED, "group": "b"}, more=LENGTHS)
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert [row["line"] for row in rows(tmp_path / "out.jsonl")] == [1, 3, 4]
    assert "1 unusable line set aside" in done.stderr


def test_a_shown_column_that_cannot_be_read_is_refused_wherever_it_stands(
    tmp_path: Path, referee: Run, provider: Start
) -> None:
    """Far down in the file, too: the row is named, and nothing is spent."""
    server = provider()
    (tmp_path / "t.txt").write_text("Topic: {{columns.topic}}\n{{prompt}}\n{{response}}\n{{reply}}")
    (tmp_path / "referee.toml").write_text(
        CONFIG.format(url=server.url, more='prompt_file = "t.txt"\n').replace("rubric", "score")
    )
    line = b'{"prompt": "p", "response": "r", "topic": "t"}\n'
    bad = b'{"prompt": "p", "response": "r", "topic": "\xff"}\n'
    (tmp_path / "in.jsonl").write_bytes(line * 120 + bad)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 2
    assert "line 121: topic: not UTF-8" in done.stderr
    done = referee("score", "in.jsonl", "-o", "out.jsonl", "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path / "out.jsonl")) == 120
    assert "1 unusable line set aside" in done.stderr
