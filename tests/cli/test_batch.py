"""`referee score --batch` and `referee batches` as a user runs them, against a provider in another process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, environment, rows, write_config, write_rollouts

from referee import clock
from referee.sim import BatchSpec, ServerProcess

pytestmark = pytest.mark.slow

Start = Callable[..., ServerProcess]
FAST = "[batch]\npoll = 0.2\n"
PRICES = {"price_in": 2.0, "price_out": 8.0}
SCORE = ("score", "in.jsonl", "-o", "out.jsonl")


def prepare(folder: Path, server: ServerProcess, count: int = 40, more: str = "", **endpoint: Any) -> None:
    """Rollouts and a configuration."""
    write_rollouts(folder / "in.jsonl", count)
    write_config(folder / "referee.toml", server.url, FAST + more, **{"provider": "openai", **PRICES, **endpoint})


def bill(server: ServerProcess) -> float:
    """US dollars at half the list prices."""
    seen = server.stats()
    return (seen.tokens_in * PRICES["price_in"] + seen.tokens_out * PRICES["price_out"]) / 2e6


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_the_same_rows_at_half_the_price(referee: Run, provider: Start, tmp_path: Path, name: str) -> None:
    """A batch run gives the rows of a live run; each costs half, as the provider bills it."""
    server = provider(batch=BatchSpec(error_share=0.05), api="anthropic" if name == "anthropic" else "chat")
    prepare(tmp_path, server, provider=name)
    done = referee(*SCORE, "--batch")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert sum(row["cost"] for row in found) == pytest.approx(bill(server), abs=1e-9)
    live = referee("score", "in.jsonl", "-o", "live.jsonl", REFEREE_CACHE_ENABLED="false")
    assert live.returncode == 0, live.stderr
    for row, other in zip(found, rows(tmp_path / "live.jsonl"), strict=True):
        assert row.pop("cost") == pytest.approx(other.pop("cost") / 2)
        assert row == other


def test_the_simulated_provider_serves_batches_from_the_command_line(referee: Run, tmp_path: Path) -> None:
    """`referee sim --batch` is enough to try `--batch` without a key."""
    command = [sys.executable, "-m", "referee.cli.main", "sim", "--port", "0", "--latency", "0", "--batch", "0"]
    sim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert sim.stdout is not None
        write_rollouts(tmp_path / "in.jsonl", 4)
        write_config(tmp_path / "referee.toml", sim.stdout.readline().strip(), FAST, provider="openai", **PRICES)
        done = referee(*SCORE, "--batch")
        assert done.returncode == 0, done.stderr
        assert [row["score"] for row in rows(tmp_path / "out.jsonl")] == [1.0, 2.0, 3.0, 4.0]
    finally:
        sim.terminate()
        sim.communicate(timeout=50)


def test_nothing_is_asked_twice(referee: Run, provider: Start, tmp_path: Path) -> None:
    """A second run, and one without --batch, take everything from the cache."""
    server = provider(batch=BatchSpec())
    prepare(tmp_path, server)
    assert referee(*SCORE, "--batch").returncode == 0
    for number, more in enumerate([("--batch",), ()]):
        again = referee("score", "in.jsonl", "-o", f"again{number}.jsonl", *more)
        assert "0 requests, 40 from cache" in again.stderr, again.stderr
    assert server.stats().received == 40


@pytest.mark.parametrize(
    ("args", "config", "said"),
    [
        (("-o", "out.jsonl"), {"provider": ""}, "--batch needs a provider with a batch API: openai or anthropic"),
        (("-o", "-"), {}, "--batch needs a file"),
        (("-o", "out.jsonl"), {"tier": "flex"}, "exclude each other"),
    ],
)
def test_refused_before_anything_is_sent(
    referee: Run, provider: Start, tmp_path: Path, args: tuple[str, ...], config: dict[str, str], said: str
) -> None:
    """What cannot be asked in batches is refused with the reason."""
    server = provider(batch=BatchSpec())
    prepare(tmp_path, server, **config)
    refused = referee("score", "in.jsonl", *args, "--batch")
    assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    assert server.stats().batches == 0


def test_a_wrong_key_is_one_clear_error(referee: Run, provider: Start, tmp_path: Path) -> None:
    """A key that the batch API refuses ends the run with one error; the key is not in it."""
    server = provider(batch=BatchSpec(), key="sk-right-0123456789abcdef")
    prepare(tmp_path, server, key_env="JUDGE_KEY")
    refused = referee(*SCORE, "--batch", JUDGE_KEY="sk-wrong-0123456789abcdef")
    assert refused.returncode == 2
    assert "no judge can answer" in refused.stderr
    assert "auth" in refused.stderr
    assert "sk-wrong" not in refused.stderr


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("pairwise", ""),
        ("listwise", ""),
        ("rubric", 'rubric_file = "rubric.json"\n'),
    ],
)
def test_judges_that_ask_several_questions(referee: Run, provider: Start, tmp_path: Path, kind: str, more: str) -> None:
    """Rounds and groups work as they do live, at half the price."""
    server = provider(batch=BatchSpec())
    prepare(tmp_path, server, 16, f'[judge]\nkind = "{kind}"\n{more}')
    (tmp_path / "rubric.json").write_text(json.dumps([{"text": "It is short."}, {"text": "It is right."}]))
    done = referee(*SCORE, "--batch")
    assert done.returncode == 0, done.stderr
    cost = sum(row["cost"] for row in rows(tmp_path / "out.jsonl"))
    assert cost == pytest.approx(bill(server), abs=1e-9)


def test_a_cascade_goes_on_in_the_next_batch(referee: Run, provider: Start, tmp_path: Path) -> None:
    """The second judge of a cascade is asked in a later batch, only where the first is unsure."""
    server = provider(batch=BatchSpec())
    prepare(tmp_path, server, 20)
    config = (tmp_path / "referee.toml").read_text()
    config += """
[[judge]]
name = "cheap"
kind = "yes_no"
criteria = "Is it good?"
[[judge]]
name = "strong"
kind = "yes_no"
criteria = "Is it really good?"
[[judge]]
name = "both"
kind = "cascade"
members = ["cheap", "strong"]
[judge.until]
uncertainty = 0.3
"""
    (tmp_path / "referee.toml").write_text(config)
    done = referee(*SCORE, "--batch")
    assert done.returncode == 0, done.stderr
    seen = server.stats()
    assert seen.batches >= 2
    assert 20 < seen.answered < 40
    later = seen.answered - 20
    decided = dict(re.findall(r"(cheap|strong) (\d+)", done.stderr.partition("decided by:")[2].partition("\n")[0]))
    assert decided == {"cheap": str(20 - later), "strong": str(later)}
    assert sum(row["cost"] for row in rows(tmp_path / "out.jsonl")) == pytest.approx(bill(server), abs=1e-9)


def test_a_budget_holds_at_batch_prices(referee: Run, provider: Start, tmp_path: Path) -> None:
    """The budget is kept at the batch price: what the provider bills stays below it."""
    server = provider(batch=BatchSpec())
    prepare(tmp_path, server, 40, "[limits]\nbudget_usd = 0.02\n[missing]\nabort_above = 1.0\n")
    referee(*SCORE, "--batch")
    found = rows(tmp_path / "out.jsonl")
    assert {row.get("unscored", "") for row in found} == {"", "budget"}
    assert 0 < bill(server) < 0.02


def start_and_wait(folder: Path) -> subprocess.Popen[str]:
    """A run whose batch is at the provider."""
    child = subprocess.Popen(
        [sys.executable, "-m", "referee.cli.main", *SCORE, "--batch"],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    until = clock.monotonic() + 50
    listed = ""
    while "running" not in listed and clock.monotonic() < until:
        clock.pause(0.1)
        command = [sys.executable, "-m", "referee.cli.main", "batches", "list", "out.jsonl"]
        listed = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True).stdout
    assert "running" in listed
    return child


def test_interrupted_and_cancelled(referee: Run, provider: Start, tmp_path: Path) -> None:
    """Ctrl-C leaves the batch running and says how to go on and how to stop it; a run that would pay twice is refused;
    `referee batches cancel` stops it."""
    server = provider(batch=BatchSpec(process_s=1000.0))
    prepare(tmp_path, server)
    child = start_and_wait(tmp_path)
    os.kill(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "1 batch goes on at the provider" in said
    assert "referee batches cancel out.jsonl" in said
    for more in (("--resume",), ("--batch", "--overwrite")):
        refused = referee(*SCORE, *more)
        assert (refused.returncode, "1 open batch of an earlier run" in refused.stderr) == (2, True), refused.stderr
    assert "cancelling" in referee("batches", "cancel", "out.jsonl").stdout
    assert server.stats().batches == 1
    again = referee(*SCORE, "--resume")
    assert (again.returncode, "is paid for, and not used" in again.stderr) == (0, True), again.stderr
    assert len(rows(tmp_path / "out.jsonl")) == 40


def test_open_batches_of_another_endpoint_are_not_paid_for_again(referee: Run, provider: Start, tmp_path: Path) -> None:
    """A resumed run with an endpoint of another name would ask everything anew: refused, until they are given up."""
    server = provider(batch=BatchSpec(process_s=1000.0))
    prepare(tmp_path, server)
    child = start_and_wait(tmp_path)
    child.kill()
    child.communicate()
    prepare(tmp_path, server, name="renamed")
    refused = referee(*SCORE, "--batch", "--resume")
    assert (refused.returncode, "not configured now" in refused.stderr) == (2, True), refused.stderr
    assert server.stats().batches == 1
    assert referee("batches", "cancel", "out.jsonl").returncode != 0
    assert referee("batches", "cancel", "out.jsonl", "--forget").returncode == 0
    assert referee("batches", "list", "out.jsonl").stdout.split()[1] == "forgotten"


def test_outputs_of_one_name_have_one_journal_and_one_run(referee: Run, provider: Start, tmp_path: Path) -> None:
    """A run into out does not touch the batches of one into out.jsonl that goes on: their folder is the same."""
    server = provider(batch=BatchSpec(process_s=1000.0))
    prepare(tmp_path, server)
    child = start_and_wait(tmp_path)
    try:
        other = referee("score", "in.jsonl", "-o", "out", "--batch")
        assert (other.returncode, "another run is writing it now" in other.stderr) == (2, True), other.stderr
    finally:
        child.kill()
        child.communicate()
    assert server.stats().batches == 1


def test_a_batch_the_provider_does_not_know(referee: Run, provider: Start, tmp_path: Path) -> None:
    """Another account's key does not make the run pay again: it stops, until the batch is given up on purpose."""
    first = provider(batch=BatchSpec(process_s=1000.0))
    prepare(tmp_path, first, known_as="judge")
    child = start_and_wait(tmp_path)
    child.kill()
    child.communicate()
    second = provider(batch=BatchSpec())
    prepare(tmp_path, second, known_as="judge")
    stopped = referee(*SCORE, "--batch", "--resume")
    assert (stopped.returncode, "does not know batch" in stopped.stderr) == (2, True), stopped.stderr
    assert second.stats().batches == 0
    assert referee("batches", "cancel", "out.jsonl", "--forget").returncode == 0
    assert referee(*SCORE, "--batch", "--resume").returncode == 0
    assert second.stats().answered == 40


def test_siblings_are_in_one_batch(referee: Run, provider: Start, tmp_path: Path) -> None:
    """Questions that begin alike do not wait for the first of them, whose answer may take a day in a batch."""
    server = provider(batch=BatchSpec(process_s=8.0))
    prepare(tmp_path, server, price_cached=0.5, prefix_cache="warm")
    write_rollouts(tmp_path / "in.jsonl", 12, group="g", prompt="a long task " * 1000)
    done = referee(*SCORE, "--batch")
    assert done.returncode == 0, done.stderr
    assert server.stats().batches == 1
