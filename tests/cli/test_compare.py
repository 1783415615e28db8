"""`referee compare` as a user runs it: two files of answers in, who wins out, and one clear line where it cannot be."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, Start, write_config
from tests.cli.test_score import start_and_wait
from typer.testing import CliRunner, Result

from referee.cli.main import app

PAIRWISE = '[judge]\nkind = "pairwise"\n'


def row(number: int, quality: int, **more: Any) -> dict[str, Any]:
    return {"id": f"q{number}", "prompt": f"Question {number}?", "response": f"[[quality={quality}]] {number}", **more}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))


def write_answers(folder: Path, count: int = 12) -> None:
    """Of three prompts, tuned wins the first (by 2), loses the second (by 4), ties the third (same answer)."""
    change = {0: 2, 1: -4, 2: 0}
    write_rows(folder / "base.jsonl", [row(n, 5, topic=f"t{n % 3}", level=n % 2) for n in range(count)])
    tuned = [row(n, 5 + change[n % 3], topic=f"t{n % 3}", level=n % 2) for n in range(count)]
    write_rows(folder / "tuned.jsonl", tuned)


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `referee compare …` in the test's folder."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Result:
        return CliRunner().invoke(app, ["compare", *args], catch_exceptions=True)

    return run


def said(done: Result) -> str:
    """What a user reads, errors included."""
    return f"{done.output}{done.exception or ''}"


def test_two_files_are_compared(tmp_path: Path, compare: Callable[..., Result], provider: Start) -> None:
    """Counts, interval, breakdown, worst losses and cost in a terminal; the plan before the run."""
    server = provider()
    write_answers(tmp_path)
    write_config(tmp_path / "referee.toml", server.url, PAIRWISE, price_in=1.0, price_out=1.0)
    done = compare("base.jsonl", "tuned.jsonl", "--by", "topic", "--worst", "1")
    assert done.exit_code == 0, said(done)
    assert (
        "12 pairs, compared by judge, each in both orders: 16 requests, 0 more in the cache, at most $0." in done.stderr
    )
    lines = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert (lines["wins"][1], lines["ties"][1], lines["losses"][1]) == ("4", "4", "4")
    assert "tuned against base, compared by judge, simulated, in both orders" in done.stdout
    assert "4 of equal answers" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("t") and "│" in line][:3] == [
        "t0",
        "t1",
        "t2",
    ]
    assert "16 requests" in done.stdout
    loss = done.stdout[done.stdout.index("worst losses of tuned") :]
    assert "Question 1?" in loss
    assert "base: [[quality=5]] 1" in loss
    assert "tuned: [[quality=1]] 1" in loss
    assert "judge, base first: " in loss
    assert "2. " not in loss


def test_json_is_one_object(tmp_path: Path, compare: Callable[..., Result], provider: Start) -> None:
    """With every number that the tables show, each slice, and the texts of the losses."""
    write_answers(tmp_path)
    write_config(tmp_path / "c.toml", provider().url, PAIRWISE)
    done = compare("base.jsonl", "tuned.jsonl", "-c", "c.toml", "--json", "-q", "--names", "old,new", "--by", "level")
    found = json.loads(done.stdout)
    assert found["about"]["names"] == ["old", "new"]
    assert found["about"]["cost_usd"] is None
    assert (found["wins"], found["ties"], found["losses"], found["unscored"]) == (4, 4, 4, 0)
    assert found["win_rate"]["value"] == 0.5
    assert found["position"]["first_wins"]["value"] == 0.5
    assert found["position"]["agree"] == 1.0
    assert [part["value"] for part in found["by"]["level"]] == ["0", "1"]
    assert [each["b"]["id"] for each in found["worst"]] == ["q1", "q4", "q7", "q10"]


def test_what_was_judged_is_not_paid_again(tmp_path: Path, compare: Callable[..., Result], provider: Start) -> None:
    """The second run takes all from the cache and says the same."""
    server = provider()
    write_answers(tmp_path)
    write_config(tmp_path / "referee.toml", server.url, PAIRWISE)
    first = json.loads(compare("base.jsonl", "tuned.jsonl", "--json", "-q").stdout)
    again = json.loads(compare("base.jsonl", "tuned.jsonl", "--json", "-q").stdout)
    assert server.stats().received == 16
    assert (again["about"]["requests"], again["about"]["from_cache"]) == (0, 8)
    assert {**first, "about": 0} == {**again, "about": 0}


def test_the_configuration_of_a_service_compares(
    tmp_path: Path, compare: Callable[..., Result], provider: Start
) -> None:
    """Its teams name judges that do not compare; they are of no matter here."""
    write_answers(tmp_path)
    teams = '[[judge]]\nname = "quality"\n[[team]]\nname = "math"\ntoken_env = "MATH_TOKEN"\njudges = ["quality"]\n'
    write_config(
        tmp_path / "referee.toml", provider().url, PAIRWISE.replace("[judge]", '[[judge]]\nname = "versus"') + teams
    )
    done = compare("base.jsonl", "tuned.jsonl", "--json", "-q")
    assert done.exit_code == 0, said(done)
    assert json.loads(done.stdout)["pairs"] == 12


def test_a_position_bias_is_seen_and_gives_no_win(
    tmp_path: Path, compare: Callable[..., Result], provider: Start
) -> None:
    """A judge that likes the first place makes ties of close pairs, and is named."""
    write_rows(tmp_path / "base.jsonl", [row(n, 5) for n in range(30)])
    write_rows(tmp_path / "tuned.jsonl", [row(n, 6) for n in range(30)])
    write_config(tmp_path / "referee.toml", provider(compares={"position_bias": 0.3}).url, PAIRWISE)
    found = json.loads(compare("base.jsonl", "tuned.jsonl", "--json", "-q").stdout)
    assert (found["wins"], found["ties"], found["losses"]) == (0, 30, 0)
    assert found["position"]["first_wins"]["value"] == 1.0
    assert found["position"]["order_ties"] == 30
    assert "favours the answer shown first" in found["findings"][1]["text"]


def test_several_answers_to_a_prompt_are_matched_in_order(
    tmp_path: Path, compare: Callable[..., Result], provider: Start
) -> None:
    """And count as one prompt in the interval."""
    prompts = [{"prompt": f"p{n // 4}"} for n in range(40)]
    write_rows(tmp_path / "base.jsonl", [{**row(n, 5), **prompts[n]} for n in range(40)])
    write_rows(tmp_path / "tuned.jsonl", [{**row(n, 4 + n % 4), **prompts[n]} for n in range(40)])
    write_config(tmp_path / "referee.toml", provider().url, PAIRWISE)
    found = json.loads(compare("base.jsonl", "tuned.jsonl", "--json", "-q").stdout)
    assert (found["pairs"], found["prompts"], found["win_rate"]["groups"]) == (40, 10, 10)
    assert (found["wins"], found["losses"]) == (20, 10)
    assert [each["ordinal"] for each in found["worst"]] == [0] * 5


def test_rows_are_matched_by_a_column(tmp_path: Path, compare: Callable[..., Result], provider: Start) -> None:
    """Prompts that differ then are said: the judge is shown a's."""
    write_rows(tmp_path / "a.jsonl", [row(n, 5) for n in range(3)])
    write_rows(tmp_path / "b.jsonl", [{**row(n, 7), "prompt": f"<user> Question {n}?"} for n in (2, 0, 1)])
    write_config(tmp_path / "referee.toml", provider().url, PAIRWISE)
    done = compare("a.jsonl", "b.jsonl", "--key", "id", "--json")
    assert json.loads(done.stdout)["wins"] == 3
    assert "the prompts of 3 pairs differ (for example a.jsonl line 1, b.jsonl line 2)" in done.stderr


def test_rows_without_a_partner_are_left_out_if_asked(
    tmp_path: Path, compare: Callable[..., Result], provider: Start
) -> None:
    """They are named before anything is spent, and left out only on request."""
    server = provider()
    write_rows(tmp_path / "a.jsonl", [row(n, 5) for n in range(4)])
    write_rows(tmp_path / "b.jsonl", [row(n, 7) for n in range(2, 7)])
    write_config(tmp_path / "referee.toml", server.url, PAIRWISE)
    refused = compare("a.jsonl", "b.jsonl")
    assert "a.jsonl: 2 rows have no partner in b.jsonl (line 1: Question 0?; line 2: Question 1?)." in said(refused)
    assert "b.jsonl: 3 rows have no partner in a.jsonl" in said(refused)
    assert "--skip-unmatched" in said(refused)
    assert server.stats().received == 0
    done = compare("a.jsonl", "b.jsonl", "--skip-unmatched", "--json")
    found = json.loads(done.stdout)
    assert (found["pairs"], found["about"]["unmatched"]) == (2, [2, 3])
    assert "left out: a.jsonl: 2 rows" in done.stderr


def test_a_judge_of_single_answers_compares_by_score(
    tmp_path: Path, compare: Callable[..., Result], provider: Start
) -> None:
    """It is said; settings that only make a reward do not count."""
    write_answers(tmp_path)
    judges = (
        '[[judge]]\nname = "quality"\nweight = 0.5\nask_above = 0.0\n[[judge]]\nname = "safe"\nkind = "yes_no"\n'
        '[missing]\npolicy = "raise"\n[shaping.length]\nenable = true\n'
    )
    write_config(tmp_path / "referee.toml", provider().url, judges)
    assert "Name one with --judge: quality (score), safe (yes_no)." in said(compare("base.jsonl", "tuned.jsonl"))
    done = compare("base.jsonl", "tuned.jsonl", "--judge", "quality")
    assert done.exit_code == 0, said(done)
    assert "scored by quality (score, simulated); the higher score wins" in done.stdout
    assert "mean difference" in done.stdout
    assert "shown first" not in done.stdout
    found = json.loads(compare("base.jsonl", "tuned.jsonl", "--judge", "quality", "--json", "-q").stdout)
    assert (found["wins"], found["ties"], found["losses"]) == (4, 4, 4)
    assert (found["worst"][0]["a"]["score"], found["worst"][0]["b"]["score"]) == (5.0, 1.0)


def test_the_judge_that_compares_is_found_among_several(
    tmp_path: Path, compare: Callable[..., Result], provider: Start
) -> None:
    """Its schedule, its anchor and its judge for single answers do not matter: each pair is a group of two."""
    write_answers(tmp_path)
    judges = (
        '[[judge]]\nname = "quality"\n[[judge]]\nname = "duel"\nkind = "pairwise"\nschedule = "swiss"\n'
        'rounds = 2\nmin_comparisons = 3\nboth_orders = false\nalone = "one"\n[[judge]]\nname = "one"\n'
    )
    write_config(tmp_path / "referee.toml", provider().url, judges)
    found = json.loads(compare("base.jsonl", "tuned.jsonl", "--json", "-q").stdout)
    assert (found["about"]["judge"], found["about"]["both_orders"]) == ("duel", False)
    assert (found["wins"], found["ties"], found["losses"]) == (4, 4, 4)
    assert found["position"]["decided"] == 8


def test_a_gate_settles_an_empty_answer(tmp_path: Path, compare: Callable[..., Result], provider: Start) -> None:
    """It loses without a request; two of them are a tie."""
    server = provider()
    write_rows(tmp_path / "a.jsonl", [row(0, 5), {**row(1, 5), "response": ""}])
    write_rows(tmp_path / "b.jsonl", [{**row(0, 5), "response": " "}, {**row(1, 5), "response": "  "}])
    write_config(tmp_path / "referee.toml", server.url, PAIRWISE)
    found = json.loads(compare("a.jsonl", "b.jsonl", "--json", "-q").stdout)
    assert (found["wins"], found["ties"], found["losses"]) == (0, 1, 1)
    assert (found["gated_a"], found["gated_b"]) == (1, 2)
    assert server.stats().received == 0


def test_nothing_compared_is_an_error(tmp_path: Path, compare: Callable[..., Result], provider: Start) -> None:
    """No verdict is no tie: the output says so, and the exit status too."""
    write_answers(tmp_path, 3)
    judge = f"{PAIRWISE}ask_again = 0\n"
    write_config(tmp_path / "referee.toml", provider(faults={"no_verdict": 1.0}).url, judge)
    write_rows(tmp_path / "tuned.jsonl", [row(n, 7) for n in range(3)])
    done = compare("base.jsonl", "tuned.jsonl", "-q")
    assert done.exit_code == 3
    assert "Nothing could be compared" in done.stdout
    assert "3 of 3 comparisons have no verdict: exit status 3." in done.stderr
    found = json.loads(compare("base.jsonl", "tuned.jsonl", "-q", "--json").stdout)
    assert (found["unscored"], found["ties"], found["win_rate"]["value"]) == (3, 0, None)


def test_a_page_and_a_record_are_written(tmp_path: Path, compare: Callable[..., Result], provider: Start) -> None:
    """The record beside the page, or where --ledger says; none without a page."""
    write_answers(tmp_path, 3)
    write_config(tmp_path / "referee.toml", provider().url, PAIRWISE)
    assert compare("base.jsonl", "tuned.jsonl", "-q").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".run", ".html")) == []
    done = compare("base.jsonl", "tuned.jsonl", "-o", "page.html")
    assert "page.html: 3 comparisons" in done.stderr
    assert "<title>tuned against base</title>" in (tmp_path / "page.html").read_text()
    assert list((tmp_path / "page.run").glob("*.jsonl"))
    compare("base.jsonl", "tuned.jsonl", "--ledger", "kept")
    assert list((tmp_path / "kept").glob("*.jsonl"))


def write_odd_files(folder: Path) -> None:
    """Files that are no answers, or not to the same prompts."""
    write_answers(folder, 6)
    (folder / "empty.jsonl").write_text("")
    (folder / "table.csv").write_text("prompt,response\np,r\n")
    (folder / "array.json").write_text('[{"prompt": "p", "response": "r"}]')
    (folder / "broken.jsonl").write_text('{"prompt": "p"}\n')
    write_rows(folder / "other.jsonl", [{"prompt": "elsewhere", "response": "r"}])
    write_rows(folder / "twice.jsonl", [{**row(n, 5), "id": "same"} for n in range(3)])


BAD = [
    (("-", "-"), "-: only one of the two can be standard input."),
    (("missing.jsonl", "tuned.jsonl"), "missing.jsonl: no such file."),
    (("base.jsonl", "empty.jsonl"), "empty.jsonl: there are no rollouts in this file. Nothing was spent."),
    (("base.jsonl", "array.json"), "no prompt of base.jsonl is in array.json"),
    (("base.jsonl", "broken.jsonl"), "line 1: response: missing"),
    (("base.jsonl", "other.jsonl"), "no prompt of base.jsonl is in other.jsonl: there is nothing to compare."),
    (("base.jsonl", "other.jsonl", "--skip-unmatched"), "no prompt of base.jsonl is in other.jsonl"),
    (("twice.jsonl", "tuned.jsonl", "--key", "id"), "twice.jsonl: --key id: 'same' stands on lines 1 and 2 for diff"),
    (("base.jsonl", "tuned.jsonl", "--key", "uid"), "base.jsonl: --key uid: line 1 (and on 5 more lines) has no such"),
    (("base.jsonl", "tuned.jsonl", "--by", "color"), "--by color: no row has this column. There are: id, prompt,"),
    (("base.jsonl", "tuned.jsonl", "--names", "one"), "--names 'one': two different names with a comma"),
    (("base.jsonl", "tuned.jsonl", "--judge", "no"), "--judge no: no judge has this name. There are: judge (pairwise)"),
    (("base.jsonl", "tuned.jsonl", "-o", "base.jsonl"), "base.jsonl exists and is no page; it is not overwritten."),
    (("base.jsonl", "tuned.jsonl", "-o", "no/page.html"), "the folder no does not exist."),
]


@pytest.mark.parametrize(("args", "problem"), BAD, ids=[problem[:40] for _, problem in BAD])
def test_what_is_wrong_is_one_clear_error(
    tmp_path: Path, compare: Callable[..., Result], args: tuple[str, ...], problem: str
) -> None:
    """Before anything is spent: there is no endpoint here that could be asked."""
    write_odd_files(tmp_path)
    write_config(tmp_path / "referee.toml", "http://127.0.0.1:9/v1", PAIRWISE)
    done = compare(*args)
    assert done.exit_code != 0
    assert problem in said(done)


def test_files_of_one_name_are_told_apart_by_their_folders(
    tmp_path: Path, compare: Callable[..., Result], provider: Start
) -> None:
    """runs/old/out.jsonl and runs/new/out.jsonl; the same file twice is a and b."""
    write_config(tmp_path / "referee.toml", provider().url, PAIRWISE)
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        write_rows(tmp_path / folder / "out.jsonl", [row(0, 5)])
    done = compare("old/out.jsonl", "new/out.jsonl", "--json", "-q")
    assert json.loads(done.stdout)["about"]["names"] == ["old", "new"]
    same = compare("old/out.jsonl", "old/out.jsonl", "--json", "-q")
    assert json.loads(same.stdout)["about"]["names"] == ["a", "b"]


def test_an_interrupted_comparison_goes_on_from_the_cache(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Ctrl-C says what is kept; the same command asks only what is missing."""
    server = provider(latency_median=0.05, capacity=10, mode="queue")
    write_rows(tmp_path / "a.jsonl", [row(n, 5) for n in range(200)])
    write_rows(tmp_path / "b.jsonl", [row(n, 7) for n in range(200)])
    write_config(tmp_path / "referee.toml", server.url, f"{PAIRWISE}[limits]\nconcurrency = 10\n")
    child = start_and_wait(tmp_path, server, 100, ("compare", "a.jsonl", "b.jsonl"))
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=50)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert "What was judged is in the cache: the same command goes on from there." in err
    asked = server.stats().received
    done = referee("compare", "a.jsonl", "b.jsonl", "--json", "-q")
    assert json.loads(done.stdout)["wins"] == 200
    assert server.stats().received <= 400 + 20, "what was in flight is asked again, and no more"
    assert server.stats().received > asked
