"""Judges of groups on the command line: what is said before anything is spent, and what comes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import KEY, Run, rows, write_config, write_rollouts
from tests.cli.test_output import NOWHERE, refused
from tests.group_replies import group_provider

from referee.cli.groups import in_words, sizes_of
from referee.config import load

PRICES = {"price_in": 1.0, "price_out": 2.0}
PAIRWISE = '[judge]\nkind = "pairwise"\n'
WITH_ANOTHER = '[[judge]]\nname = "quality"\nkind = "pairwise"\nalone = "one"\n[[judge]]\nname = "one"\n'


@pytest.fixture
def url() -> Iterator[str]:
    """A judge for groups on loopback."""
    with group_provider() as found:
        yield found


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({8: 32, 1: 2}, "32 groups of 8, 2 of 1"),
        ({4: 1}, "1 group of 4"),
        ({size: 10 - size for size in range(1, 7)}, "9 groups of 1, 8 of 2, 7 of 3, 6 of 4, 9 of other sizes"),
    ],
)
def test_sizes_in_words(sizes: Mapping[int, int], words: str) -> None:
    """The most frequent first."""
    assert in_words(sizes) == words


def test_a_rollout_without_a_group_is_a_group_of_one() -> None:
    """Beside groups that have one member."""
    assert sizes_of({"a": 4, "b": 1}, 7) == Counter({1: 3, 4: 1})


@pytest.mark.parametrize(
    ("judge", "requests", "each"),
    [
        ("", 24, "8 requests a group"),
        ("both_orders = false", 12, "4 requests a group"),
        ('schedule = "knockout"', 18, "6 requests a group"),
        ('schedule = "swiss"', 24, "8 requests a group"),
    ],
)
def test_a_plan_says_what_a_group_takes(tmp_path: Path, referee: Run, judge: str, requests: int, each: str) -> None:
    """Three groups of four: all rounds are counted, also those that depend on answers."""
    write_rollouts(tmp_path / "in.jsonl", 12)
    write_config(tmp_path / "referee.toml", NOWHERE, PAIRWISE + judge, **PRICES)
    done = referee("plan", "in.jsonl")
    assert done.returncode == 0, done.stderr
    assert f"12 rollouts: {requests} requests, 0 equal to another, 0 in the cache, 0 without a call" in done.stdout
    assert "\n3 groups of 4\n" in done.stdout
    assert f'judge judge (kind = "pairwise"): {each}\n' in done.stdout
    assert "up to $0." in done.stdout


def test_a_plan_counts_equal_and_lone_responses(tmp_path: Path, referee: Run) -> None:
    """Equal ones are shown once; what is alone has the other judge's price."""
    with (tmp_path / "in.jsonl").open("w") as stream:
        for n, answer in enumerate(("one", "two", "two", "three")):
            stream.write(json.dumps({"id": str(n), "group": "g", "prompt": "p", "response": answer}) + "\n")
        stream.write(json.dumps({"prompt": "p", "response": "alone"}) + "\n")
    endpoints = "".join(
        f'[[endpoint]]\nname = "{name}"\nurl = "{NOWHERE}"\nmodel = "m"\nprice_in = {price}\nprice_out = {price}\n'
        for name, price in (("cheap", 1.0), ("dear", 1000.0))
    )
    judges = WITH_ANOTHER.replace('"pairwise"\n', '"pairwise"\nendpoint = "cheap"\n') + 'endpoint = "dear"\n'
    (tmp_path / "referee.toml").write_text(endpoints + judges)
    done = referee("plan", "in.jsonl")
    assert "1 group of 4, 1 of 1; 1 response equal to a sibling, judged once" in done.stdout
    assert '6 requests a group; a response without siblings: judge.alone = "one"' in done.stdout
    found = json.loads(referee("plan", "in.jsonl", "-c", "referee.toml", "--json").stdout)
    assert found["rollouts"]["groups"] == {"1": 1, "4": 1}
    assert {load["asked"] for load in found["rollouts"]["loads"].values()} == {6, 1}
    dear, cheap = sorted(found["rollouts"]["loads"].values(), key=lambda load: load["asked"])
    cost = sum(price * (load["tokens_in"] + load["tokens_out"]) for price, load in ((1000, dear), (1, cheap)))
    assert found["costs"]["standard"] == pytest.approx(cost / 1e6)


def test_a_plan_leaves_gated_siblings_out_of_every_round(tmp_path: Path, referee: Run, url: str) -> None:
    """Five of eight responses are empty: no more comparisons are foreseen than a run makes."""
    write_rollouts(tmp_path / "in.jsonl", 3, group="g")
    with (tmp_path / "in.jsonl").open("a") as stream:
        stream.writelines([json.dumps({"group": "g", "prompt": "p", "response": ""}) + "\n"] * 5)
    write_config(tmp_path / "referee.toml", url, PAIRWISE + 'schedule = "knockout"')
    plan = json.loads(referee("plan", "in.jsonl", "-c", "referee.toml", "--json").stdout)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert plan["plan"]["calls"] == 4
    assert "\n4 requests, " in done.stderr, done.stderr


@pytest.mark.parametrize("command", [("plan", "in.jsonl"), ("score", "in.jsonl", "-o", "out.jsonl")])
def test_rollouts_without_groups_are_refused(tmp_path: Path, referee: Run, command: tuple[str, ...]) -> None:
    """Nothing could be rewarded, so nothing is spent. With a judge for single ones it is a warning."""
    write_rollouts(tmp_path / "in.jsonl", 4, group="")
    write_config(tmp_path / "referee.toml", NOWHERE, PAIRWISE)
    refused(referee(*command), "no two rollouts share a group")
    assert not (tmp_path / "out.jsonl").exists()
    write_config(tmp_path / "referee.toml", NOWHERE, WITH_ANOTHER + "[limits]\ndeadline = 0.5\ngive_up_after = 0.1\n")
    done = referee(*command)
    assert "warning: in.jsonl: judge quality" in done.stderr
    assert 'they are judged by "one" instead' in done.stderr


def test_a_group_judge_that_need_not_answer_only_warns(tmp_path: Path, referee: Run) -> None:
    """The reward is made of the other judge's term."""
    write_rollouts(tmp_path / "in.jsonl", 4, group="")
    judges = '[[judge]]\nname = "pairs"\nkind = "pairwise"\noptional = true\n[[judge]]\nname = "quality"\n'
    write_config(tmp_path / "referee.toml", NOWHERE, judges)
    done = referee("plan", "in.jsonl")
    assert done.returncode == 0, done.stderr
    assert "so they are unscored" in done.stderr
    assert "4 rollouts: 4 requests" in done.stdout


def test_groups_are_scored(tmp_path: Path, referee: Run, url: str) -> None:
    """Requests are announced as they are sent; rows hold comparisons, and the summary what they came to."""
    write_rollouts(tmp_path / "in.jsonl", 8)
    write_config(tmp_path / "referee.toml", url, PAIRWISE)
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    announced = 'judge judge (kind = "pairwise"): 2 groups of 4; at most 16 requests, 8 for a group of 4'
    assert announced in done.stderr
    assert "\n16 requests, " in done.stderr
    said = "comparisons, of each response: 32, 0.0% tied, 50.0% of the rest won by the one shown first, 0.0% changed"
    assert said in done.stderr
    found = rows(tmp_path / "out.jsonl")
    assert {row["how"] for row in found} == {"pairwise"}
    assert {len(row["parts"]) for row in found} == {4}
    assert found[0]["parts"][0].keys() == {"name", "text", "verdict", "value", "why", "unscored"}
    assert {row["why"] for row in found if row["id"] in ("r3", "r7")} == {"won 2, lost 0, tied 0"}
    watched = referee("watch", "out.run", "--once").stdout
    assert "32 by each response, 0 missing, 0% tied, shown first won 50%, 0% changed with the order" in watched


def test_requests_of_lists_that_are_split_are_not_promised(tmp_path: Path, referee: Run, url: str) -> None:
    """How many chunks a group makes depends on its texts: what is announced must not be less than what is sent."""
    write_rollouts(tmp_path / "in.jsonl", 8)
    write_config(tmp_path / "referee.toml", url, '[judge]\nkind = "listwise"\nmax_view_tokens = 16\n')
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert "at most 2 requests, 1 for a group of 4; more where max_view_tokens splits a group" in done.stderr


def test_doctor_asks_about_a_group(tmp_path: Path, referee: Run, url: str) -> None:
    """A judge of groups is shown two answers, and the judge it uses is asked, too."""
    write_config(tmp_path / "referee.toml", url, WITH_ANOTHER)
    done = referee("doctor")
    assert done.returncode == 0, done.stdout
    assert "tokens for 2 short answers" in done.stdout
    assert "judge one: score, used by another" in done.stdout
    assert "value 0.50 for a right answer, 0.50 for a wrong one, 200 tokens in" in done.stdout
    assert "probe: judge one at" in done.stdout
    write_config(tmp_path / "referee.toml", url, PAIRWISE + 'schedule = "anchor"\nanchor = "baseline"')
    done = referee("doctor")
    assert done.returncode == 0, done.stdout
    assert "by pairwise; score 0.5" in done.stdout


@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_init_for_groups_brings_rollouts_to_try(tmp_path: Path, referee: Run, url: str, kind: str) -> None:
    """The starter means the defaults, and judges the file beside it."""
    assert referee("init", "--judge", kind).returncode == 0
    assert load(tmp_path / "referee.toml") == load({"judge": {"kind": kind}, "endpoint": {"provider": "openai"}})
    where = {"REFEREE_ENDPOINT_URL": url, "OPENAI_API_KEY": KEY, "REFEREE_ENDPOINT_KEY_OVER_HTTP": "true"}
    done = referee("score", "group_rollouts.jsonl", "-o", "rewards.jsonl", **where)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = rows(tmp_path / "rewards.jsonl")
    assert len(found) == 12
    assert all(row["how"] == kind for row in found)
