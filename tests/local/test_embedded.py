"""The embedded judge: its demo file, its configuration, and, where it is installed, the real thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from referee import clock
from referee.config import CacheConfig, load
from referee.local import demo_rollouts, embedded_config, separation, start_local
from referee.local.embedded import read_labelled
from referee.local.model import missing
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


def test_the_configuration_loads() -> None:
    """It is a valid configuration for a yes/no judge without a key."""
    config = load(embedded_config("http://127.0.0.1:1/v1", "m"))
    assert config.judge.kind == "yes_no"
    assert config.endpoint[0].key_env == ""


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
    with start_local() as server:
        config = replace(load(embedded_config(server.url, server.model)), cache=CacheConfig(path=""))
        with Referee(config) as referee:
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
def test_the_server_answers_with_log_probabilities_and_ends_with_its_pipe() -> None:
    """One chat completion by hand; then the process goes when it is closed."""
    with start_local() as server:
        body = {
            "messages": [{"role": "user", "content": "2 + 2 ="}],
            "max_tokens": 1,
            "logprobs": True,
            "top_logprobs": 5,
        }
        request = urllib.request.Request(
            f"{server.url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["choices"][0]["logprobs"]["content"]
        assert server.alive
    assert not server.alive


@with_marks
def test_the_server_does_not_outlive_its_parent() -> None:
    """Killed without a chance to clean up, the parent takes the server along."""
    code = "from referee.local import start_local; s = start_local(); print(s.pid, flush=True); input()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        clock.pause(0.05)
    raise AssertionError("the server is still there")
