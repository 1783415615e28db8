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

from referee.config import EndpointConfig
from referee.records import Action, Ask, Failure, Query, Reason, Reply
from referee.wire import loose
from referee.wire.dialect import PLAIN, Adaptation, Dialect, complete_url, json_bytes
from referee.wire.failure import odd_answer, open_answer, request_id
from referee.wire.scrub import label
from referee.wire.turns import checked_extra

PATHS = ("/systemone", "/evaluations")
LONGEST_SCORE = 10
"""Levels of a question of type score."""


class DecisionEncoder:
    """Bodies for one endpoint."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        extra = checked_extra(endpoint, {"state": "judge.prompt_file", "questions": "judge.kind"})
        self._fixed = {"model": endpoint.model, **extra}

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body, see dialect.Encoder. There is nothing to cap. The system message is the questions in words."""
        texts = [message for message in request.messages if message.role != "system" or not request.queries]
        state: Any = {message.role: message.content for message in texts}
        if len(state) < len(texts):
            state = [{"role": message.role, "content": message.content} for message in texts]
        questions = {query.id: _question(query) for query in request.queries}
        return json_bytes({**self._fixed, "state": state, "questions": questions})


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
        path = urlsplit(endpoint.url).path.rstrip("/")
        return complete_url(endpoint.url, next((each for each in PATHS if path.endswith(each)), PATHS[0]))

    def encoder(self, endpoint: EndpointConfig) -> DecisionEncoder:
        """See dialect.Dialect."""
        return DecisionEncoder(endpoint)

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """See dialect.Dialect."""
        data = open_answer(status, headers, body, wall, None)  # an answer that stands there twice says two things
        if isinstance(data, Failure):
            return data
        request = label(headers.get("x-typesafe-request-id", ""), 128) or request_id(headers)
        answers = data.get("answers") if isinstance(data, dict) else None
        if not isinstance(answers, dict):
            what = "JSON without answers; is endpoint.url that of a decision model?"
            return odd_answer(status, headers, what, Reason.SCHEMA, Action.ASK_AGAIN, request)
        usage = loose.table(data.get("usage"))
        return Reply(
            text=json.dumps(answers),
            finish="stop",
            model=loose.text(data.get("model")),
            request_id=request,
            tokens_in=loose.count(usage.get("input_tokens")),
            tokens_out=loose.count(usage.get("output_tokens")),
        )


DECISION = Decision()
