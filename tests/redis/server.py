"""A real redis-server on a free loopback port, and the ways it can be treated badly."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis.backoff import NoBackoff
from redis.retry import Retry

import redis
from referee import clock

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")
PATIENCE = 60.0
"""Seconds to wait for something that must happen, on a busy machine."""


def eventually(holds: Callable[[], Any], what: str) -> Any:
    """Wait until this is true, and return it."""
    end = clock.monotonic() + PATIENCE
    while True:
        found = holds()
        if found:
            return found
        assert clock.monotonic() < end, f"waited {PATIENCE:g} s in vain: {what}"
        threading.Event().wait(0.01)


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """Started, stopped, killed and started again on one port. It keeps nothing on disk."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = 0
        self._child: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """For `[redis] url`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, or start again, empty. Another port is taken if this one is, but only the first time."""
        assert BINARY is not None
        for _ in range(20 if not self.port else 1):
            port = self.port or free_port()
            plain = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]
            command = [BINARY, "--port", str(port), "--dir", str(self.folder), *plain, *self.options]
            child = self._child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            eventually(lambda: child.poll() is not None or _answers(port, child.pid), "redis-server")  # noqa: B023
            if child.poll() is None:
                self.port = port
                return
        raise AssertionError("redis-server did not start")

    def client(self, **more: Any) -> redis.Redis:
        """A plain client, for looking and for damage."""
        return redis.Redis(host="127.0.0.1", port=self.port, **more)

    def freeze(self) -> None:
        """Accept connections, answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with everything it knew."""
        child = self._child
        if child is not None and child.poll() is None:
            child.kill()
            child.wait()

    def _signal(self, number: int) -> None:
        assert self._child is not None
        os.kill(self._child.pid, number)


def _answers(port: int, pid: int) -> bool:
    """This very process answers on this port; one that wants a password is taken at its word."""
    client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=5.0, retry=Retry(NoBackoff(), 0))
    try:
        return int(client.info("server")["process_id"]) == pid
    except (redis.exceptions.AuthenticationError, redis.exceptions.NoPermissionError):
        return True
    except redis.exceptions.RedisError:
        return False
    finally:
        client.close()
