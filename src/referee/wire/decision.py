"""The dialect `decision`: a state and typed questions about it in, probabilities of their answers out. TypeSafe's
System One (POST /v1/systemone), and the models that follow it.

A Reply's text is the object of answers; whether they are to what was asked is for the judge.

    noul     yes or no                {"type": "noul", "noul": 0.92}
    score    2 to 10 ordered levels   {"type": "score", "score": 1.7, "probabilities": {"0": 0.1, "1": 0.1, "2": 0.8}}
    choice   anything else            {"type": "choice", "choice": "na", "probabilities": {"yes": 0.1, "no": 0.2, …}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from referee.config import EndpointConfig
from referee.errors import ConfigError
from referee.records import Action, Ask, Failure, Query, Reason, Reply
from referee.wire.dialect import PLAIN, Adaptation, Dialect
from referee.wire.error_body import holds_error
from referee.wire.failure import failure, inner_failure, request_id, unreadable
from referee.wire.json_body import load_json
from referee.wire.numbers import as_count, as_text
from referee.wire.scrub import label

PATHS = ("/systemone", "/evaluations")
LONGEST_SCORE = 10
"""Levels of a question of type score."""


class DecisionEncoder:
    """Bodies for one endpoint."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        for name in ("state", "questions"):
            if name in endpoint.extra:
                raise ConfigError(
                    f"endpoint.extra: `{name}` is not for extra: the judge's settings say it.", setting="endpoint.extra"
                )
        self._fixed = {"model": endpoint.model, **endpoint.extra}

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body, see dialect.Encoder. There is nothing to cap. The system message is the questions in words."""
        texts = [message for message in request.messages if message.role != "system" or not request.queries]
        state: Any = {message.role: message.content for message in texts}
        if len(state) < len(texts):
            state = [{"role": message.role, "content": message.content} for message in texts]
        body = {**self._fixed, "state": state, "questions": {query.id: _question(query) for query in request.queries}}
        try:
            return msgspec.json.encode(body)
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only carry escaped
            return json.dumps(body).encode()


def _question(query: Query) -> dict[str, Any]:
    if not query.may_not_apply and not query.levels:
        return {"type": "noul", "instructions": query.text}
    if not query.may_not_apply and len(query.levels) <= LONGEST_SCORE:
        return {"type": "score", "instructions": query.text, "criteria": list(query.levels)}
    answers: dict[str, str | None] = {"yes": None, "no": None}
    if query.levels:
        answers = {str(number): text for number, text in enumerate(query.levels)}
    if query.may_not_apply:
        answers["na"] = "It cannot apply."
    return {"type": "choice", "instructions": query.text, "criteria": answers}


class Decision(Dialect):
    """A decision model."""

    name = "decision/1"

    def url(self, endpoint: EndpointConfig) -> str:
        """endpoint.url may be the whole URL, its base (…/v1) or a bare host."""
        parts = urlsplit(endpoint.url)
        path = parts.path.rstrip("/")
        if not path.endswith(PATHS):
            path = (path or "/v1") + PATHS[0]
        return parts._replace(path=path, fragment="").geturl()

    def encoder(self, endpoint: EndpointConfig) -> DecisionEncoder:
        """See dialect.Dialect."""
        return DecisionEncoder(endpoint)

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """See dialect.Dialect."""
        if not 200 <= status < 300:
            return failure(status, headers, body, wall)
        try:
            data = load_json(body, None)  # an answer that stands there twice says two things
        except ValueError as error:
            return unreadable(status, headers, body, error)
        if holds_error(data):
            return inner_failure(headers, data, wall)
        request = label(headers.get("x-typesafe-request-id", ""), 128) or request_id(headers)
        answers = data.get("answers") if isinstance(data, dict) else None
        if not isinstance(answers, dict):
            return Failure(
                reason=Reason.SCHEMA,
                action=Action.ASK_AGAIN,
                detail=f"{status}, JSON without answers; is endpoint.url that of a decision model?",
                status=status,
                request_id=request,
            )
        usage = data["usage"] if isinstance(data.get("usage"), dict) else {}
        return Reply(
            text=json.dumps(answers),
            finish="stop",
            model=as_text(data.get("model")),
            request_id=request,
            tokens_in=as_count(usage.get("input_tokens")),
            tokens_out=as_count(usage.get("output_tokens")),
        )


DECISION = Decision()
