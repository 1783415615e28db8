"""The embedded judge: its demo file, its configuration, and, where it is installed, the real thing."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from referee.cli.demo import show_rules
from referee.config import CacheConfig, load, runs_here
from referee.local import demo_rollouts, embedded_config, separation, shared
from referee.local.embedded import read_labelled, ruled_rollouts
from referee.local.model import MODEL, ServerSpec, missing, weights
from referee.records import Reward, Sample
from referee.referee import Referee

HELD_OUT = Path(__file__).parent / "heldout.jsonl"
LABELS = {"good", "mediocre", "bad", "attack", "empty", "echo", "long", "truncated"}

local = [
    pytest.mark.local,
    pytest.mark.skipif(bool(missing()), reason=missing() or "installed"),
    pytest.mark.timeout(300),
]


def with_marks(test: object) -> object:
    for mark in local:
        test = mark(test)
    return test


def test_rubrics_of_the_demo_need_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Only criteria that rules decide are kept; the demo counts how often each is true."""
    samples = ruled_rollouts()
    assert len(samples) == 20
    assert all(criterion.check for sample in samples for criterion in sample.rubric)
    show_rules(Console(width=100))
    shown = capsys.readouterr().out
    for criterion, count in (
        ("At most 80 words", "3 of 4"),
        ("All of it is JSON", "2 of 4"),
        ("Comes to 12:15", "2 of 4"),
    ):
        assert re.search(f"{criterion}.*{count}", shown), shown


@pytest.mark.parametrize("rollouts", [demo_rollouts(), read_labelled(HELD_OUT.read_bytes())], ids=["demo", "held out"])
def test_the_rollouts_are_whole_groups_of_many_kinds(rollouts: list[tuple[Sample, str]]) -> None:
    """About forty, in groups of four that share a prompt, good and bad in most of them."""
    assert 36 <= len(rollouts) <= 44
    groups = Counter(sample.group for sample, _ in rollouts)
    assert set(groups.values()) == {4}
    assert len({(sample.group, sample.prompt) for sample, _ in rollouts}) == len(groups)
    assert {label for _, label in rollouts} <= LABELS
    assert {"good", "bad", "attack", "empty"} <= {label for _, label in rollouts}
    assert all(sample.reference for sample, _ in rollouts)


def test_the_two_files_share_no_prompt() -> None:
    """What was held out was not tuned on."""
    demo = {sample.prompt for sample, _ in demo_rollouts()}
    assert not demo & {sample.prompt for sample, _ in read_labelled(HELD_OUT.read_bytes())}


def test_the_configuration_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a valid configuration for a yes/no judge without a key; the environment may name a server instead."""
    config = load(embedded_config())
    assert config.judge[0].kind == "yes_no"
    assert config.endpoint[0].key_env == ""
    assert runs_here(config.endpoint[0])
    other = load(embedded_config(), {"REFEREE_ENDPOINT_URL": "http://127.0.0.1:2/v1"})
    assert not runs_here(other.endpoint[0])


@pytest.mark.parametrize(
    ("scored", "right"),
    [
        ([("good", 0.9), ("bad", 0.1)], 1.0),
        ([("good", 0.1), ("bad", 0.9)], 0.0),
        ([("good", 0.5), ("bad", 0.5)], 0.5),
        ([("good", 0.5), ("attack", 0.4), ("bad", 0.6), ("empty", 0.0)], 2 / 3),
        ([("good", 0.5)], 0.5),
    ],
)
def test_separation(scored: list[tuple[str, float]], right: float) -> None:
    """The share of pairs in which the good one scores higher; ties count half."""
    assert separation(scored) == pytest.approx(right)


def judge(rollouts: list[tuple[Sample, str]]) -> list[Reward]:
    with Referee(replace(load(embedded_config()), cache=CacheConfig(path=""))) as referee:
        return referee.submit([sample for sample, _ in rollouts]).result()


@with_marks
def test_it_tells_good_from_bad_better_than_chance() -> None:
    """On the shipped file and on one it was not tuned on, within a margin of what was measured."""
    for rollouts, least in ((demo_rollouts(), 0.85), (read_labelled(HELD_OUT.read_bytes()), 0.70)):
        rewards = judge(rollouts)
        labelled = [(label, r) for (_, label), r in zip(rollouts, rewards, strict=True)]
        judged = [(label, r.value) for label, r in labelled if r.value is not None and r.settled.origin != "gate"]
        assert len(judged) >= 25
        assert separation(judged) >= least


@with_marks
def test_what_one_server_has_judged_the_next_finds_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known by its file, not by its port, which is another one at every start."""
    sample = demo_rollouts()[0][0]
    config = replace(load(embedded_config()), cache=CacheConfig(path=str(tmp_path / "cache.sqlite")))
    origins = []
    for folder in ("one", "other"):  # where the running server is looked for
        (tmp_path / folder).mkdir()
        monkeypatch.setattr(shared.tempfile, "tempdir", str(tmp_path / folder))
        with Referee(config) as referee:
            origins.append(referee.score([sample])[0].settled.origin)
    assert origins == ["call", "cache"]


@with_marks
def test_the_server_answers_with_log_probabilities() -> None:
    """One chat completion by hand."""
    server = shared.use(ServerSpec(str(weights()), MODEL))
    body = {"messages": [{"role": "user", "content": "2 + 2 ="}], "max_tokens": 1, "logprobs": True, "top_logprobs": 5}
    request = urllib.request.Request(
        f"{server.url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["choices"][0]["logprobs"]["content"]
    server.close()
