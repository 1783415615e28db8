"""The dialect `gemini`: generateContent, as Google documents it."""

from __future__ import annotations

import json

from tests.contracts.dialect_suite import (
    HOST,
    KEY,
    PHOTO,
    PHOTO_NAME,
    PNG,
    PNG_NAME,
    REPLY_TEXT,
    Case,
    Data,
    Failing,
    Odd,
)

from referee.records import Reason, Reply

START = b'{"generationConfig":{"maxOutputTokens":64'
CONTENTS = (
    b'},"systemInstruction":{"parts":[{"text":"Be strict."}]},'
    b'"contents":[{"role":"user","parts":[{"text":"Judge \\"this\\"."}]}]}'
)
SCHEMA = b'{"type":"object","properties":{"score":{"type":"integer"}},"required":["score"]}'
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}


def reply(parts: list[Data] | None, finish: str = "STOP", **more: object) -> bytes:
    """A reply with one candidate; None: that candidate has no content."""
    content = {} if parts is None else {"content": {"role": "model", "parts": parts}}
    return json.dumps(
        {
            "candidates": [{**content, "finishReason": finish, "index": 0, **more}],
            "usageMetadata": {
                "promptTokenCount": 100,
                "candidatesTokenCount": 15,
                "totalTokenCount": 120,
                "cachedContentTokenCount": 40,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
                "thoughtsTokenCount": 5,
            },
            "modelVersion": "judge-1-001",
            "responseId": "mZHkaJ2wE5",
        }
    ).encode()


def error(code: int, status: str, said: str, *details: Data) -> bytes:
    """An error in the form of google.rpc.Status."""
    told = {"code": code, "message": said, "status": status}
    return json.dumps({"error": {**told, "details": list(details)} if details else told}).encode()


def _extra(data: Data) -> None:
    data |= {"createTime": "2026-11-18T08:00:00Z", "modelStatus": {"modelStage": "STABLE"}}
    data["candidates"][0] |= {"safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}]}
    data["promptFeedback"] = {"safetyRatings": []}


def _several(data: Data) -> None:
    said = data["candidates"][0]["content"]["parts"][0]["text"]
    data["candidates"][0]["content"]["parts"] = [{"text": said[:9]}, {"text": said[9:], "thoughtSignature": "c2ln"}]


def _thinking(data: Data) -> None:
    parts = data["candidates"][0]["content"]["parts"]
    parts.insert(0, {"text": '{"reason": "first idea", "score": 1}', "thought": True})


YES = {
    "avgLogprobs": -0.105,
    "logprobsResult": {
        "chosenCandidates": [{"token": "yes", "tokenId": 9891, "logProbability": -0.105}],
        "topCandidates": [
            {
                "candidates": [
                    {"token": "yes", "tokenId": 9891, "logProbability": -0.105},
                    {"token": "no", "tokenId": 1904, "logProbability": -2.303},
                ]
            }
        ],
    },
}

GEMINI = Case(
    api="gemini",
    url=f"https://{HOST}/v1beta",
    posts_to=f"https://{HOST}/v1beta/models/judge-1:generateContent",
    key_header=("x-goog-api-key", KEY),
    text_request=START + b',"temperature":0.0' + CONTENTS,
    schema_request=START
    + b',"temperature":0.0,"responseMimeType":"application/json","responseJsonSchema":%b' % SCHEMA
    + CONTENTS,
    longer_request=b'{"generationConfig":{"maxOutputTokens":128,"temperature":0.0' + CONTENTS,
    logprobs_request=START + b',"temperature":0.0,"responseLogprobs":true,"logprobs":5' + CONTENTS,
    no_temperature_request=START + CONTENTS,
    reply=reply([{"text": REPLY_TEXT}]),
    read=Reply(
        text=REPLY_TEXT,
        finish="STOP",
        model="judge-1-001",
        request_id="req_1",
        tokens_in=100,
        tokens_out=20,
        tokens_cached=40,
    ),
    refused=b'{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}',
    truncated=reply([{"text": '{"reason": "it'}], "MAX_TOKENS"),
    logprobs_reply=reply([{"text": "yes"}], **YES),
    odd={
        "extra_fields": Odd(_extra),
        "several_texts": Odd(_several),
        "thinking": Odd(_thinking),
        "null_usage": Odd(lambda data: data.update(usageMetadata=None), keeps_usage=False),
        "no role": Odd(lambda data: data["candidates"][0]["content"].pop("role")),
        "no index": Odd(lambda data: data["candidates"][0].pop("index")),
    },
    empty={
        "no candidates": b'{"usageMetadata": {"promptTokenCount": 9}, "modelVersion": "judge-1"}',
        "candidates null": b'{"candidates": null, "usageMetadata": {"promptTokenCount": 9}}',
        "candidates empty": b'{"candidates": []}',
        "a candidate that is null": b'{"candidates": [null]}',
        "no content": reply(None),
        "no parts": reply([]),
        "only a thought": reply([{"text": '{"score": 9}', "thought": True}]),
        "a function call": reply([{"functionCall": {"name": "grade", "args": {"score": 9}}}]),
        "not a reply": b'{"models": []}',
    },
    failing={
        "quota by the minute": Failing(
            429,
            error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan", RETRY),
            Reason.THROTTLED,
            {},
            34.07,
        ),
        "credit": Failing(
            429, error(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted. Please go to"), Reason.QUOTA
        ),
        "key": Failing(
            400, error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", BAD_KEY), Reason.AUTH
        ),
        "key, in other words": Failing(400, error(400, "INVALID_ARGUMENT", "Key expired.", BAD_KEY), Reason.AUTH),
        "permission": Failing(
            403, error(403, "PERMISSION_DENIED", "Your API key was reported as leaked."), Reason.AUTH
        ),
        "model": Failing(404, error(404, "NOT_FOUND", "models/judge-1 is not found for API version"), Reason.CONFIG),
        "overloaded": Failing(
            503, error(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), Reason.OVERLOADED
        ),
        "deadline": Failing(
            504, error(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."), Reason.OVERLOADED
        ),
        "internal": Failing(500, error(500, "INTERNAL", "An internal error has occurred."), Reason.OVERLOADED),
        "tokens": Failing(
            400,
            error(
                400, "INVALID_ARGUMENT", "The input token count (120029) exceeds the maximum number of tokens allowed"
            ),
            Reason.TOO_LONG,
        ),
        "place": Failing(
            400, error(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), Reason.CONFIG
        ),
    },
    image_request=START
    + b',"temperature":0.0},"systemInstruction":{"parts":[{"text":"Be strict."}]},'
    + f'"contents":[{{"role":"user","parts":[{{"text":"[{PNG_NAME}]:"}},'.encode()
    + f'{{"inlineData":{{"mimeType":"image/png","data":"{PNG.partition(",")[2]}"}}}},'.encode()
    + f'{{"text":"[{PHOTO_NAME}]:"}},{{"fileData":{{"fileUri":"{PHOTO}"}}}},'.encode()
    + b'{"text":"Judge \\"this\\"."}]}]}',
    omits=("temperature", "response_format", "logprobs"),
)
