"""The dialect `gemini`: Google's generateContent. Errors are read in `failure`.

A JSON schema goes out as it is (`responseJsonSchema`); to a model or gateway without that, in Google's older form
(`responseSchema`), a subset of OpenAPI's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from referee.config import EndpointConfig, Secret
from referee.records import Action, Ask, Failure, Reason, Reply, Sampling, TokenChoice
from referee.rollouts import Image
from referee.wire import loose
from referee.wire.dialect import SCHEMA, TIER, Adaptation, Dialect, common_headers, complete_url
from referee.wire.failure import odd_answer, open_answer, request_id
from referee.wire.turns import Turn, TurnEncoder, checked_extra, divided

METHOD = ":generateContent"
JSON_SCHEMA = "response_json_schema"
"""Its name in an adaptation: refused, the schema is sent in the older form."""

_CONFIG = "generationConfig"
_RESERVED = {
    "contents": "judge.prompt_file",
    "systemInstruction": "judge.prompt_file",
    f"{_CONFIG}.maxOutputTokens": "judge.max_tokens",
    f"{_CONFIG}.responseMimeType": "judge.reply",
    f"{_CONFIG}.responseSchema": "judge.reply",
    f"{_CONFIG}.responseJsonSchema": "judge.reply",
    f"{_CONFIG}.responseLogprobs": "judge.kind",
    f"{_CONFIG}.logprobs": "judge.kind",
    f"{_CONFIG}.candidateCount": "judge.kind",
}
_KEPT = ("description", "required", "minimum", "maximum", "minItems", "maxItems", "nullable")


class GeminiEncoder(TurnEncoder):
    """Bodies of requests to one endpoint."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        super().__init__()
        extra = _camel(endpoint.extra)
        if isinstance(extra.get(_CONFIG), dict):
            extra[_CONFIG] = _camel(extra[_CONFIG])
        self._extra = checked_extra(replace(endpoint, extra=extra), _RESERVED)
        self._tier = endpoint.tier

    def fixed(self, sampling: Sampling, adaptation: Adaptation, max_tokens: int) -> dict[str, Any]:
        """See TurnEncoder."""
        config: dict[str, Any] = {"maxOutputTokens": max_tokens}
        if sampling.temperature is not None and "temperature" not in adaptation:
            config["temperature"] = sampling.temperature
        if sampling.schema is not None and SCHEMA not in adaptation:
            config["responseMimeType"] = "application/json"
            if JSON_SCHEMA in adaptation:
                config["responseSchema"] = _older(sampling.schema)
            else:
                config["responseJsonSchema"] = sampling.schema
        if sampling.top_logprobs and "logprobs" not in adaptation:
            config["responseLogprobs"] = True
            config["logprobs"] = sampling.top_logprobs
        body = {**self._extra, _CONFIG: {**config, **self._extra.get(_CONFIG, {})}}
        if self._tier and TIER not in adaptation:
            body["serviceTier"] = self._tier
        return body

    def said(self, request: Ask) -> dict[str, Any]:
        """See TurnEncoder."""
        system, turns = divided(request.messages)
        contents = [{"role": "model" if turn.model else "user", "parts": _parts(turn)} for turn in turns]
        if not system:
            return {"contents": contents}
        return {"systemInstruction": {"parts": [{"text": system}]}, "contents": contents}


def _camel(table: Mapping[str, Any]) -> dict[str, Any]:
    """Google takes names in both styles, so max_output_tokens would stand beside our own."""
    return {re.sub("_([a-z])", lambda found: found[1].upper(), name): value for name, value in table.items()}


def _parts(turn: Turn) -> list[dict[str, Any]]:
    return [_part(piece) for piece in turn.pieces if piece is not None]


def _part(piece: str | Image) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"text": piece}
    if piece.url:
        return {"fileData": {"fileUri": piece.url}}
    return {"inlineData": {"mimeType": piece.media_type, "data": piece.data}}


def _older(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema in the older form: no closed objects, and an enum of strings only, so numbers become a range."""
    found = {name: schema[name] for name in _KEPT if name in schema}
    if isinstance(schema.get("type"), str):
        found["type"] = schema["type"].upper()
    options = schema.get("enum")
    if isinstance(options, list) and options:
        if all(isinstance(option, str) for option in options):
            found["enum"] = options
        elif all(isinstance(option, int | float) for option in options):
            found |= {"minimum": min(options), "maximum": max(options)}
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {name: _older(value) for name, value in schema["properties"].items()}
        found["propertyOrdering"] = list(schema["properties"])
    if isinstance(schema.get("items"), dict):
        found["items"] = _older(schema["items"])
    return found


class Gemini(Dialect):
    """Google's Gemini API."""

    name = "gemini/1"
    can_omit = frozenset({"temperature", JSON_SCHEMA, SCHEMA, "logprobs", TIER})
    first_without = MappingProxyType({SCHEMA: JSON_SCHEMA})
    takes_images = True

    def url(self, endpoint: EndpointConfig) -> str:
        """endpoint.url may be the whole URL, its base (…/v1beta) or a bare host."""
        if urlsplit(endpoint.url).path.rstrip("/").endswith(METHOD):
            return complete_url(endpoint.url, METHOD)
        model = endpoint.model if "/" in endpoint.model else f"models/{endpoint.model}"
        return complete_url(endpoint.url, f"/{quote(model)}{METHOD}", "/v1beta")

    def headers(self, key: Secret | None) -> dict[str, str]:
        """See dialect.Dialect."""
        found = common_headers()
        if key is not None:
            found["x-goog-api-key"] = key.reveal().strip()
        return found

    def encoder(self, endpoint: EndpointConfig) -> GeminiEncoder:
        """See dialect.Dialect."""
        return GeminiEncoder(endpoint)

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """See dialect.Dialect."""
        data = open_answer(status, headers, body, wall, None)
        if isinstance(data, Failure):
            return data
        blocked = loose.table(loose.table(data).get("promptFeedback")).get("blockReason")
        candidates = loose.tables(loose.table(data).get("candidates"))
        if candidates or blocked:
            return _reply(data, candidates[0] if candidates else {}, loose.ending(blocked), request_id(headers))
        if isinstance(data, dict) and not data.keys().isdisjoint(("candidates", "usageMetadata", "modelVersion")):
            return odd_answer(status, headers, "a reply without a candidate", Reason.EMPTY, Action.ASK_AGAIN)
        return odd_answer(status, headers, "JSON but no generated content; is endpoint.url one of the Gemini API?")


def _reply(data: dict[str, Any], first: dict[str, Any], blocked: str, given_id: str) -> Reply:
    """What the model said, without its thoughts; or that the prompt was blocked."""
    parts = loose.tables(loose.table(first.get("content")).get("parts"))
    usage = loose.table(data.get("usageMetadata"))
    return Reply(
        text="".join([loose.text(part.get("text")) for part in parts if not part.get("thought")]),
        finish=loose.ending(first.get("finishReason")),
        refusal=f"the prompt was blocked: {blocked}" if blocked else "",
        model=loose.text(data.get("modelVersion")),
        request_id=given_id or loose.text(data.get("responseId")),
        tokens_in=loose.count(usage.get("promptTokenCount")),
        tokens_out=loose.count(usage.get("candidatesTokenCount")) + loose.count(usage.get("thoughtsTokenCount")),
        tokens_cached=loose.count(usage.get("cachedContentTokenCount")),
        tier=loose.text(usage.get("serviceTier")).lower(),
        choices=_tokens(loose.table(first.get("logprobsResult"))),
    )


def _tokens(result: dict[str, Any]) -> tuple[TokenChoice, ...]:
    """Log-probabilities. The chosen token need not be among the likeliest, so it is put there."""
    chosen, tops = loose.tables(result.get("chosenCandidates")), loose.tables(result.get("topCandidates"))
    if len(chosen) != len(tops):
        return ()
    return loose.tokens(
        [
            {
                "token": one.get("token", ""),
                "top_logprobs": [
                    {"token": other.get("token"), "logprob": other.get("logProbability")}
                    for other in (one, *loose.tables(top.get("candidates")))
                ],
            }
            for one, top in zip(chosen, tops, strict=True)
        ]
    )


GEMINI = Gemini()
