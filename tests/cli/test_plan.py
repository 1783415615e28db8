"""`referee plan`: of a file of rollouts, and what it says of numbers that it does not know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run, Start, rows, write_config, write_rollouts
from tests.cli.test_output import NOWHERE, refused


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
    assert "12 rollouts: 6 requests, 4 equal to another, 2 without a call" in done.stdout
    assert "cost                  up to $0." in done.stdout
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
    (tmp_path / "in.csv").write_text("prompt,response\na,b\n")
    refused(referee("plan", "in.csv"), "this is CSV")


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
    found = json.loads(referee("plan", "in.jsonl", "-c", "referee.toml", "--json").stdout)["workload"]
    assert (found["samples"], found["asked"]) == (20, 1.0)
    assert found["price_in"] == pytest.approx(50.5)
    assert found["price_out"] == pytest.approx(50.5)
