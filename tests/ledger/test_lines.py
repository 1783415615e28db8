"""Ledger lines: made from records, stable names, content only when asked for."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from referee.cache import Entry
from referee.engine.outcomes import from_cache, shared
from referee.ledger import (
    BatchLine,
    LimitsLine,
    Line,
    RewardLine,
    RunLine,
    VerdictLine,
    common_step,
    reward_line,
    verdict_line,
)
from referee.ledger.build_lines import digest
from referee.records import (
    Ask,
    Message,
    Reason,
    Reply,
    Reward,
    Sample,
    Sampling,
    Settled,
    Unscored,
    Verdict,
)

SAMPLE = Sample(
    prompt="PROMPT", response="RESPONSE", id="i", group="g", reference="GOLD", rule_score=0.5, length=9, step=3
)
REQUEST = Ask((Message("system", "SYSTEM"), Message("user", "FENCED")), Sampling(), (), "n", 5)
REPLY = Reply(
    text="RAW", model="m-1", request_id="req", tokens_in=100, tokens_out=20, tokens_cached=60, tokens_cache_write=30
)
SETTLED = Settled(
    verdict=Verdict(score=7.0, value=2 / 3, reason="WHY", how="schema", uncertainty=0.2),
    origin="call",
    key="k",
    reply=REPLY,
    endpoint="api",
    model="m-1",
    attempts=2,
    sent=99.5,
    queued_s=0.25,
    latency_s=1.5,
    tokens_in=100,
    tokens_out=20,
    tokens_cached=60,
    tokens_cache_write=30,
    cost=0.01,
)
ENTRY = Entry(verdict=SETTLED.verdict, reply=REPLY, cost=0.01, endpoint="api")  # type: ignore[arg-type]


def line(settled: Settled = SETTLED, **more: Any) -> VerdictLine:
    return verdict_line(SAMPLE, settled, seq=4, wall=100.0, batch="b", index=2, request=REQUEST, **more)


def test_a_verdict_line_tells_the_whole_story() -> None:
    """Who, where from, what was said, what it took and what it cost."""
    assert line(content=True) == VerdictLine(
        wall=100.0,
        seq=4,
        batch="b",
        index=2,
        id="i",
        group="g",
        step=3,
        origin="call",
        key="k",
        endpoint="api",
        model="m-1",
        request_id="req",
        score=7.0,
        value=2 / 3,
        why="WHY",
        how="schema",
        uncertainty=0.2,
        attempts=2,
        sent=99.5,
        queued_s=0.25,
        latency_s=1.5,
        tokens_in=100,
        tokens_out=20,
        tokens_cached=60,
        tokens_cache_write=30,
        cost=0.01,
        rule_score=0.5,
        length=9,
        prompt="PROMPT",
        response="RESPONSE",
        reference="GOLD",
        system=digest(REQUEST.messages[0].content),
        asked=REQUEST.messages[-1].content,
        reply="RAW",
    )


def test_without_content_no_text_of_the_rollout_is_kept() -> None:
    """Only digests of prompt and response; the judge's own words stay, they are the verdict."""
    data = msgspec.json.encode(line(content=False))
    for text in (b"PROMPT", b"RESPONSE", b"GOLD", b"SYSTEM", b"FENCED", b"RAW"):
        assert text not in data
    assert digest("RESPONSE").encode() in data
    assert digest("RESPONSE").encode() not in msgspec.json.encode(line(content=True))


def test_an_unscored_sample_has_a_reason_and_no_number() -> None:
    """Score and value are absent, the reason is named."""
    missing = line(Settled(verdict=Unscored(reason=Reason.TIMEOUT, detail="60 s"), attempts=3, cost=0.02))
    assert (missing.score, missing.value, missing.how, missing.why) == (None, None, "", "")
    assert (missing.unscored, missing.detail, missing.attempts, missing.cost) == ("timeout", "60 s", 3, 0.02)
    assert b'"score"' not in msgspec.json.encode(missing)


@pytest.mark.parametrize("settled", [from_cache("k", ENTRY), shared(SETTLED)])
def test_tokens_are_counted_where_they_were_used(settled: Settled) -> None:
    """A verdict that was there already keeps its reply but used no tokens now, and says what it saved."""
    free = line(settled, content=True)
    assert (free.tokens_in, free.tokens_out, free.tokens_cached, free.tokens_cache_write) == (0, 0, 0, 0)
    assert (free.model, free.reply, free.saved) == ("m-1", "RAW", 0.01)


def test_a_reward_line_has_the_terms() -> None:
    """The reward can be added up again from its line."""
    reward = Reward(
        index=2,
        id="i",
        group="g",
        value=1.0,
        settled=SETTLED,
        rule=0.5,
        judge=0.75,
        penalty=0.25,
        length=9,
        median_length=8.5,
    )
    assert reward_line(reward, wall=1.0, batch="b", step=3) == RewardLine(
        wall=1.0,
        batch="b",
        index=2,
        id="i",
        group="g",
        step=3,
        value=1.0,
        rule=0.5,
        judge=0.75,
        penalty=0.25,
        length=9,
        median_length=8.5,
    )
    filled = msgspec.structs.replace(reward, judge=None, value=0.25, filled="group_mean")
    assert reward_line(filled).filled == "group_mean"


@pytest.mark.parametrize(
    "written",
    [
        RunLine(wall=1.0, version="1", pid=3, digest="d", config={"judge": {"low": 1}}),
        line(content=True),
        line(Settled(verdict=Unscored(reason=Reason.AUTH))),
        RewardLine(index=1, value=None),
        BatchLine(wall=2.0, batch="b", samples=5, step=0, submitted=1.0, finished=2.0, waited_s=0.1),
        LimitsLine(wall=3.0, endpoint="e", limit=20.5, in_flight=3, queued=4, throttled=1, requests=9),
    ],
    ids=lambda written: type(written).__name__,
)
def test_lines_come_back_as_they_were(written: Any) -> None:
    """Encoding and decoding a line gives an equal line, by its `type`."""
    data = msgspec.json.encode(written)
    assert msgspec.json.decode(data, type=Line) == written
    assert msgspec.json.decode(data)["type"] == type(written).__name__.removesuffix("Line").lower()
    assert b"\n" not in data


def test_every_field_has_a_default() -> None:
    """So that a field added later does not make old files unreadable."""
    for kind in get_args(Line):
        kind()


def test_a_digest_is_short_and_takes_any_text() -> None:
    """Also text that no encoding has."""
    assert digest("a") == digest("a") != digest("b")
    assert len(digest("\ud800")) == 16


def test_a_batch_has_a_step_if_its_samples_agree() -> None:
    """One step or none."""
    steps = [Sample(prompt="p", response="r", step=step) for step in (1, 1, 2, None)]
    assert common_step(steps[:2]) == 1
    assert common_step(steps) is None
    assert common_step(steps[3:]) is None
    assert common_step([]) is None
