"""The numbers: worked out by hand, the same live and from a file, and named as documented."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.audit.auditor import Auditor
from referee.config import load
from referee.ledger import (
    AlarmLine,
    AskLine,
    AuditLine,
    BatchLine,
    ChangeLine,
    JudgeLine,
    Ledger,
    LimitsLine,
    Line,
    MeasuresLine,
    NoteLine,
    RewardLine,
    RunLine,
    Tally,
    VerdictLine,
    read,
)
from referee.ledger import metrics as module
from referee.ledger.comparisons import Compared
from referee.ledger.histograms import Histogram
from referee.ledger.metrics import metrics
from referee.records import Reason
from referee.referee import Referee

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def call(value: float, **more: Any) -> VerdictLine:
    return VerdictLine(value=value, score=value, **{"origin": "call", "attempts": 1, **more})


RUN: list[Line] = [
    RunLine(wall=100.0),
    call(
        0.0,
        wall=101.0,
        batch="b",
        group="g",
        tokens_in=10,
        tokens_out=2,
        tokens_cached=4,
        tokens_cache_write=3,
        cost=0.5,
        latency_s=1.0,
    ),
    call(1.0, wall=102.0, batch="b", group="g", tokens_in=20, tokens_out=3, cost=1.5, latency_s=4.0, attempts=3),
    VerdictLine(wall=103.0, batch="b", group="h", origin="cache", value=0.5, saved=0.25),
    VerdictLine(wall=103.0, batch="b", group="h", origin="shared", value=0.5),
    VerdictLine(wall=104.0, batch="b", origin="gate", value=0.0, how="gate"),
    VerdictLine(wall=104.0, batch="b", origin="call", unscored="timeout", attempts=2, latency_s=60.0, cost=1.0),
    VerdictLine(wall=105.0, batch="b", origin="none", unscored="deadline"),
    RewardLine(wall=105.0, value=1.0, penalty=0.5),
    RewardLine(wall=105.0, value=0.0, filled="value"),
    RewardLine(wall=105.0, value=None),
    LimitsLine(wall=105.0, endpoint="x", limit=10, in_flight=2, queued=7, throttled=1, requests=5),
    LimitsLine(wall=106.0, endpoint="x", limit=5, in_flight=1, queued=3, throttled=2, requests=6),
    LimitsLine(wall=106.0, endpoint="y", limit=4, in_flight=4, queued=3, throttled=0, requests=3),
    BatchLine(wall=110.0, batch="b", samples=7, waited_s=2.5),
]


def test_the_numbers_of_a_small_run() -> None:
    """Every number, worked out by hand."""
    found = metrics(RUN)
    expected = {
        "samples": 7,
        "scored": 5,
        "unscored": 2,
        "unscored_share": 2 / 7,
        **{f"unscored/{reason.value}": 0 for reason in Reason},
        "unscored/timeout": 1,
        "unscored/deadline": 1,
        "calls": 3,
        "cache_hits": 1,
        "shared": 1,
        "gated": 1,
        "attempts": 6,
        "requests": 9,
        "throttled": 2,
        "identity_changes": 0,
        "tokens_in": 30,
        "tokens_out": 5,
        "tokens_cached": 4,
        "tokens_cache_write": 3,
        "cost_usd": 3.0,
        "saved_usd": 0.25 + 1.0,  # the shared one did not say: it saved what a call costs on average
        "score_mean": 0.4,
        "score_std": math.sqrt((0.16 + 0.36 + 0.01 + 0.01 + 0.16) / 5),
        "score_low_share": 0.4,
        "score_high_share": 0.2,
        "flat_group_share": 0.5,
        "reward_mean": 0.5,
        "reward_missing": 1,
        "reward_filled": 1,
        "penalty_mean": 0.5 / 3,
        "batches": 1,
        "wait_s": 2.5,
        "elapsed_s": 10.0,
        "wait_fraction": 0.25,
        "limit": 9,
        "in_flight": 5,
        "queued": 3,
    }
    timings = {name: found.pop(name) for name in list(found) if name.endswith(("p50_s", "p95_s"))}
    assert found == pytest.approx(expected)
    assert timings == {
        "latency_p50_s": pytest.approx(4.0, rel=0.05),
        "latency_p95_s": pytest.approx(60.0, rel=0.05),
        "queue_p50_s": 0.0,
        "queue_p95_s": 0.0,
    }


def test_a_run_without_lines_is_all_zeros() -> None:
    """The same names, and no division by nothing."""
    assert set(metrics([])) == set(metrics(RUN))
    assert set(metrics([]).values()) == {0.0}


def test_counting_live_and_from_the_file_agree(tmp_path: Path) -> None:
    """The tally fed while writing equals the one fed by reading."""
    live, ledger = Tally(), Ledger(tmp_path)
    for line in RUN:
        live.add(line)
        ledger.append(line)
    ledger.close()
    assert metrics(read(tmp_path)) == live.metrics()


def test_a_second_run_is_added() -> None:
    """Totals restart with a run line and are summed; time between runs is not counted."""
    once, twice = metrics(RUN), metrics([*RUN, *[msgspec.structs.replace(line, wall=line.wall + 1000) for line in RUN]])
    for name in ("samples", "requests", "throttled", "cost_usd", "elapsed_s", "wait_s", "attempts"):
        assert twice[name] == 2 * once[name]
    for name in ("score_mean", "flat_group_share", "wait_fraction", "limit", "queued", "latency_p95_s"):
        assert twice[name] == pytest.approx(once[name])


def test_words_of_newer_versions_are_counted_somewhere() -> None:
    """An unknown reason or origin does not break the tally."""
    found = metrics([VerdictLine(origin="oracle", value=1.0), VerdictLine(unscored="moon_phase")])
    assert (found["samples"], found["scored"], found["unscored/moon_phase"], found["saved_usd"]) == (2, 1, 1, 0)


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ([], 0.0),
        ([("g", 0.5)], 0.0),
        ([("", 0.5), ("", 0.5)], 0.0),
        ([("g", 0.5), ("g", 0.5), ("g", 0.5)], 1.0),
        ([("g", 0.5), ("g", 0.5), ("g", 0.6)], 0.0),
        ([("g", 0.5), ("h", 0.1), ("g", 0.6), ("h", 0.1)], 0.5),
    ],
)
def test_flat_groups_are_those_that_teach_nothing(values: list[tuple[str, float]], share: float) -> None:
    """Groups of at least two scored members, all with one score."""
    assert metrics([call(value, group=group) for group, value in values])["flat_group_share"] == share


def test_a_group_is_one_whichever_batches_its_members_came_in() -> None:
    """Siblings that were submitted apart are compared; the same name in another step or for another prompt is not."""
    values = ((0.1, "a"), (0.9, "b"), (0.1, "c"), (0.9, "d"))
    assert metrics([call(value, group="g", batch=batch) for value, batch in values])["flat_group_share"] == 0.0
    for other in ({"step": 2}, {"prompt": "another"}, {"prompt_digest": "another"}):
        lines = [call(value, group="g", **(other if value > 0.5 else {})) for value, _ in values]
        assert metrics(lines)["flat_group_share"] == 1.0


def test_memory_for_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old groups are forgotten but stay counted."""
    monkeypatch.setattr(module, "OPEN_GROUPS", 10)
    tally = Tally()
    for number in range(1000):
        tally.add(call(0.5, group=str(number)))
        tally.add(call(0.5 + number % 2, group=str(number)))
    assert len(tally._spreads) <= 10
    assert tally.metrics()["flat_group_share"] == 0.5


@given(st.lists(st.floats(2e-4, 5000), min_size=1, max_size=60), st.sampled_from([0.05, 0.5, 0.95, 1.0]))
@settings(deadline=None, max_examples=200)
def test_quantiles_are_within_five_percent(durations: list[float], share: float) -> None:
    """A fixed set of buckets is close to sorting everything."""
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    exact = sorted(durations)[math.ceil(share * len(durations)) - 1]
    assert histogram.quantile(share) == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("duration", [0.0, -1.0, 1e-9, 1e-4, 1e9, math.inf])
def test_any_duration_has_a_bucket(duration: float) -> None:
    """Clocks that stand still or jump do not break the histogram."""
    histogram = Histogram()
    histogram.add(duration)
    assert 0 <= histogram.quantile(0.5) < 1e5


VERDICTS = st.builds(
    VerdictLine,
    origin=st.sampled_from(["call", "cache", "shared", "gate", "none"]),
    value=st.one_of(st.none(), st.floats(0, 1)),
    unscored=st.sampled_from([reason.value for reason in Reason]),
    group=st.sampled_from(["", "a", "b"]),
    attempts=st.integers(0, 3),
    cost=st.floats(0, 10),
    latency_s=st.floats(0, 100),
)


@given(st.lists(VERDICTS, max_size=30))
@settings(deadline=None, max_examples=150)
def test_nothing_is_counted_twice_or_not_at_all(lines: list[VerdictLine]) -> None:
    """Samples are scored or unscored, by one reason, from one origin; shares are shares; numbers are finite."""
    found = metrics(lines)
    none = sum(line.origin == "none" for line in lines)
    assert found["samples"] == len(lines) == found["scored"] + found["unscored"]
    assert found["unscored"] == sum(count for name, count in found.items() if name.startswith("unscored/"))
    assert found["samples"] == found["calls"] + found["cache_hits"] + found["shared"] + found["gated"] + none
    assert all(0 <= share <= 1 for name, share in found.items() if name.endswith(("share", "fraction")))
    assert all(math.isfinite(number) and number >= 0 for number in found.values())


def documented(heading: str) -> set[str]:
    """Names in the first column of the table under a heading of docs/metrics.md."""
    section = DOCS.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {
        name
        for cell in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", cell)
    }


def test_every_number_is_documented_and_every_documented_number_exists() -> None:
    """docs/metrics.md and the code name the same metrics."""
    names = {re.sub(r"^unscored/.*", "unscored/<reason>", name) for name in Tally(["<name>"]).metrics()}
    of_groups = Compared(lists=1, orders=1, comparisons=1).metrics()
    audit = Auditor(load({"endpoint": {"key_env": ""}}), print, Referee).metrics()
    assert documented("Names") == {*names, *of_groups, *audit}
    assert documented("Histograms") == set(Tally().histograms())


@pytest.mark.parametrize(
    "kind",
    [
        RunLine,
        VerdictLine,
        JudgeLine,
        AskLine,
        RewardLine,
        BatchLine,
        LimitsLine,
        ChangeLine,
        AuditLine,
        AlarmLine,
        MeasuresLine,
        NoteLine,
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_field_of_a_line_is_documented(kind: Any) -> None:
    """docs/metrics.md has each field of each line of the ledger."""
    name = kind.__struct_config__.tag
    assert documented(f"`{name}` lines") == set(kind.__struct_fields__) - {"wall"}
