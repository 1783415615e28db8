"""The embedded judge: its demo file, its configuration, and, where it is installed, the real thing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from rich.console import Console

from referee import clock
from referee.cli import settings as cli_settings
from referee.cli.demo import show_rules
from referee.config import CacheConfig, load
from referee.local import demo_rollouts, embedded_config, separation, start_local
from referee.local.embedded import read_labelled, ruled_rollouts
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


def test_the_configuration_loads() -> None:
    """It is a valid configuration for a yes/no judge without a key."""
    config = load(embedded_config("http://127.0.0.1:1/v1", "m"))
    assert config.judge[0].kind == "yes_no"
    assert config.endpoint[0].key_env == ""


@pytest.mark.parametrize("elsewhere", [False, True])
def test_it_is_known_by_its_name_and_not_by_its_port(monkeypatch: pytest.MonkeyPatch, elsewhere: bool) -> None:
    """Its port is another one at every start. A server that the environment names instead is known by its address."""
    monkeypatch.delenv("REFEREE_ENDPOINT_URL", raising=False)
    if elsewhere:
        monkeypatch.setenv("REFEREE_ENDPOINT_URL", "http://127.0.0.1:2/v1")

    @contextlib.contextmanager
    def started() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(url="http://127.0.0.1:1/v1", model="m")

    monkeypatch.setattr(cli_settings, "start_local", started)
    monkeypatch.setattr(cli_settings, "DEFAULT_FILE", Path("no such file"))
    with cli_settings.settings(None) as config:
        assert config.endpoint[0].known_as == ("" if elsewhere else "embedded")


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
def test_two_at_once_have_two_ports_and_one_cache(tmp_path: Path) -> None:
    """What the one has judged, the other finds in the cache."""
    sample = demo_rollouts()[0][0]
    origins = []
    with start_local() as one, start_local() as other:
        assert one.url != other.url
        for server in (one, other):
            cache = CacheConfig(path=str(tmp_path / "cache.sqlite"))
            with Referee(replace(load(embedded_config(server.url, server.model)), cache=cache)) as referee:
                origins.append(referee.score([sample])[0].settled.origin)
    assert origins == ["call", "cache"]


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
