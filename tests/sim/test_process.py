"""The provider in a child process: it starts, answers, counts, stops, and never outlives its parent."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from referee.errors import RefereeError
from referee.sim.process import start_server_process
from referee.sim.spec import ProviderSpec

MakeBody = Callable[..., bytes]


def post(url: str, body: bytes) -> tuple[int, bytes]:
    """One request with the standard library's client."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("POST", parts.path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_child_serves_and_counts(body: MakeBody) -> None:
    """The spec reaches the child, requests are answered, statistics come back, stopping ends it."""
    with start_server_process(ProviderSpec(faults={"http_529": 0.5}, model="m"), seed=1) as server:
        statuses = [post(server.url, body())[0] for _ in range(40)]
        stats = server.stats()
        assert set(statuses) == {200, 529}
        assert stats.by_status == {status: statuses.count(status) for status in (200, 529)}
    server.stop()
    with pytest.raises(OSError):
        post(server.url, body())


PARENT = """
import os
from referee.sim import ProviderSpec, start_server_process
server = start_server_process(ProviderSpec())
print(server.url, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_child_ends_with_its_parent() -> None:
    """kill -9 of the parent: the child holds the same standard error, so its end is the end of that stream."""
    parent = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, timeout=50)
    assert parent.returncode == -9
    with pytest.raises(OSError):
        post(parent.stdout.decode().strip(), b"{}")


def test_a_child_that_cannot_start_is_an_error() -> None:
    """A host it cannot bind: an error here, the reason on standard error, nothing left behind."""
    with pytest.raises(RefereeError, match="did not start"):
        start_server_process(ProviderSpec(), host="203.0.113.1")


def test_the_command_line_refuses_a_bad_spec() -> None:
    """The message names the field."""
    found = subprocess.run(
        [sys.executable, "-m", "referee.sim", json.dumps({"capasity": 3}), "0", "127.0.0.1"],
        capture_output=True,
        timeout=50,
    )
    assert found.returncode == 1
    assert b"capasity" in found.stderr
