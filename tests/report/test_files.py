"""Rewards and labels in place of a ledger: read as what they are, matched, and refused where they are not."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

from referee.cli import diff as diff_command
from referee.cli import report as report_command
from referee.cli import watch as watch_command
from referee.cli.rows import Row
from referee.errors import InputError
from referee.ledger import Ledger, RunLine, VerdictLine
from referee.report.data import Gathering
from referee.report.diff import Diff, diff
from referee.report.files import Rewards, lines_of, sides
from referee.report.judged_file import judged_file, with_own_columns
from referee.report.shape import Report, Scale

CONFIG = {"judge": {"kind": "score", "low": 1, "high": 10}}


def written(path: Path, rows: list[Any]) -> Path:
    """A file of JSON lines."""
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return path


def reward(line: int, score: int | None, **more: Any) -> Row:
    """A row as `referee score` writes it; score None is a timeout."""
    if score is None:
        return Row(line=line, id=str(line), reward=None, unscored="timeout", detail="late", origin="call", **more)
    value = (score - 1) / 9
    given = {"id": str(line), "length": 10 * line, "cost": 0.001, "origin": "call", "why": "fine", **more}
    return Row(line=line, reward=value, score=float(score), value=value, judge=value, **given)


def rewards(path: Path, scores: list[int | None], **more: Any) -> Path:
    """A whole file of rewards."""
    return written(path, [reward(n, score, group=f"g{n % 5}", **more) for n, score in enumerate(scores, 1)])


def ledger(folder: Path, scores: list[int], ids: bool = True) -> Path:
    """The record of a run over the same rollouts, in another order."""
    book = Ledger(folder)
    book.append(RunLine(wall=1.0, config=CONFIG))
    for n, score in reversed(list(enumerate(scores, 1))):
        texts = {"prompt": f"question {n}", "response": f"answer {n}"}
        book.append(VerdictLine(id=str(n) if ids else f"x{n}", score=score, value=(score - 1) / 9, **texts))
    book.close()
    return folder


def report_of(path: Path) -> tuple[Report, Rewards]:
    """What the page of a file of rewards shows."""
    found = lines_of(path)
    assert isinstance(found, Rewards)
    gathering = Gathering(found.scale, found.scales)
    for line in found:
        gathering.add(line)
    return gathering.report(), found


def compared(a: Path, b: Path) -> Diff:
    """Two files compared."""
    return diff(*sides(a, b))


SCORES = [1, 4, 7, 10, 5, 6, 3, 8, 2, 9] * 3


def test_rewards_have_a_report(tmp_path: Path) -> None:
    """Scores on the judge's scale, rewards, lengths, groups, cost, what is unscored; no times and no trainer."""
    report, found = report_of(rewards(tmp_path / "r.jsonl", [*SCORES, None]))
    assert (report.metrics["samples"], report.metrics["unscored/timeout"]) == (31, 1)
    assert report.scale == Scale(10, 1.0, 10.0)
    (step,) = report.steps
    assert step.bins == [3] * 10
    assert (step.groups, step.rewards) == (5, 30)
    assert report.lengths.samples == 30
    assert report.cost.spent == pytest.approx(0.030)
    assert (report.times, report.trainer, report.metrics["elapsed_s"]) == ([], False, 0.0)
    assert found.skipped == 0


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ([(0.0, 0.0), (1.0, 1.0)], Scale(2, 0.0, 1.0)),
        ([(0.25, 0.25), (0.75, 0.75)], Scale(0, 0.0, 1.0)),
        ([(2.0, 0.25), (4.0, 0.75)], Scale(5, 1.0, 5.0)),
        ([(7.0, 6 / 9), (8.0, 7 / 9), (9.0, 8 / 9)], Scale(10, 1.0, 10.0)),
        ([(50.0, 0.5), (51.0, 0.51)], Scale(0, 0.0, 100.0)),
        ([(5.0, 0.5)], Scale()),
        ([(5.0, 0.2), (5.0, 0.8)], Scale()),
        ([(9.0, 0.2), (5.0, 0.8)], Scale()),
        ([(-1e308, 0.2), (1e308, 0.8)], Scale()),
    ],
)
def test_the_scale_is_that_of_the_rows(tmp_path: Path, scores: list[tuple[float, float]], scale: Scale) -> None:
    """Two verdicts tell it; the same verdict everywhere does not."""
    rows = [Row(line=n, id="", reward=v, score=s, value=v) for n, (s, v) in enumerate(scores, 1)]
    assert report_of(written(tmp_path / "r.jsonl", rows))[1].scale == scale


def test_several_judges_keep_their_scales_and_rows_their_steps(tmp_path: Path) -> None:
    """A score from 1 to 10 beside a share; the step where own columns hold it, as text of a CSV too."""
    rows = [
        Row(
            line=n,
            id=str(n),
            reward=0.0,
            score=n / 9,
            value=n / 9,
            how="terms",
            judges={"quality": {"score": n + 1.0, "value": n / 9}, "safe": {"score": n / 9, "value": n / 9}},
            columns={"step": msgspec.Raw(b'"3"' if n % 2 else b"4")},
        )
        for n in range(1, 9)
    ]
    report = report_of(written(tmp_path / "r.jsonl", rows))[0]
    assert {judge.name: judge.scale for judge in report.judges} == {"quality": Scale(10, 1.0, 10.0), "safe": Scale()}
    assert [step.first for step in report.steps] == [3, 4]


def test_lines_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    """A torn last line, as a kill leaves it, and a blank one."""
    path = rewards(tmp_path / "r.jsonl", SCORES)
    path.write_bytes(path.read_bytes() + b'\n{"line":31,"id":"31","rew')
    report, found = report_of(path)
    assert (report.metrics["samples"], found.skipped) == (30, 1)


def test_two_files_of_rewards_are_compared_by_id(tmp_path: Path) -> None:
    """Also when one of them lacks rows, or comes in another order."""
    a = rewards(tmp_path / "a.jsonl", list(SCORES))
    other = [reward(n, score, group=f"g{n % 5}") for n, score in enumerate(SCORES, 1)]
    b = written(tmp_path / "b.jsonl", list(reversed(other))[:-1])
    found = compared(a, b)
    assert (found.matched_by, found.only_a, found.only_b) == ({"id": 29}, 1, 0)
    assert (found.exact, found.scale, found.kappa_of) == (1.0, "score", "score")
    assert (found.order.groups, found.order.flipped) == (5, 0)
    assert found.settings == {}


def test_rewards_are_compared_with_their_record(tmp_path: Path) -> None:
    """The same ids, the same scale."""
    found = compared(rewards(tmp_path / "a.jsonl", list(SCORES)), ledger(tmp_path / "run", SCORES))
    assert (found.matched_by, found.exact, found.scale) == ({"id": 30}, 1.0, "score")


@pytest.mark.parametrize("order", [1, -1])
def test_labels_are_compared_with_a_run(tmp_path: Path, order: int) -> None:
    """By id, and by prompt and response under any name they have; either side may be the people's."""
    run = ledger(tmp_path / "run", SCORES)
    by_id = written(tmp_path / "id.jsonl", [{"id": n, "score": s} for n, s in enumerate(SCORES, 1)])
    texts = [
        {"question": f"question {n}", "completion": f"answer {n}", "score": s} for n, s in enumerate(SCORES[:9], 1)
    ]
    by_text = written(tmp_path / "text.jsonl", texts)
    found = compared(*(run, by_id)[::order])
    assert (found.matched_by, found.exact, found.scale) == ({"id": 30}, 1.0, "score")
    found = compared(*(run, by_text)[::order])
    assert (found.matched_by, found.exact, found.both) == ({"text": 9}, 1.0, 9)


def test_labels_without_names_are_taken_in_order(tmp_path: Path) -> None:
    """If there are as many: beside rewards, and beside the record of rollouts that had no ids either."""
    labels = written(tmp_path / "labels.jsonl", [{"score": score} for score in SCORES])
    for other in (rewards(tmp_path / "a.jsonl", list(SCORES)), ledger(tmp_path / "run", SCORES)):
        found = compared(other, labels)
        assert (found.matched_by, found.exact) == ({"position": 30}, 1.0)
    assert compared(rewards(tmp_path / "b.jsonl", [1, 2]), labels).matched == 0
    assert compared(ledger(tmp_path / "named", SCORES, ids=False), labels).matched == 0


@pytest.mark.parametrize(
    ("labels", "values", "scale"),
    [
        ([{"label": True}, {"label": False}], [1.0, 0.0], "value"),
        ([{"label": 1}, {"label": 0}], [1.0, 0.0], "value"),
        ([{"score": 0}, {"score": 1}], [0.0, 1.0], "value"),
        ([{"score": 1}, {"score": 10}], [0.0, 1.0], "score"),
        ([{"label": 10}, {"label": 1}], [1.0, 0.0], "score"),
        ([{"value": 0.25}, {"value": 0.5}], [0.25, 0.5], "value"),
        ([{"score": 10}, {"note": "left out"}], [1.0, None], "score"),
    ],
)
def test_what_a_label_means(
    tmp_path: Path, labels: list[dict[str, Any]], values: list[float | None], scale: str
) -> None:
    """A number on the judge's scale, true and false, or a value in [0, 1]; a row without one is unscored."""
    a, b = sides(rewards(tmp_path / "a.jsonl", [1, 10]), written(tmp_path / "labels.jsonl", labels))
    assert [row.value for row in b.rows] == values
    assert diff(a, b).scale == scale


WRONG = {
    "rollouts": ([{"prompt": "p", "response": "r"}], "'prompt', 'response'"),
    "words": ([{"id": "1", "label": "good"}], "A label is a number"),
    "text": (["hello"], "no JSON object"),
    "out of scale": ([{"id": "1", "score": 3}, {"id": "2", "score": 77}], "from 3 to 77"),
    "value": ([{"id": "1", "value": 3}], "between 0 and 1"),
    "half": ([{"id": "1", "score": 3}, {"id": "2", "score": "x"}], "1 of its lines"),
    "empty": ([], "empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_neither_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    """Said with what the file holds instead; no page is written, no table is shown."""
    rows, words = WRONG[name]
    path = written(tmp_path / "x.jsonl", rows)
    with pytest.raises(InputError, match=words) as caught:
        sides(rewards(tmp_path / "a.jsonl", [1, 10]), path)
    assert "\n" not in str(caught.value)
    for command, more in ((report_command, ["-o", str(tmp_path / "page.html")]), (watch_command, ["--once"])):
        if command is watch_command and not rows:
            continue  # a file that is there and empty may become a ledger
        app = typer.Typer()
        app.command()(command.command)
        done = CliRunner().invoke(app, [str(path), *more])
        assert isinstance(done.exception, InputError)
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(InputError, match="ledger"):
        sides(path, path)


def test_labels_and_rewards_may_be_tables(tmp_path: Path) -> None:
    """CSV, and rows that are packed, are read as the lines of JSON that they stand for."""
    labels = tmp_path / "labels.csv"
    labels.write_text("id,score\n1,3\n2,\n")
    packed = tmp_path / "rewards.jsonl.gz"
    packed.write_bytes(gzip.compress(rewards(tmp_path / "a.jsonl", [1, 10]).read_bytes()))
    a, b = sides(packed, labels)
    assert [row.score for row in a.rows] == [1, 10]
    assert [(row.id, row.score) for row in b.rows] == [("1", 3), ("2", None)]


def test_a_ledger_in_which_nothing_can_be_read_makes_no_page(tmp_path: Path) -> None:
    """Its folder looks right, its lines are not."""
    pytest.importorskip("plotly")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ledger-20260101T000000Z-1.jsonl").write_text("damaged\n")
    with pytest.raises(InputError, match="nothing that can be read"):
        report_command.make_report(tmp_path / "run", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_commands_say_how_they_matched(tmp_path: Path) -> None:
    """`referee diff` over rewards and labels, as people see it."""
    app = typer.Typer()
    app.command()(diff_command.command)
    a = rewards(tmp_path / "a.jsonl", list(SCORES))
    labels = written(tmp_path / "labels.jsonl", [{"score": score} for score in SCORES])
    done = CliRunner().invoke(app, [str(a), str(labels)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "30 by position" in done.stdout
    assert "100.0%" in done.stdout


def of_two_judges(line: int, quality: int, safe: float | None, **more: Any) -> dict[str, Any]:
    """A row as `referee score` writes it with two judges."""
    said = {"weight": 0.2, "judge": 0.2 * safe, "score": safe, "value": safe} if safe is not None else {}
    judges = {
        "quality": {"weight": 0.8, "score": quality, "value": (quality - 1) / 9, "model": "m", "endpoint": "e"},
        "safe": {"unscored": "refused", **said, "cost": 0.01},
    }
    value = 0.8 * (quality - 1) / 9 + 0.2 * (safe or 0.0)
    return {
        "line": line,
        "id": str(line),
        "reward": value,
        "score": 0.8 * quality,
        "value": value,
        "how": "terms",
        "judges": judges,
        **more,
    }


def test_rewards_of_several_judges_are_told_apart(tmp_path: Path) -> None:
    """The report has each of them, from the rows alone. A column `judges` of the caller's is not in the way."""
    rows = [of_two_judges(n, n, None if n == 3 else 0.5) for n in range(1, 9)]
    report, found = report_of(written(tmp_path / "r.jsonl", rows))
    assert found.skipped == 0
    assert [judge.name for judge in report.judges] == ["quality", "safe"]
    assert report.metrics["judge/safe/unscored"] == 1
    assert report.metrics["judge/quality/score_mean"] == pytest.approx(3.5 / 9)
    assert report.metrics["judge/safe/cost_usd"] == pytest.approx(0.08)
    assert report.scale == Scale()
    assert report.steps[0].terms["safe"] == pytest.approx(7 * 0.1 / 8)
    foreign, found = report_of(written(tmp_path / "f.jsonl", [{**rows[0], "judges": ["Ann", "Bob"]}]))
    assert (foreign.judges, found.skipped) == ([], 0)


def test_the_record_of_rewards_is_shown_with_their_own_columns(tmp_path: Path) -> None:
    """Whichever is named, in any order; a template's column is the record's own, and one without texts has none."""
    rows = [reward(1, 3, columns=own(topic="a", prompt="long")), reward(2, 4, columns=own(topic="b", note="x" * 99))]
    path, run = written(tmp_path / "out.jsonl", rows), ledger(tmp_path / "out.run", [3, 4])
    assert judged_file(path) == judged_file(run) == (run, path)
    found = {x.id: x.more["columns"] for x in with_own_columns(lines_of(run), path) if isinstance(x, VerdictLine)}
    assert found == {"1": {"topic": "a"}, "2": {"topic": "b", "note": "x" * 81}}
    for line in (VerdictLine(id="1", more={"columns": {"topic": "shown"}}), VerdictLine(id="1", response_digest="d")):
        assert [x.more for x in with_own_columns([line], path) if isinstance(x, VerdictLine)] == [line.more]


def test_samples_that_cannot_be_told_apart_have_no_own_columns(tmp_path: Path) -> None:
    """Two rows of one id and request with different columns: none is better than another's."""
    twice = [reward(n, 3, columns=own(topic="ab"[n - 1])) for n in (1, 2)]
    path = written(tmp_path / "out.jsonl", [replace(row, id="same") for row in twice])
    (line,) = with_own_columns([VerdictLine(id="same")], path)
    assert isinstance(line, VerdictLine)
    assert line.more == {}


def test_rewards_that_cannot_be_read_do_not_hide_the_record(tmp_path: Path) -> None:
    """A torn table beside it: the page has no own columns, and is a page."""
    path, run = tmp_path / "out.jsonl.gz", ledger(tmp_path / "out.jsonl.gz.run", [3])
    path.write_bytes(gzip.compress(b"x" * 9999)[:20])
    assert judged_file(run) is None
    assert [type(line) for line in with_own_columns(lines_of(run), path)] == [RunLine, VerdictLine]


@pytest.mark.parametrize("name", ["elsewhere.jsonl", "out.csv"])
def test_a_record_of_another_file_is_not_taken(tmp_path: Path, name: str) -> None:
    """Rewards without a record beside them are shown alone, and so is a record without rewards."""
    path, run = rewards(tmp_path / name, [3, 4]), ledger(tmp_path / "out.run", [3, 4])
    assert judged_file(path) is None
    assert judged_file(run) is None


def test_a_record_that_lacks_a_reward_is_not_taken(tmp_path: Path) -> None:
    """It is of an earlier run, or lost lines to a full disk: the page is of the rewards, all of them."""
    path = rewards(tmp_path / "out.jsonl", [3, 4, 5])
    run = ledger(tmp_path / "out.run", [3, 4])
    assert judged_file(path) is None
    assert judged_file(run) == (run, path)
    other = msgspec.json.decode(path.read_bytes().splitlines()[0])
    path.write_bytes(msgspec.json.encode({**other, "key": "of another model"}))
    assert judged_file(path) is None


def own(**columns: str) -> dict[str, msgspec.Raw]:
    """Own columns as a row holds them."""
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in columns.items()}
