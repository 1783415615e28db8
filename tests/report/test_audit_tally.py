"""The audit in the report: alarms from begin to end, the samples they name, and the curves behind them."""

from __future__ import annotations

import pytest
from tests.report.ledgers import audited, small

from referee.ledger import AlarmLine, AuditLine, MeasuresLine, RunLine, VerdictLine
from referee.report import build
from referee.report.columns import link_of
from referee.report.data import Gathering


def test_without_an_audit_there_is_nothing() -> None:
    """Nor where it is switched off; switched on, it says that nothing was found."""
    assert build(small()).audit is None
    assert build([RunLine(config={"audit": {"enable": False}}), *small()[1:]]).audit is None
    found = build([RunLine(config={"audit": {"enable": True}}), *small()[1:]]).audit
    assert found is not None
    assert (found.asked, found.alarms) == (0, [])


def test_an_alarm_begins_names_its_samples_and_ends() -> None:
    """It links to its samples, to one that is not known by its id; an end closes the alarm of its signal."""
    lines = audited()
    report = build(lines)
    assert report.audit is not None
    canaries, phrase = report.audit.alarms
    assert (canaries.signal, canaries.level, canaries.step, canaries.over) == ("canaries", "critical", 2, False)
    assert (phrase.signal, phrase.over, phrase.over_step) == ("phrase", True, 3)
    named = next(line for line in lines if isinstance(line, VerdictLine) and line.id == "s2-3")
    assert canaries.samples[0].link == f"{int(link_of(named)):013x}"
    assert canaries.samples[1].link == "s2-3"
    assert canaries.evidence == {"credited": 0.75, "name": "empty"}
    assert [(one.level, one.panel) for one in report.findings if one.panel == "audit"] == [("bad", "audit")]


def test_an_alarm_that_grows_is_one() -> None:
    """It keeps the step it began at; its words are the latest. Over, and begun again, it is another."""
    found = build(
        [
            AlarmLine(signal="phrase", sentence="7 %", step=2),
            AlarmLine(signal="phrase", level="critical", sentence="30 %", step=5),
            AlarmLine(signal="phrase", over=True, step=9),
            AlarmLine(signal="phrase", sentence="again", step=12),
        ]
    ).audit
    assert found is not None
    first, second = found.alarms
    assert (first.level, first.sentence, first.step, first.critical_step) == ("critical", "30 %", 2, 5)
    assert (first.over, first.over_step) == (True, 9)
    assert (second.step, second.critical_step, second.over) == (12, None, False)


def test_processes_share_an_alarm() -> None:
    """It is over when it is in all of them; one after the other or side by side."""
    began, ended = AlarmLine(signal="phrase", sentence="x", step=1), AlarmLine(signal="phrase", over=True, step=4)
    together = Gathering()
    for source, line in (("a", RunLine()), ("b", RunLine()), ("a", began), ("b", began), ("a", ended)):
        together.add(line, source)
    first = together.report().audit
    after = build([RunLine(), began, RunLine(pid=2), began, ended]).audit
    assert first is not None
    assert after is not None
    assert [alarm.over for alarm in (*first.alarms, *after.alarms)] == [False, False]
    together.add(ended, "b")
    last = together.report().audit
    assert last is not None
    assert [(alarm.over, alarm.over_step) for alarm in last.alarms] == [(True, 4)]


def test_a_point_of_a_curve_is_of_many_questions() -> None:
    """Of one question to a step, 16 make a point, at their middle; what signals measured is drawn as it is."""
    lines = [AuditLine(what="probe", before=0.0, value=(step % 16) / 15, step=step) for step in range(64)]
    found = build([*lines, *(MeasuresLine(step=step, measures={"phrase": 0.25 * step}) for step in (3, 5))]).audit
    assert found is not None
    probes = [(row.step, row.curves["probe"]) for row in found.steps if "probe" in row.curves]
    assert [value for _, value in probes] == pytest.approx([0.5] * 4)
    assert [step // 16 for step, _ in probes] == [0, 1, 2, 3]
    assert [(row.step, row.curves["phrase"]) for row in found.steps if "phrase" in row.curves] == [(3, 0.75), (5, 1.25)]


def test_curves_weigh_answers_by_their_chance() -> None:
    """An answer drawn with half the chance stands for two; canaries are told apart by what they deserve."""
    lines = [
        AuditLine(what="shadow", step=1, before=1.0, value=0.2, chance=1.0),
        AuditLine(what="shadow", step=1, before=0.5, value=0.5, chance=0.5),
        AuditLine(what="canary", step=1, wrong=True, value=0.9, cost=0.25),
        AuditLine(what="canary", step=1, wrong=False, value=0.8),
        AuditLine(what="canary", step=1, wrong=True, unscored="timeout"),
        AuditLine(what="probe", step=2, before=0.4, value=0.6),
        AuditLine(what="fixed", step=2, before=0.4, value=0.3),
    ]
    found = build(lines).audit
    assert found is not None
    assert (found.asked, found.cost) == (7, 0.25)
    first, second = found.steps
    assert first.curves["gap"] == pytest.approx(0.8 / 3)
    assert first.curves["exploited"] == pytest.approx(1 / 3)
    assert first.curves["agreement"] == pytest.approx(2 / 3)
    assert (first.curves["wrong"], first.curves["right"]) == (0.9, 0.8)
    assert second.curves["probe"] == pytest.approx(0.2)
    assert second.curves["fixed"] == pytest.approx(-0.1)


def test_many_steps_and_alarms_stay_bounded() -> None:
    """Neighbouring steps share a row, with the same means; later alarms are counted."""
    lines = [AuditLine(what="canary", wrong=True, value=step % 2, step=step) for step in range(1000)]
    found = build([*lines, *(AlarmLine(signal=f"s{n}", sentence="x") for n in range(150))]).audit
    assert found is not None
    assert len(found.steps) <= 200
    assert {row.curves["wrong"] for row in found.steps} == {0.5}
    assert (len(found.alarms), found.more_alarms) == (100, 50)
