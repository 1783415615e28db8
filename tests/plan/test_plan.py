"""How long judging takes and what it costs: rehearsals against what is known of a queue, and what a ledger tells."""

from __future__ import annotations

import math
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
from referee.plan import Workload, limits_in, make_plan, observe
from referee.plan.rehearsal import MOST_CALLS, rehearse

app = typer.Typer()
app.command()(plan_command.command)

workloads = st.builds(
    Workload,
    samples=st.integers(1, 30).map(float),
    asked=st.floats(0.0, 1.0),
    attempts=st.floats(1.0, 2.0),
    tokens_in=st.none() | st.floats(1.0, 1e3),
    tokens_out=st.none() | st.floats(1.0, 1e3),
    latency=st.floats(0.01, 20.0),
    sigma=st.floats(0.0, 1.0),
    concurrency=st.none() | st.integers(1, 500).map(float),
    adaptive=st.booleans(),
    capacity=st.none() | st.integers(1, 100).map(float),
    rpm=st.none() | st.floats(10.0, 1e6),
    tpm=st.none() | st.floats(1e4, 1e9),
    budget_usd=st.none() | st.floats(0.01, 1e4),
    price_in=st.none() | st.floats(0.0, 100.0),
    price_out=st.none() | st.floats(0.0, 100.0),
    work_s=st.none() | st.floats(0.0, 1000.0),
    steps=st.integers(1, 10_000).map(float),
)


def test_constant_answers_take_whole_rounds() -> None:
    """Answers of exactly two seconds, ten at a time: a hundred take twenty seconds, all at once two."""
    load_ = Workload(samples=100, latency=2.0, sigma=0.0, concurrency=10.0)
    assert rehearse(load_).seconds == pytest.approx(20.0, rel=0.02)
    assert rehearse(load_).in_flight == pytest.approx(10.0, rel=0.02)
    assert rehearse(replace(load_, concurrency=None)).seconds == pytest.approx(2.0, rel=0.02)


def test_a_rate_spaces_the_starts() -> None:
    """300 requests at 100 a minute take three minutes, less what the first moment lets through."""
    paced = rehearse(Workload(samples=300, latency=1.0, sigma=0.0, rpm=100.0)).seconds
    assert 100 < paced < 200
    tokens = Workload(samples=300, latency=1.0, sigma=0.0, tpm=100_000.0, tokens_in=900, tokens_out=100)
    assert 100 < rehearse(tokens).seconds < 200


def test_calls_of_any_size_are_rehearsed() -> None:
    """The texts that are made for it stay small: only the share of the limit that a call takes matters."""
    usual = Workload(samples=300, latency=1.0, sigma=0.0, tpm=1e5, tokens_in=900, tokens_out=100)
    huge = replace(usual, tpm=1e17, tokens_in=9e14, tokens_out=1e14)
    assert rehearse(huge).seconds == pytest.approx(rehearse(usual).seconds, rel=0.01)


def test_an_adaptive_limit_finds_what_the_provider_takes() -> None:
    """Nearly as fast as a limit set by hand, and slower than a provider without a bound."""
    told = rehearse(Workload(samples=1000, concurrency=50.0)).seconds
    untold = Workload(samples=1000, concurrency=512.0, adaptive=True, capacity=50.0)
    assert told * 0.9 < rehearse(untold).seconds < told * 1.2
    assert rehearse(replace(untold, capacity=None)).seconds < told * 0.7


def test_a_large_file_goes_on_at_the_same_rate() -> None:
    """Only part of it is rehearsed; the rest takes what a hundred places give (Little's law)."""
    large = rehearse(Workload(samples=10 * MOST_CALLS, latency=2.0, sigma=0.5, concurrency=100.0)).seconds
    assert large == pytest.approx(10 * MOST_CALLS * 2.0 * math.exp(0.5**2 / 2) / 100, rel=0.05)


@settings(deadline=None, max_examples=10)
@given(workloads)
def test_a_plan_holds_together(workload: Workload) -> None:
    """Finite, not negative, epoch = steps times step, the same each time, and what binds is a limit that is given."""
    plan = make_plan(workload)
    numbers = [plan.calls, plan.judging_s, plan.judging_slowest_s, plan.wait_s, plan.epoch_s, plan.in_flight]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert plan.judging_slowest_s >= plan.judging_s
    assert plan.wait_s <= plan.judging_s
    if plan.cost_step is not None and plan.cost_epoch is not None:
        assert plan.cost_epoch == pytest.approx(plan.cost_step * workload.steps)
    if plan.binds == "budget":
        assert plan.cost_epoch is not None
        assert workload.budget_usd is not None
        assert plan.cost_epoch > workload.budget_usd
    if plan.slowed_by in ("concurrency", "rpm", "tpm"):
        assert plan.slowed_by in {limit.name for limit in plan.limits}
    if plan.slowed_by == "trainer":
        assert plan.wait_s == 0
    assert make_plan(workload) == plan


def test_each_limit_is_named_when_it_binds() -> None:
    """The same step meets one limit after another, and the advice names the setting."""
    free = Workload(samples=150, latency=2.0, sigma=0.5, tokens_in=900, tokens_out=100)
    cases = {
        "answer time": (free, "tail"),
        "concurrency": (replace(free, concurrency=4.0), "limits.concurrency"),
        "rpm": (replace(free, rpm=60.0, concurrency=100.0), "limits.rpm"),
        "tpm": (replace(free, tpm=60_000.0, concurrency=100.0), "limits.tpm"),
        "trainer": (replace(free, work_s=600.0), "hides behind"),
        "nothing": (replace(free, asked=0.0), "nothing is asked"),
        "budget": (replace(free, price_in=1.0, price_out=1.0, budget_usd=0.1), "limits.budget_usd"),
    }
    for name, (workload, word) in cases.items():
        plan = make_plan(workload)
        assert plan.binds == name
        assert any(word in line for line in plan.advice), (name, plan.advice)


def test_the_advice_says_what_twice_the_limit_gives() -> None:
    """Twenty calls at once instead of ten: about half the time, as rehearsed."""
    plan = make_plan(Workload(samples=400, concurrency=10.0))
    twice = rehearse(Workload(samples=400, concurrency=20.0)).seconds
    assert f"With 20 a step takes about {twice:.3g} s" in plan.advice[0]
    assert twice == pytest.approx(plan.judging_s / 2, rel=0.15)


def test_late_steps_and_calls_are_pointed_out() -> None:
    """A deadline or a timeout that cuts off more than a few is named, and calls that time out are asked again."""
    slow = make_plan(Workload(samples=200, concurrency=10.0, latency=30.0, sigma=1.0))
    assert any("limits.deadline" in line for line in slow.advice)
    assert any("limits.attempt_timeout" in line for line in slow.advice)
    assert slow.attempts > 1.05


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
    assert not found.adaptive


def test_the_limit_found_under_pressure_counts_when_it_adapts() -> None:
    """With concurrency = auto, the provider is taken to bear what was reached while requests waited."""
    config = {**CONFIG, "limits": {"concurrency": "auto", "max_concurrency": 512}}
    told = [RunLine(config=config), LimitsLine(endpoint="a", limit=40.0, queued=3), VerdictLine(value=1.0)]
    assert (observe(told).workload().capacity, observe(told).workload().adaptive) == (40.0, True)
    assert (observe(told[::2]).workload().capacity, observe(told[::2]).workload().concurrency) == (None, 1024.0)
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
