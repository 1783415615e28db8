"""`referee score` against servers that speak other APIs than chat completions, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import KEY, Run, rows, write_config, write_rollouts

from referee import ledger
from referee.ledger import VerdictLine
from referee.sim import ServerProcess
from referee.sim.billing import Prices, PromptCache

Start = Callable[..., ServerProcess]
APIS = ("anthropic", "gemini", "responses")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("unsupported", [(), ("response_format",)], ids=["schema", "text"])
def test_a_file_is_scored_and_paid_for(
    tmp_path: Path, referee: Run, provider: Start, api: str, unsupported: tuple[str, ...]
) -> None:
    """With a key, every row gets its score, and the cost is the server's count of tokens at the given prices."""
    server = provider(api=api, key=KEY, model="m-1", unsupported=unsupported)
    write_rollouts(tmp_path / "in.jsonl", 20)
    prices = {"price_in": 3.0, "price_out": 15.0}
    write_config(tmp_path / "referee.toml", server.url, api=api, key_env="JUDGE_KEY", **{"model": "m-1", **prices})
    done = referee("score", "in.jsonl", "-c", "referee.toml", "-o", "out.jsonl", JUDGE_KEY=KEY)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert [row["score"] for row in found] == [n % 10 + 1 for n in range(20)]
    assert {(row["model"], row["how"]) for row in found} == {("m-1", "tag" if unsupported else "schema")}
    stats = server.stats()
    billed = (stats.tokens_in * 3.0 + stats.tokens_out * 15.0) / 1e6
    assert sum(row["cost"] for row in found) == pytest.approx(billed)
    lines = [line for line in ledger.read(tmp_path / "out.run") if isinstance(line, VerdictLine)]
    assert (sum(line.tokens_in for line in lines), sum(line.tokens_out for line in lines)) == (
        stats.tokens_in,
        stats.tokens_out,
    )
    everything = done.stdout + done.stderr + "".join(p.read_text() for p in tmp_path.rglob("*.jsonl"))
    assert KEY not in everything


@pytest.mark.parametrize("api", APIS)
def test_a_wrong_key_is_said_and_nothing_is_scored(tmp_path: Path, referee: Run, provider: Start, api: str) -> None:
    """Whatever status and words the API has for it."""
    server = provider(api=api, key="another key of the server")
    write_rollouts(tmp_path / "in.jsonl", 3)
    write_config(tmp_path / "referee.toml", server.url, api=api, key_env="JUDGE_KEY")
    done = referee("score", "in.jsonl", "-c", "referee.toml", "-o", "out.jsonl", JUDGE_KEY=KEY)
    assert done.returncode != 0
    assert "endpoint.key_env" in done.stderr
    assert KEY not in done.stderr


def test_the_prompt_cache_is_used_and_paid_for_at_its_price(tmp_path: Path, referee: Run, provider: Start) -> None:
    """The first of each group writes its task, the others read it; cost, ledger and the server's bill agree."""
    prices = {"tokens_in": 3.0, "tokens_out": 15.0, "cached": 0.3, "cache_write": 3.75}
    cache = {"min_tokens": 1024, "block": 1, "writes": True}
    server = provider(api="anthropic", prompt_cache=PromptCache(**cache), prices=Prices(**prices), latency_median=0.05)
    with (tmp_path / "in.jsonl").open("w") as stream:
        for n in range(24):
            task = f"Task {n // 8}: " + "what is the sum of these numbers, and why? " * 200
            row = {"id": f"r{n}", "group": f"g{n // 8}", "prompt": task, "response": f"[[quality={n % 10 + 1}]] {n}"}
            stream.write(json.dumps(row) + "\n")
    ours = {"price_in": 3.0, "price_out": 15.0, "price_cached": 0.3, "price_cache_write": 3.75}
    write_config(tmp_path / "referee.toml", server.url, api="anthropic", **ours)
    done = referee("score", "in.jsonl", "-c", "referee.toml", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert [row["score"] for row in found] == [n % 10 + 1 for n in range(24)]
    stats = server.stats()
    assert sum(row["cost"] for row in found) == pytest.approx(stats.billed_usd)
    lines = [line for line in ledger.read(tmp_path / "out.run") if isinstance(line, VerdictLine)]
    assert sum(line.tokens_cached for line in lines) == stats.tokens_cached
    assert stats.tokens_cached > 0.7 * stats.tokens_in
    uncached = (stats.tokens_in * 3.0 + stats.tokens_out * 15.0) / 1e6
    assert stats.billed_usd < 0.6 * uncached
