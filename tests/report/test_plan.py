"""How long judging takes and what it costs: the arithmetic against a simulation, and against itself."""

from __future__ import annotations

import heapq
import math
import random
from pathlib import Path

import msgspec
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.report.ledgers import several
from typer.testing import CliRunner

from referee.cli import plan as plan_command
from referee.config import load
from referee.ledger import AskLine, BatchLine, Ledger, LimitsLine, Line, RunLine, VerdictLine
from referee.report.plan import Workload, make_plan, places_for, starts_for
from referee.report.tail import Latency, longest, with_pace, with_places
from referee.report.workload import limits_in, observe

app = typer.Typer()
app.command()(plan_command.command)

positive = st.floats(0.01, 1e4)
workloads = st.builds(
    Workload,
    samples=st.integers(1, 20_000).map(float),
    asked=st.floats(0.0, 1.0),
    attempts=st.floats(1.0, 4.0),
    tokens_in=st.floats(0.0, 1e5),
    tokens_out=st.floats(0.0, 1e4),
    latency=st.floats(0.01, 100.0),
    sigma=st.floats(0.0, 1.5),
    concurrency=st.none() | st.integers(1, 5000).map(float),
    rpm=st.none() | st.floats(1.0, 1e6),
    tpm=st.none() | st.floats(100.0, 1e9),
    budget_usd=st.none() | positive,
    price_in=st.none() | st.floats(0.0, 100.0),
    price_out=st.none() | st.floats(0.0, 100.0),
    work_s=st.none() | st.floats(0.0, 1000.0),
    steps=st.integers(1, 10_000).map(float),
)


def simulated(calls: int, places: int, latency: Latency, rng: random.Random) -> float:
    """Seconds until the last of the calls is answered, each started as soon as a place is free."""
    free = [0.0] * places
    end = 0.0
    for _ in range(calls):
        done = heapq.heappop(free) + rng.lognormvariate(math.log(latency.median), latency.sigma)
        end = max(end, done)
        heapq.heappush(free, done)
    return end


@pytest.mark.parametrize(
    ("calls", "places", "sigma"),
    [(64, 60, 0.3), (64, 60, 1.0), (100, 10, 0.25), (256, 32, 0.6), (1024, 60, 0.6), (512, 600, 0.6), (100, 1, 0.6)],
)
def test_the_estimate_agrees_with_a_simulation(calls: int, places: int, sigma: float) -> None:
    """The median of a hundred simulated batches is within a tenth of the formula."""
    rng, latency = random.Random(1), Latency(2.0, sigma)
    runs = sorted(simulated(calls, places, latency, rng) for _ in range(101))
    assert with_places(calls, places, latency) == pytest.approx(runs[50], rel=0.1)
    assert with_places(calls, places, latency, 0.95) >= 0.9 * runs[95]


@pytest.mark.parametrize(("calls", "per_second"), [(500, 5.0), (500, 50.0), (64, 20.0), (30, 100.0)])
def test_a_paced_batch_agrees_with_a_simulation(calls: int, per_second: float) -> None:
    """Starts spaced evenly after the first second's worth: the formula is within a tenth."""
    rng, latency = random.Random(1), Latency(2.0, 0.6)
    runs = []
    for _ in range(101):
        starts = [max(0.0, n + 1 - per_second) / per_second for n in range(calls)]
        runs.append(max(start + rng.lognormvariate(math.log(2.0), 0.6) for start in starts))
    assert with_pace(calls, per_second, latency) == pytest.approx(sorted(runs)[50], rel=0.1)


def test_constant_answers_take_whole_rounds() -> None:
    """Answers of exactly two seconds, ten at a time: a hundred take twenty."""
    assert with_places(100, 10, Latency(2.0)) == pytest.approx(20.0)
    assert longest(100, Latency(2.0)) == pytest.approx(2.0)
    assert with_pace(121, 1.0, Latency(2.0)) == pytest.approx(122.0, rel=0.02)


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 5000), st.floats(0.01, 100), st.floats(0, 1.5))
def test_a_batch_is_never_faster_than_its_bounds(calls: int, places: int, median: float, sigma: float) -> None:
    """Not faster than its slowest call, not faster than the work divided by the places, and longer with more calls."""
    latency = Latency(median, sigma)
    took = with_places(calls, places, latency)
    assert took >= longest(calls, latency) * 0.999
    assert calls <= places or took >= calls * latency.mean / places * 0.999
    assert with_places(calls + 1, places, latency) >= took * 0.999
    assert with_places(calls, places, latency, 0.95) >= took * 0.999


@settings(deadline=None)
@given(st.floats(0.01, 100), st.floats(0.0, 1.5), st.floats(0.001, 0.999))
def test_quantiles_and_tails_agree(median: float, sigma: float, share: float) -> None:
    """What is beyond a quantile is the rest, of whole answers and of what is left of those under way."""
    latency = Latency(median, sigma)
    if sigma > 0.01:
        assert latency.beyond(latency.quantile(share)) == pytest.approx(1 - share, abs=1e-6)
    assert latency.left_beyond(latency.left_quantile(share)) == pytest.approx(1 - share, abs=1e-4)


@settings(deadline=None)
@given(workloads)
def test_a_plan_holds_together(workload: Workload) -> None:
    """Finite, not negative, epoch = steps times step, and the limit that binds is the slowest of those given."""
    plan = make_plan(workload)
    numbers = [plan.calls, plan.judging_s, plan.judging_p95_s, plan.wait_s, plan.epoch_s, plan.in_flight]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert plan.judging_p95_s >= plan.judging_s * 0.999
    assert plan.wait_s <= plan.judging_s
    assert all(plan.judging_s >= limit.seconds for limit in plan.limits)
    assert workload.concurrency is None or plan.in_flight <= workload.concurrency * 1.001 or plan.calls < 2
    if plan.cost_step is not None and plan.cost_epoch is not None:
        assert plan.cost_epoch == pytest.approx(plan.cost_step * workload.steps)
    if plan.binds == "budget":
        assert plan.cost_epoch is not None
        assert workload.budget_usd is not None
        assert plan.cost_epoch > workload.budget_usd
    if plan.slowed_by in ("concurrency", "rpm", "tpm"):
        assert plan.slowed_by == max(plan.limits, key=lambda limit: limit.seconds).name
    if plan.slowed_by == "trainer":
        assert plan.wait_s == 0


@settings(deadline=None)
@given(workloads)
def test_a_looser_pace_is_never_slower(workload: Workload) -> None:
    """More requests per minute never make a step longer."""
    if workload.rpm is not None:
        faster = make_plan(replace(workload, rpm=workload.rpm * 2))
        assert faster.judging_s <= make_plan(workload).judging_s * 1.001 + 1e-9


def test_each_limit_is_named_when_it_binds() -> None:
    """The same step meets one limit after another, and the advice names the setting."""
    free = Workload(samples=1000, latency=2.0, sigma=0.5, tokens_in=900, tokens_out=100)
    cases = {
        "answer time": (free, "tail"),
        "concurrency": (replace(free, concurrency=10.0), "limits.concurrency"),
        "rpm": (replace(free, rpm=60.0, concurrency=100.0), "limits.rpm"),
        "tpm": (replace(free, tpm=60_000.0, concurrency=100.0), "limits.tpm"),
        "trainer": (replace(free, work_s=600.0), "hides behind"),
        "nothing": (replace(free, asked=0.0), "nothing is asked"),
        "budget": (replace(free, price_in=1.0, price_out=1.0, budget_usd=10.0), "limits.budget_usd"),
    }
    for name, (workload, word) in cases.items():
        plan = make_plan(workload)
        assert plan.binds == name
        assert any(word in line for line in plan.advice), (name, plan.advice)


def test_the_advice_is_enough() -> None:
    """With the places or starts it names, the step takes the time it names."""
    workload = Workload(samples=1000, concurrency=10.0)
    places = places_for(workload, 30.0)
    assert places is not None
    assert make_plan(replace(workload, concurrency=float(places))).judging_s <= 30.0
    assert make_plan(replace(workload, concurrency=float(places - 1))).judging_s > 30.0
    starts = starts_for(workload, 30.0)
    assert starts is not None
    assert make_plan(replace(workload, concurrency=None, rpm=float(starts))).judging_s <= 30.0
    assert places_for(workload, 0.001) is None


def test_late_steps_and_calls_are_pointed_out() -> None:
    """A deadline or a timeout that cuts off more than a few is named."""
    slow = make_plan(Workload(samples=10_000, concurrency=10.0, latency=30.0, sigma=1.0))
    assert any("limits.deadline" in line for line in slow.advice)
    assert any("limits.attempt_timeout" in line for line in slow.advice)


CONFIG = load(
    {
        "endpoint": [
            {"url": "http://a/v1", "key_env": "", "price_in": 1.0, "price_out": 2.0},
            {"url": "http://b/v1", "key_env": "", "price_in": 3.0, "price_out": 4.0},
            {"url": "http://c/v1", "key_env": "", "backup": True, "price_in": 9.0, "price_out": 9.0},
        ],
        "limits": {"rpm": 100, "concurrency": 8, "budget_usd": 5.0, "deadline": 100.0},
    }
).public()


def lines() -> list[Line]:
    """Three steps of four samples each: two called, one cached, one gated; the trainer works 10 s and waits 2 s."""
    found: list[Line] = [RunLine(wall=0.0, config=CONFIG)]
    for step in range(3):
        start = step * 100.0
        for index, origin in enumerate(("call", "call", "cache", "gate")):
            called = origin == "call"
            found.append(
                VerdictLine(
                    wall=start + 5,
                    batch=str(step),
                    index=index,
                    step=step,
                    origin=origin,
                    value=0.5,
                    attempts=2 if called else 0,
                    latency_s=(1.0, 4.0)[index] if called else 0.0,
                    tokens_in=100 if called else 0,
                    tokens_out=10 if called else 0,
                    cost=0.01 if called else 0.0,
                )
            )
        found.append(LimitsLine(wall=start + 6, endpoint="a", limit=4.0, queued=step))
        found.append(
            BatchLine(
                wall=start + 12,
                batch=str(step),
                samples=4,
                step=step,
                submitted=start,
                finished=start + 12,
                waited_s=2.0,
            )
        )
    return found


def test_a_ledger_tells_the_load() -> None:
    """Samples per step, share asked, attempts, tokens, latency, cost, the trainer's own time and the limits."""
    found = observe(lines()).workload()
    assert (found.samples, found.asked, found.attempts) == (4.0, 0.5, 2.0)
    assert (found.tokens_in, found.tokens_out) == (100.0, 10.0)
    assert found.latency == pytest.approx(2.0)
    assert found.sigma == pytest.approx(math.log(2))
    assert found.cost_per_call == pytest.approx(0.005)
    assert found.work_s == pytest.approx(10.0)
    assert (found.concurrency, found.rpm, found.budget_usd, found.deadline) == (16.0, 200.0, 5.0, 100.0)


def test_the_limit_found_under_pressure_counts_when_it_adapts() -> None:
    """With concurrency = auto, what was reached while requests waited; with nothing waiting, the ceiling."""
    config = {**CONFIG, "limits": {"concurrency": "auto", "max_concurrency": 512}}
    told = [RunLine(config=config), LimitsLine(endpoint="a", limit=40.0, queued=3), VerdictLine(value=1.0)]
    assert observe(told).workload().concurrency == 40.0
    assert observe(told[::2]).workload().concurrency == 1024.0
    assert observe([]).workload().samples == 0


def test_prices_of_endpoints_are_averaged_and_backups_left_out() -> None:
    """Two endpoints share the work, the third is never used; a missing price makes the cost unknown."""
    assert limits_in(CONFIG)["price_in"] == 2.0
    flex = {"provider": "openai", "tier": "flex", "price_in": 2.0, "price_out": 8.0}
    found = limits_in({"endpoint": [flex]})
    assert (found["price_in"], found["price_out"]) == (1.0, 4.0)
    assert "price_in" not in limits_in({"endpoint": [{"price_in": 1.0}, {}]})
    assert limits_in({}) == {}


def test_the_command_reads_a_ledger_and_options_override_it(tmp_path: Path) -> None:
    """`referee plan run/` prints a table; --json gives the same as data; an option wins over the ledger."""
    ledger = Ledger(tmp_path / "run")
    for line in lines():
        ledger.append(line)
    ledger.close()
    run = CliRunner()
    shown = run.invoke(app, [str(tmp_path / "run")], catch_exceptions=False)
    assert "what binds" in shown.stdout
    data = msgspec.json.decode(run.invoke(app, [str(tmp_path / "run"), "--json"]).stdout)
    assert data["plan"]["calls"] == 4.0
    assert data["plan"]["cost_step"] == pytest.approx(0.02)
    over = run.invoke(app, [str(tmp_path / "run"), "--json", "--samples", "64", "--work", "0", "--rpm", "1"])
    assert msgspec.json.decode(over.stdout)["plan"]["slowed_by"] == "rpm"


def test_the_command_works_from_numbers_alone() -> None:
    """No ledger and no configuration: a few options are enough; nonsense is refused."""
    run = CliRunner()
    options = ["--samples", "100", "--latency", "2", "--latency-p95", "4", "--concurrency", "10", "--json"]
    data = msgspec.json.decode(run.invoke(app, options).stdout)
    assert data["plan"]["binds"] == "concurrency"
    assert data["workload"]["sigma"] == pytest.approx(math.log(2) / 1.6449)
    for bad in (["--samples", "0"], ["--rpm", "-5"], ["--latency", "nan"], ["--asked", "2"], ["--latency-p95", "0.1"]):
        assert run.invoke(app, bad).exit_code != 0


def test_what_is_not_known_is_not_called_free() -> None:
    """Prices without tokens give no cost, and the plan says what it took for granted; with tokens it has a cost."""
    run = CliRunner(env={"COLUMNS": "200"})
    prices = ["--price-in", "0.15", "--price-out", "0.6"]
    shown = run.invoke(app, prices).stdout
    assert "$" not in shown
    assert shown.count("unknown") == 2
    assert "assumed: --samples" in shown
    assert "assumed: --latency" in shown
    assert "give --tokens-in and --tokens-out, or a ledger" in shown
    told = run.invoke(app, [*prices, "--tokens-in", "900", "--tokens-out", "60", "--samples", "10", "--latency", "1"])
    assert "assumed" not in told.stdout
    assert "$0.0017" in told.stdout
    assert make_plan(Workload(samples=10, price_in=1.0, price_out=1.0)).cost_step is None
    assert make_plan(Workload(samples=10, price_in=1.0, price_out=1.0, tpm=100)).binds == "answer time"


def test_several_judges_and_questions_are_calls_of_their_own() -> None:
    """Two judges, one of which asks twice: three calls a sample, with the tokens and the latency of a call."""
    found = observe(several()).workload()
    assert (found.samples, found.asked, found.attempts) == (8.0, 1.0, 3.0)
    assert (found.tokens_in, found.tokens_out) == (50.0, 5.0)
    assert found.latency == pytest.approx(0.5)
    assert found.cost_per_call == pytest.approx(0.005 / 3)


def test_what_a_group_was_asked_together_is_counted_whole() -> None:
    """One question about four samples: its cost and tokens are spread over their lines."""
    shares = {"batch": "b", "step": 1, "origin": "call", "value": 0.5, "cost": 0.01, "tokens_in": 25, "latency_s": 1.0}
    lines: list[Line] = [AskLine(batch="b", indexes=(0, 1, 2, 3), attempts=1, origin="call", tokens_in=100)]
    lines += [VerdictLine(index=index, id=str(index), attempts=int(index == 0), **shares) for index in range(4)]
    found = observe(lines).workload()
    assert (found.samples, found.asked, found.tokens_in, found.cost_per_call) == (4.0, 0.25, 100.0, pytest.approx(0.04))
