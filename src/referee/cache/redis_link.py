"""The connection to Redis: one client, short timeouts, and a circuit breaker. Knows nothing of what is stored there.

A timeout or any other error opens the breaker: from then on nothing is sent and no caller waits, and a probe in the
background asks every few seconds whether Redis is back. So an outage costs one wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from referee import clock
from referee.config import RedisConfig, is_variable
from referee.config.schema import without_credentials
from referee.errors import ConfigError, MissingKeyError, install

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger("referee.redis")

T = TypeVar("T")

PROBE_INTERVAL_S = 5.0
"""Interval of probes while the breaker is open."""
PROBE_TIMEOUT_S = 2.0
"""Timeout of a probe. No caller waits for it."""
COMMANDS = (
    "+ping +select +time +info +get +set +del +pexpire +hget +hgetall +hmget +hset +hdel +eval +evalsha +script|load"
)
"""What the user of the server must be allowed; `referee docs redis` has the same list."""
WITHOUT = "Scoring goes on with the local cache and this job's share of the limits."
STALL_GRACE_S = 0.04
"""More time for an answer that may have arrived while this process itself was stalled."""


PATIENT_TIMEOUT_S = 2.0
"""The least timeout for what no verdict waits for."""


class Unavailable(Exception):
    """Redis cannot be used now. Go on without it."""


class Address(NamedTuple):
    """A redis url in its parts."""

    host: str
    port: int
    path: str
    number: int
    user: str | None
    password: str | None
    tls: bool


def patient(config: RedisConfig) -> RedisConfig:
    """Settings of a connection for what no verdict waits for: a slow answer is better than none."""
    return replace(config, timeout=max(config.timeout, PATIENT_TIMEOUT_S))


def parse(url: str) -> Address:
    """The parts of a url that the configuration has accepted."""
    parts = urlsplit(url)
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    if parts.scheme == "unix":
        return Address("", 0, unquote(parts.path), 0, user, password, False)
    number = int(parts.path.strip("/") or 0)
    return Address(parts.hostname or "", parts.port or 6379, "", number, user, password, parts.scheme == "rediss")


class RedisLink:
    """Runs commands on one event loop. `up` is False while the breaker is open."""

    def __init__(self, config: RedisConfig, env: Mapping[str, str] | None = None, without: str = WITHOUT) -> None:
        """`without`: what it means that Redis is away, for the log."""
        self.name = without_credentials(config.url)
        self.up = True
        self.on_change: list[Callable[[], None]] = []
        """Called when `up` has changed."""
        self.config = config
        self._timeout = config.timeout
        self._without = without
        self._client = _client(config, os.environ if env is None else env)
        self._warned: set[str] = set()
        self._probing: asyncio.Task[None] | None = None
        self._left: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, work: Callable[[Redis], Awaitable[T]]) -> T:
        """Run `work` with the client, within redis.timeout. Raises Unavailable at once while the breaker is open."""
        if not self.up or self._closed:
            raise Unavailable(f"{self.name} does not answer")
        try:
            return await self._bounded(work, self._timeout)
        except Exception as error:
            self._failed(error)
            raise Unavailable(f"{self.name} does not answer") from None

    async def look(self, work: Callable[[Redis], Awaitable[T]]) -> T:
        """The same, but raises the error itself and leaves the breaker alone."""
        return await self._bounded(work, self._timeout)

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        self._closed = True
        self.up = False
        if self._probing is not None:
            self._probing.cancel()
        for task in self._left:
            task.cancel()
        with contextlib.suppress(Exception):
            await self._bounded(lambda client: client.aclose(), self._timeout)

    def complain(self, about: str, text: str) -> None:
        """A warning, once about each thing however often it happens."""
        if about not in self._warned:
            self._warned.add(about)
            log.warning("redis.url %s: %s", self.name, text)

    async def _bounded(self, work: Callable[[Redis], Awaitable[T]], seconds: float) -> T:
        task = asyncio.get_running_loop().create_task(_call(work, self._client))
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if not done:
                # After a stall of this process, the answer and the timeout are both due.
                done, _ = await asyncio.wait({task}, timeout=STALL_GRACE_S)
        except asyncio.CancelledError:
            self._leave(task)
            raise
        if not done:
            self._leave(task)
            raise TimeoutError
        return task.result()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._left.add(task)
        task.add_done_callback(self._left_ended)
        task.cancel()

    def _left_ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()

    def _failed(self, error: Exception) -> None:
        about, text = explain(error, self.config)
        log.debug("redis: %s", type(error).__name__, exc_info=about == "internal")
        self.complain(about, f"{text} {self._without}")
        if about == "full" or not self.up or self._closed:
            return  # a server without room still answers
        self.up = False
        self._probing = asyncio.get_running_loop().create_task(self._probe())
        self._tell()

    async def _probe(self) -> None:
        while True:
            await clock.sleep(PROBE_INTERVAL_S)
            try:
                await self._bounded(lambda client: client.ping(), PROBE_TIMEOUT_S)
            except Exception as error:
                log.debug("redis: still away (%s)", type(error).__name__)
                continue
            self.up = True
            log.info("redis.url %s: answers again", self.name)
            self._tell()
            return

    def _tell(self) -> None:
        for call in self.on_change:
            try:
                call()
            except Exception:
                log.exception("a callback for a change of Redis failed")

    def __repr__(self) -> str:
        return f"RedisLink({self.name!r}, {'up' if self.up else 'down'})"


async def run_script(text: str, keys: list[str], arguments: list[str], client: Redis) -> Any:
    """Run a script, which Redis knows by its digest from the second time on."""
    return await client.register_script(text)(keys=keys, args=arguments)


def explain(error: BaseException, config: RedisConfig) -> tuple[str, str]:
    """The kind of an error, and a sentence about it. Nothing that a server says is repeated."""
    from redis import exceptions

    kind = type(error).__name__
    said = str(error)
    if isinstance(error, exceptions.AuthenticationError) or said.startswith(("NOAUTH", "WRONGPASS")):
        where = (
            f"redis.password_env = {config.password_env!r}" if config.password_env else "redis.password_env is not set"
        )
        return "auth", f"the server refuses the user or password ({where})."
    if isinstance(error, exceptions.NoPermissionError):
        return "auth", f"this user may not do what is needed. Its ACL must have: ~{config.prefix}:* {COMMANDS}."
    if isinstance(error, TimeoutError | exceptions.TimeoutError):
        setting = "" if config.timeout == PATIENT_TIMEOUT_S else " (redis.timeout)"
        return "away", f"no answer within {config.timeout:g} s{setting}."
    if isinstance(error, exceptions.ConnectionError | OSError):
        return "away", f"cannot be reached ({kind})."
    if isinstance(error, exceptions.OutOfMemoryError) or said.startswith("OOM"):
        return "full", "its memory is full (maxmemory)."
    if isinstance(error, exceptions.RedisError):
        return (
            "refused",
            f"does not do what is needed ({kind}: {said.partition(' ')[0][:24]}); it must be Redis 5 or newer.",
        )
    return "internal", f"unexpected trouble ({kind})."


async def _call(work: Callable[[Redis], Awaitable[T]], client: Redis) -> T:
    from redis.exceptions import AuthenticationError
    from redis.exceptions import ConnectionError as Lost
    from redis.exceptions import TimeoutError as Late

    try:
        return await work(client)
    except (Late, AuthenticationError):
        raise
    except Lost:
        # A connection that was idle while the server restarted: a new one may work.
        return await work(client)


def _client(config: RedisConfig, env: Mapping[str, str]) -> Redis:
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise ConfigError(
            f"redis.url is set, but the Redis client is not installed: {install('redis')}. Nothing was sent.",
            setting="redis.url",
        ) from None
    address = parse(config.url)
    password = address.password
    if config.password_env:
        password = env.get(config.password_env, "").strip()
        if not password:
            shown = config.password_env if is_variable(config.password_env) else "named there (not shown)"
            raise MissingKeyError(
                f"redis.password_env: the environment variable {shown} is not set. Set it, or leave "
                "password_env out if the server asks for none. Nothing was sent.",
                setting="redis.password_env",
            )
    # One try, and no negotiation beyond what every version since 5 knows: waits are bounded by `run`.
    common: dict[str, Any] = {
        "db": address.number,
        "username": address.user,
        "password": password,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": max(PROBE_TIMEOUT_S, config.timeout),
        "max_connections": 8,
    }
    if address.path:
        return Redis(unix_socket_path=address.path, **common)
    tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": config.ca_file or None} if address.tls else {}
    common |= {"host": address.host, "port": address.port, "socket_keepalive": True}
    return Redis(socket_connect_timeout=max(PROBE_TIMEOUT_S, config.timeout), **common, **tls)
