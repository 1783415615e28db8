"""Starts the embedded judge: an OpenAI-compatible llama.cpp server on loopback, in a child process.

The child (`referee.local.__main__`) keeps the model's threads, log and crashes out of the caller's process.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from referee import clock
from referee.errors import ConfigError
from referee.local.model import ServerSpec

START_TIMEOUT = 120.0
"""Seconds. Starting takes about 2 s on an idle machine."""
OPENMP_ENV = {"OMP_WAIT_POLICY": "passive"}
"""Waiting worker threads must sleep: spinning made prefill 10 times slower on a busy machine."""
HEALTH_POLL_S = 0.05
EXIT_GRACE_S = 0.5
"""How long to wait for the exit code of a child whose output has closed."""
_OUT_OF_MEMORY = ("bad_alloc", "failed to allocate", "out of memory", "MemoryError")
_NO_MEMORY = (
    " Memory was probably not enough for the file and its contexts: take a smaller file, or lower "
    "endpoint.local.context or endpoint.local.slots."
)
LOG_TAIL = 2000
"""Characters of the child's log shown in an error."""


class _Ready(Struct):
    url: str
    model: str


class Started(NamedTuple):
    """A server that runs on by itself."""

    url: str
    """Base of the OpenAI-compatible API: `http://127.0.0.1:<port>/v1`."""
    model: str
    pid: int


def start_server(spec: ServerSpec, timeout: float = START_TIMEOUT) -> Started:
    """Start a server and wait until it is healthy; a thread reaps it, whenever it ends."""
    deadline = clock.monotonic() + timeout
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module, and JSON
            _command(spec),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**OPENMP_ENV, **os.environ},
            start_new_session=True,  # Ctrl-C must reach only the caller, which then stops using it
        )
        assert process.stdout is not None
        try:
            ready = _read_address(process, timeout)
            if ready is None or not healthy(ready.url, deadline, process):
                raise _start_error(process, log, timeout)
        except BaseException:
            process.kill()
            process.wait()
            process.stdout.close()  # last: a thread may still be reading it, and closing would block on that
            raise
    process.stdout.close()
    threading.Thread(target=process.wait, daemon=True).start()
    return Started(f"{ready.url}/v1", ready.model, process.pid)


def _command(spec: ServerSpec) -> list[str]:
    return [sys.executable, "-P", "-m", "referee.local", msgspec.json.encode(spec).decode()]


def _read_address(process: subprocess.Popen[bytes], timeout: float) -> _Ready | None:
    """The line a started child prints; None if it exited or time ran out. Read in a thread, because a pipe read has no
    timeout."""
    lines: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda out: lines.append(out.readline()), args=(process.stdout,), daemon=True)
    reader.start()
    reader.join(timeout)
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(lines[0], type=_Ready) if lines else None
    return None


def healthy(url: str, deadline: float, process: subprocess.Popen[bytes] | None = None) -> bool:
    """Whether a server answers by a time, while its process runs."""
    address = urlsplit(url)
    while (process is None or process.poll() is None) and (left := deadline - clock.monotonic()) > 0:
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=left)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        clock.pause(HEALTH_POLL_S)
    return False


def _start_error(process: subprocess.Popen[bytes], log: IO[bytes], timeout: float) -> ConfigError:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(EXIT_GRACE_S)
    code = process.returncode
    what = f"did not answer within {timeout:g} s" if code is None else f"ended with code {code}"
    log.seek(0)
    tail = log.read().decode(errors="replace").strip()[-LOG_TAIL:]
    memory = _NO_MEMORY if code == -signal.SIGKILL or any(word in tail for word in _OUT_OF_MEMORY) else ""
    return ConfigError(
        f"the embedded judge {what}, so nothing was judged.{memory} Name another judge in [endpoint] url, or look at "
        f"its log:\n{tail or '(empty)'}",
        setting="endpoint.url",
    )
