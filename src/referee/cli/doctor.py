"""`referee doctor`: is everything in place? Settings, judges, keys, cache, extras, versions, and probe verdicts."""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import secrets
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from referee.cache import RedisLink
from referee.cache.file import inspect
from referee.cache.redis_check import examine
from referee.cli.probe import Check, probe_of, probes
from referee.cli.settings import ConfigFile, settings
from referee.cli.words import counted
from referee.config import (
    CacheConfig,
    Config,
    JudgeConfig,
    RedisConfig,
    all_judges,
    price_words,
    provider_name,
)
from referee.config.schema import LONE
from referee.engine import Endpoint, find_key
from referee.errors import RefereeError, install
from referee.judging import first_round
from referee.scoring.build import build_judge
from referee.scoring.tracing import open_tracer
from referee.version import VERSION

EXTRAS = {
    "tables": "pyarrow",
    "report": "plotly",
    "serve": "fastapi",
    "redis": "redis",
    "ray": "ray",
    "otel": "opentelemetry",
}
"""The optional parts, each with a module that only its installation brings."""

_UNUSABLE = {"foreign": "is not a cache of referee's", "broken": "is damaged"}


def command(
    config: ConfigFile = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask neither endpoint, Redis nor Ray.")] = False,
) -> None:
    """Check that everything is in place, with a paid probe.

    Settings, judges and templates, keys, prices, cache, ledger, Redis, Ray, extras, versions; and one verdict of each
    judge from each of its endpoints. Exit status 1 if a judge that counts cannot work; what only an optional one or a
    spare endpoint lacks is a warning.
    """
    good = _show(True, f"referee {VERSION}, Python {platform.python_version()}, {_versions()}")
    try:
        with settings(config) as chosen:
            kinds = ", ".join(judge.kind for judge in chosen.judge)
            what = f"{kinds} judge" if len(chosen.judge) == 1 else f"{len(chosen.judge)} judges ({kinds})"
            good &= _show(True, f"settings: {what}, runtime {chosen.runtime}, digest {chosen.digest()}")
            for check in _checks(chosen, offline):
                good &= _show(*check)
            for check in probes(chosen) if good and not offline else ():
                good &= _show(*check)
    except RefereeError as error:
        good = _show(False, str(error))
    if not good:
        raise typer.Exit(1)


def _show(ok: bool | None, text: str) -> bool:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    mark = "warn" if ok is None else "ok  " if ok else "FAIL"
    typer.echo(wrapped(f"{mark}  {text}", width))
    return ok is not False


def wrapped(text: str, width: int | None) -> str:
    """The text in lines of a terminal's width, broken between words only; None: one line, as programs want it."""
    if width is None:
        return text
    return textwrap.fill(
        text, max(width, 20), subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False
    )


def _checks(config: Config, offline: bool) -> Iterator[Check]:
    judges = {judge.name: judge for judge in all_judges(config.judge)}
    terms = {judge.name for judge in config.judge}
    for name, judge in judges.items():
        ok, text = _tried(functools.partial(_judge, judge, name in terms))
        yield ok, text if ok or len(judges) == 1 else f"judge {name}: {text}"
    for endpoint in config.endpoint:
        try:
            key = find_key(endpoint)
            Endpoint(endpoint, config.limits, key)
        except RefereeError as error:
            yield False, str(error)
        else:
            where = endpoint.key_file or endpoint.key_env
            name = provider_name(endpoint)
            page = f"; provider {name}, see `referee docs providers/{name}`" if name else ""
            secret = f"key from {where}" if key else "no key"
            yield True, f"endpoint {endpoint.label}: model {endpoint.model}, {secret}{page}"
        yield True, f"endpoint {endpoint.label}: {price_words(endpoint)}"
    limits = config.limits
    yield (
        True,
        (
            f"limits: concurrency {limits.concurrency}"
            + (f" up to {limits.max_concurrency}" if limits.concurrency == "auto" else "")
            + f", rpm {limits.rpm or 'unlimited'}, tpm {limits.tpm or 'unlimited'}, "
            + (f"budget ${limits.budget_usd:g}" if limits.budget_usd else "no budget")
            + f"; held by {_holder(config)}"
        ),
    )
    yield from _place(config, offline)
    yield _cache(config.cache)
    if config.redis.url:
        yield _tried(lambda: _redis(config.redis) if offline else examine(config.redis))
    if config.team:
        yield from _teams(config)
    if config.ledger.dir:
        yield _writable(Path(config.ledger.dir).expanduser(), "ledger")
    if config.otel.enabled:
        yield _tried(lambda: (open_tracer(config) is not None, "otel: spans are made"))
    there = {name: find_spec(module) is not None for name, module in EXTRAS.items()}
    yield True, "extras: " + ", ".join(f"{name} {'installed' if yes else 'missing'}" for name, yes in there.items())


def _tried(check: Callable[[], Check]) -> Check:
    """One check. An error of ours makes it fail, and the next one is still made."""
    try:
        return check()
    except RefereeError as error:
        return False, str(error)


def _judge(config: JudgeConfig, term: bool) -> Check:
    """A judge as judging makes it: template, criteria, scale. Its first questions are planned, and not sent."""
    judge = build_judge(config, secrets.token_bytes(32))
    samples = probe_of(config, getattr(judge, "columns", ()))
    asks = first_round(judge, samples, "text" if config.reply == "text" else "schema")
    own = f", template {config.prompt_file}" if config.prompt_file else ""
    what = "a short answer" if len(samples) == 1 else f"{len(samples)} short answers"
    size = f", about {sum(ask.prompt_tokens for ask in asks)} tokens for {what}" if asks else ""
    weight = f", weight {config.weight:g}{', optional' if config.optional else ''}" if config.name != LONE else ""
    used = "" if term else ", used by another"
    return True, f"judge {config.name}: {config.kind}{weight if term else used}{own}{size}"


def _redis(config: RedisConfig) -> Check:
    """What can be said without asking it: the client is installed, the password is there."""

    async def look() -> str:
        link = RedisLink(config)
        await link.close()
        return link.name

    return True, f"redis {asyncio.run(look())}: not looked at (--offline)"


def _holder(config: Config) -> str:
    """Which process counts what is in flight, sent and spent."""
    if config.runtime == "processes":
        holder = f"this process, for its {counted(config.workers, 'worker')} together"
    elif config.runtime == "ray" and config.shards > 1:
        holder = f"a Ray actor, for {config.shards} engine actors and all their clients together"
    elif config.runtime == "ray":
        holder = "the engine actor on Ray, for all its clients together"
    else:
        holder = "this process"
    shared = bool(config.redis.url) and config.redis.limits
    return f"{holder}, and shared through Redis" if shared else holder


def _place(config: Config, offline: bool) -> Iterator[Check]:
    """Where judging runs, and for Ray which engines are there."""
    if config.runtime == "processes":
        yield True, f"runtime: processes, {counted(config.workers, 'worker')}"
    elif config.runtime != "ray":
        yield True, f"runtime: {config.runtime}, in this process"
    elif find_spec("ray") is None:
        yield False, 'runtime = "ray" needs Ray, which is not installed here; or set runtime = "thread"'
    elif offline:
        where = config.ray_address or "the cluster of this process or machine, else a local one"
        yield True, f"runtime: ray, shards {config.shards}, at {where}; not looked at (--offline)"
    else:
        yield from _engines(config)


def _engines(config: Config) -> Iterator[Check]:
    from referee.runtime.ray import look

    try:
        engines = look(config)
    except RefereeError as error:
        yield False, f"runtime: ray: {error}"
        return
    yield True, f"runtime: ray {metadata.version('ray')}, shards {config.shards}"
    for name, status in engines:
        if status is None:
            yield True, f"engine {name}: not there yet; the first batch starts it"
        else:
            clients, pending = counted(status["clients"], "client"), counted(status.get("pending", 0), "sample")
            calls = f"{counted(status.get('in_flight', 0), 'call')} in flight of {status.get('limit', 0):.0f}"
            yield True, f"engine {name}: {clients}, {pending}, {calls}"


def _teams(config: Config) -> Iterator[Check]:
    try:
        from referee.server.tokens import find_tokens
    except ImportError as error:
        yield False, f"[[team]] is for `referee serve`: {error.name} is missing; {install('serve')}"
        return
    yield _tried(lambda: (bool(find_tokens(config, os.environ)), "tokens of the teams: one for each, all different"))
    if not config.redis.url:
        yield _writable(Path(config.serve.state).expanduser().parent, "what teams have spent")
    for team in config.team:
        limits = {"US$ a day": team.budget_usd_day, "US$ a month": team.budget_usd_month, "rpm": team.rpm}
        bounds = [f"{what} {limit:g}" for what, limit in limits.items() if limit is not None]
        judges = ", ".join(team.judges or [judge.name for judge in config.judge])
        yield True, f"team {team.name}: judges {judges}; {', '.join(bounds) or 'no bounds'}"


def _cache(config: CacheConfig) -> Check:
    if not config.enabled:
        return True, "cache: off; every verdict is paid for, again after an interruption"
    if not config.path:
        return True, "cache: memory only; verdicts are lost at exit"
    path = Path(config.path).expanduser()
    if not path.exists():
        return _writable(path.parent, "cache folder")
    try:
        problem = _UNUSABLE.get(inspect(path))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    if problem:
        return False, f"cache: {path} {problem}; name another in [cache] path"
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return False, f"cache: {path} can be read by others (mode {mode:o}); chmod 600 it"
    return True, f"cache: {path}, {counted(path.stat().st_size, 'byte')}, mode {mode:o}"


def _writable(folder: Path, what: str) -> Check:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return False, f"{what}: {folder} cannot be created or written"
    return True, f"{what}: {folder} is writable" + ("" if there == folder else " (will be created)")


def _versions() -> str:
    there = [name for name in ("httptools", "msgspec", "uvloop") if find_spec(name)]
    return ", ".join(f"{name} {metadata.version(name)}" for name in there)
