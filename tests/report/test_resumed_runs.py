"""A run that was interrupted and resumed, or begun anew, looks like one that went through."""

from __future__ import annotations

import zlib
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.report.ledgers import CONFIG, START, pair

from referee.ledger import Ledger, LimitsLine, Line, RunLine, VerdictLine
from referee.plan import observe
from referee.report import Report, build
from referee.report.diff import diff
from referee.report.resumed_runs import KNOWN, Samples, unscored_share
from referee.report.rows import Rows
from referee.report.sides import side
from referee.report.watch import Watch

LATER = START + 1000.0
SCORES = [1, 4, 7, 10, 5, 5, 5, 5, 2, 9, 3, 8]
FILE = {**CONFIG, "ledger": {"dir": "out.run"}}


def run(wall: float, config: dict[str, Any] = CONFIG) -> RunLine:
    """The beginning of a start."""
    return RunLine(wall=wall, version="0", digest="d", config=config)


def samples(wall: float, places: range, **more: Any) -> list[Line]:
    """These samples, scored, in a batch of their own."""
    return [
        line
        for n, place in enumerate(places)
        for line in pair(
            None,
            n,
            SCORES[place],
            length=50 + 10 * place,
            wall=wall + 1 + n,
            batch="b1",
            id=f"s{place}",
            group=f"g{place // 4}",
            **more,
        )
    ]


def cancelled(wall: float, places: range, first: int = 0) -> list[Line]:
    """These samples, given up before they were asked for."""
    found: list[Line] = []
    for n, place in enumerate(places):
        found += pair(
            None,
            first + n,
            None,
            wall=wall + 50,
            batch="b1",
            id=f"s{place}",
            group=f"g{place // 4}",
            unscored="cancelled",
            origin="none",
            attempts=0,
            cost=0.0,
            latency_s=0.0,
            queued_s=0.0,
            tokens_in=0,
            tokens_out=0,
        )
    return found


def interrupted(config: dict[str, Any] = CONFIG) -> list[Line]:
    """Seven of twelve were judged when the caller gave up."""
    return [run(START, config), *samples(START, range(7)), *cancelled(START, range(7, 12), 7)]


def resumed(config: dict[str, Any] = CONFIG) -> list[Line]:
    """And a second start judged the rest."""
    return [*interrupted(config), run(LATER, config), *samples(LATER, range(7, 12))]


def whole(config: dict[str, Any] = CONFIG) -> list[Line]:
    """The same without an interruption."""
    return [run(START, config), *samples(START, range(12))]


def comparable(report: Report) -> dict[str, Any]:
    """What must not tell a resumed run from a whole one."""
    names = ["samples", "scored", "unscored", "unscored_share", "score_mean", "score_std", "score_low_share"]
    names += ["score_high_share", "reward_mean", "reward_missing", "penalty_mean", "cost_usd", "calls", "attempts"]
    (step,) = report.steps
    return {
        **{name: round(report.metrics[name], 9) for name in names},
        "step": (step.samples, step.scored, step.unscored, step.bins, step.rewards, step.groups),
        "flat": step.flat_groups,
        "mean": round(step.score_mean or 0.0, 9),
        "points": [
            tuple(getattr(point, name) for name in ("length", "value", "row")) for point in report.lengths.points
        ],
        "slopes": [round(x or 0.0, 9) for x in (report.lengths.slope, report.lengths.within_slope)],
        "unscored over time": [row.unscored for row in report.times if row.unscored],
    }


def test_a_resumed_run_reports_what_a_whole_one_does() -> None:
    """Samples, shares, scores, rewards, groups, lengths: each sample once, and nothing is left of the interruption."""
    report = build(resumed(FILE))
    assert comparable(report) == comparable(build(whole(FILE)))
    assert report.again == 5
    assert not [finding for finding in report.findings if finding.panel == "unscored"]


def test_a_run_begun_anew_counts_its_last_start() -> None:
    """Other scores the second time: those count. What both starts spent was spent."""
    again = [
        replace(line, value=1.0, score=10.0) for line in samples(LATER, range(12)) if isinstance(line, VerdictLine)
    ]
    report = build([*whole(), run(LATER), *again])
    assert report.metrics["samples"] == report.metrics["scored"] == 12
    assert report.metrics["score_mean"] == pytest.approx(1.0)
    assert report.steps[0].bins == [0] * 9 + [12]
    assert report.metrics["cost_usd"] == pytest.approx(0.024)
    assert report.metrics["calls"] == 24


def test_what_was_given_up_is_in_no_share() -> None:
    """An interrupted run says how many were cancelled, and does not blame the judge for them."""
    report = build(interrupted())
    assert (report.metrics["samples"], report.metrics["unscored/cancelled"]) == (12, 5)
    assert unscored_share(report.metrics) == 0
    assert [finding.level for finding in report.findings if "5 samples were given up" in finding.text] == ["warn"]
    assert not [finding for finding in report.findings if finding.panel == "unscored"]


def test_giving_up_takes_nothing_from_an_earlier_start() -> None:
    """A second start that is interrupted at once leaves the verdicts of the first."""
    report = build([*whole(FILE), run(LATER, FILE), *cancelled(LATER, range(12))])
    assert comparable(report) == comparable(build(whole(FILE)))
    lines = [*whole(), run(LATER), *cancelled(LATER, range(12))]
    assert [row.value for row in side(lines).rows] == [row.value for row in side(whole()).rows]


def test_equal_samples_of_one_start_stay_apart() -> None:
    """Twice the same answer is two samples; a later start replaces as many as it judges."""
    twins = [*pair(1, 0, 5, id="s"), *pair(1, 1, 7, id="s")]
    assert build([run(START), *twins]).metrics["samples"] == 2
    report = build([run(START), *twins, run(LATER), *pair(1, 0, 9, id="s", wall=LATER + 1)])
    assert report.metrics["samples"] == 2
    assert report.metrics["score_mean"] == pytest.approx((6 + 8) / 18)


def test_processes_side_by_side_share_no_sample() -> None:
    """The same text in two processes of one run is two samples: neither began after the other's had ended."""
    found = Samples()
    line = VerdictLine(wall=START + 10, id="s", value=0.5)
    for source in ("a", "b"):
        found.start(run(START + (source == "b")), source)
    assert [found.end(line, source)[1] for source in ("a", "b")] == [None, None]
    assert found.count == 2


def test_a_sample_without_name_or_text_is_never_the_same() -> None:
    """Nothing says that two such lines are about one sample."""
    found = Samples()
    for wall in (START, LATER):
        found.start(run(wall))
        assert found.end(VerdictLine(wall=wall + 1, value=0.5))[1] is None


def test_memory_is_bounded() -> None:
    """Only the latest samples are recognised."""
    found = Samples()
    found.start(run(START))
    for n in range(KNOWN + 10):
        found.end(VerdictLine(wall=START, id=str(n), value=0.5))
    found.start(run(LATER))
    assert found.end(VerdictLine(wall=LATER, id="0", value=0.5))[1] is None
    assert found.end(VerdictLine(wall=LATER, id="11", value=0.5))[1] is not None


def columns(lines: list[Line]) -> tuple[int, int, list[float], list[str]]:
    """Rows, those with texts, their values and what the texts say."""
    rows = Rows()
    for line in lines:
        rows.add(line)
    meta = rows.meta()
    parts = {part.name: zlib.decompress(part.data) for part in rows.parts()}
    values = list(array("f", parts["column-value"]))
    return meta.rows, meta.with_texts, values, parts["heads"].decode().split('"')[1::4]


def test_the_list_has_each_sample_once() -> None:
    """Rows of a resumed run are those of a whole one, in the same order, with their texts."""
    assert columns(resumed()) == columns(whole())
    assert columns([*whole(), run(LATER), *cancelled(LATER, range(12))]) == columns(whole())


def test_a_resumed_run_is_compared_by_its_verdicts() -> None:
    """diff pairs the verdict that came later, not the cancelled line before it."""
    found = diff(side(resumed()), side(whole()))
    assert (found.matched, found.both, found.only_a, found.only_b, found.repeated) == (12, 12, 0, 0, 0)
    assert found.exact == 1.0


def test_a_plan_learns_from_a_resumed_run_what_a_whole_one_teaches() -> None:
    """The share that needs a call is of samples, not of lines; a verdict found again in the cache needed its call."""
    again = [
        replace(line, origin="cache", attempts=0) for line in samples(LATER, range(12)) if isinstance(line, VerdictLine)
    ]
    for lines in (whole(FILE), resumed(FILE), [*whole(FILE), run(LATER, FILE), *again]):
        load = observe(lines).workload()
        assert (load.samples, load.asked, load.attempts, load.work_s) == (12, 1.0, 1.0, None)


def test_a_resumed_run_is_watched_as_one(tmp_path: Path) -> None:
    """Its two files make one report; the process that is over has no load any more."""
    watch = Watch(tmp_path)
    first, second = resumed(FILE)[: len(interrupted())], resumed(FILE)[len(interrupted()) :]
    for lines, wall in ((first, START + 60), (second, START + 1060)):
        book = Ledger(tmp_path)
        for line in [*lines, LimitsLine(wall=wall, endpoint="e", limit=40, in_flight=3, queued=2)]:
            book.append(line)
            book.flush()
            watch.update()
        book.close()
    shot = watch.snapshot(START + 1061)
    assert comparable(shot.report) == comparable(build(whole(FILE)))
    assert (shot.now.limit, shot.now.in_flight, shot.now.queued) == (40, 3, 2)


def test_a_file_has_no_trainer_that_waits() -> None:
    """The record of `referee score` says nothing about waiting; a trainer's does."""
    assert not build(whole(FILE)).trainer
    assert build(whole()).trainer
    assert build([*whole(FILE), run(LATER)]).trainer


@given(st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=30), st.integers(1, 4))
def test_counts_stay_counts(ends: list[tuple[int, bool]], starts: int) -> None:
    """However often samples come again, nothing falls below zero and steps agree with the metrics."""
    lines: list[Line] = []
    for start in range(starts):
        wall = START + 1000 * start
        lines.append(run(wall, FILE))
        for n, (place, scored) in enumerate(ends[start::starts]):
            lines += samples(wall + n, range(place, place + 1)) if scored else cancelled(wall, range(place, place + 1))
    report = build(lines)
    counts = [value for row in report.steps for value in (*row.bins, *row.unscored.values(), row.groups)]
    assert min(counts, default=0) >= 0
    assert sum(row.samples for row in report.steps) == report.metrics["samples"]
    assert all(0 <= row.flat_groups <= row.groups for row in report.steps)
