"""TypeSafe's SDK against our simulated decision model, and against the bytes of our encoder: neither is ours to
define."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sdk.conftest import Serve
from typesafe_sdk import (
    Choice,
    Noul,
    RetryPolicy,
    Score,
    TypeSafeAPIError,
    TypeSafeAuthenticationError,
    TypeSafeClient,
    TypeSafeInternalServerError,
    TypeSafeNotFoundError,
    TypeSafeRateLimitError,
    TypeSafeUnprocessableEntityError,
)
from typesafe_sdk._schemas.models import SystemOneRequest, SystemOneResponse

from referee.config import EndpointConfig, JudgeConfig
from referee.judging import make_judge
from referee.records import Ask, Criterion, Reply, Sample, Verdict
from referee.wire import find_dialect

KEY = "sk-of-the-test-0123456789"
SAMPLE = Sample(prompt="2 + 2?", response="4 é #kind")
CRITERIA = (
    Criterion("It is #kind."),
    Criterion("How short?", choices=("long", "fair", "short")),
    Criterion("The code runs.", may_not_apply=True),
    Criterion("Which letter?", choices=tuple("abcdefghijklm")),
)
JUDGES: dict[str, dict[str, Any]] = {
    "yes_no": {"kind": "yes_no"},
    "score": {"kind": "score"},
    "rubric": {"kind": "rubric", "criterion": CRITERIA},
}
FAULTS: dict[str, type[TypeSafeAPIError]] = {
    "throttle_none": TypeSafeRateLimitError,
    "auth": TypeSafeAuthenticationError,
    "unknown_model": TypeSafeNotFoundError,
    "too_long": TypeSafeUnprocessableEntityError,
    "http_500": TypeSafeInternalServerError,
    "http_503": TypeSafeInternalServerError,
}


def asked(name: str) -> Ask:
    judge = make_judge(JudgeConfig(api="decision", **JUDGES[name]), b"0123456789abcdef")
    [request] = next(judge.deliberate((SAMPLE,), "schema"))
    return request


def body_of(request: Ask) -> bytes:
    return find_dialect("decision").encoder(EndpointConfig(url="http://x", model="jev-latest")).encode(request)


def client(url: str) -> TypeSafeClient:
    return TypeSafeClient(api_key=KEY, base_url=url, retry=RetryPolicy(max_retries=0))


@pytest.mark.parametrize("name", JUDGES)
def test_our_bytes_are_a_request_of_the_api(name: str) -> None:
    """By the models that its OpenAPI description gives, with the types we mean."""
    request = asked(name)
    sent = SystemOneRequest.model_validate_json(body_of(request), strict=True)
    assert sent.state == {"prompt": "2 + 2?", "response": "4 é #kind"}
    kinds = {"yes_no": ["noul"], "score": ["score"], "rubric": ["noul", "score", "choice", "choice"]}
    assert [question.root.type for question in sent.questions.values()] == kinds[name]
    assert list(sent.questions) == [query.id for query in request.queries]


@pytest.mark.parametrize("name", JUDGES)
def test_a_response_of_the_api_is_read(name: str, serve: Serve) -> None:
    """What the simulated server answers is one by the API's own models, and what those write is a verdict."""
    request = asked(name)
    sent = SystemOneRequest.model_validate_json(body_of(request))
    state, questions = sent.state, {key: value.root.model_dump() for key, value in sent.questions.items()}
    with client(serve(api="decision")) as typesafe:
        answered = typesafe.system_one(state=state, questions=questions)
    response = SystemOneResponse.model_validate_json(answered.raw_http_response.content)
    reply = find_dialect("decision").read(200, {}, response.model_dump_json().encode(), 0.0)
    assert isinstance(reply, Reply)
    assert (reply.tokens_in, reply.tokens_out) == (response.usage.input_tokens, response.usage.output_tokens)
    assert isinstance(request.read(request, reply), Verdict)


def test_every_type_of_answer_is_what_the_sdk_expects(serve: Serve) -> None:
    """With the key in its header."""
    questions = {
        "a": Noul(instructions="True?"),
        "b": Score(instructions="How?", criteria=["low", "mid", "high"]),
        "c": Choice(instructions="Which?", criteria={"x": None, "y": "z"}),
    }
    with client(serve(api="decision", key=KEY)) as typesafe:
        answered = typesafe.system_one(state={"prompt": "p", "response": "[[quality=7]] x"}, questions=questions)
    assert answered.nouls["a"].noul == 0.7
    assert 0 <= answered.scores["b"].score <= 2
    assert answered.choices["c"].choice in ("x", "y")


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_are_what_the_sdk_expects(fault: str, serve: Serve) -> None:
    """By status and message."""
    with client(serve(api="decision", faults={fault: 1.0})) as typesafe, pytest.raises(FAULTS[fault]):
        typesafe.system_one(state="s", questions={"a": Noul(instructions="True?")})
