"""What every dialect with generated replies promises, against its simulated server. A dialect is one `Case`; the test
file calls `dialect_contract` with all of them.

What a server sends is written in a case as the provider's documentation has it, not made by our own code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from referee.config import EndpointConfig
from referee.engine.port import Response, Transport
from referee.records import Ask, Media, Message, Reason, Reply, Sampling
from referee.sim import Provider, SimTransport
from referee.sim.api import Api
from referee.sim.apis import find_api
from referee.wire import Dialect, find_dialect

KEY = "sk-ant-0123456789abcdef-of-the-test"
MODEL = "judge-1"
HOST = "a.test"
"""The engine harness's own."""
SYSTEM, USER = "Be strict.", 'Judge "this".'
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
REPLY_TEXT = '{"reason": "fine", "score": 7}'
"""What the judge model says in every reply that a case writes out."""

Data = dict[str, Any]


class Odd(Struct, frozen=True):
    """One reply that is unusual and legal, as changed from a usual one, and what is read from it."""

    change: Callable[[Data], object]
    """Changes the body of a reply whose text is a whole verdict, in place."""
    keeps_usage: bool = True
    """False: the reply no longer says how many tokens it took."""


class Failing(Struct, frozen=True):
    """An answer that is an error, as the provider documents it."""

    status: int
    body: bytes
    reason: Reason
    headers: dict[str, str] = {}
    retry_after: float | None = None


class Case(Struct, frozen=True, kw_only=True):
    """One dialect. Bodies of requests are those of `ask()` to MODEL, byte for byte."""

    api: str
    """The name in endpoint.api and in ProviderSpec.api."""
    url: str = f"https://{HOST}/v1"
    posts_to: str
    """Where requests go for that endpoint.url."""
    key_header: tuple[str, str]
    """Name and value of the header that holds KEY."""
    schema_request: bytes
    text_request: bytes
    longer_request: bytes
    """text_request with twice the tokens."""
    logprobs_request: bytes | None
    """text_request with the five likeliest tokens. None: the API has no log-probabilities, and nothing is sent."""
    no_temperature_request: bytes
    reply: bytes
    """A whole reply with REPLY_TEXT, 100 tokens in of which 40 cached and 10 cache-written (if the API says so), and 20
    out."""
    read: Reply
    """What it is read as, down to who answered."""
    refused: bytes
    """A reply in which the model declines."""
    truncated: bytes
    """A reply that was cut at its token limit."""
    logprobs_reply: bytes | None = None
    """A reply "yes" whose token has the alternatives yes, at log-probability -0.105, and no, at -2.303."""
    odd: dict[str, Odd]
    """Four of them at least: extra_fields, several_texts, thinking, null_usage."""
    empty: dict[str, bytes]
    """JSON of the right shape without any text, by what is wrong with it."""
    failing: dict[str, Failing] = field(default_factory=dict)
    """Errors by what is wrong."""
    rate_headers: Mapping[str, str] = {}
    """Of a reply: 100 requests a minute of which 99 are left, for 30 s; 5000 tokens of which 4000 are left, for 6 s, at
    WALL. Empty: the provider sends none."""
    image_request: bytes | None = None
    """IMAGE_ASK in text form. None: the API takes no images."""
    omits: tuple[str, ...] = ("temperature", "response_format")
    """What the dialect can leave out, by chat's names, and the simulated server refuses by its own."""

    @property
    def dialect(self) -> Dialect:
        return find_dialect(self.api)

    @property
    def server(self) -> Api:
        return find_api(self.api)

    @property
    def endpoint(self) -> EndpointConfig:
        return EndpointConfig(url=self.url, api=self.api, model=MODEL)


WALL = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


def ask(sampling: Sampling | None = None, system: str = SYSTEM) -> Ask:
    """A request with a system prompt."""
    return Ask((Message("system", system), Message("user", USER)), sampling or Sampling(max_tokens=64), (), "n", 10)


PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    "RU5ErkJggg=="
)
"""One pixel."""
PNG_NAME = "image 53f01d18fd6a"
PHOTO = "https://images.example/photo.jpg"
PHOTO_NAME = "image 75e0d3871b90"
IMAGE_ASK = Ask(
    (Message("system", SYSTEM), Message("user", USER, media=(Media("image", PNG), Media("image", PHOTO)))),
    Sampling(max_tokens=64),
    (),
    "n",
    10,
)
"""A request with two images, one of them by its URL."""


def edited(case: Case, change: Callable[[Data], object]) -> bytes:
    """The case's whole reply, changed."""
    data = json.loads(case.reply)
    change(data)
    return json.dumps(data).encode()


class Wire:
    """The simulated network that remembers what was sent and can change what comes back."""

    def __init__(self, alter: Callable[[Response, Mapping[str, str]], Response] | None = None) -> None:
        self.sent: list[tuple[str, Mapping[str, str], bytes]] = []
        self.answers: list[Response] = []
        self._alter = alter
        self._inner: Transport | None = None

    def __call__(self, providers: Mapping[str, Provider]) -> Transport:
        """As `network` of the engine's harness."""
        self._inner = SimTransport(providers)
        return self

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        assert self._inner is not None
        self.sent.append((url, headers, body))
        answer = await self._inner.post(url, headers, body, timeout)
        if self._alter is not None:
            answer = self._alter(answer, headers)
        self.answers.append(answer)
        return answer

    async def close(self) -> None:
        assert self._inner is not None
        await self._inner.close()


def echo(answer: Response, sent: Mapping[str, str], status: int) -> Response:
    """An error that quotes the request's headers in its body and its own headers, as careless gateways do."""
    said = json.dumps({"error": {"message": f"bad request, headers {dict(sent)}", "param": KEY, "code": KEY}})
    return Response(status, {**answer.headers, "x-request-id": KEY, "x-echo": str(dict(sent))}, said.encode())
