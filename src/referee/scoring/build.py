"""A worker, or a whole Scorer, from its configuration: judges, endpoints, transports, cache, limits shared with other
jobs.
"""

from __future__ import annotations

import asyncio
import functools
import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from referee.cache import RedisLink, open_cache
from referee.config import Config, EndpointConfig, JudgeConfig
from referee.engine import Endpoint, Engine, Transport, find_key
from referee.engine.redis_lease import share_limits
from referee.errors import ConfigError
from referee.judging import GROUP_JUDGES, Judge, make_judge
from referee.scoring.lines import LineMaker
from referee.scoring.local import BuildWorker, Scorer
from referee.scoring.worker import Emit, JudgeWorker, OpenedEngine


def build_worker(
    config: Config,
    lines: LineMaker,
    emit: Emit,
    transport: Transport | None = None,
    rng: random.Random | None = None,
    secret: bytes | None = None,
) -> JudgeWorker:
    """A worker on the running loop. Tests and simulations give their own transport, chance and secret."""
    endpoints = [Endpoint(endpoint, config.limits, find_key(endpoint)) for endpoint in config.endpoint]
    transports = [transport] * len(endpoints) if transport else _transports(config)
    loop = asyncio.get_running_loop()

    def on_commit(calls: list[Callable[[], None]]) -> None:
        loop.call_soon_threadsafe(_run_all, calls)

    link = RedisLink(config.redis) if config.redis.url else None
    cache = open_cache(config.cache, on_commit, link)

    def open_engine(on_room: Callable[[], None], more_to_come: Callable[[], bool]) -> OpenedEngine:
        chance = rng or random.Random(secrets.randbits(64))
        engine = Engine(config, endpoints, transports, cache, chance, on_room, more_to_come)
        if link is None:
            return OpenedEngine(engine)
        paced, leave = share_limits(engine, config, link)
        return OpenedEngine(engine, paced, [close for close in (leave, link.close) if close is not None])

    judges = build_judges(config, secret or secrets.token_bytes(32))
    return JudgeWorker(config, judges, open_engine, lines, emit)


def worker_with(
    transport: Callable[[], Transport], rng: random.Random | None = None, secret: bytes | None = None
) -> BuildWorker:
    """`build_worker` with a transport opened for each worker: for a Referee whose provider is simulated."""

    def build(config: Config, lines: LineMaker, emit: Emit) -> JudgeWorker:
        return build_worker(config, lines, emit, transport(), rng, secret)

    return build


def build_scorer(
    config: Config,
    transport: Transport | None = None,
    rng: random.Random | None = None,
    secret: bytes | None = None,
) -> Scorer:
    """A Scorer on the running loop, with a worker like that."""
    return Scorer(config, functools.partial(build_worker, transport=transport, rng=rng, secret=secret))


def build_judges(config: Config, secret: bytes) -> list[Judge]:
    """The judges of a configuration, in its order. With an empty secret they are only checked."""
    return [GROUP_JUDGES.get(judge.kind, make_judge)(judge, secret, read_template(judge)) for judge in config.judge]


def _run_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def read_template(judge: JudgeConfig) -> str | None:
    """The text of judge.prompt_file, if one is named."""
    if not judge.prompt_file:
        return None
    path = Path(judge.prompt_file).expanduser().absolute()
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"judge.prompt_file: cannot read {str(path)!r} ({why}).", setting="judge.prompt_file"
        ) from None


def _transports(config: Config) -> Sequence[Transport]:
    # Imported where they are used: aiohttp alone is most of our import time, and most endpoints do not need it.
    from referee.engine.fast import FastTransport, takes

    shared: dict[str, Transport] = {}

    def find(endpoint: EndpointConfig) -> Transport:
        if takes(endpoint.url, endpoint.proxy):
            return shared.setdefault("", FastTransport())
        from referee.engine.aio import AioTransport

        return shared.setdefault(f"proxy {endpoint.proxy}", AioTransport(endpoint.proxy))

    return [find(endpoint) for endpoint in config.endpoint]
