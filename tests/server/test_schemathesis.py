"""Requests made up from /openapi.json, fitting and not: the service keeps to what it says of itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.server.harness import PATIENCE, TOKEN, config_for

from referee.config import Secret
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.server import make_app
from referee.server.listen import listening, url_of
from referee.sim import Provider, ProviderSpec, SimTransport

# That three lists are of one length, that one text holds another, or that an object is a message in one of several
# formats, is more than a JSON schema can say.
SETTINGS = "".join(
    f"""
[[operations]]
include-path = "{path}"
checks.positive_data_acceptance.expected-statuses = ["2xx", 422]
"""
    for path in ("/get_reward", "/slime", "/v1/score", "/v1/tickets")
)


@pytest.fixture(params=["", TOKEN], ids=["open", "token"])
def address(request: Any) -> Iterator[tuple[str, str]]:
    """The application in this process, on a loop of its own, behind a real socket."""
    config = config_for(serve={"max_tickets": 10**6, "max_queue": 10**6}, missing={"abort_above": 1.0})
    token: str = request.param
    with (
        listening("127.0.0.1", 0) as sock,
        Referee(config, worker_with(lambda: SimTransport(Provider(ProviderSpec(), 1)))) as referee,
    ):
        server: list[uvicorn.Server] = []

        async def serve() -> None:
            app = make_app(referee, Secret(token) if token else None)
            server.append(uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, http="httptools")))
            await server[0].serve(sockets=[sock])

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        sock.listen()
        thread.start()
        yield url_of(sock), token
        server[0].should_exit = True
        thread.join(PATIENCE)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schemathesis_finds_nothing(address: tuple[str, str], tmp_path: Path) -> None:
    """All of its phases and checks: statuses, shapes, headers, methods, tokens, fitting and unfitting bodies."""
    pytest.importorskip("schemathesis")
    url, token = address
    (tmp_path / "settings.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "settings.toml", "run", f"{url}/openapi.json"]
    command += ["--max-examples", "25", "--seed", "1", "--generation-database", "none", "--no-color"]
    command += ["--request-timeout", str(PATIENCE)]
    if token:
        command += ["--header", f"Authorization: Bearer {token}"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True, timeout=850
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
