"""Every shipped dialect with generated replies, against its simulated server. See dialect_suite."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.contracts.dialect_cases import CASES
from tests.contracts.dialect_suite import (
    HOST,
    IMAGE_ASK,
    KEY,
    MODEL,
    PHOTO,
    PNG,
    PNG_NAME,
    REPLY_TEXT,
    SYSTEM,
    USER,
    WALL,
    Case,
    Wire,
    ask,
    echo,
    edited,
)
from tests.contracts.dialect_suite import SCHEMA as GIVEN_SCHEMA
from tests.engine.harness import Run, expected, run, samples

from referee.config import Secret
from referee.engine.port import Response
from referee.errors import ConfigError, EndpointClosed
from referee.records import Failure, Media, Message, Reason, Reply, Sample, Sampling, Verdict
from referee.sim import ProviderSpec
from referee.sim.spec import Fault
from referee.testing import check_dialect, fake_referee
from referee.wire import PLAIN, TIER, adapt, find_dialect
from referee.wire.registry import SHIPPED

SCORELESS = ("classify", "score", "pooling", "decision")
"""Dialects whose replies are numbers: another suite's."""

every = pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])


def judged(case: Case, given: list[Sample], wire: Wire | None = None, seconds: float = 300.0, **spec: Any) -> Run:
    """Judge in virtual time through the engine; `judge` and `endpoint` change settings, the rest is of the provider."""
    judge = spec.pop("judge", {"kind": "score"})
    endpoint = {"api": case.api, "model": MODEL, "url": case.url, **spec.pop("endpoint", {})}
    found = ProviderSpec(api=case.api, **spec)
    return run(given, found, seconds=seconds, network=wire or Wire(), endpoints=[endpoint], judge=judge)


def test_every_dialect_with_generated_replies_is_here() -> None:
    """A dialect that is shipped without a case is tested by nothing."""
    assert {case.api for case in CASES} == set(SHIPPED) - set(SCORELESS)


# What is sent.


@every
def test_the_general_rules_hold(case: Case) -> None:
    """Those that plug-ins keep to as well."""
    check_dialect(case.dialect)
    assert find_dialect(case.api) is case.dialect
    assert sum(other.name == case.dialect.name for other in SHIPPED.values()) == 1


@every
def test_requests_go_where_the_server_listens(case: Case) -> None:
    """The base of the API, its whole URL and a bare host lead there."""
    url = case.dialect.url(case.endpoint)
    assert url == case.posts_to
    assert case.server.serves(urlsplit(url).path)
    for given in (url, f"{case.url}/", f"https://{HOST}"):
        again = case.dialect.url(type(case.endpoint)(url=given, api=case.api, model=MODEL))
        assert again == url, given


@every
def test_the_key_travels_in_its_header_alone(case: Case) -> None:
    """Without white space around it; nothing else holds it."""
    name, value = case.key_header
    headers = case.dialect.headers(Secret(f" {KEY}\n"))
    assert headers[name] == value
    assert [header for header, text in headers.items() if KEY in text] == [name]
    assert case.server.key(headers) == KEY


@every
def test_requests_are_the_written_bytes(case: Case) -> None:
    """What the model gets to see cannot change by accident: cached verdicts were given for these bytes."""
    encode = case.dialect.encoder(case.endpoint).encode
    plain = Sampling(max_tokens=64)
    assert encode(ask(plain)) == case.text_request
    assert encode(ask(Sampling(max_tokens=64, schema=GIVEN_SCHEMA, schema_name="grade"))) == case.schema_request
    assert encode(ask(plain), PLAIN, 128) == case.longer_request
    assert encode(ask(Sampling(max_tokens=64, top_logprobs=5))) == (case.logprobs_request or case.text_request)
    assert encode(ask(Sampling(max_tokens=64, temperature=None))) == case.no_temperature_request


@every
def test_the_server_understands_every_part_of_a_request(case: Case) -> None:
    """System prompt, texts, model, token cap, temperature and schema arrive as they were meant."""
    sampling = Sampling(max_tokens=77, temperature=0.25, schema=GIVEN_SCHEMA)
    body = case.dialect.encoder(case.endpoint).encode(ask(sampling))
    found = case.server.request(urlsplit(case.posts_to).path, body)
    assert [(message.role, message.text) for message in found.messages] == [("system", SYSTEM), ("user", USER)]
    assert (found.model, found.max_tokens or found.max_completion_tokens, found.temperature) == (MODEL, 77, 0.25)
    assert found.response_format is not None
    assert found.response_format.json_schema is not None
    assert found.response_format.json_schema.schema["properties"] == GIVEN_SCHEMA["properties"]
    text = case.server.request(urlsplit(case.posts_to).path, case.text_request)
    assert text.response_format is None or text.response_format.type == "text"


@every
def test_extra_fields_are_in_every_request(case: Case) -> None:
    """What endpoint.extra says is sent as it is."""
    endpoint = type(case.endpoint)(url=case.url, api=case.api, model=MODEL, extra={"metadata": {"run": "7"}})
    assert json.loads(case.dialect.encoder(endpoint).encode(ask()))["metadata"] == {"run": "7"}


@every
def test_the_flex_tier_is_asked_for_where_the_api_has_it(case: Case) -> None:
    """And left out again where the engine says so: that costs more, so a refusal only names it."""
    flexed = type(case.endpoint)(url=case.url, api=case.api, model=MODEL, tier="flex")
    encode = case.dialect.encoder(flexed).encode
    if TIER in case.dialect.can_omit:
        sent = json.loads(encode(ask()))
        assert sent.get("service_tier", sent.get("serviceTier")) == "flex"
    assert encode(ask(), frozenset((TIER,))) == case.text_request
    refused = b'{"error": {"code": "unsupported_parameter", "param": "service_tier", "message": "Not supported."}}'
    found = case.dialect.read(400, {}, refused, WALL)
    assert isinstance(found, Failure)
    assert found.unsupported == TIER
    assert adapt(case.dialect, PLAIN, TIER) == (frozenset((TIER,)) if TIER in case.dialect.can_omit else None)


@every
def test_what_can_be_left_out_is(case: Case) -> None:
    """Each name in can_omit changes a request that has it."""
    encode = case.dialect.encoder(case.endpoint).encode
    asked = ask(Sampling(max_tokens=64, schema=GIVEN_SCHEMA, top_logprobs=5))
    assert set(case.omits) <= case.dialect.can_omit
    for name in case.omits:
        assert encode(asked, frozenset((name,))) != encode(asked)


@every
def test_images_go_out_where_the_api_takes_them(case: Case) -> None:
    """Data and URL, each after its name and before the text; the server sees both, and the same text."""
    assert case.dialect.takes_images == (case.image_request is not None)
    if case.image_request is None:
        return
    body = case.dialect.encoder(case.endpoint).encode(IMAGE_ASK)
    assert body == case.image_request
    found = case.server.request(urlsplit(case.posts_to).path, body).messages[-1]
    assert found.images == [PNG, PHOTO]
    assert found.text.endswith(USER)


# What comes back.


@every
def test_a_whole_reply_is_read_to_the_last_field(case: Case) -> None:
    """Text, ending, usage with cached and cache-written tokens, and which model of which provider answered."""
    assert case.read.text == REPLY_TEXT
    assert (case.read.tokens_in, case.read.tokens_out, case.read.tokens_cached) == (100, 20, 40)
    assert case.read.model
    assert case.dialect.read(200, {"x-request-id": "req_1"}, case.reply, WALL) == case.read


@every
@pytest.mark.parametrize("name", ["extra_fields", "several_texts", "thinking", "null_usage"])
def test_an_odd_but_legal_reply_is_a_reply(case: Case, name: str) -> None:
    """Nothing of it is lost, nothing the model thought is taken for its answer."""
    odd = case.odd[name]
    found = case.dialect.read(200, {}, edited(case, odd.change), WALL)
    assert isinstance(found, Reply)
    assert (found.text, found.finish, found.refusal) == (REPLY_TEXT, case.read.finish, "")
    assert found.tokens_in == (100 if odd.keeps_usage else 0)


@every
def test_all_other_odd_replies_too(case: Case) -> None:
    """Those that only this API has."""
    for odd in case.odd.values():
        found = case.dialect.read(200, {}, edited(case, odd.change), WALL)
        assert isinstance(found, Reply)
        assert found.text == REPLY_TEXT


@every
def test_a_reply_without_text_is_never_a_guess(case: Case) -> None:
    """It is a failure that is tried again, or a reply without text, which no judge reads as a verdict."""
    assert case.empty
    for name, body in case.empty.items():
        found = case.dialect.read(200, {}, body, WALL)
        if isinstance(found, Reply):
            assert not found.text.strip(), name
        else:
            assert found.action in ("ask_again", "retry", "give_up"), name


@every
def test_a_refusal_is_told_from_an_answer(case: Case) -> None:
    """Whether the API has a field for it or an ending."""
    found = case.dialect.read(200, {}, case.refused, WALL)
    assert isinstance(found, Reply | Failure)
    if isinstance(found, Failure):
        assert found.reason is Reason.REFUSED
    else:
        assert found.refusal or found.finish in ("refusal", "content_filter", "SAFETY", "PROHIBITED_CONTENT")


@every
def test_a_cut_reply_says_so(case: Case) -> None:
    """Its ending is one that readers know as a full token limit."""
    found = case.dialect.read(200, {}, case.truncated, WALL)
    assert isinstance(found, Reply)
    assert found.finish.lower() in ("length", "max_tokens", "max_output_tokens")


@every
def test_log_probabilities_are_read_or_not_asked_for(case: Case) -> None:
    """Where the API has them, each token comes with its alternatives."""
    assert (case.logprobs_request is None) == (case.logprobs_reply is None)
    if case.logprobs_reply is None:
        return
    found = case.dialect.read(200, {}, case.logprobs_reply, WALL)
    assert isinstance(found, Reply)
    assert found.text == "yes"
    assert [(choice.token, dict(choice.top)) for choice in found.choices] == [("yes", {"yes": -0.105, "no": -2.303})]


@every
def test_documented_errors_have_their_reason(case: Case) -> None:
    """As the provider writes them."""
    for name, failing in case.failing.items():
        found = case.dialect.read(failing.status, failing.headers, failing.body, WALL)
        assert isinstance(found, Failure), name
        assert found.reason is failing.reason, name
        assert found.retry_after == failing.retry_after, name


@every
def test_rate_headers_are_understood(case: Case) -> None:
    """Requests and tokens: how many a minute, how many are left, and until when."""
    found = case.dialect.hints(case.rate_headers, WALL)
    if not case.rate_headers:
        assert found is None
        return
    assert found is not None
    assert (found.limit_requests, found.remaining_requests, found.reset_requests) == (100, 99, 30.0)
    assert (found.limit_tokens, found.remaining_tokens, found.reset_tokens) == (5000, 4000, 6.0)


# End to end, in virtual time.


@every
@pytest.mark.parametrize("unsupported", [(), ("response_format",)], ids=["schema", "text"])
def test_every_sample_gets_its_own_score(case: Case, unsupported: tuple[str, ...]) -> None:
    """In schema form, and in text form where the server refuses the schema."""
    given, wire = samples(20), Wire()
    done = judged(case, given, wire, latency_median=0.5, unsupported=unsupported)
    assert [verdict.score for verdict in done.verdicts() if isinstance(verdict, Verdict)] == expected(given)
    assert {url for url, _, _ in wire.sent} == {case.posts_to}
    forms = [case.server.request("", body).response_format for _, _, body in wire.sent]
    in_schema = [form is not None and form.json_schema is not None for form in forms]
    assert all(in_schema) if not unsupported else in_schema.count(False) == 20
    systems = {case.server.request("", body).messages[0].role for _, _, body in wire.sent}
    assert systems == {"system"}


@every
def test_a_whole_referee_speaks_it(case: Case) -> None:
    """From configuration to reward, with the settings a user writes."""
    config = {"judge": {"kind": "score"}, "endpoint": [{"api": case.api, "url": case.url, "model": MODEL}]}
    with fake_referee(config, spec=ProviderSpec(api=case.api, model=MODEL)) as referee:
        rewards = referee.score(samples(3))
    assert [reward.value for reward in rewards] == [0.0, 1 / 9, 2 / 9]
    (reply,) = {reward.settled.model for reward in rewards}
    assert reply == MODEL


@every
def test_a_judge_is_shown_the_images_of_a_rollout(case: Case) -> None:
    """Only with parts = "show"; an API without images is refused before anything is sent."""
    prompt = (Message("user", "What is this?", media=(Media("image_url", PNG, 13),)),)
    given = [Sample(prompt=prompt, response="[[quality=7]] a pixel")]
    wire = Wire()
    if case.image_request is None:
        with pytest.raises(ConfigError, match=r"judge\.parts"):
            judged(case, given, wire, judge={"kind": "score", "parts": "show"})
        assert not wire.sent
        return
    done = judged(case, given, wire, judge={"kind": "score", "parts": "show"})
    asked = case.server.request("", wire.sent[0][2]).messages[-1]
    assert done.reasons() == {"scored": 1}
    assert asked.images == [PNG]
    assert asked.text.startswith(f"[{PNG_NAME}]:")
    assert asked.text.count(f"[{PNG_NAME}]") == 2
    described = Wire()
    judged(case, given, described, judge={"kind": "score", "parts": "describe"})
    assert case.server.request("", described.sent[0][2]).messages[-1].images == []


@every
def test_probabilities_where_they_exist_and_words_where_not(case: Case) -> None:
    """A server that refuses log-probabilities, and an API that has none, still give a verdict."""
    given = [Sample(prompt="q", response="[[quality=yes]]")]
    asked = {"kind": "yes_no"}
    (best,) = judged(case, given, judge=asked).verdicts()
    (refused,) = judged(case, given, judge=asked, unsupported=("logprobs",)).verdicts()
    assert isinstance(best, Verdict)
    assert isinstance(refused, Verdict)
    if case.logprobs_request is None:
        assert (best.how, best.score) == ("tag", 1.0)
    else:
        assert best.how == "logprob"
        assert 0.5 < best.score < 1
    assert (refused.how, refused.score) == ("tag", 1.0)


@every
@pytest.mark.parametrize("fault", ["refusal", "content_filter", "policy"])
def test_what_is_declined_is_unscored(case: Case, fault: Fault) -> None:
    """By the model, by a filter of its reply, or by one of the request."""
    done = judged(case, samples(3), faults={fault: 1.0})
    assert done.reasons() == {"refused": 3}


@every
def test_a_cut_reply_is_asked_again_with_twice_the_tokens(case: Case) -> None:
    """And is no verdict, whatever it holds."""
    wire = Wire()
    done = judged(case, samples(1), wire, faults={"length": 1.0}, judge={"kind": "score", "max_tokens": 200})
    caps = [case.server.request("", body) for _, _, body in wire.sent]
    assert [request.max_tokens or request.max_completion_tokens for request in caps][:2] == [200, 400]
    assert done.reasons() == {"truncated": 1}


@every
@pytest.mark.parametrize("fault", ["http_500", "http_503", "http_529", "throttle_float", "throttle_none", "slow_down"])
def test_overload_and_throttling_lose_nothing(case: Case, fault: Fault) -> None:
    """Every sample is scored, and rightly."""
    given = samples(30)
    done = judged(case, given, latency_median=0.5, faults={fault: 0.3})
    assert [verdict.score for verdict in done.verdicts() if isinstance(verdict, Verdict)] == expected(given)
    assert done.seen.received > 30


@every
def test_the_servers_own_rate_headers_pace_the_run(case: Case) -> None:
    """Twice as many samples as a minute allows are scored in the second minute; where headers say so, without a
    refusal."""
    wire = Wire()
    done = judged(case, samples(40), wire, seconds=600.0, latency_median=0.5, rpm=20, tpm=1_000_000)
    assert done.reasons() == {"scored": 40}
    assert done.seconds >= 60
    hints = [case.dialect.hints(answer.headers, WALL) for answer in wire.answers if answer.status == 200]
    assert all(found is not None and found.limit_requests == 20 for found in hints) == bool(case.rate_headers)
    assert done.seen.received <= 40 * 1.6


@every
@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"key": "other"}, "auth"), ({"model": "other"}, "config"), ({"faults": {"quota": 1.0}}, "quota")],
    ids=["wrong key", "unknown model", "empty account"],
)
def test_final_errors_close_the_endpoint(case: Case, spec: dict[str, Any], reason: str) -> None:
    """At once, for all samples, with the right reason."""
    done = judged(case, samples(200), **spec)
    assert done.reasons() == {reason: 200}
    assert isinstance(done.error, EndpointClosed)
    assert done.seen.received <= 64


@every
def test_what_does_not_fit_is_too_long(case: Case) -> None:
    """It is given up; what fits is scored."""
    given = [*samples(2), Sample(prompt="p", response="long " * 4000)]
    done = judged(case, given, context_tokens=2000)
    assert done.reasons() == {"scored": 2, "too_long": 1}


@every
@pytest.mark.parametrize(
    "fault", ["html", "empty_body", "malformed", "duplicate_keys", "no_choices", "cut", "cut_silent", "empty_content"]
)
def test_a_malformed_reply_is_never_a_verdict(case: Case, fault: Fault) -> None:
    """Alone it leaves a sample unscored; now and then it costs another attempt and nothing else."""
    broken = judged(case, samples(2), seconds=20.0, faults={fault: 1.0})
    assert "scored" not in broken.reasons()
    given = samples(20)
    done = judged(case, given, faults={fault: 0.25}, judge={"kind": "score", "ask_again": 8})
    assert [verdict.score for verdict in done.verdicts() if isinstance(verdict, Verdict)] == expected(given)


@every
@pytest.mark.parametrize("fault", ["two_verdicts", "no_verdict", "out_of_range", "nan_score", "duplicate_score"])
def test_a_reply_without_one_sound_verdict_is_unscored(case: Case, fault: Fault) -> None:
    """The strict reader reads the text of every dialect."""
    assert "scored" not in judged(case, samples(2), faults={fault: 1.0}).reasons()


@every
@pytest.mark.parametrize("status", [200, 400, 401, 403, 429, 500])
def test_a_key_that_a_server_echoes_is_shown_nowhere(
    case: Case, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in a verdict, an error or a log line, whatever the server quotes and where."""
    monkeypatch.setenv("KEY_OF_THE_TEST", KEY)
    caplog.set_level(logging.DEBUG)
    wire = Wire(lambda answer, sent: echo(answer, sent, status))
    done = judged(case, samples(3), wire, seconds=20.0, endpoint={"key_env": "KEY_OF_THE_TEST"})
    assert all(KEY in headers[case.key_header[0]] for _, headers, _ in wire.sent), "the key was sent"
    assert KEY in wire.answers[0].body.decode(), "and came back"
    shown = f"{[(reward.verdict, reward.settled) for reward in done.rewards if reward]} {done.error!r} {caplog.text}"
    assert KEY not in shown
    assert KEY[8:] not in shown
    assert "scored" not in done.reasons()


@every
def test_who_answered_is_on_the_reply(case: Case) -> None:
    """The model by its own account, also where it is another than was asked for."""

    def other(answer: Response, sent: Any) -> Response:
        return Response(answer.status, answer.headers, answer.body.replace(MODEL.encode(), b"judge-1-2026-11-01"))

    done = judged(case, samples(1), Wire(other))
    (reward,) = done.rewards
    assert reward is not None
    assert (reward.scored, reward.settled.model) == (True, "judge-1-2026-11-01")
    assert reward.settled.tokens_in == done.seen.tokens_in > 0
    assert reward.settled.tokens_out == done.seen.tokens_out > 0


@every
def test_cached_and_cache_written_tokens_come_through(case: Case) -> None:
    """What the simulated server says of its prompt cache is what the dialect reads."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    usage["prompt_tokens_details"] = {"cached_tokens": 40, "cache_write_tokens": 10}  # type: ignore[assignment]
    message = {"role": "assistant", "content": REPLY_TEXT}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    chat = {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice], "usage": usage}
    found = case.dialect.read(200, {}, json.dumps(case.server.completion(chat)).encode(), WALL)
    assert isinstance(found, Reply)
    assert (found.text, found.tokens_in, found.tokens_out, found.tokens_cached) == (REPLY_TEXT, 100, 20, 40)
    assert found.tokens_cache_write == case.read.tokens_cache_write
