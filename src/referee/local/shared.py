"""One server for all processes of a machine that want the same file, run the same way.

Each user holds a shared lock on a file, which the kernel releases however its process ends; the server ends when there
is none. Which server runs is in a file beside it, read and written under a lock of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee import clock
from referee.config import Config, EndpointConfig
from referee.config.providers import runs_here
from referee.errors import ConfigError
from referee.local.model import ServerSpec, file_digest, spec_of
from referee.local.server import START_TIMEOUT, healthy, start_server
from referee.version import VERSION

LOCK_WAIT_S = 1.0
"""For a server that looks at the lock just now, or holds it because it is about to end."""
HEALTH_WAIT_S = 5.0


class _State(Struct, frozen=True):
    """A server that was started."""

    url: str
    model: str
    users: str
    digest: str
    pid: int
    """Of a server that was killed, another may have the port by now."""


class SharedServer:
    """A running server, for as long as this object is not closed or collected. Others may use it too."""

    def __init__(self, state: _State, users: int) -> None:
        self.url = state.url
        self.model = state.model
        self.known_as = f"gguf:{state.digest}"
        # Only closed, never unlocked: a forked child shares the lock.
        self._release = weakref.finalize(self, os.close, users)

    def close(self) -> None:
        """Stop using it. Safe to call twice."""
        self._release()

    def __repr__(self) -> str:
        return f"SharedServer({self.url}, {self.model})"


def attach(config: Config) -> tuple[Config, list[SharedServer]]:
    """The same configuration with the addresses of its local servers, which are started if they do not run."""
    servers: list[SharedServer] = []
    endpoints: list[EndpointConfig] = []
    try:
        for endpoint in config.endpoint:
            if runs_here(endpoint):
                server = use(spec_of(endpoint))
                servers.append(server)
                known_as = endpoint.known_as or server.known_as
                endpoint = replace(endpoint, url=server.url, model=server.model, known_as=known_as)
            endpoints.append(endpoint)
    except BaseException:
        for server in servers:
            server.close()
        raise
    return (replace(config, endpoint=tuple(endpoints)) if servers else config), servers


def use(spec: ServerSpec, timeout: float = START_TIMEOUT) -> SharedServer:
    """The server of this specification: the one that runs, or a new one."""
    folder = _folder()
    name = _name(spec)
    with _locked(folder / f"{name}.lock"):
        return _join(folder / f"{name}.json") or _start(spec, folder, name, timeout)


def _join(record: Path) -> SharedServer | None:
    """The server that runs, if one does."""
    try:
        state = msgspec.json.decode(record.read_bytes(), type=_State)
        users = os.open(state.users, os.O_RDWR | os.O_CLOEXEC)
    except (OSError, msgspec.MsgspecError):
        return None
    deadline = clock.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except OSError:
            if clock.monotonic() > deadline:
                os.close(users)
                return None
            clock.pause(0.02)
    if os.path.exists(state.users) and _runs(state.pid) and healthy(state.url, clock.monotonic() + HEALTH_WAIT_S):
        return SharedServer(state, users)
    os.close(users)
    return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _start(spec: ServerSpec, folder: Path, name: str, timeout: float) -> SharedServer:
    file = str(folder / f"{name}-{secrets.token_hex(4)}.users")
    users = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(users, fcntl.LOCK_SH)
        judge = start_server(replace(spec, users=file), timeout)
        state = _State(judge.url, judge.model, file, file_digest(spec), judge.pid)
        record = folder / f"{name}.json"
        new = folder / f"{name}-{secrets.token_hex(4)}.new"
        new.write_bytes(msgspec.json.encode(state))
        new.replace(record)
    except BaseException:
        os.close(users)
        with contextlib.suppress(OSError):
            os.unlink(file)
        raise
    return SharedServer(state, users)


def _name(spec: ServerSpec) -> str:
    """Equal for servers that answer alike: a file that was written anew is another one."""
    found = os.stat(spec.path)
    facts = (VERSION, spec, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def _folder() -> Path:
    """A folder of this user alone."""
    folder = Path(tempfile.gettempdir()) / f"referee-local-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{folder}: not a folder of this user alone, so no embedded server is started. Remove it, or set TMPDIR.",
            setting="endpoint.provider",
        )
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time, while a server is looked for and started."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
