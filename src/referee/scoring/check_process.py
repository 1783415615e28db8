"""Checks that may not come back, in a process of their own: regular expressions, and functions of the user's own.

A thread would not do: `re` holds the GIL while it backtracks, and a thread cannot be ended. The process is started with
the first such check, serves one at a time, and is ended by its own watchdog when one takes too long; the next check
starts another. Both ends are here: `open_checks` for the worker, `main` for the process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import select
import signal
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import msgspec
from msgspec import Struct

from referee import clock
from referee.errors import ConfigError
from referee.judging.checks import CheckFailed, CheckFunction, as_share, regex
from referee.ledger.writer import encode_replacing
from referee.records import Sample

SECONDS = 2.0
"""How long one check may take. The event loop waits for it."""
IMPORT_SECONDS = 120.0
"""How long importing a user's module may take."""
MARGIN = 1.0
"""Seconds after which the worker ends a process that its own watchdog should have ended."""
GIVE_UP_AFTER = 3
GIVE_UP_SECONDS = 60.0
"""A check that took too long this often in a row, with the same parameters, is not tried again for so long: that bounds
the share of time the event loop waits for it, and a few slow responses do not switch it off for all others."""
LOOK_S = 0.05
"""How often the worker looks whether the process is gone: a child it has forked may keep the pipe open."""
HEAD = 4
"""Bytes of length before a message."""


class Request(Struct, array_like=True, gc=False):
    """One check to run. `seconds`: its time."""

    number: int
    """Of the calls of one worker: an answer with another number is to another call."""
    function: str
    """`regex`, or package.module:function."""
    response: str
    parameters: Any
    sample: Sample
    seconds: float


class Outcome(Struct, array_like=True, gc=False):
    """What came of it: a number in [0, 1], or why there is none."""

    number: int
    value: float | None = None
    problem: str = ""


class CheckProcess:
    """The worker's end. Not for use by several threads at once."""

    def __init__(self, seconds: float = SECONDS, now: Callable[[], float] = clock.monotonic) -> None:
        """`now`: the clock by which a check that took too long is tried again."""
        self._seconds = seconds
        self._now = now
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._number = 0
        self._imported: set[str] = set()
        """Functions that the process has run before."""
        self._late: Counter[tuple[str, bytes]] = Counter()
        self._again_at: dict[tuple[str, bytes], float] = {}
        self._end: Callable[[], object] = lambda: None

    def call(self, function: str, response: str, parameters: Any, sample: Sample) -> float:
        """Run a check. Raises CheckFailed if it gives no number or does not come back in time."""
        key = (function, msgspec.json.encode(parameters))
        if self._now() < self._again_at.get(key, 0.0):
            raise CheckFailed(
                f"it took longer than {self._seconds:g} s {GIVE_UP_AFTER} times in a row and is not tried again for "
                f"{GIVE_UP_SECONDS:g} s"
            )
        self._number += 1
        message = Request(self._number, function, response, parameters, sample, self._seconds)
        request = encode_replacing(msgspec.msgpack.encode, message)
        process = self._started()
        limit = self._seconds + MARGIN + (0.0 if function in self._imported else IMPORT_SECONDS)
        try:
            outcome = _decoded(_exchange(process, request, limit))
        except BaseException:  # an answer that was not read would be taken for the next check's
            self.close()
            raise
        if outcome is None or outcome.number != self._number:
            self.close()
            self._late[key] += 1
            if self._late[key] >= GIVE_UP_AFTER:
                self._again_at[key] = self._now() + GIVE_UP_SECONDS
            raise CheckFailed(f"it took longer than {self._seconds:g} s, or ended its process")
        self._imported.add(function)
        self._late.pop(key, None)
        if outcome.value is None:
            raise CheckFailed(outcome.problem)
        return outcome.value

    def close(self) -> None:
        """End the process, if there is one."""
        self._process = None
        self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            return self._process
        # A forked copy of this object shares the pipes with its parent: it starts a process of its own.
        command = [sys.executable, "-c", "from referee.scoring.check_process import main; main()"]
        paths = os.pathsep.join([path or os.getcwd() for path in sys.path])
        process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        self._process, self._owner, self._imported = process, os.getpid(), set()
        self._end = weakref.finalize(self, _end, process, os.getpid())
        return process


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it has forked
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _decoded(answer: bytes) -> Outcome | None:
    try:
        return msgspec.msgpack.decode(answer, type=Outcome)
    except msgspec.DecodeError:
        return None


def _exchange(process: subprocess.Popen[bytes], message: bytes, limit: float) -> bytes:
    """Send a message and receive the answer; nothing if the process is gone or `limit` seconds are over."""
    assert process.stdin is not None
    assert process.stdout is not None
    source, target = process.stdout.fileno(), process.stdin.fileno()
    os.set_blocking(target, False)
    unsent, received = memoryview(len(message).to_bytes(HEAD, "big") + message), b""
    poll, until = select.poll(), clock.monotonic() + limit
    poll.register(source, select.POLLIN)
    poll.register(target, select.POLLOUT)
    while clock.monotonic() < until:
        gone = process.poll() is not None  # before looking: what it wrote before its end is still read
        ready = dict(poll.poll(0 if gone else 1000 * LOOK_S))
        try:
            if source in ready:
                size = int.from_bytes(received[:HEAD], "big") if len(received) >= HEAD else 0
                part = os.read(source, HEAD + size - len(received))
                received += part
                if not part:
                    return b""
                if len(received) > HEAD and len(received) == HEAD + int.from_bytes(received[:HEAD], "big"):
                    return received[HEAD:]
            elif gone:
                return b""
            if target in ready and unsent:
                unsent = unsent[os.write(target, unsent) :]
                if not unsent:
                    poll.unregister(target)
        except OSError:
            return b""
    return b""


def open_checks(
    own: Mapping[str, str] | Iterable[str] = (), setting: str = "judge.checks", seconds: float = SECONDS
) -> dict[str, CheckFunction]:
    """What `judging.checks.run_check` may call: `regex`, and these functions of the user's own, given as
    `package.module:function` or as names for such.

    A function that cannot be imported is a ConfigError. The process is started by the first call.
    """
    process = CheckProcess(seconds)
    named = dict(own) if isinstance(own, Mapping) else {name: name for name in own}
    for target in named.values():
        import_function(target, setting)
    return {name: functools.partial(process.call, target) for name, target in {**named, "regex": "regex"}.items()}


def import_function(target: str, setting: str = "judge.checks") -> Callable[..., object]:
    """The function that `package.module:function` names, or a ConfigError about the setting."""
    module, _, name = target.partition(":")
    try:
        if not module or not name or module == "__main__":
            raise ValueError("write it as package.module:function, of a module that other processes can import")
        function = getattr(importlib.import_module(module), name)
        if not callable(function):
            raise TypeError(f"{name} is no function")
    except Exception as error:
        raise ConfigError(
            f"{setting}: {target!r} cannot be used as a check ({type(error).__name__}: {error}).", setting=setting
        ) from error
    return function  # type: ignore[no-any-return]


def write(stream: IO[bytes], message: bytes) -> None:
    """Send a message."""
    stream.write(len(message).to_bytes(HEAD, "big") + message)
    stream.flush()


def read(stream: IO[bytes]) -> bytes:
    """Receive a message; nothing if the other end is gone."""
    head = stream.read(HEAD)
    return stream.read(int.from_bytes(head, "big")) if len(head) == HEAD else b""


def main() -> None:
    """The process: run checks until the worker is gone. What they print goes to standard error."""
    import faulthandler

    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull, "w") as nowhere:
        while message := read(requests):
            request = msgspec.msgpack.decode(message, type=Request)
            # The watchdog is a thread that needs no GIL, and it ends the process.
            faulthandler.dump_traceback_later(IMPORT_SECONDS, exit=True, file=nowhere)
            function = _function(request.function)
            faulthandler.dump_traceback_later(request.seconds, exit=True, file=nowhere)
            value, problem = _run(function, request)
            faulthandler.cancel_dump_traceback_later()
            outcome = Outcome(request.number, value, problem.encode("utf-8", "replace").decode())
            write(answers, msgspec.msgpack.encode(outcome))


def _function(target: str) -> Callable[..., object] | ConfigError:
    if target == "regex":
        return lambda response, parameters, sample: regex(response, parameters)
    try:
        return import_function(target)
    except ConfigError as error:
        return error


def _run(function: Callable[..., object] | ConfigError, request: Request) -> tuple[float | None, str]:
    try:
        if isinstance(function, ConfigError):
            return None, str(function)
        return as_share(function(request.response, request.parameters, request.sample)), ""
    except CheckFailed as error:
        return None, str(error)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
