"""`referee plan`: of a file of rollouts, and what it says of numbers that it does not know."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Run, Start, rows, write_config, write_rollouts
from tests.cli.test_output import NOWHERE, refused

from referee.cli.plan import money


def test_a_plan_does_not_invent_a_cost(tmp_path: Path, referee: Run) -> None:
    """Prices without tokens are no cost, and what is assumed is marked."""
    write_config(tmp_path / "p.toml", NOWHERE, price_in=0.15, price_out=0.6)
    bare = referee("plan", "-c", "p.toml")
    assert bare.returncode == 0, bare.stderr
    assert "$" not in bare.stdout
    assert "(assumed: --samples)" in bare.stdout
    full = referee(
        *("plan", "-c", "p.toml", "--samples", "100", "--latency", "1", "--concurrency", "60"),
        *("--tokens-in", "900", "--tokens-out", "60"),
    )
    assert "$" in full.stdout
    assert "assumed" not in full.stdout


def test_a_plan_for_a_file_of_rollouts(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Its requests are counted as they would be sent, none is sent, and the estimate of tokens is near the bill."""
    server = provider()
    with (tmp_path / "in.jsonl").open("w") as stream:
        for n in range(12):  # two empty ones, and four that repeat
            row = {"prompt": "p", "response": "" if n < 2 else f"[[quality=7]] {n % 6}", "id": str(n)}
            stream.write(json.dumps(row) + "\n")
    write_config(tmp_path / "referee.toml", server.url, "[limits]\nconcurrency = 3", price_in=100.0, price_out=100.0)
    done = referee("plan", "in.jsonl")
    assert done.returncode == 0, done.stderr
    assert "12 rollouts: 6 requests, 4 equal to another, 0 in the cache, 2 without a call" in done.stdout
    assert re.search(r"^cost +up to \$0\.", done.stdout, re.M)
    assert "512 out (judge.max_tokens; --tokens-out)" in done.stdout
    assert "per step" not in done.stdout
    assert server.stats().received == 0
    plan = json.loads(referee("plan", "in.jsonl", "-c", "referee.toml", "--tokens-out", "12", "--json").stdout)
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "-q").returncode == 0
    paid = sum(row.get("cost", 0.0) for row in rows(tmp_path / "out.jsonl"))
    assert server.stats().received == plan["plan"]["calls"] == 6
    assert plan["plan"]["cost_step"] == pytest.approx(paid, rel=0.25)


def test_a_plan_of_nothing_usable_says_so(tmp_path: Path, referee: Run) -> None:
    """Without a judge rollouts cannot be planned, and what is neither ledger nor rollouts is said to be that."""
    write_rollouts(tmp_path / "in.jsonl", 2)
    refused(referee("plan", "in.jsonl"), "name a configuration with -c")
    write_config(tmp_path / "referee.toml", NOWHERE)
    (tmp_path / "rewards.jsonl").write_text('{"line":1,"id":"1","reward":1.0}\n')
    refused(referee("plan", "rewards.jsonl"), "neither a ledger nor a file of rollouts")
    refused(referee("plan", "-c", "referee.toml", "--map", "prompt=q"), "--map reads columns of rollouts")


def test_a_plan_reads_a_pipe_of_rollouts(tmp_path: Path, referee: Run) -> None:
    """As `referee score` does; a name that leads nowhere may have been meant as either."""
    write_config(tmp_path / "p.toml", NOWHERE)
    write_rollouts(tmp_path / "in.jsonl", 3)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", "cat in.jsonl > pipe"], cwd=tmp_path) as writer:
        done = referee("plan", "pipe", "-c", "p.toml")
        writer.kill()
    assert done.returncode == 0, done.stderr
    assert "3 rollouts: " in done.stdout
    assert "no such file of rollouts, and no such ledger" in referee("plan", "none.jsonl", "-c", "p.toml").stderr


def test_a_plan_says_what_it_assumes_of_auto(tmp_path: Path, referee: Run) -> None:
    """The ceiling of an adaptive concurrency is no promise of the provider; a number given is not an assumption."""
    write_config(tmp_path / "p.toml", NOWHERE)
    words = "assumed that the provider bears the ceiling of auto"
    assert words in referee("plan", "-c", "p.toml").stdout
    assert words not in referee("plan", "-c", "p.toml", "--concurrency", "60").stdout
    write_config(tmp_path / "p.toml", NOWHERE, "[limits]\nconcurrency = 8")
    assert words not in referee("plan", "-c", "p.toml").stdout


def test_a_plan_counts_every_judge_at_its_own_price(tmp_path: Path, referee: Run) -> None:
    """Two judges, one of them a hundred times as dear: twice the requests, and the cost is mostly the dear one's."""
    write_rollouts(tmp_path / "in.jsonl", 10)
    (tmp_path / "referee.toml").write_text(
        "".join(
            f'[[endpoint]]\nname = "{name}"\nurl = "{NOWHERE}"\nmodel = "{name}"\n'
            f"price_in = {price}\nprice_out = {price}\n"
            f'[[judge]]\nname = "by-{name}"\nendpoint = "{name}"\n'
            for name, price in (("cheap", 1.0), ("dear", 100.0))
        )
    )
    found = json.loads(referee("plan", "in.jsonl", "-c", "referee.toml", "--json").stdout)
    assert (found["workload"]["samples"], found["workload"]["asked"]) == (20, 1.0)
    cheap, dear = (found["rollouts"]["loads"][name] for name in sorted(found["rollouts"]["loads"]))
    assert cheap == dear
    assert found["costs"]["standard"] == pytest.approx(101 * (dear["tokens_in"] + dear["tokens_out"]) / 1e6)


def test_a_plan_counts_every_endpoint_at_its_own_tier(tmp_path: Path, referee: Run) -> None:
    """Of two judges one is asked at the flex tier: the whole costs three quarters of the standard price, not half."""
    write_rollouts(tmp_path / "in.jsonl", 10)
    (tmp_path / "referee.toml").write_text(
        "".join(
            f'[[endpoint]]\nname = "{name}"\nprovider = "openai"\nmodel = "m"\nprice_in = 1.0\nprice_out = 1.0\n{tier}'
            f'[[judge]]\nname = "by-{name}"\nendpoint = "{name}"\n'
            for name, tier in (("usual", ""), ("slow", 'tier = "flex"\n'))
        )
    )
    found = json.loads(referee("plan", "in.jsonl", "-c", "referee.toml", "--json").stdout)
    assert found["plan"]["cost_step"] == pytest.approx(0.75 * found["costs"]["standard"])


def test_a_dry_run_sends_and_writes_nothing(tmp_path: Path, referee: Run, provider: Start) -> None:
    """`score --dry-run` says what a plan says, needs no output, and leaves the folder as it was."""
    server = provider()
    write_rollouts(tmp_path / "in.jsonl", 5)
    write_config(tmp_path / "referee.toml", server.url, price_in=1.0, price_out=1.0)
    before = sorted(path.name for path in tmp_path.iterdir())
    done = referee("score", "in.jsonl", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "5 rollouts: 5 requests, 0 equal to another, 0 in the cache, 0 without a call" in done.stdout
    assert "up to $0." in done.stdout
    assert server.stats().received == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    refused(referee("score", "in.jsonl"), "Name a file with -o")


def test_a_plan_leaves_out_what_is_cached_and_learns_from_it(tmp_path: Path, referee: Run, provider: Start) -> None:
    """Verdicts that are there are not paid again, and replies are taken to be as long as the cached ones were."""
    server = provider()
    write_rollouts(tmp_path / "in.jsonl", 30)
    write_config(tmp_path / "referee.toml", server.url, price_in=1.0, price_out=1.0)
    assert referee("score", "in.jsonl", "-o", "out.jsonl", "-q").returncode == 0
    write_rollouts(tmp_path / "in.jsonl", 40)
    found = json.loads(referee("plan", "in.jsonl", "--json").stdout)
    assert (found["rollouts"]["asked"], found["rollouts"]["cached"], found["rollouts"]["measured"]) == (10, 30, 30)
    paid = sum(row.get("cost", 0.0) for row in rows(tmp_path / "out.jsonl"))
    assert found["costs"]["standard"] == pytest.approx(paid / 3, rel=0.1)


def test_a_plan_of_a_cascade_says_the_least_and_the_most(tmp_path: Path, referee: Run) -> None:
    """If the cheap member decides everything, it costs a hundredth of what both cost; flex and batch are half."""
    write_rollouts(tmp_path / "in.jsonl", 4)
    (tmp_path / "referee.toml").write_text(
        "".join(
            f'[[endpoint]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\n'
            f"price_in = {price}\nprice_out = {price}\n"
            f'[[judge]]\nname = "by-{name}"\nkind = "yes_no"\nendpoint = "{name}"\n'
            for name, price in (("cheap", 1.0), ("dear", 99.0))
        )
        + '[[judge]]\nname = "stairs"\nkind = "cascade"\nmembers = ["by-cheap", "by-dear"]\n'
        "until = {uncertainty = 0.4}\n"
    )
    costs = json.loads(referee("plan", "in.jsonl", "-c", "referee.toml", "--json").stdout)["costs"]
    assert costs["least"] == pytest.approx(costs["standard"] / 100)
    assert costs["flex"] == costs["batch"] == pytest.approx(costs["standard"] / 2)
    shown = referee("plan", "in.jsonl", "-c", "referee.toml").stdout
    assert "referee score --batch" in shown
    assert "if the first member decides everything" in shown


@pytest.mark.parametrize(
    ("dollars", "words"),
    [(None, "unknown"), (0.0, "$0.0000"), (3.2e-6, "$0.0000032"), (0.0309, "$0.0309"), (1234.5, "$1,234.50")],
)
def test_a_small_cost_is_not_shown_as_nothing(dollars: float | None, words: str) -> None:
    """A reward model's request costs less than a thousandth of a cent: that is not $0."""
    assert money(dollars) == words
