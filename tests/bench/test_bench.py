"""The benchmarks stay runnable: each has `run` and `report`, and each new report reads a small stored result."""

from __future__ import annotations

import importlib
import json
import random
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from bench.common import rollouts, settings, spread, table
from bench.limits import PROVIDERS, Aimd, ideal
from bench.limits import one as limited
from bench.rolling import TEAMS

from bench import groups, plots, rubrics, run
from referee.stats import kendall

STORED: dict[str, Any] = {
    "rolling": {
        "tickets": 3,
        "samples": 24,
        "asked": 26,
        "in_flight": [8],
        "exits": [0, 0],
        "waits_s": [0.5, 0.6, 7.0],
        "teams": {"rows_usd": dict.fromkeys(TEAMS, 0.001), "spent_usd": dict.fromkeys(TEAMS, 0.002)},
    },
    "teams": {
        "greedy": 100,
        "batches": 2,
        "budget": 0.9,
        "alone": {"p50": 1.0, "p95": 2.0},
        "beside": {"p50": 1.1, "p95": 2.1},
        "spent": 0.9,
        "missing": {"greedy": 40},
        "agree": True,
        "within": True,
        "kills": {"billed": 0.5, "kept": 0.6, "hold": True, "after": {"status": 200, "scored": 64}},
    },
    "audit": {
        "seeds": [200, 2, 1],
        "rows": {
            "hacked: tone | fast": [
                {"onset": 20, "severe": 30, "quarter": 15, "first": {"phrase": [7, 0.1], "probes": [20, 0.5]}},
                {"onset": None, "severe": None, "quarter": None, "first": {}},
            ],
            "clean: improving": [{"alarms": []}],
        },
        "cost": {"us": 90.0, "words": 50.0, "samples": 1000, "mb": 2.0, "samples_before": 50, "mb_before": 1.0},
    },
    "prefixes": {
        "groups": 8,
        "real_groups": 2,
        "simulated": [
            {"work": "scores", "bill": "b", "replicas": 2, "mode": "warm", "usd": 0.04, "cached": 0.8, "seconds": 5.6}
        ],
        "real": [
            {"servers": 2, "slots": 1, "mode": "warm", "tokens": 100.0, "processed": 40.0, "seconds": 9.0},
        ],
    },
    "documents": {
        "scale": 10.0,
        "count": 8,
        "responses": {
            "hand-written: synchronous": [[70.0, 60.0, 100]],
            "referee: thread": [[10.0, 0.0, 100], [10.2, 0.1, 100]],
        },
        "samples": {"hand-written: one by one": [[16.0, 8.0]], "referee: not told the limit": [[1.0, 8]]},
    },
    "waiting": {
        "seconds": 1.0,
        "rows": {
            "no judge": [{"step": 1.0, "blocked": 0.0, "compute": 1.0, "scored": 0}],
            "ours during generation, thread": [{"step": 1.0, "blocked": 0.0, "compute": 1.0, "scored": 64}],
        },
    },
    "client_cost": {
        "count": 10,
        "others": 5,
        "rows": {
            "ours, whole pipeline | plain | 64": [{"cpu_us": 100.0, "per_s": 1000.0, "server_us": 20.0}],
            "AsyncOpenAI + semaphore | plain | 64": [{"cpu_us": 3000.0, "per_s": 300.0}],
        },
        "missing": {"LiteLLM acompletion | plain | 64": "BENCH_PYTHON is not set"},
    },
    "limits": {
        "count": 10,
        "seeds": 1,
        "rows": {
            "refuses": {"ours, told nothing": [{"share": 0.9, "steady": 1.0, "refused": 0.01, "scored": 10}]},
            "a minute": {"ours, told nothing": [{"share": 0.8, "refused": 0.0, "scored": 10}]},
        },
    },
    "tail": {
        "lognormal": {
            hedge: {
                "free": [{"seconds": 10.0, "unscored": 0, "extra": 0.0}],
                "deadline": [{"seconds": 10.0, "unscored": 1, "extra": 0.0}],
            }
            for hedge in ("0", "0.05")
        }
    },
    "cached": {
        "count": 10,
        "size": 10,
        "costs": {"its key": [2.0, 3.0]},
        "repeats": {"0": [{"seconds": 2.0, "paid": 10, "scored": 10}]},
    },
    "growth": {
        "sizes": [
            {
                "samples": 10,
                "rows": 10,
                "seconds": 1.0,
                "cpu_seconds": 0.5,
                "resume_seconds": 1.0,
                "cache_bytes": 1000,
                "peak_mb_up_to": {"10": 50.0},
                "peak_mb": 50.0,
            }
        ]
    },
    "verl_batch": {
        "samples": 8,
        "scale": 20.0,
        "rows": {
            "verl naive, blocking judge": [10.0],
            "verl batch, semaphore 60": [1.0],
            "verl rate_limited, told 60": [1.0],
            "referee, cold": [0.5],
            "referee, warm cache": [0.1],
        },
    },
    "rubrics": {
        "tokens": {
            "short": {each: {"calls": 8, "tokens": 9000, "shared": 2048, "out": 300} for each in ("1", "4", "all")}
        },
        "cpu_us": {"1": [80.0], "4": [30.0], "all": [20.0]},
        "rubrics": 10,
        "errors": {"0.1 0.0": {"weighted": {"true": 0.7, "bias": 0.0, "deviation": 0.1, "differ": 0.9, "order": 0.9}}},
    },
    "groups": {
        "groups": 10,
        "draws": 10,
        "responses": 8,
        "rows": {"8": {"score": {"calls": 8, "tokens": 9000, "found": {"0.0 0.05": [0.9, 0.01, 0.95]}}}},
        "shifts": {"listwise, 1 order": {look: {"place": 0.9, "error": 0.1, "largest": 1.2} for look in groups.LOOKS}},
    },
    "coverage": {
        "seeds": 20,
        "resamples": 100,
        "rows": [
            {"name": "kappa", "n": 50, "truth": 0.6, "covered": 0.95, "width": 0.4, "missing": 0},
            {"name": "groups", "n": 50, "truth": 0.6, "covered": 0.95, "width": 0.4, "missing": 1, "untold": 0.8},
        ],
    },
    "reliability": {
        "in_flight": 10,
        "waits": {"result()": [1.0, 2.0]},
        "outages": {"http_503": [{"lost": 0, "requests": 1.0, "pace": 1.0}]},
    },
}


def module(name: str) -> Any:
    """A benchmark, or a skip where what it needs is not installed."""
    try:
        return importlib.import_module(f"bench.{name}")
    except ImportError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", run.known())
def test_a_benchmark_can_be_run_and_reported(name: str) -> None:
    """Every registered benchmark has both functions."""
    found = module(name)
    assert callable(found.run)
    assert callable(found.report)


@pytest.mark.parametrize("name", sorted(STORED))
def test_a_report_reads_a_stored_result(name: str) -> None:
    """Lines of text with at least one table in them, without running anything."""
    lines = run.lines_of(name, STORED[name])
    assert all(isinstance(line, str) and "\n" not in line for line in lines)
    assert any(line.startswith("| ") for line in lines)


def test_what_could_not_be_measured_is_said() -> None:
    """A benchmark without results says why, in the place of its table."""
    assert run.lines_of("documents", {"skipped": "no server"}) == ["Not measured: no server."]


def test_figures_are_not_lost_to_a_skip(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that could not measure does not replace what was measured before."""
    monkeypatch.setattr(run, "HERE", tmp_path)
    results: dict[str, Any] = {}
    run.write(results, "tail", STORED["tail"], ["| a table |"])
    run.write(results, "tail", {"skipped": "why"}, ["Not measured: why."])
    assert results["tail"] == STORED["tail"]
    assert "| a table |" in (tmp_path / "RESULTS.md").read_text()


def test_tables_are_made_anew_without_measuring(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored figures become today's words, under the names of today, each with its picture where there is one."""
    monkeypatch.setattr(run, "HERE", tmp_path)
    older = {
        "scale": 10.0,
        "count": 8,
        "002": {"theirs: synchronous": [[70.0, 60.0, 100]], "ours: thread": [[10.0, 0.0, 100]]},
        "003": {"theirs: one by one": [[16.0, 8.0]], "theirs: batch of 60": [[1.0, 8]]},
    }
    results = {
        "machine": "m.",
        "documents": older,
        "waiting": STORED["waiting"],
        "tables": {"documents": ["old words"]},
    }
    results["tables"]["waiting"] = ["old words", run.SMALL]
    results |= {"growth": {"older": "form"}}
    results["tables"]["growth"] = ["| kept |"]
    run.render(results, ["documents", "waiting", "tail", "growth"])
    page = (tmp_path / "RESULTS.md").read_text()
    assert "| kept |" in page
    assert page.count(run.SMALL) == 1
    assert "| hand-written: 60 at once |" in page
    assert "| referee: thread |" in page
    assert "docs/images/bench-waiting.svg" in page
    for word in ("old words", "theirs", "ocument 00", "asked:"):
        assert word not in page


def test_an_axis_has_round_numbers() -> None:
    """From nothing to at least the most, in a few steps."""
    assert plots.ticks(6783.0) == [0, 2000, 4000, 6000, 8000]
    assert plots.ticks(0.97) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for most in (0.0, 1e-3, 1.0, 5.0, 9.99, 10.0, 123.0):
        assert plots.ticks(most)[-1] >= most
        assert len(plots.ticks(most)) <= 7


@pytest.mark.parametrize("name", sorted(plots.PLOTS))
def test_a_plot_is_drawn(name: str) -> None:
    """Well-formed SVG with a bar for each row."""
    bench, draw = plots.PLOTS[name]
    drawing = ET.fromstring(draw(STORED[bench]))
    assert drawing.tag.endswith("svg")
    assert any(element.tag.endswith("rect") for element in drawing)


def test_medians_come_with_their_spread() -> None:
    """The least and the most stand beside the middle."""
    assert spread([3.0, 1.0, 2.0]) == "2.0 (1.0 to 3.0)"
    assert table(["a"], [["b"]]) == ["| a |", "| --- |", "| b |"]


def test_the_rebuilt_aimd_cuts_and_grows() -> None:
    """Doubles while all is well, cuts by a fifth on a refusal, and holds still for 15 s after it."""
    limit = Aimd(start=20)
    for _ in range(20):
        limit.release(limit.admit(0.0, 20), "ok", 0.0, 19, 1.0, 0)
    assert limit.limit == 40
    limit.release(limit.admit(1.0, 40), "throttled", 1.0, 39, 0.1, 0)
    assert limit.limit == 32
    limit.release(limit.admit(2.0, 32), "throttled", 2.0, 31, 0.1, 0)
    assert limit.limit == 32


def test_only_a_beginning_that_a_provider_keeps_counts_as_shared() -> None:
    """Long responses share theirs with every call but the first; short ones have none that is kept; one call has none
    to share."""
    for size, per_call, shares in (("long", 4, 2), ("short", 4, 0), ("long", "all", 0)):
        found = [shared for _, shared in rubrics.asked_about(rubrics.group(rubrics.LENGTHS[size])[:1], per_call)]
        assert found[0] == 0
        assert len([shared for shared in found if shared >= rubrics.LEAST]) == shares


def test_a_judge_without_errors_has_no_bias() -> None:
    """Of every rule, in any rubric that is drawn."""
    for row in rubrics.errors((0.0, 0.0), 20).values():
        assert (row["bias"], row["deviation"], row["order"]) == (0.0, 0.0, 1.0)


def test_a_judge_without_noise_finds_the_order_of_a_group() -> None:
    """Every way that looks at all pairs or gives scores; the true order stands in no request."""
    samples, truth, strengths = groups.drawn(6, 1)
    for name in ("pairwise all, one order", "pairwise all, both orders"):
        answer = groups.answering(strengths, groups.Perception(), random.Random(0))
        values, asks = groups.values_of(groups.judge_of(groups.ways()[name].settings), samples, answer)
        assert kendall(values, truth) == 1.0
        assert len(asks) == (15 if "one" in name else 30)


def test_what_was_measured_by_hand_stays_on_the_page(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of a benchmark stand under its table, whichever benchmark is run next."""
    monkeypatch.setattr(run, "HERE", tmp_path)
    results: dict[str, Any] = {"notes": {"tail": [["By hand: 7."]]}}
    run.write(results, "tail", STORED["tail"], ["| a table |"])
    run.write(results, "growth", STORED["growth"], ["| another |"])
    assert "`python -m bench.run tail`\n\nBy hand: 7.\n" in (tmp_path / "RESULTS.md").read_text()


def test_no_client_is_given_more_than_the_ideal() -> None:
    """A run in virtual time scores everything, and a capacity that changes makes the ideal longer."""
    spec = PROVIDERS["refuses above 60"]
    row = limited(spec, (60, None), 120, 1)
    assert row["scored"] == 120
    changing = next(s for s in PROVIDERS.values() if s.schedule)
    assert ideal(changing, 5000, 0.0) > ideal(spec, 5000, 0.0)
    assert len({sample.response for sample in rollouts(16, "x")}) == 16
    assert settings("http://127.0.0.1:1/v1").cache.path == ""


def test_the_page_of_measurements_is_made_of_the_raw_figures() -> None:
    """What was measured by hand is kept as notes beside them, so that the next benchmark cannot lose it."""
    results = json.loads((run.HERE / "results.json").read_text())
    assert run.page_of(results) == (run.HERE / "RESULTS.md").read_text(), "edit bench/results.json: `notes`, `tables`"
