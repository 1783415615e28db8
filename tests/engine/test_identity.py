"""A judge that changes during a run is told: once in the log, the ledger, the metrics and the report."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from referee.config import load
from referee.engine.identity import MAX_CHANGES, Change, Identity, ModelIdentity
from referee.engine.port import Response
from referee.ledger import ChangeLine, Tally, read, verdict_line
from referee.records import Reply, Sample, Settled, Verdict
from referee.referee import Referee
from referee.report.data import build
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport


def reply(model: str = "m", provider: str = "", fingerprint: str = "") -> Reply:
    return Reply(text="", model=model, provider=provider, fingerprint=fingerprint)


def changes(replies: Sequence[Reply]) -> list[tuple[ModelIdentity, ModelIdentity]]:
    """What is told of these, one after the other."""
    identity = Identity()
    return [found for found in map(identity.seen, replies) if found is not None]


def test_a_new_model_is_a_change() -> None:
    """It is told with what was before."""
    assert changes([reply("a"), reply("a"), reply("b"), reply("b")]) == [(ModelIdentity("a"), ModelIdentity("b"))]
    assert changes([reply("a", "x"), reply("a", "y")]) == [(ModelIdentity("a", "x"), ModelIdentity("a", "y"))]
    assert len(changes([reply("a", "", "fp1"), reply("a", "", "fp2")])) == 1


def test_what_is_left_out_is_no_change() -> None:
    """A server that gives its fingerprint now and then, or begins to, has not changed."""
    assert changes([reply("a"), reply("a", "", "fp"), reply("a"), reply("a", "x", "fp"), reply("")]) == []


def test_replicas_that_take_turns_are_one_change_for_each_pair() -> None:
    """However often they alternate."""
    two = [reply("a", "", f"fp{n % 2}") for n in range(100)]
    assert len(changes(two)) == 1
    three = [reply("a", "", f"fp{a}") for a in itertools.chain.from_iterable(itertools.permutations("012"))]
    assert len(changes(three * 5)) == 3


@given(st.lists(st.builds(reply, st.sampled_from("abc"), st.sampled_from(["", "x", "y"]), st.text(max_size=2))))
def test_never_twice_the_same_pair_and_never_too_many(replies: list[Reply]) -> None:
    """Whatever a server says of itself."""
    found = [frozenset(pair) for pair in changes(replies)]
    assert len(found) == len(set(found)) <= MAX_CHANGES
    assert all(len(pair) == 2 for pair in found)


class Renamed(SimTransport):
    """A provider that names another model in its replies from a call on, and takes turns from then on."""

    def __init__(self, after: int) -> None:
        super().__init__(Provider(ProviderSpec(), 1))
        self._calls, self._after = 0, after

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        answer = await super().post(url, headers, body, timeout)
        self._calls += 1
        named = "judge-new" if self._calls > self._after and self._calls % 2 else "judge-old"
        return replace(answer, body=json.dumps({**json.loads(answer.body), "model": named}).encode())


def test_a_change_is_in_log_ledger_metrics_and_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning with the step, one line, one count, one finding, although both go on answering."""
    endpoint = {"url": "http://sim.test/v1", "name": "sim", "model": "judge", "key_env": ""}
    config = load({"endpoint": endpoint, "cache": {"path": ""}, "ledger": {"dir": str(tmp_path)}, "runtime": "inline"})
    with (
        caplog.at_level(logging.WARNING, "referee"),
        Referee(config, worker_with(lambda: Renamed(after=4))) as referee,
    ):
        for step in range(4):
            samples = [Sample(prompt="p", response=f"[[quality=5]] {step}.{n}", step=step) for n in range(4)]
            assert all(reward.scored for reward in referee.score(samples))
        counted = referee.metrics()["identity_changes"]
    warnings = [record.getMessage() for record in caplog.records if "the judge changed" in record.getMessage()]
    assert len(warnings) == counted == 1
    assert "sim: the judge changed at step 1, from judge-old (fingerprint fp_sim) to judge-new" in warnings[0]
    lines = list(read(tmp_path))
    told = [line for line in lines if isinstance(line, ChangeLine)]
    assert [(line.step, line.before_model, line.model) for line in told] == [(1, "judge-old", "judge-new")]
    tally = Tally()
    for line in lines:
        tally.add(line)
    assert tally.metrics()["identity_changes"] == 1
    found = [finding.text for finding in build(lines).findings]
    assert any("changed at step 1 from judge-old (fingerprint fp_sim) to judge-new" in text for text in found)


def test_a_change_from_before_a_client_was_there_is_not_its_own() -> None:
    """Engines on a cluster live longer than their clients, and tell all they have seen."""
    config = load({"endpoint": {"url": "http://sim.test/v1", "model": "m", "key_env": ""}, "cache": {"path": ""}})
    with Referee(replace(config, runtime="inline"), worker_with(lambda: Renamed(after=99))) as referee:
        referee.score([Sample(prompt="p", response="[[quality=5]]")])
        scorer = referee._runtime._scorer  # type: ignore[attr-defined]
        old, new = (
            Change("sim.test", ModelIdentity("a"), ModelIdentity("b"), 1.0),
            Change("sim.test", ModelIdentity("b"), ModelIdentity("c"), 9e12),
        )
        scorer.changed([old, new, new, replace(new, before=new.after, after=new.before)], 0, [])
        assert referee.metrics()["identity_changes"] == 1


def test_rows_and_lines_say_who_answered() -> None:
    """Where a reply says it; a row without stays as it was."""

    verdict = Verdict(score=1.0, value=1.0)
    given = Settled(verdict=verdict, reply=reply("m", "deepinfra", "fp_1"))
    assert (given.row()["provider"], given.row()["fingerprint"]) == ("deepinfra", "fp_1")
    assert not {"provider", "fingerprint"} & Settled(verdict=verdict, reply=reply("m")).row().keys()
    line = verdict_line(Sample(prompt="p", response="r"), given)
    assert (line.provider, line.fingerprint) == ("deepinfra", "fp_1")
