"""Starts and stops the embedded judge: an OpenAI-compatible llama.cpp server on loopback, in a child process.

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
from types import TracebackType
from typing import IO
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from referee import clock
from referee.errors import ConfigError
from referee.local.model import MODEL, ServerSpec, weights

SLOTS = 2
"""Concurrent requests. A verdict is one word, so nearly all the work is prefill, and each further slot prefills the
examples once more."""
CONTEXT = 4096
"""Tokens per slot, examples included. The server refuses longer requests, which end as unscored (too_long)."""
START_TIMEOUT = 120.0
"""Seconds. Starting takes about 2 s on an idle machine."""
OPENMP_ENV = {"OMP_WAIT_POLICY": "passive"}
"""Waiting worker threads must sleep: spinning made prefill 10 times slower on a busy machine."""
STOP_TIMEOUT = 5.0
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


class LocalJudge:
    """A running embedded judge. Close it, or use it in a `with`; it also ends with this process."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, model: str) -> None:
        self._process = process
        self.url = url
        """Base of the OpenAI-compatible API: `http://127.0.0.1:<port>/v1`."""
        self.model = model

    @property
    def pid(self) -> int:
        """The process that holds the model."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def leave(self) -> None:
        """Let it run on by itself; a thread reaps it, whenever it ends."""
        _close(self._process.stdout)
        threading.Thread(target=self._process.wait, daemon=True).start()

    def close(self) -> None:
        """Stop the server. Safe to call twice."""
        _stop(self._process)

    def __enter__(self) -> LocalJudge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalJudge({self.url}, {self.model}, {'running' if self.alive else 'stopped'})"


def start_local(slots: int = SLOTS, context: int = CONTEXT, timeout: float = START_TIMEOUT) -> LocalJudge:
    """Start the embedded judge and wait until it is healthy. ConfigError if it cannot run here or is not up in time."""
    return start_server(ServerSpec(str(weights()), MODEL, slots=slots, context=context), timeout)


def start_server(spec: ServerSpec, timeout: float = START_TIMEOUT) -> LocalJudge:
    """Start a server and wait until it is healthy."""
    deadline = clock.monotonic() + timeout
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module, and JSON
            _command(spec),
            stdin=subprocess.DEVNULL if spec.users else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**OPENMP_ENV, **os.environ},
            start_new_session=True,  # Ctrl-C must reach only the caller, which then stops the child
        )
        try:
            ready = _read_address(process, timeout)
            if ready is None or not healthy(ready.url, deadline, process):
                raise _start_error(process, log, timeout)
        except BaseException:
            _stop(process, timeout=0.0)
            raise
    return LocalJudge(process, f"{ready.url}/v1", ready.model)


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


def _stop(process: subprocess.Popen[bytes], timeout: float = STOP_TIMEOUT) -> None:
    """Close its input, then kill it if it does not exit; reap it.

    Its output is closed last: a thread may still be reading it, and closing would block on that.
    """
    _close(process.stdin)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _close(process.stdout)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()
