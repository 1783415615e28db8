"""Servers for the tests of what is shared through Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.redis.server import BINARY, RedisServer


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Starts servers with options of the test's own, and ends them."""
    if BINARY is None:
        pytest.skip("redis-server is not installed")
    made: list[RedisServer] = []

    def start(*options: str) -> RedisServer:
        made.append(RedisServer(tmp_path, *options))
        return made[-1]

    yield start
    for server in made:
        server.kill()


@pytest.fixture
def server(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """One server, as it comes."""
    return start_redis()
