"""Every API of models that generate no text, against its simulated server: right verdicts, and every way to fail."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.engine.harness import HOST, Run, run
from tests.engine.network import Books

from referee.records import Sample, Unscored, Verdict
from referee.sim import ProviderSpec
from referee.sim.spec import Fault

KINDS: dict[str, dict[str, Any]] = {
    "classify": {"kind": "reward_model"},
    "score": {"kind": "reward_model"},
    "pooling": {"kind": "reward_model"},
    "decision": {"kind": "yes_no", "criteria": "Is it right?"},
}
PRICES: dict[str, dict[str, float]] = {
    api: {"price_in": 2.0, **({"price_out": 1.0} if api == "decision" else {})} for api in KINDS
}
QUALITIES = (-1.5, 0.0, 2.0, 7.0)
apis = pytest.mark.parametrize("api", KINDS)


def graded(count: int = len(QUALITIES)) -> list[Sample]:
    return [
        Sample(prompt="p", response=f"[[quality={QUALITIES[n % 4]}]] answer {n}", id=str(n), group=str(n))
        for n in range(count)
    ]


def judged(api: str, given: list[Sample] | None = None, **more: Any) -> Run:
    spec = ProviderSpec(api=api, **more.pop("spec", {}))
    endpoint = {"api": api, **PRICES[api], **more.pop("endpoint", {})}
    judge = {**KINDS[api], **more.pop("judge", {})}
    return run(graded() if given is None else given, spec, endpoints=[endpoint], judge=judge, **more)


def value(api: str, quality: float) -> float:
    """What the simulated model means."""
    if api == "decision":
        return min(max(quality / 10, 0.02), 0.98)
    return 1 / (1 + math.exp(-quality))


@apis
def test_the_verdict_is_what_the_model_means(api: str) -> None:
    """On the unit scale, with usage and cost as the server counts them."""
    done = judged(api)
    assert [v.value for v in done.verdicts() if isinstance(v, Verdict)] == pytest.approx(
        [value(api, quality) for quality in QUALITIES]
    )
    assert [reward.value for reward in done.rewards if reward] == pytest.approx([value(api, q) for q in QUALITIES])
    settled = [reward.settled for reward in done.rewards if reward]
    assert sum(end.tokens_in for end in settled) == done.seen.tokens_in > 0
    assert sum(end.tokens_out for end in settled) == done.seen.tokens_out
    price = PRICES[api]
    bill = (done.seen.tokens_in * price["price_in"] + done.seen.tokens_out * price.get("price_out", 0.0)) / 1e6
    assert sum(end.cost for end in settled) == pytest.approx(bill)
    assert {end.model for end in settled} == {"m"}


@pytest.mark.parametrize("api", ["classify", "score", "pooling"])
def test_raw_numbers_stay_raw_on_the_native_scale(api: str) -> None:
    """And the server's own activation gives the same values as ours."""
    raw = judged(api, judge={"activation": "raw", "lowest": -9.0}, shaping={"scale": "native"})
    assert [reward.value for reward in raw.rewards if reward] == list(QUALITIES)
    served = judged(api, judge={"activation": "server"})
    assert [v.value for v in served.verdicts() if isinstance(v, Verdict)] == pytest.approx(
        [value(api, quality) for quality in QUALITIES]
    )


def test_steps_of_a_process_reward_model_come_to_one_number() -> None:
    """Without the setting they are unscored, and say which one is missing."""
    extra = {"extra": {"task": "token_classify"}}
    last = judged("pooling", endpoint=extra, judge={"steps": "last", "output": 1})
    assert [v.value for v in last.verdicts() if isinstance(v, Verdict)] == pytest.approx(
        [value("pooling", quality) for quality in QUALITIES]
    )
    unset = judged("pooling", endpoint=extra, judge={"ask_again": 0, "output": 1})
    assert all(isinstance(v, Unscored) and "judge.steps" in v.detail for v in unset.verdicts())


@pytest.mark.parametrize("api", ["score", "decision"])
def test_equal_requests_are_asked_once(api: str) -> None:
    """Coalesced in flight or found in the cache."""
    same = [Sample(prompt="p", response="[[quality=3]] a", id=str(n)) for n in range(20)]
    done = judged(api, same, spec={"latency_median": 0.5})
    assert done.seen.received == 1
    assert done.reasons() == {"scored": 20}


@pytest.mark.parametrize("fault", ["throttle_seconds", "throttle_ms", "http_500", "http_503", "http_529", "reset"])
@apis
def test_what_passes_is_waited_out(api: str, fault: Fault) -> None:
    """Every sample has its own verdict in the end."""
    done = judged(api, graded(40), spec={"faults": {fault: 0.3}, "latency_median": 0.2, "retry_after_s": 0.2})
    assert done.reasons() == {"scored": 40}
    assert done.seen.by_fault[fault] > 0
    assert [v.value for v in done.verdicts() if isinstance(v, Verdict)] == pytest.approx(
        [value(api, QUALITIES[n % 4]) for n in range(40)]
    )


@apis
def test_rate_limits_are_kept(api: str) -> None:
    """A server that counts requests is not passed by more than what teaches it."""
    done = judged(api, graded(30), spec={"rpm": 600, "window": 1.0, "latency_median": 0.05})
    assert done.reasons() == {"scored": 30}


@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        ("malformed", {"deadline"}),
        ("duplicate_keys", {"deadline"}),
        ("html", {"deadline"}),
        ("empty_body", {"deadline"}),
        ("no_choices", {"schema"}),
        ("no_verdict", {"empty", "schema"}),
        ("two_verdicts", {"schema"}),
        ("nan_score", {"schema", "out_of_range"}),
        ("auth", {"auth"}),
        ("quota", {"quota"}),
        ("too_long", {"too_long"}),
    ],
)
@apis
def test_what_cannot_be_read_is_unscored(api: str, fault: Fault, reasons: set[str]) -> None:
    """With its reason, never as a number, and it is not cached."""
    if api == "score" and fault == "two_verdicts":
        reasons = {"scored"}  # there is no place for a second number
    done = judged(api, spec={"faults": {fault: 1.0}}, missing={"abort_above": 1.0}, limits={"deadline": 60.0})
    assert set(done.reasons()) <= reasons
    assert all(reward is not None and (reward.value is None) != reward.scored for reward in done.rewards)


@apis
def test_an_odd_field_does_no_harm(api: str) -> None:
    """NaN somewhere else in the body is not the verdict's."""
    assert judged(api, spec={"faults": {"nan_json": 1.0}}).reasons() == {"scored": 4}


@apis
def test_a_wrong_key_closes_the_endpoint_without_showing_it(
    api: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One clear error; neither it nor the log holds the key."""
    monkeypatch.setenv("RM_KEY", "sk-wrong-0123456789abcdef")
    caplog.set_level("DEBUG")
    more = {"key_env": "RM_KEY", "key_over_http": True}
    done = judged(api, spec={"key": "sk-right"}, endpoint=more, missing={"abort_above": 1.0})
    assert done.reasons() == {"auth": 4}
    assert "sk-wrong" not in repr(done.rewards) + repr(done.error) + caplog.text
    monkeypatch.setenv("RM_KEY", "sk-right")
    assert judged(api, spec={"key": "sk-right"}, endpoint=more).reasons() == {"scored": 4}


@apis
def test_one_text_that_is_too_long_spares_the_others(api: str) -> None:
    """It is unscored by itself, and the endpoint stays open."""
    long = Sample(prompt="p", response="word " * 4000, id="long", group="long")
    done = judged(api, [*graded(), long], spec={"context_tokens": 1000})
    assert done.reasons() == {"scored": 4, "too_long": 1}


@pytest.mark.parametrize("api", ["classify", "score", "pooling"])
def test_a_budget_needs_the_price_of_prompts_alone(api: str) -> None:
    """It is used, and not passed, by the server's own books."""
    books = Books()
    done = judged(
        api,
        graded(400),
        network=books.network(0.0),
        spec={"latency_median": 0.1},
        limits={"budget_usd": 0.005, "concurrency": 8},
        missing={"abort_above": 1.0},
    )
    assert set(done.reasons()) == {"scored", "budget"}
    assert 0.003 < sum(reward.settled.cost for reward in done.rewards if reward) <= 0.005


def test_a_rubric_on_a_decision_model_is_one_request_for_each_response() -> None:
    """Criteria with a mark are true of responses that have it; each part says how sure the model is."""
    criteria = [
        {"text": "It is #kind."},
        {"text": "It is #short."},
        {"text": "How #clear?", "choices": ["no", "so", "yes"]},
    ]
    given = [Sample(prompt="p", response=text, id=text) for text in ("a #kind", "b #kind #short #clear")]
    judge = {"kind": "rubric", "criterion": criteria}
    done = judged("decision", given, judge=judge)
    assert done.seen.received == 2
    first, second = done.verdicts()
    assert isinstance(first, Verdict)
    assert isinstance(second, Verdict)
    assert [part.label for part in first.parts] == ["yes", "no", "no"]
    assert [part.label for part in second.parts] == ["yes", "yes", "yes"]
    assert second.value > 0.85 > 0.5 > first.value
    assert second.uncertainty is not None


def test_a_jury_may_mix_kinds_of_models() -> None:
    """A reward model, a decision model and a judge that writes, each on its own endpoint."""
    hosts = {"rm.test": "classify", "jev.test": "decision", HOST: "chat"}
    done = run(
        [Sample(prompt="p", response="[[quality=9]] a", id="1")],
        {host: ProviderSpec(api=api) for host, api in hosts.items()},
        endpoints=[{"api": api, "name": api} for api in hosts.values()],
        judge=[
            {"name": "all", "kind": "jury", "members": ["rm", "jev", "llm"]},
            {"name": "rm", "kind": "reward_model", "endpoint": "classify"},
            {"name": "jev", "kind": "yes_no", "endpoint": "decision"},
            {"name": "llm", "kind": "score", "endpoint": "chat"},
        ],
    )
    [verdict] = done.verdicts()
    assert isinstance(verdict, Verdict)
    values = [part.verdict.value for part in verdict.parts if isinstance(part.verdict, Verdict)]
    assert values == pytest.approx([value("classify", 9.0), 0.9, 8 / 9])
