"""What every dialect must keep to."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from referee.config import EndpointConfig, Secret
from referee.records import Action, Ask, Failure, Message, Reply, Sampling
from referee.wire import PLAIN, Dialect

ENDPOINT = EndpointConfig(url="https://api.example/v1", model="model-of-the-test")
KEY = "sk-0123456789abcdef-of-the-test"
MESSAGES = (Message("system", "You judge."), Message("user", 'Quotes " and \\, é, half a character \ud800'))
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
SAMPLINGS = (Sampling(), Sampling(temperature=None, top_logprobs=5), Sampling(schema=SCHEMA))
BODIES = (
    *(b"", b" ", b"null", b"[]", b"{}", b"7", b'"text"', b"\xff\xfe", b"<html>Bad gateway</html>", b"{" * 5000),
    *(
        b'{"error": {"message": "no"}}',
        b'{"error": "no"}',
        b'{"choices": []}',
        b'{"data": [{}]}',
        b'{"output": [null]}',
    ),
    *(b'{"content": null}', b'{"content": [{"type": "text"', b'{"usage": {"total_tokens": -1}}', b"data: {}\n\n"),
)
ACTIONS = {401: Action.CLOSE, 429: Action.PARK, 500: Action.BACK_OFF, 503: Action.BACK_OFF}


def check_dialect(dialect: Dialect, endpoint: EndpointConfig = ENDPOINT) -> None:
    """As AssertionErrors: requests stay on the endpoint's host, the key is in headers only, encoding is repeatable and
    takes any text, no answer makes it raise, and an error status is a Failure with the right Action."""
    assert re.fullmatch(r"\S+/\d+", dialect.name), f"name must end in a version, as in my-api/1: {dialect.name!r}"
    url = dialect.url(endpoint)
    assert urlsplit(url)[:2] == urlsplit(endpoint.url)[:2], f"{url} is not on the host of {endpoint.url}"
    _check_headers(dialect)
    _check_bodies(dialect, endpoint)
    for status in (200, 204, 302, 400, 401, 403, 404, 413, 422, 429, 500, 503, 529):
        for body in BODIES:
            found = dialect.read(status, {"content-type": "application/json"}, body, 1e9)
            assert isinstance(found, Reply | Failure), f"{status} {body[:40]!r} was read as {found!r:.100}"
            assert status < 300 or isinstance(found, Failure), f"{status} {body[:40]!r} was read as a Reply"
            wanted = ACTIONS.get(status)
            if wanted is not None and isinstance(found, Failure):
                assert found.action is wanted, f"{status} {body[:40]!r} must be {wanted}, not {found.action}"
    dialect.hints({"retry-after": "soon", "x-ratelimit-remaining-requests": "-1"}, 1e9)


def _check_headers(dialect: Dialect) -> None:
    with_key, without = dialect.headers(Secret(f"{KEY}\n")), dialect.headers(None)
    assert any(KEY in value for value in with_key.values()), "headers(key) does not hold the key"
    assert not any(KEY in value for value in without.values()), "headers(None) remembers a key"
    for name, value in with_key.items():
        assert name == name.lower(), f"header names are lower case: {name}"
        assert value.isprintable(), f"header {name} has a character that a header cannot hold"


def _check_bodies(dialect: Dialect, endpoint: EndpointConfig) -> None:
    encoder = dialect.encoder(endpoint)
    for sampling in SAMPLINGS:
        ask = Ask(MESSAGES, sampling, (), "nonce", 10)
        plain = encoder.encode(ask, PLAIN, None)
        assert plain == dialect.encoder(endpoint).encode(ask, PLAIN, None), "encoding twice gives two bodies"
        assert KEY.encode() not in plain
        encoder.encode(ask, dialect.can_omit, 7)
        assert plain == encoder.encode(ask, PLAIN, None), "an encoder must notice when a request is another than before"
