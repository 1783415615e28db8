"""`referee score`: rewards for a file of rollouts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from referee.cli.progress import Meter
from referee.cli.rows import Digests, Row, RowWriter, consolidate, partial, read_rows, row_of
from referee.cli.settings import settings, with_ledger
from referee.cli.stream import Item, stream
from referee.cli.summary import Summary
from referee.config import Config
from referee.errors import ConfigError, InputError
from referee.referee import Referee
from referee.rollouts import BadLine, read_rollouts
from referee.shaping import needs_group

SHOWN = 20
"""Problems of the input that are listed; the rest is counted."""


def command(
    rollouts: Annotated[str, typer.Argument(help="JSONL of rollouts (prompt, response, …); - for standard input.")],
    output: Annotated[str, typer.Option("--output", "-o", help="JSONL of rewards; - for standard output.")],
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Default: ./referee.toml, else the embedded judge.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after an interruption; judge only what is missing.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over although the output exists.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Set unusable lines aside in a rejects file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Judge a file of rollouts."""
    _check_output(output, resume, overwrite)
    with _as_file(rollouts) as source:
        sizes, total, bad, mixed, references = _survey(source)
        if bad and not skip_bad:
            raise InputError(_complaint(rollouts, bad))
        if not total:
            raise InputError(f"{rollouts}: no rollouts in it. Nothing was spent.")
        with settings(config, references == total) as chosen:
            if mixed and chosen.shaping.length.enable:
                raise InputError(_complaint(rollouts, mixed))
            folder = None if output == "-" else Path(output).with_suffix(".run")
            chosen = with_ledger(chosen, folder)
            if resume and not chosen.cache.enabled:
                raise ConfigError("--resume needs the cache: set [cache] enabled = true.", setting="cache.enabled")
            if bad:
                _set_aside(bad, _rejects(rollouts, output))
            _score(source, output, chosen, sizes, total, resume, quiet)
            if not quiet and folder is not None:
                typer.echo(f"rewards: {output}   record: {chosen.ledger.dir}", err=True)


def _score(
    source: Path, output: str, config: Config, sizes: Counter[str], total: int, resume: bool, quiet: bool
) -> None:
    if resume:
        consolidate(Path(output))
    digests = Digests(config)
    summary = Summary()
    earlier = read_rows(Path(output)) if resume else iter(())
    writer = RowWriter(output, sys.stdout.buffer)
    try:
        with Referee(config) as referee, Meter(total, referee.metrics, quiet) as meter:
            items = _items(source, digests, earlier)
            for item, reward in stream(referee, items, sizes if needs_group(config) else None):
                row = item.kept if reward is None else row_of(item.tag, digests.of(item.sample), reward)
                assert row is not None
                writer.write([row])
                summary.add(row, kept=reward is None)
                meter.advance(1, kept=int(reward is None))
            metrics = referee.metrics()
    except BaseException:
        writer.abandon()
        if output != "-":
            typer.echo(
                f"stopped: {summary.rows} of {total} rewards are in {output}; everything judged is cached. "
                "Run the same command with --resume to go on.",
                err=True,
            )
        raise
    writer.finish()
    if not quiet:
        typer.echo(summary.text(metrics), err=True)


def _items(source: Path, digests: Digests, earlier: Iterator[Row]) -> Iterator[Item[int, Row]]:
    """Samples in order, each with its row of an earlier run if that still holds."""
    old = next(earlier, None)
    for line, sample in read_rollouts(source):
        if isinstance(sample, BadLine):
            continue
        while old is not None and old.line < line:
            old = next(earlier, None)
        kept = old if old is not None and old.line == line and old.scored and old.digest == digests.of(sample) else None
        yield Item(line, sample, kept)


@contextlib.contextmanager
def _as_file(rollouts: str) -> Iterator[Path]:
    """The input as a file that can be read twice: once to check all of it, once to judge it."""
    if rollouts != "-":
        path = Path(rollouts)
        if not path.is_file():
            raise InputError(f"{rollouts}: no such file.")
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="referee-", suffix=".jsonl") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield Path(spool.name)


def _survey(source: Path) -> tuple[Counter[str], int, list[BadLine], list[BadLine], int]:
    """Read everything once before anything is spent: group sizes, how many samples, what is wrong, how many references.

    The second list holds lines that are wrong only if lengths matter: their group gives `length` on some lines only.
    """
    sizes: Counter[str] = Counter()
    total = references = 0
    bad: list[BadLine] = []
    mixed: list[BadLine] = []
    with_length: dict[str, bool] = {}
    for line, sample in read_rollouts(source):
        if isinstance(sample, BadLine):
            bad.append(sample)
            continue
        total += 1
        references += bool((sample.reference or "").strip())
        if sample.group:
            sizes[sample.group] += 1
            known = with_length.setdefault(sample.group, sample.length is not None)
            if known != (sample.length is not None):
                mixed.append(BadLine(line, "length", f"group {sample.group!r} has it on some lines only"))
    return sizes, total, bad, mixed, references


def _complaint(name: str, bad: list[BadLine]) -> str:
    lines = [f"{name}: {len(bad)} line{'s' if len(bad) > 1 else ''} cannot be used. Nothing was spent."]
    lines += [f"  {item.message}" for item in bad[:SHOWN]]
    if len(bad) > SHOWN:
        lines.append(f"  … and {len(bad) - SHOWN} more")
    lines.append("Mend them, or use --skip-bad to set them aside in a rejects file.")
    return "\n".join(lines)


def _check_output(output: str, resume: bool, overwrite: bool) -> None:
    if output == "-":
        if resume:
            raise ConfigError("--resume needs a file to resume: give -o a path. (Cached verdicts are reused anyway.)")
        return
    path = Path(output)
    if resume and overwrite:
        raise ConfigError("--resume goes on, --overwrite starts over: choose one.")
    if not path.parent.is_dir():
        raise ConfigError(f"{output}: the folder {path.parent} does not exist.")
    if resume:
        return
    for there in (path, partial(path)):
        if there.exists():
            if not overwrite:
                raise ConfigError(f"{there} exists: --resume goes on with it, --overwrite starts over.")
            there.unlink()


def _rejects(rollouts: str, output: str) -> Path:
    base = Path("rollouts.jsonl" if rollouts == "-" else rollouts) if output == "-" else Path(output)
    return base.with_name(base.stem + ".rejects.jsonl")


def _set_aside(bad: list[BadLine], rejects: Path) -> None:
    """Write the unusable lines, with what is wrong, to a file of their own."""
    descriptor = os.open(rejects, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream_:
        for item in bad:
            text = item.raw.decode("utf-8", "replace").rstrip("\r\n")
            note = {"line": item.line, "field": item.field, "problem": item.problem, "text": text}
            stream_.write(msgspec.json.encode(note) + b"\n")
    typer.echo(f"{len(bad)} unusable lines set aside in {rejects}", err=True)
