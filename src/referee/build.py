"""A Scorer from its configuration: judge, endpoints, transports, cache, and limits shared with other jobs."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from referee.cache import RedisLink, open_cache
from referee.config import Config, EndpointConfig
from referee.engine import Endpoint, Engine, Transport, find_key
from referee.engine.redis_lease import share_limits
from referee.errors import ConfigError
from referee.judging import make_judge
from referee.scorer import Scorer


def build_scorer(
    config: Config,
    transport: Transport | None = None,
    rng: random.Random | None = None,
    secret: bytes | None = None,
) -> Scorer:
    """A Scorer on the running loop. Tests and simulations give their own transport, chance and secret."""
    judge = make_judge(config.judge, secret or secrets.token_bytes(32), read_template(config))
    endpoints = [Endpoint(endpoint, config.limits, find_key(endpoint)) for endpoint in config.endpoint]
    transports = [transport] * len(endpoints) if transport else _transports(config)
    loop = asyncio.get_running_loop()

    def on_commit(calls: list[Callable[[], None]]) -> None:
        loop.call_soon_threadsafe(_run_all, calls)

    link = RedisLink(config.redis) if config.redis.url else None
    cache = open_cache(config.cache, on_commit, link)
    engine = Engine(config, endpoints, transports, cache, judge.read, rng or random.Random(secrets.randbits(64)))
    if link is not None:
        share_limits(engine, config, link)
        engine.closing.append(link.close)
    return Scorer(config, judge, engine)


def _run_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def read_template(config: Config) -> str | None:
    """The text of judge.prompt_file, if one is named."""
    if not config.judge.prompt_file:
        return None
    path = Path(config.judge.prompt_file).expanduser().absolute()
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
