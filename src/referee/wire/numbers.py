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

import msgspec

from referee.config import EndpointConfig
from referee.errors import ConfigError
from referee.records import Action, Ask, Failure, Reason, Reply
from referee.wire.dialect import PLAIN, Adaptation, Dialect
from referee.wire.error_body import holds_error
from referee.wire.failure import failure, inner_failure, request_id, unreadable
from referee.wire.json_body import load_json

SGLANG = "sglang"
FILLED_IN = (
    *("messages", "input", "text", "text_1", "text_2", "query", "items"),
    *("use_activation", "activation", "encoding_format"),
)
"""Request fields that are not for endpoint.extra."""
ONCE = ("data", "probs", "score", "scores", "embedding")
MOST_TOKENS = 10**9
"""A usage figure above this is nonsense and counts as not given."""


class NumbersEncoder:
    """Bodies for one endpoint."""

    def __init__(self, endpoint: EndpointConfig, pair: bool) -> None:
        for name in FILLED_IN:
            if name in endpoint.extra:
                raise ConfigError(
                    f"endpoint.extra: `{name}` is not for extra: the judge's settings say it.", setting="endpoint.extra"
                )
        self._fixed = {"model": endpoint.model, **endpoint.extra}
        self._sglang = endpoint.provider == SGLANG
        self._pair = pair

    def encode(self, request: Ask, adaptation: Adaptation = PLAIN, max_tokens: int | None = None) -> bytes:
        """The body, see dialect.Encoder. There is nothing to cap."""
        body = {**self._fixed, **(self._texts(request) if self._pair else self._conversation(request))}
        if not self._sglang:
            # Under both of its names: a server that knows neither ignores it, and would answer on another scale.
            body["use_activation"] = body["activation"] = not request.raw
        try:
            return msgspec.json.encode(body)
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only carry escaped
            return json.dumps(body).encode()

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
        if not 200 <= status < 300:
            return failure(status, headers, body, wall)
        try:
            data = load_json(body, ONCE)
        except ValueError as error:
            return unreadable(status, headers, body, error)
        if holds_error(data):
            return inner_failure(headers, data, wall)
        if isinstance(data, list) and len(data) == 1:  # SGLang, asked for a list of one
            data = data[0]
        numbers = self.numbers(data) if isinstance(data, dict) else None
        if numbers is None:
            return Failure(
                reason=Reason.SCHEMA,
                action=Action.ASK_AGAIN,
                detail=f"{status}, JSON but not one result of {self.path}; are endpoint.url and endpoint.api right?",
                status=status,
                request_id=request_id(headers),
            )
        found = data.get("usage") or data.get("meta_info")
        usage = found if isinstance(found, dict) else {}
        return Reply(
            text=json.dumps(numbers),
            finish="stop",
            model=as_text(data.get("model")),
            request_id=request_id(headers) or as_text(data.get("id")),
            tokens_in=as_count(usage.get("prompt_tokens")),
            tokens_cached=_cached(usage),
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
        return _list(data.get("embedding")) if "embedding" in data else _list(_only(data, "probs"))


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
        found = data.get("data")
        one = found[0] if isinstance(found, list) and len(found) == 1 else None
        return [one["score"]] if isinstance(one, dict) and "score" in one else None


class Pooling(Numbers):
    """POST /pooling."""

    name = "pooling/1"
    path = "/pooling"

    def numbers(self, data: dict[str, Any]) -> list[Any] | None:
        """See Numbers."""
        return _list(_only(data, "data"))


def _only(data: dict[str, Any], name: str) -> Any:
    """A field of the only result in an answer."""
    found = data.get("data")
    one = found[0] if isinstance(found, list) and len(found) == 1 else None
    return one.get(name) if isinstance(one, dict) else None


def _list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


def as_text(value: Any) -> str:
    """A string fit to be stored; empty if it is none."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """A number of tokens; 0 if it is none."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value <= MOST_TOKENS else 0


def _cached(usage: Mapping[str, Any]) -> int:
    details = usage.get("prompt_tokens_details")
    return as_count(details.get("cached_tokens") if isinstance(details, dict) else usage.get("cached_tokens"))


CLASSIFY, SCORE, POOLING = Classify(), Score(), Pooling()
