"""The access log: what it says of a request, and what nothing that a client sends can make it say."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.server.harness import TOKEN, Served, sample, samples, serving

from referee.server import add_page
from referee.server.logs import JsonLines, TextLines, start_logging

SECRETS = ("sk-proj-abcdef0123456789abcdef", "hunter2", TOKEN, "0123456789abcdef0123456789abcdef")
BASIC = ("job-a", TOKEN)


@pytest.fixture(autouse=True)
def logged_from_info_on(caplog: pytest.LogCaptureFixture) -> None:
    """As `--access-log` has it."""
    caplog.set_level(logging.INFO, "referee.access")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The access lines so far, as JSON would show them."""
    records = [record for record in caplog.records if record.name == "referee.access"]
    texts = [JsonLines().format(record) for record in records]
    assert not any("\n" in text for text in texts)
    return [json.loads(text) for text in texts]


def test_a_line_says_what_was_asked_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Method, path, status, time, caller, samples, id and address, and the id is answered too."""

    async def main() -> httpx.Response:
        async with serving(token=TOKEN) as served:
            found = await served.post(
                "/v1/score?x=1", {"samples": samples(3)}, auth=BASIC, headers={"x-request-id": "step-7.a"}
            )
            await served.post("/v1/tickets", {"samples": samples(2)}, auth=BASIC)
            return found

    answer = asyncio.run(main())
    assert answer.headers["x-request-id"] == "step-7.a"
    first, second = lines(caplog)
    assert first.pop("seconds") > 0
    assert first.pop("ts").endswith("Z")
    assert first == {
        **{"level": "info", "logger": "referee.access", "message": "POST /v1/score 200"},
        **{"method": "POST", "path": "/v1/score", "status": 200, "team": "", "caller": "job-a", "samples": 3},
        **{"request_id": "step-7.a", "client": "127.0.0.1"},
    }
    assert (second["status"], second["samples"]) == (202, 2)
    assert len(second["request_id"]) == 16


def test_a_fault_of_ours_is_found_by_the_requests_id(caplog: pytest.LogCaptureFixture) -> None:
    """The traceback has it, once, and the answer has it; what the error says is not told."""

    async def main() -> httpx.Response:
        async with serving(token=TOKEN) as served:
            add_page(served.app, "/page", lambda query: str(1 // 0))
            found = await served.get("/page", auth=BASIC, headers={"x-request-id": "step-8"})
            assert served.service.answers["/page", 500] == 1
            return found

    answer = asyncio.run(main())
    assert (answer.status_code, answer.json()["error"], answer.headers["x-request-id"]) == (500, "internal", "step-8")
    assert "division" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    (line,) = [json.loads(JsonLines().format(record)) for record in caplog.records if record.exc_info]
    assert (line["level"], line["request_id"]) == ("error", "step-8")
    assert "ZeroDivisionError" in line["exception"]
    assert [line["status"] for line in lines(caplog)] == [500]


@pytest.mark.parametrize(
    "path",
    [
        "/a%0A%7B%22level%22:%22info%22%7D",
        "/a%0D%0Ab%1b%5B31m%00",
        "/%E2%80%A8line",
        "/%ff%fe",
        '/caf%C3%A9 "quoted"',
        f"/get_reward?token={TOKEN}",
        f"/get_reward%3Ftoken={TOKEN}",
        "/get_reward%253Ftoken=hunter2",
        "/get_reward;token=hunter2",
        f"//referee:{TOKEN}@host/get_reward",
        "/http://referee:hunter2@host/get_reward",
        "//referee:a/hunter2@host/get_reward",
        "/referee%3Ahunter2%40host/x",
        f"/{TOKEN}/get_reward",
        f"/prefix-{TOKEN}",
        "/sk-proj-abcdef0123456789abcdef",
        "/v1/tickets/0123456789abcdef0123456789abcdef",
        "/" + "long/" * 2000,
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_no_path_breaks_a_line_or_shows_a_secret(path: str, known: bool, caplog: pytest.LogCaptureFixture) -> None:
    """One JSON object and one line of text, short, ASCII or printable, without query, credentials and tokens."""

    async def main() -> None:
        async with serving(token=TOKEN) as served:
            await served.client.get(httpx.URL("http://127.0.0.1:8900" + path), auth=BASIC if known else None)

    asyncio.run(main())
    (line,) = lines(caplog)
    (record,) = [record for record in caplog.records if record.name == "referee.access"]
    text = TextLines("%(message)s").format(record)
    assert text.isprintable()
    assert len(line["path"]) < 200
    for shown in (json.dumps(line), text):
        assert not any(secret in shown for secret in SECRETS), shown


@pytest.mark.parametrize("name", [TOKEN, "sk-proj-abcdef0123456789abcdef", "a\nb\x1b[0m", 'x" y'])
def test_no_name_of_a_caller_does_either(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also a user name that is the token, as in http://<token>@host."""

    async def main() -> None:
        async with serving(token=TOKEN) as served:
            assert (await served.post("/v1/score", {"samples": [sample()]}, auth=(name, TOKEN))).status_code == 200

    asyncio.run(main())
    (line,) = lines(caplog)
    assert line["caller"].isprintable()
    assert not any(secret in json.dumps(line) for secret in SECRETS)


def test_a_caller_that_is_refused_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    """What was sent as its name may be a password. Nor is one without the token that asks what needs none."""

    async def main() -> None:
        async with serving(token=TOKEN) as served:
            assert (await served.get("/healthz", auth=("hunter2", ""))).status_code == 200
            answer = await served.post("/v1/score", {"samples": [sample()]}, auth=("hunter2", ""))
            assert answer.status_code == 401
            assert answer.headers["x-request-id"]

    asyncio.run(main())
    assert [(line["status"], line["caller"], line["samples"]) for line in lines(caplog)] == [(200, "", 0), (401, "", 0)]


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "é", f"id-{TOKEN}", "a\tb"])
def test_an_id_that_is_not_sane_is_replaced(given: str, caplog: pytest.LogCaptureFixture) -> None:
    """It would stand in the log and in the answer's head."""

    async def main() -> str:
        async with serving(token=TOKEN) as served:
            answer = await served.get("/healthz", headers={"x-request-id": given.encode()})
            found: str = answer.headers["x-request-id"]
            return found

    found = asyncio.run(main())
    assert found != given
    assert lines(caplog)[0]["request_id"] == found


def test_while_it_drains_connections_are_closed() -> None:
    """So that a client that keeps its connection finds another replica with its next request."""

    async def main() -> tuple[httpx.Response, httpx.Response]:
        async with serving() as served:
            before = await served.get("/readyz")
            await served.service.drain(0)
            return before, await served.get("/readyz")

    before, after = asyncio.run(main())
    assert (before.status_code, before.headers.get("connection")) == (200, None)
    assert (after.status_code, after.headers["connection"]) == (503, "close")


@pytest.fixture
def logging_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `start_logging` changes is undone afterwards."""
    handlers = logging.getLogger().handlers[:]
    monkeypatch.setattr(logging, "raiseExceptions", True)
    for module in (sys, threading):
        monkeypatch.setattr(module, "excepthook", module.excepthook)
    yield
    logging.captureWarnings(False)
    logging.getLogger().handlers[:] = handlers


def test_all_that_is_written_is_json(logging_restored: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages with line ends and half characters, tracebacks, and what is printed past the log."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    start_logging("json", access=True)
    log = logging.getLogger("referee.server")
    log.warning("a\nb \ud800 %s", "\x1b[0m")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it failed")
    print("printed\nin two", end="", file=sys.stderr)
    print(file=sys.stderr)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("careful\nnow", UserWarning, stacklevel=1)
    found = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["message"] for line in found[:-1]] == ["a\nb \ud800 \x1b[0m", "it failed", "printed", "in two"]
    assert "careful" in found[-1]["message"]
    assert "ValueError: two" in found[1]["exception"]
    assert {line["level"] for line in found} == {"warning", "error"}


def test_the_samples_of_a_ticket_are_those_it_was_opened_with(caplog: pytest.LogCaptureFixture) -> None:
    """A request that judges nothing has 0."""

    async def main(served: Served) -> None:
        name = (await served.post("/v1/tickets", {"samples": samples(2)})).json()["id"]
        await served.get(f"/v1/tickets/{name}", params={"wait": 50})

    async def run() -> None:
        async with serving() as served:
            await main(served)

    asyncio.run(run())
    assert [(line["path"], line["samples"]) for line in lines(caplog)] == [("/v1/tickets", 2), ("/v1/tickets/{id}", 0)]
