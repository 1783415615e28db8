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
from typing import Annotated, NamedTuple

import msgspec
import typer

from referee.cli.output import check_output, claimed, rejects_of
from referee.cli.progress import Meter
from referee.cli.rows import Digests, Row, RowWriter, consolidate, read_rows, row_of
from referee.cli.settings import settings, with_ledger
from referee.cli.stream import Item, stream
from referee.cli.summary import Summary
from referee.config import Config
from referee.errors import InputError
from referee.referee import Referee
from referee.rollouts import BadLine, doubtful_columns, read_rollouts
from referee.shaping import needs_group

UNSCORED = 3
"""Exit status when the output is complete and too few of its rows have a score to go on with."""
SHOWN = 20
"""Problems of the input that are listed; the rest is counted."""
_MEND = "Mend them, or use --skip-bad to set them aside in a rejects file."
_FORMAT = "Not one line is a rollout: docs/rollouts.md says what one looks like."


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
    """Judge a file of rollouts. docs/rollouts.md says what goes in and what comes out."""
    folder = None if output == "-" else Path(output).with_suffix(".run")
    if folder is not None and Path(output).is_symlink():
        output = os.path.realpath(output)  # the file it leads to is the output, not the link
    check_output(rollouts, output, resume, overwrite)
    with _as_file(rollouts) as source:
        sizes, total, bad, mixed, references = _survey(source)
        for doubt in doubtful_columns(source):
            typer.echo(f"warning: {rollouts}: {doubt.message}", err=True)
        if bad and not (skip_bad and total):
            raise InputError(_complaint(rollouts, bad, _MEND if total else _FORMAT))
        with settings(config, references == total) as chosen:
            if mixed and chosen.shaping.length.enable:
                raise InputError(_complaint(rollouts, mixed, "Give every rollout of a group its length, or none."))
            if chosen.judge.kind == "reference" and not references:
                raise InputError(
                    f'{rollouts}: judge.kind = "reference" compares with a known answer, and no rollout has a '
                    "`reference` (or `ground_truth`). Nothing was spent."
                )
            chosen = with_ledger(chosen, folder)
            with claimed(output):
                check_output(rollouts, output, resume, overwrite)  # another run may have ended meanwhile
                if bad:
                    _set_aside(bad, rejects_of(rollouts, output))
                if resume:
                    consolidate(Path(output))
                old = _records(folder) if overwrite and chosen.ledger.dir == str(folder) else []
                summary = _score(source, output, chosen, sizes, total, _Earlier(resume, overwrite), quiet)
                for path in old:  # the record goes with the output it belongs to
                    path.unlink(missing_ok=True)
            if not quiet and folder is not None:
                typer.echo(f"rewards: {output}   record: {chosen.ledger.dir}", err=True)
    if summary.unscored > chosen.missing.abort_above * summary.rows or summary.unscored == summary.rows:
        typer.echo(f"{summary.unscored} of {summary.rows} rollouts have no score: exit status {UNSCORED}.", err=True)
        raise typer.Exit(UNSCORED)


def _records(folder: Path | None) -> list[Path]:
    return [] if folder is None else list(folder.glob("ledger-*.jsonl"))


class _Earlier(NamedTuple):
    """What to do with the output of an earlier run."""

    resume: bool
    overwrite: bool


def _score(
    source: Path, output: str, config: Config, sizes: Counter[str], total: int, earlier: _Earlier, quiet: bool
) -> Summary:
    digests = Digests(config)
    summary, priced = Summary(config), any(endpoint.price_in is not None for endpoint in config.endpoint)
    items = _items(source, digests, read_rows(Path(output)) if earlier.resume else iter(()))
    with Referee(config) as referee:  # first: what is wrong with the settings must not touch the output
        writer = RowWriter(output, sys.stdout.buffer if output == "-" else None, fresh=earlier.overwrite)
        try:
            with Meter(total, referee.metrics, quiet, priced) as meter:
                for item, reward in stream(referee, items, sizes if needs_group(config) else None):
                    row = item.kept if reward is None else row_of(item.tag, digests.of(item.sample), reward)
                    assert row is not None
                    writer.write([row])
                    summary.add(row, kept=reward is None)
                    meter.advance(1, kept=int(reward is None))
                metrics = referee.metrics()
            writer.finish()
        except BaseException:
            where = writer.abandon()
            if output != "-":
                typer.echo(_stopped(summary.rows, total, where, config), err=True)
            raise
    if not quiet:
        typer.echo(summary.text(metrics), err=True)
    return summary


def _stopped(rows: int, total: int, where: Path | None, config: Config) -> str:
    """What an interrupted run leaves, and how to go on."""
    kept = config.cache.enabled and (config.cache.path or (config.redis.url and config.redis.cache))
    cached = " What was judged is in the cache." if kept else ""
    if where is None:
        return f"stopped before the first reward; nothing was written.{cached}"
    return f"stopped: {rows} of {total} rewards are in {where}. The same command with --resume goes on.{cached}"


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
    path = Path(rollouts)
    if rollouts == "-" and sys.stdin is None:
        raise InputError("-: standard input is closed. Name a file of rollouts.")
    if rollouts != "-" and path.is_dir():
        raise InputError(f"{rollouts} is a folder. Name a file of rollouts in it.")
    if rollouts != "-" and not path.exists():
        raise InputError(f"{rollouts}: no such file.")
    if rollouts != "-" and path.is_file():
        yield path
        return
    # Standard input, a FIFO, <(zcat …): what can be read once only is kept for the second time.
    with tempfile.NamedTemporaryFile(prefix="referee-", suffix=".jsonl") as spool:
        with contextlib.nullcontext(sys.stdin.buffer) if rollouts == "-" else path.open("rb") as given:
            shutil.copyfileobj(given, spool)
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


def _complaint(name: str, bad: list[BadLine], advice: str) -> str:
    if advice == _FORMAT and len(bad) == 1 and not bad[0].raw:
        return f"{name}: {bad[0].problem} Nothing was spent."
    lines = [f"{name}: {len(bad)} line{'s' if len(bad) > 1 else ''} cannot be used. Nothing was spent."]
    lines += [f"  {item.message}" for item in bad[:SHOWN]]
    if len(bad) > SHOWN:
        lines.append(f"  … and {len(bad) - SHOWN} more")
    return "\n".join([*lines, advice])


def _set_aside(bad: list[BadLine], rejects: Path) -> None:
    """Write the unusable lines, with what is wrong, to a file of their own."""
    descriptor = os.open(rejects, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream_:
        for item in bad:
            text = item.raw.decode("utf-8", "replace").rstrip("\r\n")
            note = {"line": item.line, "field": item.field, "problem": item.problem, "text": text}
            stream_.write(msgspec.json.encode(note) + b"\n")
    typer.echo(f"{len(bad)} unusable lines set aside in {rejects}", err=True)
