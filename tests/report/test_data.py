"""The data behind the page: a gold file, the same live as at once, and numbers that agree with the metrics."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.ledgers import (
    CONFIG,
    JUDGES,
    RUN,
    START,
    hostile,
    judged,
    many,
    pair,
    rubric,
    several,
    shuffled,
    small,
)

from referee.ledger import BatchLine, LimitsLine, Line, RunLine, VerdictLine
from referee.ledger.metrics import metrics
from referee.report import Gathering, Report, build
from referee.report.judges import scale_of
from referee.report.rows import Rows
from referee.report.shape import Scale
from referee.report.steps import MOST_STEPS, binned
from referee.report.times import MOST_SLICES

GOLD = Path(__file__).parent / "gold"


def as_json(report: Report) -> str:
    """The data as text that can be compared: floats rounded to nine digits."""

    def rounded(value: object) -> object:
        if isinstance(value, float):
            return float(f"{value:.9g}")
        if isinstance(value, dict):
            return {key: rounded(inner) for key, inner in value.items()}
        return [rounded(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(rounded(msgspec.to_builtins(report)), indent=1) + "\n"


@pytest.mark.parametrize("run", [small, rubric])
def test_the_data_of_a_small_run_is_the_gold_file(run: Callable[[], list[Line]]) -> None:
    """All of it. After a change that is meant: python -m tests.report.gold."""
    assert as_json(build(run())) == (GOLD / f"{run.__name__}.json").read_text()


def test_a_batch_of_several_steps_makes_no_step_of_its_own() -> None:
    """A file with steps is submitted as one batch: what was waited for it belongs to none of them."""
    lines = [line for step in (1, 2) for line in pair(step, 0, 5)]
    batch = BatchLine(wall=START + 9, batch="b", samples=2, submitted=START, finished=START + 8, waited_s=8.0)
    found = build([RUN, *lines, batch])
    assert [row.first for row in found.steps] == [1, 2]
    assert found.metrics["wait_s"] == 8.0


def test_steps_worked_out_by_hand() -> None:
    """What the gold file says, once in numbers a reader can follow."""
    first, second, third = build(small()).steps
    assert (first.samples, first.scored, first.groups, first.flat_groups) == (8, 8, 2, 1)
    assert first.bins == [1, 0, 0, 1, 4, 0, 1, 0, 0, 1]
    assert first.low_share == first.high_share == pytest.approx(1 / 8)
    assert second.unscored == {"timeout": 1}
    assert second.saved_cache == 0.002
    assert third.saved_shared == pytest.approx(0.021 / 21)
    assert first.wait_fraction == pytest.approx(0.15)
    assert (third.wait_fraction, third.waited_s) == (None, 1.5)
    assert first.reward_mean == pytest.approx(first.rule_mean + first.judge_mean - first.penalty_mean)


def test_limits_become_what_was_new() -> None:
    """Totals of limits lines are counted once, at the look that saw them."""
    points = [row.endpoints["e"] for row in build(small()).times if row.endpoints]
    assert [point.throttled for point in points] == [2, 2, 2]
    assert [point.requests for point in points] == [10, 10, 10]


def test_length_is_compared_among_siblings() -> None:
    """Two prompts of different length but no slope within either: only the overall fit has a slope."""
    lines: list[Line] = [RUN]
    for index, (score, length) in enumerate([(2, 10), (4, 10), (2, 12), (4, 12), (7, 90), (9, 90), (7, 92), (9, 92)]):
        lines += pair(1, index, score, length=length)
    lengths = build(lines).lengths
    assert lengths.slope is not None
    assert lengths.slope > 0.5
    assert lengths.within_slope == pytest.approx(0.0, abs=1e-9)
    assert lengths.within_correlation == pytest.approx(0.0, abs=1e-9)
    assert [point.row for point in lengths.points] == list(range(8))


def test_numbers_agree_with_the_metrics() -> None:
    """Steps and slices add up to what `metrics()` counts."""
    lines = list(many(3000))
    report, told = build(lines), metrics(lines)
    assert report.metrics == told
    assert sum(row.samples for row in report.steps) == told["samples"]
    assert sum(row.scored for row in report.times) == told["scored"]
    assert sum(sum(row.unscored.values()) for row in report.times) == told["unscored"]
    assert sum(row.cost for row in report.steps) == pytest.approx(told["cost_usd"])
    assert sum(sum(row.bins) for row in report.steps) == told["scored"]


def test_live_is_the_same_as_at_once() -> None:
    """Asking for reports on the way changes nothing."""
    lines, gathering = small(), Gathering()
    for line in lines:
        gathering.add(line)
        gathering.report()
    assert gathering.report() == build(lines)


def test_files_side_by_side_are_told_apart() -> None:
    """Two processes whose batches have the same names, read in turns: rewards meet their own verdicts, and siblings
    that were judged by both are one group."""
    one, other = Gathering(), Gathering()
    for line in small():
        one.add(line, "a")
        other.add(line, "a")
        other.add(line, "b")
    single, double = one.report(), other.report()
    assert double.lengths.samples == 2 * single.lengths.samples
    assert double.lengths.slope == pytest.approx(single.lengths.slope)
    assert [row.groups for row in double.steps] == [row.groups for row in single.steps]
    assert double.lengths.within_samples == 2 * single.lengths.within_samples
    limits = [row.endpoints["e"] for row in double.times if row.endpoints]
    assert [point.limit for point in limits] == [16, 16, 16]


def test_siblings_of_a_shuffled_file_are_found() -> None:
    """Twenty groups of eight in any order, in batches as they come: one group each, in the charts and in the list."""
    for config in ({}, {"ledger": {"dir": "a folder of one's own"}}):
        lines = shuffled(config)
        order = [int(line.id[1:]) for line in lines if isinstance(line, VerdictLine)]
        report, rows = build(lines), Rows()
        assert (report.steps[0].groups, report.steps[0].flat_groups) == (20, 0)
        assert (report.lengths.within_groups, report.lengths.within_samples) == (20, 160)
        for line in lines:
            rows.add(line)
        parts = {part.name: zlib.decompress(part.data) for part in rows.parts()}
        siblings = array("I", parts["column-siblings"])
        members: dict[int, set[int]] = {}
        for number, group_number in zip(order, siblings, strict=True):
            members.setdefault(group_number, set()).add(number)
        assert sorted(sorted(found) for found in members.values()) == [list(range(n, n + 8)) for n in range(0, 160, 8)]


def test_clients_of_a_cluster_tell_of_the_same_engines() -> None:
    """Their counts are one count, whether their files are read one after the other or as they grow."""
    run = RunLine(wall=START, config={**CONFIG, "runtime": "ray"})
    looks = [LimitsLine(wall=START + n, endpoint="e", limit=8, in_flight=4, requests=10 * n) for n in range(1, 6)]
    after, growing = Gathering(), Gathering()
    for source in ("a", "b", "c"):
        for line in [run, *looks]:
            after.add(line)
        growing.add(run, source)
    for line in looks:
        for source in ("a", "b", "c"):
            growing.add(line, source)
    restarted = [RunLine(wall=START + 100, config=run.config), LimitsLine(wall=START + 101, endpoint="e", requests=7)]
    for gathering in (after, growing):
        report = gathering.report()
        assert report.metrics["requests"] == 50
        assert [row.endpoints["e"].limit for row in report.times] == [8] * 5
        late = LimitsLine(wall=START + 5.5, endpoint="e", requests=3)  # a client that joined after an engine was lost
        for line in [RunLine(wall=START + 4, config=run.config), late]:
            gathering.add(line, "late")
        assert gathering.report().metrics["requests"] == 50
        for line in restarted:
            gathering.add(line, "d")
        assert gathering.report().metrics["requests"] == 57


def test_many_steps_share_rows() -> None:
    """Ten thousand steps become at most two hundred rows that hold all samples."""
    lines: list[Line] = [RUN]
    for step in range(10_000):
        lines += pair(step, 0, step % 10 + 1)
        at = START + 10.0 * step
        lines.append(BatchLine(wall=at + 4, batch=f"b{step}", samples=1, step=step, submitted=at, waited_s=1.0))
    rows = build(lines).steps
    assert len(rows) <= MOST_STEPS
    assert sum(row.samples for row in rows) == 10_000
    assert (rows[0].first, rows[-1].last) == (0, 9999)
    assert rows[0].wait_fraction == pytest.approx(0.1)


def test_time_slices_widen() -> None:
    """A week of lines keeps a bounded number of slices, and loses none."""
    lines: list[Line] = [RUN] + [
        VerdictLine(wall=START + 61.0 * n, value=0.5, origin="call", attempts=1, latency_s=1.0) for n in range(10_000)
    ]
    report = build(lines)
    assert len(report.times) <= MOST_SLICES
    assert sum(row.samples for row in report.times) == 10_000
    assert all(row.latency_p50 == pytest.approx(1.0, rel=0.06) for row in report.times)
    assert report.slice_s >= 2048


def test_lines_of_a_forged_ledger_do_no_harm() -> None:
    """Absurd numbers and hostile words become data that JSON can hold."""
    lines = hostile()
    lines += [
        VerdictLine(step=10**30, value=0.5, batch="x"),
        VerdictLine(step=-(10**25), value=7.5, score=1e300, batch="x", index=1),
        VerdictLine(value=-1e308, wall=-1e300, batch="x", index=10**20),
        *pair(1, 99, 5, length=10**25),
        RunLine(config={"judge": {"kind": "score", "low": 1, "high": 10**9}, "endpoint": "x"}),
        LimitsLine(endpoint="e", limit=1e308, throttled=-5),
        BatchLine(submitted=1e300, wall=-1e300, waited_s=1e300),
    ]
    text = as_json(build(lines))
    assert "Infinity" not in text
    assert "NaN" not in text


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10) | st.none(), st.integers(1, 500)), max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_shares_are_shares(samples: list[tuple[int, int | None, int]]) -> None:
    """Whatever comes, shares stay within [0, 1], flat groups within groups, bins add up."""
    lines: list[Line] = [RUN]
    for index, (step, score, length) in enumerate(samples):
        lines += pair(step, index, score, length=length)
    report = build(lines)
    for row in report.steps:
        assert sum(row.bins) == row.scored <= row.samples
        assert 0 <= row.flat_groups <= row.groups
        for share in (row.low_share, row.high_share, row.wait_fraction):
            assert share is None or 0 <= share <= 1
    for strength in (report.lengths.correlation, report.lengths.within_correlation):
        assert strength is None or -1 <= strength <= 1


@pytest.mark.parametrize("levels", range(2, 22))
def test_every_level_has_its_bin(levels: int) -> None:
    """A score of each level lands in the bin of that level."""
    scale = scale_of({"judge": {"kind": "score", "low": 1, "high": levels}})
    assert scale == Scale(levels, 1.0, float(levels))
    lines: list[Line] = [VerdictLine(value=n / (levels - 1)) for n in range(levels)]
    run = RunLine(config={**CONFIG, "judge": {"kind": "score", "low": 1, "high": levels}})
    assert build([run, *lines]).steps[0].bins == [1] * levels


def test_continuous_scores_have_twenty_bins() -> None:
    """Both ends are inside."""
    assert binned({0: 1, 180: 2, 90: 3}, Scale()) == [1, *[0] * 9, 3, *[0] * 8, 2]


def test_findings_say_what_stands_out() -> None:
    """The worst first; and one good sentence when there is nothing."""
    found = build(small()).findings
    assert [finding.panel for finding in found if "not scored" in finding.text] == ["unscored"]
    assert any("Longer answers" in finding.text for finding in found)
    levels = [finding.level for finding in found]
    assert levels == sorted(levels, key=lambda level: level != "bad")
    calm: list[Line] = [RUN]
    for index in range(40):
        calm += pair(1, index, [2, 4, 6, 8][index % 4], length=[100, 90, 90, 100][index % 4])
    assert [finding.level for finding in build(calm).findings] == ["good"]
    assert "no verdict" in build([]).findings[0].text


def test_several_judges_worked_out_by_hand() -> None:
    """Each has its steps, its scale, its models; the totals are in the metrics."""
    report = build(several())
    quality, safe = report.judges
    assert (quality.name, quality.kind, quality.weight, quality.models) == ("quality", "score", 0.8, ["small"])
    assert (quality.scale, safe.scale, report.scale) == (Scale(10, 1.0, 10.0), Scale(), Scale())
    assert [(row.first, row.scored, row.unscored) for row in safe.steps] == [(n, 6, {"refused": 2}) for n in (1, 2, 3)]
    assert quality.steps[0].bins == [1, 1, 1, 1, 1, 0, 1, 1, 0, 1]
    assert quality.steps[0].score_mean == pytest.approx(32 / 72)
    assert sum(row.cost for judge in report.judges for row in judge.steps) == pytest.approx(report.metrics["cost_usd"])
    assert report.metrics["judge/safe/unscored_share"] == 0.25
    assert report.metrics["judge/safe/score_mean"] == 0.75
    assert report.metrics["unscored"] == 0
    (pair_,) = report.agreement
    assert (pair_.a, pair_.b, pair_.samples, pair_.within_groups) == ("quality", "safe", 18, 6)
    assert pair_.within_correlation is not None
    assert pair_.within_correlation < 0
    assert report.runs[0].kind == "quality (score), safe (yes_no)"


def test_a_sample_that_several_judges_judged_again_counts_once() -> None:
    """A later start's verdicts take the place of the earlier ones'; what both cost was spent."""
    first = several(1)
    again = [RunLine(wall=START + 50, config={**CONFIG, "judge": JUDGES})]
    again += [line for index in range(8) for line in judged(1, index, 10, 1.0, wall=START + 60, batch="c")]
    twice, once = build([*first, *again]), build([first[0], *again[1:]])
    assert [judge.steps[0].scored for judge in twice.judges] == [8, 8]
    for name in ("judge/quality/score_mean", "judge/safe/scored", "judge/safe/unscored"):
        assert twice.metrics[name] == pytest.approx(once.metrics[name])
    assert twice.agreement == once.agreement
    assert twice.metrics["judge/safe/cost_usd"] == pytest.approx(2 * once.metrics["judge/safe/cost_usd"])


@pytest.mark.parametrize("judge", [{"kind": "score", "low": 1, "high": 5}, [{"kind": "score", "low": 1, "high": 5}]])
def test_a_lone_judge_keeps_its_scale_in_either_form(judge: object) -> None:
    """Run lines hold a list of judges; those of 0.1 hold one table."""
    report = build([RunLine(wall=START, config={**CONFIG, "judge": judge}), *pair(1, 0, 3)])
    assert report.scale == Scale(5, 1.0, 5.0)
    assert (report.runs[0].kind, report.judges) == ("score", [])


def test_what_the_cache_saved_is_counted_beside_a_call() -> None:
    """One judge was called, the other answered from the cache: the line is a call's, and says what was saved."""
    mixed = build([RUN, *pair(1, 0, 5, origin="call", saved=0.25)])
    assert mixed.metrics["saved_usd"] == mixed.cost.saved_cache == 0.25
