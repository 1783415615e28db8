"""`referee cache`: what is in it, why two requests do not share a verdict, and clearing it out."""

from __future__ import annotations

import datetime
import os
import re
import sqlite3
from pathlib import Path
from typing import Annotated

import typer

from referee.cache import Entry, SqliteCache, explain
from referee.cli.help import App
from referee.cli.settings import DEFAULT_FILE
from referee.cli.words import counted
from referee.config import CacheConfig, load
from referee.errors import ConfigError

app = App(help="Look into the cache of verdicts, or clear it out.", no_args_is_help=True)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Default: ./referee.toml, else the default path.")
]
NEAREST = 3


@app.command()
def stats(config: ConfigOption = None) -> None:
    """Show the number of verdicts, their models, their age and size."""
    cache = _open(config)
    found = cache.stats()
    if found["problem"]:
        raise ConfigError(f"{cache.path}: {found['problem']}")
    typer.echo(f"{cache.path}: {counted(found['rows'], 'verdict')}, {found['bytes'] / 1e6:.1f} MB")
    if found["oldest"] is not None:
        typer.echo(f"oldest {_when(found['oldest'])}, newest {_when(found['newest'])}")
    for model, count in found["models"].items():
        typer.echo(f"  {model or '(model not reported)'}: {count}")


@app.command("explain")
def explain_(
    key: Annotated[str, typer.Argument(help="A key, or its beginning (`key` in a row of rewards).")],
    other: Annotated[
        str | None, typer.Argument(help="Another key. Without it: the entries nearest to the first.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Show what a verdict's key is made of, and why another differs."""
    cache = _open(config)
    first, entry = _one(cache, key)
    if other is not None:
        second, compared = _one(cache, other)
        differences = explain(entry.facets, compared.facets)
        typer.echo(f"{first} and {second}:")
        for line in differences or ["no difference"]:
            typer.echo(f"  {line}")
        return
    typer.echo(f"{first}: score {entry.verdict.score:g} by {entry.endpoint}, {_when(entry.created)}")
    for name, value in entry.facets.items():
        typer.echo(f"  {name}: {value}")
    for line in _nearest(cache, first, entry):
        typer.echo(line)


@app.command()
def prune(
    older_than: Annotated[str | None, typer.Option(help="Delete what is older: 30d, 12h, 90m.")] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Keep only this many of the newest.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete everything.")] = False,
    config: ConfigOption = None,
) -> None:
    """Delete verdicts by age, by number, or all of them."""
    if older_than is None and keep is None and not everything:
        raise ConfigError("say what to delete: --older-than 30d, --keep 100000, or --all.")
    cache = _open(config)
    try:
        gone = cache.prune(None if older_than is None else _seconds(older_than), keep, everything)
    except sqlite3.Error as error:
        raise ConfigError(f"{cache.path}: cannot delete now ({error}); is a run using it?") from None
    typer.echo(f"{cache.path}: {counted(gone, 'verdict')} deleted")


def _open(path: Path | None) -> SqliteCache:
    if path is None and DEFAULT_FILE.exists():
        path = DEFAULT_FILE
    cache = load(path, os.environ).cache if path else CacheConfig()
    if not cache.enabled or not cache.path:
        raise ConfigError("this configuration keeps no cache file ([cache] enabled, path).", setting="cache.path")
    if not Path(cache.path).expanduser().exists():
        raise ConfigError(f"{cache.path}: no such file; nothing has been cached yet.", setting="cache.path")
    return SqliteCache(cache.path)


def _one(cache: SqliteCache, prefix: str) -> tuple[str, Entry]:
    found = cache.find(prefix, limit=2)
    if not found:
        raise ConfigError(f"no verdict in {cache.path} has a key that starts with {prefix!r}.")
    if len(found) > 1:
        raise ConfigError(f"several keys start with {prefix!r}; give more of it.")
    return found[0]


def _nearest(cache: SqliteCache, key: str, entry: Entry) -> list[str]:
    """Entries for the same response that differ in the fewest ways: the usual question is why one was paid again."""
    same = entry.facets.get("response")
    others = [
        (explain(entry.facets, other.facets), name)
        for name, other in cache.entries()
        if name != key and other.facets.get("response") == same
    ]
    lines: list[str] = []
    for differences, name in sorted(others, key=lambda pair: len(pair[0]))[:NEAREST]:
        lines.append(f"the same response also has {name}, which differs in:")
        lines += [f"  {line}" for line in differences]
    return lines or ["no other verdict for the same response"]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if not match:
        raise ConfigError(f"--older-than: {text!r} is not a time; write 30d, 12h, 90m or 45s.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[match[2]]


def _when(wall: float) -> str:
    return datetime.datetime.fromtimestamp(wall, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
