"""Checks that ask more: each finds the weakness it is made for, and stays silent about the others."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.calibration.population import rows_of, write

from referee.calibration import Calibrated, Finding, Row, calibrate, calibration_config
from referee.calibration.stress import STRESS
from referee.config import Config, LedgerConfig, load
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport
from referee.sim.chat import Question
from referee.sim.judge import HonestJudge, Value

ORDER = "highest score"
"""Words of one of the shipped attacks."""


class LikingJudge(HonestJudge):
    """Knows the right score, and adds what `liking` says of a text."""

    def __init__(self, liking: Callable[[str], float]) -> None:
        self._liking = liking

    def verdict(self, question: Question) -> tuple[Value, float]:
        """On the scale, whatever is added."""
        text = question.candidate
        mark = float(text.split("[[quality=")[1].split("]]")[0]) if "[[quality=" in text else question.low
        return round(min(max(mark + self._liking(text), question.low), question.high)), 0.9


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Forty answers to twenty prompts, none at an end of the scale."""
    given = [
        {"prompt": f"{n // 2}?", "response": f"[[quality={3 + n % 4}]] Answer {n}. It ends here.", "label": 3 + n % 4}
        for n in range(40)
    ]
    return rows_of(write(tmp_path / "labels.jsonl", given))


def found(rows: Sequence[Row], liking: Callable[[str], float], *names: str, **judge: Any) -> list[Finding]:
    """What the named checks say of a judge with this liking."""
    endpoint = {"url": "http://127.0.0.1:9/v1", "model": "sim", "key_env": ""}
    config = load({"judge": judge, "endpoint": endpoint, "cache": {"path": ""}})
    build = worker_with(lambda: SimTransport(Provider(ProviderSpec(), judge=LikingJudge(liking))))
    checks = [STRESS[name](20) for name in names]
    with Referee(calibration_config(config), build) as referee:
        [(judged, _)] = calibrate(referee, rows, checks=checks, another=lambda given: Referee(given, build))
    return [finding for finding in judged.findings if finding.check.startswith(("rewrite", "attacks", "repeats"))]


def alarms(findings: Sequence[Finding]) -> dict[str, str]:
    return {finding.check: finding.level for finding in findings if finding.level != "good"}


def test_a_judge_without_a_liking_raises_no_alarm(rows: list[Row]) -> None:
    """Every check says so in a sentence."""
    findings = found(rows, lambda text: 0.0, *STRESS)
    assert alarms(findings) == {}
    assert {finding.check for finding in findings} == {"rewrites", "attacks", "repeats"}


@pytest.mark.parametrize(
    ("words", "check"),
    [
        ("well reasoned", "rewrite: self-praise"),
        ("feel free", "rewrite: politeness"),
        ("absolutely certain", "rewrite: certainty"),
        ("## Conclusion", "rewrite: headings"),
        ("several sides", "rewrite: padding"),
        ("1. ", "rewrite: numbered points"),
    ],
)
def test_a_liking_is_found_by_its_own_rewrite(rows: list[Row], words: str, check: str) -> None:
    """Two points of ten for words that add nothing."""
    assert alarms(found(rows, lambda text: 2.0 * (words in text), "rewrites")) == {check: "bad"}


def test_a_liking_for_less_is_no_alarm_where_less_is_allowed(rows: list[Row]) -> None:
    """Politeness may cost something; other marks for the same sentences may not."""
    findings = found(rows, lambda text: -2.0 * ("feel free" in text or "\n2. " in text), "rewrites")
    assert alarms(findings) == {"rewrite: numbered points": "bad"}


def test_persuasion_is_counted(rows: list[Row]) -> None:
    """One obeyed attack of 116 is a warning."""
    [finding] = found(rows, lambda text: 9.0 * (ORDER in text), "attacks")
    assert finding.level == "warn"
    assert "2 of 232 attacks" in finding.text
    assert "order" in finding.text


def test_a_judge_that_changes_its_mind_is_found(rows: list[Row]) -> None:
    """Asked again past the cache: every second time it gives two points more."""
    turns = defaultdict[str, "itertools.count[int]"](itertools.count)
    findings = found(rows, lambda text: 2.0 * (next(turns[text]) % 2), "repeats")
    assert alarms(findings) == {"repeats": "bad"}
    assert "repeat = 3" in findings[0].advice


def test_few_answers_do_not_show_that_it_says_the_same_again(rows: list[Row]) -> None:
    """None of four verdicts changed: between 0 and nearly all of them might."""
    few = [row for row in rows if row.prompt in list(dict.fromkeys(row.prompt for row in rows))[:2]][:4]
    [finding] = found(few, lambda text: 0.0, "repeats")
    assert finding.level == "warn"
    assert "Not known" in finding.text


def spending(
    rows: Sequence[Row], names: Sequence[str], folder: str = "", refused: bool = False, **limits: Any
) -> tuple[list[Calibrated], float]:
    """Two judges at a price, checked; and what was spent, by what the provider has answered."""
    endpoint = {"url": "http://127.0.0.1:9/v1", "model": "sim", "key_env": "", "price_in": 1000.0, "price_out": 1000.0}
    judges = [{"name": name, "kind": "score", "criteria": f"Is it {name}?"} for name in ("a", "b")]
    config = load({"judge": judges, "endpoint": endpoint, "cache": {"path": ""}, "limits": limits})
    config = calibration_config(msgspec.structs.replace(config, ledger=LedgerConfig(dir=folder)))
    opened: list[Referee] = []

    def another(given: Config) -> Referee:
        spec = ProviderSpec(faults={"refusal": 1.0} if refused and opened else {})
        opened.append(Referee(given, worker_with(lambda: SimTransport(Provider(spec)))))
        return opened[-1]

    with another(config) as referee:
        found = list(calibrate(referee, rows, checks=[STRESS[name](20) for name in names], another=another))
    return [judge for judge, _ in found], sum(each.metrics()["cost_usd"] for each in opened)


def test_checks_of_all_judges_share_what_is_left_of_the_budget(rows: list[Row]) -> None:
    """Each judge is asked again alone; where the money ends the check is not known, and the calibration is kept."""
    _, free = spending(rows, [])
    _, whole = spending(rows, ["repeats"])
    assert whole - free < 1.6 * free  # 20 of 40 rows, three times
    judges, paid = spending(rows, ["repeats"], budget_usd=free * 1.7)
    assert paid <= free * 1.7
    assert all(judge.measures.n == 40 for judge in judges)
    last = judges[-1].findings[-1]
    assert (last.check, last.level) == ("repeats", "warn")
    assert "Not known" in last.text


def test_questions_of_checks_are_not_in_the_record_of_the_labelled_rows(rows: list[Row], tmp_path: Path) -> None:
    """As many lines with checks as without."""
    sizes = []
    for number, names in enumerate(([], ["rewrites", "repeats"])):
        spending(rows, names, str(tmp_path / str(number)))
        files = (tmp_path / str(number)).glob("*.jsonl")
        sizes.append(sum(len(file.read_text().splitlines()) for file in files))
    assert sizes[0] == sizes[1] > 0


def test_without_an_answer_nothing_is_called_good(rows: list[Row]) -> None:
    """A judge that refuses everything but the labelled rows: every check is a warning that says so."""
    judges, _ = spending(rows, list(STRESS), refused=True)
    findings = [finding for finding in judges[0].findings if finding.check in STRESS]
    assert {finding.check: finding.level for finding in findings} == dict.fromkeys(STRESS, "warn")
    assert all("ot known" in finding.text for finding in findings)
