"""The dialects `classify`, `score` and `pooling`: models on vLLM or SGLang that answer with numbers.

A Reply's text is the numbers as JSON: a list, or a list of lists where there is one for each token or step. Which of
them counts, and whether they are numbers at all, is for the judge to say.

    classify   {"messages" or "input"}            {"data": [{"probs": [0.7]}]}    SGLang: {"text"}, {"embedding": [1.2]}
    score      {"text_1", "text_2"}               {"data": [{"score": 0.7}]}      SGLang: {"query", "items"}, {"scores"}
    pooling    {"messages" or "input"}            {"data": [{"data": [0.7]}]}
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from referee.config import EndpointConfig
from referee.records import Action, Ask, Failure, Reason, Reply
from referee.wire import loose
from referee.wire.dialect import PLAIN, Adaptation, Dialect, json_bytes
from referee.wire.failure import odd_answer, open_answer, request_id
from referee.wire.turns import checked_extra

SGLANG = "sglang"
FILLED_IN = {
    **dict.fromkeys(("messages", "input", "text", "text_1", "text_2", "query", "items"), "judge.prompt_file"),
    **dict.fromkeys(("use_activation", "activation", "encoding_format"), "judge.kind"),
}
"""Request fields that are not for endpoint.extra."""
ONCE = ("data", "probs", "score", "scores", "embedding")


class NumbersEncoder:
    """Bodies for one endpoint."""

    def __init__(self, endpoint: EndpointConfig, pair: bool) -> None:
        self._fixed = {"model": endpoint.model, **checked_extra(endpoint, FILLED_IN)}
        self._sglang = endpoint.provider == SGLANG
        self._pair = pair

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body, see dialect.Encoder. There is nothing to cap."""
        body = {**self._fixed, **(self._texts(request) if self._pair else self._conversation(request))}
        if not self._sglang:
            # Under both of its names: a server that knows neither ignores it, and would answer on another scale.
            body["use_activation"] = body["activation"] = not request.raw
        return json_bytes(body)

    def _texts(self, request: Ask) -> dict[str, Any]:
        *before, last = request.messages
        first = "\n\n".join([message.content for message in before])
        if self._sglang:
            return {"query": first, "items": [last.content]}
        return {"text_1": first, "text_2": last.content}

    def _conversation(self, request: Ask) -> dict[str, Any]:
        messages = request.messages
        if self._sglang:
            return {"text": "\n\n".join([message.content for message in messages])}
        if len(messages) == 1 and messages[0].role == "text":
            # The text has its own special tokens, as a chat template writes them, unless extra says otherwise.
            return {"add_special_tokens": False, **self._fixed, "input": messages[0].content}
        return {"messages": [{"role": message.role, "content": message.content} for message in messages]}


class Numbers(Dialect):
    """What the three have in common."""

    path: str
    pair = False

    def url(self, endpoint: EndpointConfig) -> str:
        """endpoint.url may be the whole URL, the server's, or its base for chat (…/v1). SGLang scores under /v1."""
        parts = urlsplit(endpoint.url)
        path = parts.path.rstrip("/")
        if not path.endswith(self.path):
            path = path.removesuffix("/v1") + ("/v1" if self.pair and endpoint.provider == SGLANG else "") + self.path
        return parts._replace(path=path, fragment="").geturl()

    def encoder(self, endpoint: EndpointConfig) -> NumbersEncoder:
        """See dialect.Dialect."""
        return NumbersEncoder(endpoint, self.pair)

    def read(self, status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Reply | Failure:
        """See dialect.Dialect."""
        data = open_answer(status, headers, body, wall, ONCE)
        if isinstance(data, Failure):
            return data
        if isinstance(data, list) and len(data) == 1:  # SGLang, asked for a list of one
            data = data[0]
        numbers = self.numbers(data) if isinstance(data, dict) else None
        if numbers is None:
            what = f"JSON but not one result of {self.path}; are endpoint.url and endpoint.api right?"
            return odd_answer(status, headers, what, Reason.SCHEMA, Action.ASK_AGAIN)
        usage = loose.table(data.get("usage") or data.get("meta_info"))
        details = usage.get("prompt_tokens_details")
        return Reply(
            text=json.dumps(numbers),
            finish="stop",
            model=loose.text(data.get("model")),
            request_id=request_id(headers) or loose.text(data.get("id")),
            tokens_in=loose.count(usage.get("prompt_tokens")),
            tokens_cached=loose.count((details if isinstance(details, dict) else usage).get("cached_tokens")),
        )

    @abstractmethod
    def numbers(self, data: dict[str, Any]) -> list[Any] | None:
        """The numbers of an answer to one input; None: it is not such an answer."""


class Classify(Numbers):
    """POST /classify."""

    name = "classify/1"
    path = "/classify"

    def numbers(self, data: dict[str, Any]) -> list[Any] | None:
        """See Numbers."""
        return _list(data["embedding"] if "embedding" in data else _only(data).get("probs"))


class Score(Numbers):
    """POST /score."""

    name = "score/1"
    path = "/score"
    pair = True

    def numbers(self, data: dict[str, Any]) -> list[Any] | None:
        """See Numbers."""
        scores = data.get("scores")
        if isinstance(scores, list):
            return _list(scores[0]) if len(scores) == 1 else None
        one = _only(data)
        return [one["score"]] if "score" in one else None


class Pooling(Numbers):
    """POST /pooling."""

    name = "pooling/1"
    path = "/pooling"

    def numbers(self, data: dict[str, Any]) -> list[Any] | None:
        """See Numbers."""
        return _list(_only(data).get("data"))


def _only(data: dict[str, Any]) -> dict[str, Any]:
    """The only result in an answer; empty where there is none, or another one."""
    found = data.get("data")
    return loose.table(found[0]) if isinstance(found, list) and len(found) == 1 else {}


def _list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


CLASSIFY, SCORE, POOLING = Classify(), Score(), Pooling()
