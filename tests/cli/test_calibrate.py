"""`referee calibrate` as a user runs it: labels in, what is good and what is not out, as text, JSON and a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.calibration.population import write, yes_and_no
from tests.cli.conftest import Run, Server, Start, write_config
from tests.report.browser import launch

YES_NO = '[judge]\nkind = "yes_no"\n[cache]\npath = ""'
SCORE = '[judge]\nkind = "score"\n[cache]\npath = ""'


def setup(tmp_path: Path, server: Server, rows: list[dict[str, Any]], text: str = YES_NO) -> None:
    write(tmp_path / "labels.jsonl", rows)
    write_config(tmp_path / "a.toml", server.url, text, price_in=1.0, price_out=4.0)


def test_agreement_is_said_in_words_numbers_and_a_page(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Two judges side by side: the table, the findings, the corrected mean, the worst rows with both reasons."""
    server = provider()
    rows = yes_and_no(80, 0.9, 0.8, why="people know", topic="law")
    more = [{**row, "prompt": f"more {n}", "label": ""} for n, row in enumerate(yes_and_no(60, 0.9, 0.8, seed=3))]
    setup(tmp_path, server, [*rows, *more])
    write_config(tmp_path / "b.toml", server.url, SCORE, price_in=2.0, price_out=8.0)
    found = referee("calibrate", "labels.jsonl", "-c", "a.toml", "-c", "b.toml", "--by", "topic", "-o", "page.html")
    assert found.returncode == 0, found.stderr
    for words in (
        "80 labelled rows, 60 without a label",
        "* best",
        "$ the cheapest of these",
        "with your labels: between",
        "topic: law",
        "worst disagreements",
        "people know",
        "Judged on its own merits.",
    ):
        assert words in found.stdout
    assert server.stats().received == 280
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert (tmp_path / "page.html").stat().st_mode & 0o077 == 0
    assert list((tmp_path / "page.run" / "a").glob("*.jsonl"))


def test_json_has_an_object_per_judge_with_intervals(tmp_path: Path, referee: Run, provider: Start) -> None:
    """`accuracy`, `kappa`, `n` and an interval beside each; progress stays out of it; the seed is kept to."""
    setup(tmp_path, provider(), yes_and_no(60))
    command = ("calibrate", "labels.jsonl", "-c", "a.toml", "--json", "--seed", "7")
    found = referee(*command)
    assert found.returncode == 0, found.stderr
    data = json.loads(found.stdout)
    (judge,) = data["judges"]
    assert (judge["name"], judge["kind"], judge["n"], judge["unscored"]) == ("judge", "yes_no", 60, 0)
    for name in ("accuracy", "kappa", "roc_auc", "spearman", "kendall", "ece", "bias"):
        low, high = judge[f"{name}_interval"]
        assert low <= judge[name] <= high
    assert judge["confusion"]["labels"] == ["no", "yes"]
    assert sum(map(sum, judge["confusion"]["people_by_judge"])) == 60
    assert data["comparison"] is None
    again = json.loads(referee(*command).stdout)["judges"][0]
    assert {**again, "seconds": None} == {**judge, "seconds": None}


@pytest.mark.parametrize(
    ("threshold", "status"),
    [("kappa=0.4", 0), ("kappa=0.99", 4), ("accuracy.low=0.95", 4), ("roc_auc=0.5", 0)],
)
def test_agreement_below_a_bound_is_a_status_of_its_own(
    tmp_path: Path, referee: Run, provider: Start, threshold: str, status: int
) -> None:
    """For CI of prompts: the point estimate, or with .low the interval's lower end."""
    setup(tmp_path, provider(), yes_and_no(60, 0.9, 0.9))
    found = referee("calibrate", "labels.jsonl", "-c", "a.toml", "--fail-below", threshold)
    assert found.returncode == status, found.stderr
    assert ("exit status 4" in found.stderr) is (status == 4)


def test_preferences_are_judged_by_any_judge(tmp_path: Path, referee: Run, provider: Start) -> None:
    """RewardBench-shaped rows and a judge of single answers: higher value wins, ties half."""
    rows = []
    for number in range(20):
        best = 9 if number % 5 else 2
        rejected = [f"[[quality=5]] {number}", f"[[quality=3]] {number}"]
        rows.append({"prompt": f"p{number}", "chosen": [f"[[quality={best}]] {number}"], "rejected": rejected})
    setup(tmp_path, provider(), rows, SCORE)
    found = referee("calibrate", "labels.jsonl", "-c", "a.toml", "--json")
    assert found.returncode == 0, found.stderr
    (judge,) = json.loads(found.stdout)["judges"]
    assert (judge["labels"], judge["n"], judge["prompts"]) == ("preference", 40, 20)
    assert judge["accuracy"] == judge["best"] == 0.8
    assert judge["kappa"] == pytest.approx(0.6)
    wrong = judge["disagreements"][0]
    assert (wrong["judge"] < wrong["other_judge"], "quality=2" in wrong["response"]) == (True, True)


def test_rows_without_a_verdict_are_counted_and_said(tmp_path: Path, referee: Run, provider: Start) -> None:
    """A judge that refuses a third: agreement is of the others."""
    setup(tmp_path, provider(faults={"refusal": 0.3}), yes_and_no(60, 1.0, 1.0))
    found = referee("calibrate", "labels.jsonl", "-c", "a.toml", "--json")
    assert found.returncode == 0, found.stderr
    (judge,) = json.loads(found.stdout)["judges"]
    assert judge["unscored"] > 5
    assert judge["n"] + judge["unscored"] == judge["labelled"] == 60
    assert judge["accuracy"] == 1.0
    assert judge["unscored_reasons"] == {"refused": judge["unscored"]}
    assert any(finding["check"] == "unscored" and finding["level"] == "bad" for finding in judge["findings"])


def test_a_judge_without_a_single_verdict_is_status_3(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Nothing is measured, and nothing is called disagreement."""
    setup(tmp_path, provider(faults={"refusal": 1.0}), yes_and_no(10))
    found = referee("calibrate", "labels.jsonl", "-c", "a.toml")
    assert found.returncode == 3, found.stderr
    assert "Agreement cannot be measured" in found.stdout


def test_columns_that_no_judge_sees_are_named(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Those of labels are read, one that is misspelt is asked about."""
    rows = yes_and_no(12, topic="law", source="web", refernce="x", why="so")
    setup(tmp_path, provider(), rows)
    found = referee("calibrate", "labels.jsonl", "-c", "a.toml", "--by", "topic")
    assert found.returncode == 0, found.stderr
    assert "not read: source." in found.stderr
    assert "Did you mean `reference`?" in found.stderr


GOOD = {"prompt": "p", "response": "r", "label": "yes"}
BAD: list[tuple[list[dict[str, Any]], tuple[str, ...], str]] = [
    ([{"prompt": "p", "response": "r"}], (), "--label"),
    ([GOOD, {"prompt": "p", "label": "yes"}], (), "line 2: response"),
    ([GOOD, {"prompt": "p", "chosen": "a", "rejected": "b"}], (), "two files"),
    ([{**GOOD, "label": "superb"}], (), "--yes good,fair"),
    ([{**GOOD, "label": 1}, {**GOOD, "label": 5}], (), "--yes '>=4'"),
    ([{**GOOD, "labels": {"kind": "yes"}}], (), "no judge is of kind rubric"),
    ([GOOD], ("--fail-below", "kapa=1"), "kappa=0.6"),
    ([GOOD], ("--fail-below", "kappa=nan"), "kappa=0.6"),
    ([GOOD], ("--by", "nosuch"), "no row has this column"),
    ([GOOD], ("-o", "nowhere/page.html"), "does not exist"),
    ([{**GOOD, "label": "\x1b[31msuperb"}], (), "--yes good,fair"),
    ([{**GOOD, "labels": {"\x1b[2J": "yes"}}], (), "labels.\\x1b[2J"),
    ([GOOD], ("--yes", ">="), "bound"),
    ([GOOD], ("--unlabelled", "nowhere.jsonl"), "no such file"),
    ([GOOD], ("-c", "a.toml"), "given twice"),
]


@pytest.mark.parametrize(("rows", "options", "says"), BAD)
def test_what_cannot_be_used_is_said_before_anything_is_spent(
    tmp_path: Path, referee: Run, provider: Start, rows: list[dict[str, Any]], options: tuple[str, ...], says: str
) -> None:
    """One clear error, no traceback, no request."""
    server = provider()
    setup(tmp_path, server, rows)
    found = referee("calibrate", "labels.jsonl", "-c", "a.toml", *options)
    assert found.returncode == 2
    assert says in found.stderr
    assert "Traceback" not in found.stderr
    assert "\x1b" not in found.stderr
    assert server.stats().received == 0


def test_a_table_that_is_broken_is_not_told_to_become_one(tmp_path: Path, referee: Run, provider: Start) -> None:
    """CSV is read: what is wrong is the quote."""
    setup(tmp_path, provider(), [GOOD])
    (tmp_path / "labels.csv").write_text('prompt,response,label\np,"r,yes\n')
    found = referee("calibrate", "labels.csv", "-c", "a.toml")
    assert found.returncode == 2
    assert "line 2: a quote" in found.stderr
    assert "convert" not in found.stderr


def test_what_is_asked_is_said_first_and_each_configuration_has_its_own_record(
    tmp_path: Path, referee: Run, provider: Start
) -> None:
    """Two files of one name, in two folders: two records. Questions of checks are in none of them."""
    setup(tmp_path, provider(), yes_and_no(20))
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.toml").write_text((tmp_path / "a.toml").read_text())
    found = referee(
        *("calibrate", "labels.jsonl", "-c", "x/a.toml", "-c", "y/a.toml", "-o", "page.html"),
        *("--check", "repeats", "--check-rows", "5"),
    )
    assert found.returncode == 0, found.stderr
    assert "20 rows, 1 judge (x/a.toml); --check asks about 15 questions more." in found.stderr
    for name in ("a-1", "a-2"):
        [record] = (tmp_path / "page.run" / name).glob("*.jsonl")
        assert record.read_text().count('"origin"') == 20


def test_the_page_shows_hostile_text_as_text(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Markup, control characters and bidi marks of rows, in a real browser; charts are drawn; nothing is loaded."""
    hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[2J"
    rows = [{**row, "prompt": hostile + str(n), "why": hostile} for n, row in enumerate(yes_and_no(40, 0.6, 0.6))]
    setup(tmp_path, provider(), [{**row, "topic": hostile, "other": ""} for row in rows])
    name = "[bold]\x1b[31m.jsonl"
    (tmp_path / "labels.jsonl").rename(tmp_path / name)
    found = referee("calibrate", name, "-c", "a.toml", "--by", "topic", "-o", "page.html")
    assert found.returncode == 0, found.stderr
    assert "\x1b" not in found.stdout + found.stderr
    asked: list[str] = []
    for browser in launch():
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")

        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: pytest.fail("a script of a row ran"))
        page.goto((tmp_path / "page.html").as_uri())
        assert page.locator("svg.curve circle").count() > 1
        assert page.locator("table.matrix td").count() == 4
        assert "onerror=alert(2)" in page.inner_text("main")
        assert page.locator("script, img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_a_cascade_is_replayed_at_every_threshold(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The members judge every row once; the line to write comes with the curve. Without a cascade it is refused."""
    url = provider().url
    endpoints = "".join(
        f'[[endpoint]]\nname = "{name}"\nurl = "{url}"\nmodel = "{name}"\nkey_env = ""\nprice_in = {price}\n'
        f"price_out = {price}\n"
        for name, price in (("small", 0.1), ("large", 10.0))
    )
    judges = (
        '[[judge]]\nname = "stairs"\nkind = "cascade"\nmembers = ["cheap", "strong"]\nuntil = {uncertainty = 0.4}\n'
        '[[judge]]\nname = "cheap"\nkind = "yes_no"\nendpoint = "small"\n'
        '[[judge]]\nname = "strong"\nkind = "yes_no"\nendpoint = "large"\n'
    )
    graded = [{**row, "label": int(row["response"][10])} for row in yes_and_no(40)]
    write(tmp_path / "graded.jsonl", graded)
    mixed = judges.replace('"strong"\nkind = "yes_no"', '"strong"\nkind = "score"')
    (tmp_path / "mixed.toml").write_text(endpoints + mixed)
    done = referee("calibrate", "graded.jsonl", "-c", "mixed.toml", "--cascade", "--json")
    assert done.returncode == 0, done.stderr  # labels are on the scale of the last member
    assert json.loads(done.stdout)["points"][-1]["agreement"] == 1.0
    team = '[[team]]\nname = "math"\ntoken_env = "MATH_TOKEN"\njudges = ["stairs"]\n'  # of `referee serve`
    (tmp_path / "referee.toml").write_text(endpoints + judges + team)
    write(tmp_path / "labels.jsonl", yes_and_no(40))
    done = referee("calibrate", "labels.jsonl", "--cascade", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["members"], found["rows"]) == (["cheap", "strong"], 40)
    costs = [point["cost_per_1000"] for point in found["points"]]
    assert costs == sorted(costs)
    assert found["line"].startswith("until = { uncertainty = 0.")
    shown = referee("calibrate", "labels.jsonl", "--cascade", "-q")
    assert found["line"] in shown.stdout
    done = referee("calibrate", "labels.jsonl", "--cascade", "-o", "page.html")
    assert (done.returncode, "goes with neither -o" in done.stderr) == (2, True)
    write_config(tmp_path / "referee.toml", url, '[judge]\nkind = "yes_no"')
    done = referee("calibrate", "labels.jsonl", "--cascade")
    assert done.returncode == 2
    assert "needs a judge of kind" in done.stderr


def test_a_run_that_is_over_is_measured_without_asking(tmp_path: Path, referee: Run, provider: Start) -> None:
    """By its rewards or its ledger, as if the judge had been asked; rows it does not have are unscored."""
    server = provider()
    setup(tmp_path, server, yes_and_no(40), '[[judge]]\nname = "right"\nkind = "yes_no"\n[cache]\npath = ""')
    assert referee("score", "labels.jsonl", "-c", "a.toml", "-o", "out.jsonl").returncode == 0
    asked = json.loads(referee("calibrate", "labels.jsonl", "-c", "a.toml", "--json").stdout)["judges"]
    sent = server.stats().received
    for run in ("out.jsonl", "out.run"):
        done = referee("calibrate", "labels.jsonl", "-c", "a.toml", "--json", "--verdicts", run)
        assert done.returncode == 0, done.stderr
        [judge] = json.loads(done.stdout)["judges"]
        assert (judge["n"], judge["kappa"], judge["accuracy"]) == (
            asked[0]["n"],
            asked[0]["kappa"],
            asked[0]["accuracy"],
        )
    assert server.stats().received == sent
    rows = (tmp_path / "out.jsonl").read_text().splitlines()
    (tmp_path / "half.jsonl").write_text("\n".join(rows[:20]) + "\n")
    done = referee("calibrate", "labels.jsonl", "-c", "a.toml", "--json", "--verdicts", "half.jsonl")
    assert json.loads(done.stdout)["judges"][0]["n"] == 20
    assert referee("calibrate", "labels.jsonl", "--verdicts", "out.run").returncode == 2
