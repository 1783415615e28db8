"""The dialect `gemini`, beyond what the contract suite asks of all: the older form of a schema, images,
log-probabilities, and replies of every shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.dialect_gemini import error, reply

from referee.config import EndpointConfig
from referee.errors import ConfigError
from referee.judging.read import visible
from referee.records import Ask, Failure, Message, Reason, Reply, Sampling, Unscored
from referee.sim.gemini import GEMINI as SERVER
from referee.wire import PLAIN, SCHEMA, adapt
from referee.wire.gemini import GEMINI, JSON_SCHEMA

SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "score": {"type": "integer", "enum": [1, 2, 3]},
        "label": {"type": "string", "enum": ["yes", "no"]},
        "parts": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}},
    },
    "required": ["reason", "score"],
    "additionalProperties": False,
}
USER = Message("user", "Judge it.")


def body(*messages: Message, adaptation: frozenset[str] = PLAIN, **more: Any) -> dict[str, Any]:
    """The request for these messages; `more` is of the endpoint, but for `sampling`."""
    sampling = more.pop("sampling", Sampling())
    endpoint = EndpointConfig(url="https://a.test", model="m", api="gemini", **more)
    sent = GEMINI.encoder(endpoint).encode(Ask(messages, sampling, (), "n", 10), adaptation)
    SERVER.request("/v1beta/models/m:generateContent", sent)  # the simulated server refuses what Google would
    return dict(json.loads(sent))


def read(body: bytes, status: int = 200) -> Reply | Failure:
    return GEMINI.read(status, {}, body, 1e9)


@pytest.mark.parametrize(
    ("url", "model", "sent"),
    [
        ("https://g.test", "m-1", "https://g.test/v1beta/models/m-1:generateContent"),
        ("https://g.test/v1", "m-1", "https://g.test/v1/models/m-1:generateContent"),
        ("https://g.test/v1beta/", "models/m-1", "https://g.test/v1beta/models/m-1:generateContent"),
        ("https://g.test/v1beta", "tunedModels/mine", "https://g.test/v1beta/tunedModels/mine:generateContent"),
        ("https://g.test/x/models/y:generateContent", "m-1", "https://g.test/x/models/y:generateContent"),
        ("https://g.test/x/models/y:generateContent/", "m-1", "https://g.test/x/models/y:generateContent"),
        ("https://g.test/v1beta", "a b?c", "https://g.test/v1beta/models/a%20b%3Fc:generateContent"),
    ],
)
def test_the_model_is_in_the_url(url: str, model: str, sent: str) -> None:
    """Of every form of base; a whole URL stays as it is."""
    assert GEMINI.url(EndpointConfig(url=url, model=model, api="gemini")) == sent


def test_turns_are_of_user_and_model() -> None:
    """The system prompt is apart; neighbours of one side are one turn."""
    found = body(Message("system", "S."), Message("user", "a"), Message("user", "b"), Message("assistant", "c"), USER)
    assert found["systemInstruction"] == {"parts": [{"text": "S."}]}
    assert [turn["role"] for turn in found["contents"]] == ["user", "model", "user"]
    assert found["contents"][0]["parts"] == [{"text": "a"}, {"text": "b"}]
    assert "systemInstruction" not in body(USER)


def test_a_schema_goes_out_as_it_is() -> None:
    """Google takes JSON schema, enums of numbers and bounds included."""
    config = body(USER, sampling=Sampling(schema=SHAPE))["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"] == SHAPE


def test_the_older_form_says_the_same_in_fewer_words() -> None:
    """An enum of numbers becomes their range; the order of the keys is told."""
    found = body(USER, sampling=Sampling(schema=SHAPE), adaptation=frozenset({JSON_SCHEMA}))["generationConfig"]
    assert "responseJsonSchema" not in found
    assert found["responseSchema"] == {
        "type": "OBJECT",
        "required": ["reason", "score"],
        "properties": {
            "reason": {"type": "STRING"},
            "score": {"type": "INTEGER", "minimum": 1, "maximum": 3},
            "label": {"type": "STRING", "enum": ["yes", "no"]},
            "parts": {"type": "ARRAY", "items": {"type": "NUMBER", "minimum": 0, "maximum": 1}},
        },
        "propertyOrdering": ["reason", "score", "label", "parts"],
    }


def test_a_refused_schema_is_tried_in_the_older_form_before_text() -> None:
    """One step for each refusal, and none after the last."""
    once = adapt(GEMINI, PLAIN, SCHEMA)
    assert once == {JSON_SCHEMA}
    twice = adapt(GEMINI, once, SCHEMA)
    assert twice == {JSON_SCHEMA, SCHEMA}
    assert adapt(GEMINI, twice, SCHEMA) is None
    assert "responseMimeType" not in body(USER, sampling=Sampling(schema=SHAPE), adaptation=twice)["generationConfig"]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("Invalid JSON payload received. Unknown name \"responseJsonSchema\" at 'generation_config'", SCHEMA),
        ("Invalid value at 'generation_config.response_schema.properties[1].value.enum[0]' (TYPE_STRING), 1", SCHEMA),
        ("* GenerateContentRequest.generation_config.response_schema.properties[score]: must be specified", SCHEMA),
        ("The specified schema produces a constraint that has too many states for serving.", SCHEMA),
        ("Json mode is not enabled for models/gemini-pro", SCHEMA),
        ("Logprobs is not enabled for models/gemini-2.0-flash", "logprobs"),
        ("the temperature must be in the range [0.0, 2.0]", ""),
        ("Request contains an invalid argument.", ""),
    ],
)
def test_what_a_400_refuses(said: str, refused: str) -> None:
    """In Google's words."""
    found = read(error(400, "INVALID_ARGUMENT", said), 400)
    assert isinstance(found, Failure)
    assert (found.reason, found.unsupported) == (Reason.CONFIG, refused)


def test_extra_is_added_and_never_overrides_a_setting() -> None:
    """Settings of the generation stand beside ours, in one table."""
    extra = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}, "safetySettings": []}
    found = body(USER, extra=extra)
    assert found["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 0}
    assert found["generationConfig"]["maxOutputTokens"] == 512
    assert (
        body(USER, extra={"generation_config": {"thinking_config": {"thinkingBudget": 0}}, "safety_settings": []})
        == found
    )
    for wrong in (
        *({"contents": []}, {"generationConfig": {"maxOutputTokens": 1}}, {"generationConfig": 1}),
        *({"system_instruction": {}}, {"generation_config": {"max_output_tokens": 1}}),
        {"generationConfig": {"candidate_count": 3}},
    ):
        with pytest.raises(ConfigError, match=r"endpoint\.extra"):
            body(USER, extra=wrong)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("STOP", None),
        ("MAX_TOKENS", Reason.TRUNCATED),
        ("SAFETY", Reason.REFUSED),
        ("RECITATION", Reason.REFUSED),
        ("BLOCKLIST", Reason.REFUSED),
        ("PROHIBITED_CONTENT", Reason.REFUSED),
        ("SPII", Reason.REFUSED),
        ("OTHER", Reason.TRUNCATED),
        ("LANGUAGE", Reason.TRUNCATED),
        ("MALFORMED_RESPONSE", Reason.TRUNCATED),
        ("FINISH_REASON_UNSPECIFIED", Reason.TRUNCATED),
    ],
)
def test_every_finish_reason_is_an_ending_or_not(finish: str, reason: Reason | None) -> None:
    """Only STOP lets the judge's reader look at the text."""
    found = read(reply([{"text": '{"score": 7}'}], finish))
    assert isinstance(found, Reply)
    said = visible(found)
    assert (said.reason if isinstance(said, Unscored) else None) == reason


def test_a_blocked_prompt_is_a_refusal_that_was_billed() -> None:
    """With the filter's word, and what was counted."""
    found = read(b'{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}')
    assert isinstance(found, Reply)
    assert (found.refusal, found.tokens_in) == ("the prompt was blocked: SAFETY", 9)
    said = visible(found)
    assert isinstance(said, Unscored)
    assert said.reason is Reason.REFUSED


def probabilities(chosen: Any, tops: Any) -> Any:
    """What is read of such log-probabilities."""
    found = read(reply([{"text": "yes"}], logprobsResult={"chosenCandidates": chosen, "topCandidates": tops}))
    assert isinstance(found, Reply)
    return found.choices


def test_the_chosen_token_is_among_its_alternatives() -> None:
    """Google's likeliest need not have it."""
    chosen = [{"token": "yes", "logProbability": -3.0}]
    (choice,) = probabilities(chosen, [{"candidates": [{"token": "no", "logProbability": -0.1}]}])
    assert dict(choice.top) == {"yes": -3.0, "no": -0.1}


@pytest.mark.parametrize(
    ("chosen", "tops"),
    [(None, []), ([{"token": "a"}], []), ([{"token": 7}], [{}]), ([None], [{}]), ("x", "y"), ([[]], [[]])],
)
def test_log_probabilities_with_a_gap_are_none(chosen: Any, tops: Any) -> None:
    """A gap would shift every later token."""
    assert probabilities(chosen, tops) == ()


@pytest.mark.parametrize("name", [b'"content"', b'"finishReason"', b'"parts"', b'"text"', b'"candidates"'])
def test_a_reply_that_says_two_things_is_none(name: bytes) -> None:
    """Parsers differ in which of two they take."""
    whole = reply([{"text": '{"score": 7}'}])
    found = read(whole.replace(name + b":", name + b': "x", ' + name + b":", 1))
    assert isinstance(found, Failure)
    assert found.reason is Reason.CONNECTION


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "error")
INNER = ("content", "finishReason", "logprobsResult", "index")


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING), st.sampled_from([200, 400, 429, 503]))
def test_no_reply_makes_it_raise(data: dict[str, Any], status: int) -> None:
    """Whatever stands in the fields that are read."""
    assert isinstance(read(json.dumps(data).encode(), status), Reply | Failure)


@given(st.dictionaries(st.sampled_from(INNER), ANYTHING), ANYTHING, ANYTHING, ANYTHING)
def test_no_candidate_makes_it_raise(candidate: dict[str, Any], parts: Any, chosen: Any, usage: Any) -> None:
    """Parts, log-probabilities and usage of any type."""
    full = {
        "content": {"parts": [parts, {"text": parts, "thought": parts}]},
        "logprobsResult": {"chosenCandidates": [chosen]},
    }
    for one in (candidate, full):
        found = read(json.dumps({"candidates": [one], "usageMetadata": usage}).encode())
        assert isinstance(found, Reply | Failure)
