"""The request parser: any split of the stream, nothing it does not understand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.sim.parse import MAX_BODY, MAX_HEAD, BadRequest, Request, RequestParser

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nX-Y:  z \r\n\r\n"


def feed(*pieces: bytes) -> list[Request | BadRequest]:
    """Everything a fresh parser makes of the pieces."""
    parser = RequestParser()
    return [item for piece in pieces for item in parser.feed(piece)]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.lists(st.integers(0, 600), max_size=8))
@settings(max_examples=80, deadline=None)
def test_any_split_gives_the_same_requests(bodies: list[bytes], cuts: list[int]) -> None:
    """However packets are cut or joined, the same requests come out in order."""
    stream = b"".join(POST % len(body) + body for body in bodies)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = feed(*(stream[a:b] for a, b in pairwise(edges)))
    assert [item.body for item in found if isinstance(item, Request)] == bodies
    assert len(found) == len(bodies)


def test_a_request_is_read_whole() -> None:
    """Method, path, lower-case names, trimmed values, body."""
    (found,) = feed(POST % 2 + b"{}")
    assert isinstance(found, Request)
    assert (found.method, found.path, found.body) == ("POST", "/v1/chat/completions", b"{}")
    assert found.headers == {"host": "a", "content-length": "2", "x-y": "z"}
    assert found.keep_alive


@pytest.mark.parametrize(
    ("line", "header", "kept"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_keep_alive_follows_the_version(line: bytes, header: bytes, kept: bool) -> None:
    """1.1 stays open unless told otherwise, 1.0 the other way round."""
    (found,) = feed(b"GET / HTTP/" + line + b"\r\n" + header + b"\r\n")
    assert isinstance(found, Request)
    assert found.keep_alive is kept


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nbad name: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\nc: d\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (POST % (MAX_BODY + 1), 413),
        (POST % 10**30, 413),
        (b"GET / HTTP/1.1\r\na: " + b"x" * MAX_HEAD, 431),
    ],
)
def test_what_is_not_understood_is_refused(text: bytes, status: int) -> None:
    """No guessing: the connection ends with a status that says why, and what follows is not read."""
    found = feed(text, POST % 0)
    assert [type(item) for item in found] == [BadRequest]
    assert isinstance(found[0], BadRequest)
    assert found[0].status == status


def test_good_requests_before_a_bad_one_are_kept() -> None:
    """In one packet: the first is answered, the second refused."""
    found = feed(POST % 1 + b"x" + b"bad\r\n\r\n")
    assert [type(item) for item in found] == [Request, BadRequest]
