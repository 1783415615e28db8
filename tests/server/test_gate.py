"""Who may come in: token, host, kind and size of a body."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.harness import TOKEN, sample, samples, serving

from referee.config import load
from referee.errors import ConfigError
from referee.server import add_page, run
from referee.server.gate import is_loopback
from referee.server.listen import find_token, listening
from referee.sim import ProviderSpec


def basic(text: str) -> str:
    """A Basic authorization header."""
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("", 401),
        (TOKEN, 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Digest {TOKEN}", 401),
        ("Basic not-base64", 401),
        (basic(f"{TOKEN}:"), 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (basic(f"referee:{TOKEN}"), 200),
    ],
)
def test_callers_need_the_token(header: str, status: int) -> None:
    """It is taken as a bearer token, or as the password of a URL; anything else is 401, before the body is read."""

    async def main() -> None:
        async with serving(token=TOKEN) as served:
            headers = {"authorization": header} if header else {}
            answer = await served.post("/v1/score", {"samples": [sample()]}, headers=headers)
            assert answer.status_code == status
            assert TOKEN not in answer.text
            for path in ("/metrics", "/openapi.json", "/nowhere"):
                assert ((await served.get(path, headers=headers)).status_code == 401) == (status == 401)
            if status == 401:
                assert "www-authenticate" in answer.headers
                assert served.held.asked == 0

    asyncio.run(main())


def test_health_is_open_but_keeps_to_itself_where_the_judge_is() -> None:
    """A probe needs no token; only who has it learns the endpoint's name."""

    async def main() -> None:
        async with serving(ProviderSpec(key="right"), token=TOKEN) as served:
            known = {"authorization": f"Bearer {TOKEN}"}
            await served.post("/v1/score", {"samples": [sample()]}, headers=known)
            for path, status in (("/healthz", 200), ("/readyz", 503)):
                stranger, friend = await served.get(path), await served.get(path, headers=known)
                assert stranger.status_code == friend.status_code == status
                assert stranger.json()["status"] == "closed"
                assert "a.test" not in stranger.text
                assert "a.test" in friend.text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8900", 200),
        ("localhost", 200),
        ("LOCALHOST:", 200),
        ("[::1]", 200),
        ("[::1]:80", 200),
        ("evil.test", 421),
        ("10.0.0.1", 421),
        ("[::1]evil", 421),
        ("[::1].evil.test:80", 421),
        ("localhost:80.evil.test", 421),
        ("localhost:80:90", 421),
        ("[localhost", 421),
        ("", 421),
    ],
)
def test_without_a_token_only_this_machines_names_are_answered(host: str, status: int) -> None:
    """A web page whose host name was pointed at 127.0.0.1 gets nothing."""

    async def main() -> None:
        async with serving() as served:
            assert (await served.get("/metrics", headers={"host": host})).status_code == status

    asyncio.run(main())


def test_a_page_cannot_post_without_asking_first() -> None:
    """A body that is not declared as JSON is 415: a browser sends others across origins unasked."""

    async def main() -> None:
        async with serving() as served:
            for headers in ({"content-type": "text/plain"}, {}):
                answer = await served.client.post("/v1/score", content=b"{}", headers=headers)
                assert answer.status_code == 415
            preflight = await served.client.options("/v1/score", headers={"origin": "http://evil.test"})
            assert preflight.status_code == 405
            assert "access-control-allow-origin" not in preflight.headers

    asyncio.run(main())


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_is_413(chunked: bool) -> None:
    """By its declared length before it is read, and by its bytes where none is declared."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 64

    async def main() -> None:
        async with serving(serve={"max_body": 2048}) as served:
            content: Any = pieces() if chunked else b" " * 4096
            headers = {"content-type": "application/json"}
            answer = await served.client.post("/v1/score", content=content, headers=headers)
            assert answer.status_code == 413
            assert "max_body" in answer.json()["message"]
            assert (await served.post("/v1/score", {"samples": [sample()]})).status_code == 200

    asyncio.run(main())


def test_errors_all_have_one_shape() -> None:
    """Unknown paths and methods too."""

    async def main() -> None:
        async with serving() as served:
            for answer in (await served.get("/nowhere"), await served.get("/v1/score"), await served.get("/docs")):
                assert answer.status_code in (404, 405)
                assert set(answer.json()) == {"error", "message"}
            wrong = await served.client.put("/v1/tickets/x")
            assert wrong.headers["allow"] == "DELETE, GET"

    asyncio.run(main())


def test_pages_of_others_stand_behind_the_same_token() -> None:
    """add_page serves sync and async functions; both get the query."""

    async def later(query: Any) -> bytes:
        return f"later {query['q']}".encode()

    async def main() -> None:
        async with serving(token=TOKEN) as served:
            add_page(served.app, "/now", lambda query: f"now {query.get('q')}")
            add_page(served.app, "/later", later, "text/plain", {"content-security-policy": "default-src 'none'"})
            known = {"authorization": basic(f"me:{TOKEN}")}
            assert (await served.get("/now")).status_code == 401
            now = await served.get("/now?q=1", headers=known)
            assert (now.text, now.headers["content-type"]) == ("now 1", "text/html; charset=utf-8")
            after = await served.get("/later?q=2", headers=known)
            assert after.text == "later 2"
            assert after.headers["content-security-policy"] == "default-src 'none'"
            paths = (await served.get("/openapi.json", headers=known)).json()["paths"]
            assert "/now" not in paths

    asyncio.run(main())


def test_loopback_is_told_from_the_rest() -> None:
    """Names and addresses of this machine, and nothing that others can reach."""
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "judge", "", "127.0.0.1.evil.test")))


@pytest.mark.parametrize("token", ["", "tiny-one", "has spaces in it, many of them", "ünïcödé-is-not-for-headers"])
def test_a_token_must_be_fit_for_a_header(token: str) -> None:
    """Missing, short or odd tokens are an error that names the setting and does not show the token."""
    with pytest.raises(ConfigError, match="token_env") as error:
        find_token("JUDGE_TOKEN", {"JUDGE_TOKEN": token})
    assert not token or token not in str(error.value)
    assert find_token("", {}) is None
    found = find_token("JUDGE_TOKEN", {"JUDGE_TOKEN": TOKEN})
    assert found is not None
    assert TOKEN not in repr(found)


def test_other_machines_are_let_in_only_with_a_token() -> None:
    """Listening anywhere but on loopback is refused without one."""
    with pytest.raises(ConfigError, match="--token-env"):
        run(load({"endpoint": {"url": "http://a.test/v1", "key_env": ""}}), host="0.0.0.0", port=0)


def test_an_occupied_port_is_one_clear_error() -> None:
    """It names the port and the option."""
    with listening("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}.*--port"), listening("127.0.0.1", port):
            pass


def test_answers_are_counted_by_route_and_status() -> None:
    """Unknown paths share one name, so that strangers cannot fill the memory."""

    async def main() -> None:
        async with serving() as served:
            await served.post("/v1/score", {"samples": samples(2)})
            await served.get("/v1/tickets/one")
            await served.get("/v1/tickets/two")
            await served.get("/x1")
            await served.get("/x2")
            assert {place: count for place, count in served.service.answers.items() if count} == {
                ("/v1/score", 200): 1,
                ("/v1/tickets/{id}", 404): 2,
                ("other", 404): 2,
            }

    asyncio.run(main())
