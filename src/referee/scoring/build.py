"""A worker, or a whole Scorer, from its configuration: judges, endpoints, transports, cache, limits shared with other
jobs.
"""

from __future__ import annotations

import asyncio
import functools
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from referee.cache import Cache, RedisLink, open_cache, run_all
from referee.config import Config, JudgeConfig, all_judges, asking_judges, change_all, endpoints_of, runs_here
from referee.engine import Endpoint, Engine, Transport, find_key
from referee.engine.accounts import open_accounts
from referee.engine.redis_lease import share_limits
from referee.engine.transport import HttpTransport
from referee.errors import ConfigError
from referee.judging import Judge, make_judge
from referee.rollouts import Polarity, ReadError, read_rubric, read_rubric_file
from referee.scoring.check_process import open_checks
from referee.scoring.lines import LineMaker
from referee.scoring.local import BuildWorker, Scorer
from referee.scoring.worker import Emit, JudgeWorker, OpenedEngine
from referee.wire import TIER, find_dialect

if TYPE_CHECKING:
    from referee.local.shared import SharedServer


def build_worker(
    config: Config,
    lines: LineMaker,
    emit: Emit,
    transport: Transport | None = None,
    rng: random.Random | None = None,
    secret: bytes | None = None,
    transports_of: Callable[[Config], Sequence[Transport]] | None = None,
    cache_over: Callable[[Cache], Cache] | None = None,
) -> JudgeWorker:
    """A worker on the running loop. Tests and simulations give their own transport, chance and secret; batch runs a
    transport for each endpoint, and what they put before the cache."""
    servers: Sequence[SharedServer] = ()
    if transport is None and any(map(runs_here, config.endpoint)):
        from referee.local.shared import attach  # only where it is used: it is no small import

        config, servers = attach(config)
    endpoints = [Endpoint(endpoint, config.limits, find_key(endpoint)) for endpoint in config.endpoint]
    transports = [transport] * len(endpoints) if transport else (transports_of or _transports)(config)
    loop = asyncio.get_running_loop()

    def on_commit(calls: list[Callable[[], None]]) -> None:
        loop.call_soon_threadsafe(run_all, calls)

    link = RedisLink(config.redis) if config.redis.url else None
    cache = open_cache(config.cache, on_commit, link)
    if cache_over is not None:
        cache = cache_over(cache)

    def open_engine(on_room: Callable[[], None], more_to_come: Callable[[], bool]) -> OpenedEngine:
        chance = rng or random.Random(secrets.randbits(64))
        engine = Engine(config, endpoints, transports, cache, chance, on_room, more_to_come)
        accounts = open_accounts(config, engine.admission) if config.team else None
        leaving: list[Callable[[], Awaitable[None]]] = [accounts.close] if accounts is not None else []
        paced = None
        if link is not None:
            paced, leave = share_limits(engine, config, link)
            leaving += [leave] if leave is not None else []
            leaving.append(link.close)
        return OpenedEngine(engine, paced, [*leaving, *map(_release, servers)], accounts)

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
    _check_images(config)
    _check_tiers(config)
    for judge in config.audit.judge:
        build_judge(judge, b"")
    return [build_judge(judge, secret) for judge in config.judge]


def _check_images(config: Config) -> None:
    """ConfigError where a judge is to be shown images by an API that has none."""
    for judge in asking_judges(config.known_judges):
        for place in endpoints_of(judge, config.endpoint) if judge.parts == "show" else ():
            endpoint = config.endpoint[place]
            if not find_dialect(endpoint.api).takes_images:
                raise ConfigError(
                    f'judge.parts: "show" needs an API that takes images, and {endpoint.api!r} of endpoint '
                    f'{endpoint.label} does not. "describe" says in the text that there was one.',
                    setting="judge.parts",
                )


def _check_tiers(config: Config) -> None:
    """ConfigError where an API does not send the tier: costs would be those of a tier that was never asked for."""
    for endpoint in config.endpoint:
        if endpoint.tier and TIER not in find_dialect(endpoint.api).can_omit:
            raise ConfigError(
                f"endpoint.tier: api = {endpoint.api!r} of endpoint {endpoint.label} has no tiers. Leave tier out.",
                setting="endpoint.tier",
            )


def build_judge(config: JudgeConfig, secret: bytes) -> Judge:
    """One judge, with the files and functions it needs."""
    functions = open_checks(config.checks) if config.kind == "rubric" else {}
    used = {judge.name: build_judge(judge, secret) for judge in config.uses}
    return make_judge(config, secret, read_template(config), functions, used)


def with_rubrics(config: Config) -> Config:
    """The same with what `judge.rubric_file` holds among the judges' criteria: workers need no such file."""
    return change_all(config, _with_rubric)


def _with_rubric(judge: JudgeConfig) -> JudgeConfig:
    if not judge.rubric_file and not judge.criterion:
        return judge
    try:
        found = read_rubric(judge.criterion, "judge.criterion", judge.polarity, checks=judge.checks)
        if judge.rubric_file:
            text = _read_file(judge.rubric_file, "judge.rubric_file")
            found += read_rubric_file(text, judge.rubric_file, judge.polarity, checks=judge.checks)
    except ReadError as error:
        raise ConfigError(f"{error.where}: {error.problem}.", setting="judge.criterion") from None
    return replace(judge, criterion=found, rubric_file="")


def columns_shown(config: Config) -> tuple[str, ...]:
    """Columns of rollouts that the judges' templates show, each once."""
    judges = [*build_judges(config, b""), *(build_judge(judge, b"") for judge in config.audit.judge)]
    return tuple(dict.fromkeys(name for judge in judges for name in getattr(judge, "columns", ())))


def text_only(config: Config) -> bool:
    """Whether a judge refuses images and the like."""
    return any(judge.parts == "refuse" for judge in asking_judges(config.known_judges))


def rubric_polarity(config: Config) -> Polarity | None:
    """How rubrics of samples are read; None: no judge has any."""
    found = list(dict.fromkeys(judge.polarity for judge in all_judges(config.known_judges) if judge.kind == "rubric"))
    if len(found) > 1:
        raise ConfigError(
            f"judge.polarity: judges of kind rubric have {' and '.join(found)}, and a sample's rubric is read once for "
            "all of them. Give them the same.",
            setting="judge.polarity",
        )
    return found[0] if found else None


def _release(server: SharedServer) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        server.close()

    return close


def read_template(judge: JudgeConfig) -> str | None:
    """The text of judge.prompt_file, if one is named."""
    return _read_file(judge.prompt_file, "judge.prompt_file") if judge.prompt_file else None


def _read_file(name: str, setting: str) -> str:
    path = Path(name).expanduser().absolute()
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{setting}: cannot read {str(path)!r} ({why}).", setting=setting) from None


def _transports(config: Config) -> Sequence[Transport]:
    """One for each proxy setting; endpoints of the same setting share it."""
    by_proxy = {proxy: HttpTransport(proxy) for proxy in {endpoint.proxy for endpoint in config.endpoint}}
    return [by_proxy[endpoint.proxy] for endpoint in config.endpoint]
