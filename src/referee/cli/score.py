"""`referee score`: rewards for a file of rollouts."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from msgspec.structs import replace

from referee.cli.asking import Asking, asking, check_asking
from referee.cli.groups import Sizes, calls_in_words, check_alone, sizes_of
from referee.cli.keep import Keep, KeptColumns, check_keep
from referee.cli.output import check_output, claimed, rejects_of
from referee.cli.output_tables import is_flat, make_table, reopen_table, working
from referee.cli.plan import show_file
from referee.cli.problems import Problems, refuse_text, warn_unread
from referee.cli.rows import Digests, RowWriter, consolidate, read_rows, row_of
from referee.cli.settings import ConfigFile, settings, with_ledger
from referee.cli.source import Map, as_file
from referee.cli.stream import Item, stream
from referee.cli.summary import Summary
from referee.cli.words import counted
from referee.config import Config, all_judges, compares, lacks_criteria
from referee.errors import InputError
from referee.progress import Meter
from referee.records import Sample
from referee.referee import Referee
from referee.report.files import record_beside
from referee.report.reward_rows import Row
from referee.rollouts import BadLine, doubtful_columns, first_rows, media_in, read_rollouts
from referee.scoring.batch import depends_on_siblings
from referee.scoring.build import columns_shown, rubric_polarity, text_only

UNSCORED = 3
"""Exit status when the output is complete and too few of its rows have a score to go on with."""
AUDIT_WAIT_S = 30.0
"""Seconds that the audit's last questions may take when all rewards are there."""
_CORRECT = "Correct them, or use --skip-bad to set them aside in a rejects file."


def command(
    rollouts: Annotated[str, typer.Argument(help="JSONL, CSV, Parquet or dataset folder; - for standard input.")],
    output: Annotated[
        str, typer.Option("--output", "-o", help="Rewards: .jsonl, .jsonl.gz, .csv, .parquet; - for standard output.")
    ] = "",
    config: ConfigFile = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after an interruption; judge only what is missing.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over although the output exists.")] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="Ask through the provider's batch API: half the price, up to a day.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Set unusable lines aside in a rejects file.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it takes, as `referee plan`; send and write nothing.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
    mapped: Map = None,
    keep: Keep = None,
) -> None:
    """Judge a file of rollouts.

    A rollout is a line of JSON with `prompt` and `response`; `id`, `group`, `reference`, `rule_score`, `length`,
    `truncated` and `step` are read too. A row of rewards has `reward` (null: none), `score`, `why` and `unscored`.
    """
    if not output and not dry_run:
        raise InputError("Where do the rewards go? Name a file with -o, or - for standard output.")
    folder = None if output in ("-", "") else record_beside(Path(output))
    if folder is not None and Path(output).is_symlink():
        output = os.path.realpath(output)  # the file it leads to is the output, not the link
    if not dry_run:
        check_output(rollouts, output, resume, overwrite)
    with as_file(rollouts, mapped) as source:
        sizes, total, bad, mixed, media, references = _survey(source)
        if bad.count and not total:
            refuse_text(rollouts, source)
        check_keep(rollouts, source, keep)
        rows = first_rows(source)
        for doubt in doubtful_columns(rows):
            typer.echo(f"warning: {rollouts}: {doubt.message}", err=True)
        if bad.count and not (skip_bad and total):
            raise InputError(bad.complaint(rollouts, _CORRECT if total else bad.instead(rows)))
        with settings(config, references == total, audit=True) as chosen:
            check_asking(chosen, output, folder, batch, overwrite)
            refused, rubrics = bad, False
            if media or columns_shown(chosen) or rubric_polarity(chosen):
                sizes, total, refused, rubrics = _usable(source, chosen)
            if refused.count and not (skip_bad and total):
                raise InputError(refused.complaint(rollouts, _CORRECT))
            warn_unread(rollouts, rows, columns_shown(chosen), rubric_polarity(chosen))
            if mixed.count and chosen.shaping.length.enable:
                raise InputError(mixed.complaint(rollouts, "Give every rollout of a group its length, or none."))
            comparing = next(filter(compares, all_judges(chosen.judge)), None)
            if comparing is not None and not references:
                raise InputError(
                    f'{rollouts}: judge.kind = "{comparing.kind}" compares with a known answer, and no rollout has a '
                    "`reference` (or `ground_truth`). Nothing was spent."
                )
            if not rubrics and any(lacks_criteria(judge) for judge in chosen.judge if not judge.optional):
                raise InputError(
                    f'{rollouts}: judge.kind = "rubric" goes by criteria, and there are none: no rollout has a '
                    "`rubric`, and the judge no [[judge.criterion]] or judge.rubric_file. Nothing was spent."
                )
            if dry_run:
                show_file(source, chosen, rollouts)
                return
            _say_groups(rollouts, chosen, sizes_of(sizes, total), quiet)
            chosen = with_ledger(chosen, folder)
            with claimed(output):
                check_output(rollouts, output, resume, overwrite)  # another run may have ended meanwhile
                if refused.count:
                    _set_aside(source, rejects_of(rollouts, output), chosen)
                if resume:
                    consolidate(Path(working(output)))
                    reopen_table(output)
                old = _records(folder) if overwrite and chosen.ledger.dir == str(folder) else []
                counts = _Counts(sizes, total, refused.count)
                kept = KeptColumns(source, "all" if keep is None and is_flat(output) else keep)
                with contextlib.closing(kept), asking(chosen, output, folder, batch, overwrite) as way:
                    summary = _score(source, output, chosen, counts, _Earlier(resume, overwrite), quiet, way, kept)
                for path in old:  # the record goes with the output it belongs to
                    path.unlink(missing_ok=True)
            if not quiet and folder is not None:
                typer.echo(f"rewards: {output}   record: {chosen.ledger.dir}", err=True)
    if summary.unscored > chosen.missing.abort_above * summary.rows or summary.unscored == summary.rows:
        have = f"{counted(summary.rows, 'rollout')} {'has' if summary.rows == 1 else 'have'}"
        typer.echo(f"{summary.unscored} of {have} no score: exit status {UNSCORED}.", err=True)
        raise typer.Exit(UNSCORED)


def _say_groups(rollouts: str, config: Config, sizes: Sizes, quiet: bool) -> None:
    """What judges of groups will be given and ask; an error where that is nothing."""
    for warning in check_alone(rollouts, config, sizes):
        typer.echo(warning, err=True)
    for line in () if quiet else calls_in_words(config, sizes):
        typer.echo(line, err=True)


def _records(folder: Path | None) -> list[Path]:
    return [] if folder is None else list(folder.glob("ledger-*.jsonl"))


class _Earlier(NamedTuple):
    """What to do with the output of an earlier run."""

    resume: bool
    overwrite: bool


class _Counts(NamedTuple):
    """What was counted with the settings that the rollouts are judged with."""

    sizes: Counter[str]
    total: int
    refused: int


def _score(
    source: Path,
    output: str,
    config: Config,
    counts: _Counts,
    earlier: _Earlier,
    quiet: bool,
    way: Asking,
    columns: KeptColumns,
) -> Summary:
    digests = Digests(config)
    summary, priced = Summary(config), any(endpoint.price_in is not None for endpoint in config.endpoint)
    sizes, total, refused = counts
    old = read_rows(Path(working(output))) if earlier.resume else iter(())
    items = _items(_read(source, config), refused, digests, old, way.kept)
    with Referee(way.config, way.build) as referee:  # first: what is wrong with the settings must not touch the output
        referee.expect(total, resumed=earlier.resume)
        writer = RowWriter(working(output), sys.stdout.buffer if output == "-" else None, fresh=earlier.overwrite)
        try:
            together = sizes if depends_on_siblings(config) else None
            with Meter(total, referee.metrics, quiet, priced, way.say) as meter:
                for item, reward in stream(referee, items, together, way.window):
                    row = item.kept if reward is None else row_of(item.tag, digests.of(item.sample), reward)
                    assert row is not None
                    writer.write([replace(row, columns=columns.of(item.tag))])
                    summary.add(row, kept=reward is None)
                    meter.advance(1, kept=int(reward is None))
                if referee.auditor is not None:
                    referee.auditor.settle(AUDIT_WAIT_S)
                metrics = referee.metrics()
            writer.finish()
            make_table(output)
            way.complete = True
        except BaseException:
            where = writer.abandon()
            if output != "-":
                judged = referee.metrics().get("scored", 0) - referee.metrics().get("gated", 0)
                typer.echo(_stopped(summary.rows, total, where, judged > 0, config), err=True)
            if left := way.left():
                typer.echo(left, err=True)
            raise
    if not quiet:
        typer.echo(summary.text(metrics), err=True)
        if referee.auditor is not None:
            typer.echo(_audit(metrics, referee.auditor.alarms(), config.ledger.dir), err=True)
    return summary


def _audit(metrics: Mapping[str, float], alarms: Mapping[tuple[str, str], bool], folder: str | None) -> str:
    """What the audit came to."""
    latest = {signal: level if is_open else "over" for (signal, level), is_open in alarms.items()}
    found = ", ".join(f"{signal} ({state})" for signal, state in latest.items())
    asked = counted(metrics["audit/asked"], "request")
    found = f"{counted(len(latest), 'alarm')}: {found}" if found else "no alarm"
    more = f"; see `referee audit {shlex.quote(folder)}`" if latest and folder else ""
    cost = f", ${metrics['audit/cost_usd']:.4f}" if metrics["audit/cost_usd"] else ""
    return f"audit: {found}{more}; {asked} of its own{cost}"


def _stopped(rows: int, total: int, where: Path | None, judged: bool, config: Config) -> str:
    """What an interrupted run leaves, and how to go on."""
    kept = config.cache.enabled and (config.cache.path or (config.redis.url and config.redis.cache))
    cached = " What was judged is in the cache." if kept and judged else ""
    if where is None:
        return f"stopped before the first reward; nothing was written.{cached}"
    there = f"{rows} of {counted(total, 'reward')} {'is' if total == 1 else 'are'} in {where}"
    return f"stopped: {there}. The same command with --resume goes on.{cached}"


def _read(source: Path, config: Config) -> Iterator[tuple[int, Sample | BadLine]]:
    """Every line as these judges are shown it. Other settings could count lines that then are not judged."""
    return read_rollouts(source, columns_shown(config), text_only(config), rubric_polarity(config))


def _items(
    given: Iterator[tuple[int, Sample | BadLine]],
    refused: int,
    digests: Digests,
    earlier: Iterator[Row],
    keep: Callable[[Row], None] = lambda _: None,
) -> Iterator[Item[int, Row]]:
    """Samples in order, each with its row of an earlier run if that still holds. `refused`: how many lines are known to
    be unusable; one more is an error, or its row would be missing without a word. `keep` is called with each
    row that still holds."""
    old = next(earlier, None)
    for line, sample in given:
        if isinstance(sample, BadLine):
            refused -= 1
            if refused < 0:
                raise InputError(f"{sample.message} It was not so when the file was checked: has the file changed?")
            continue
        while old is not None and old.line < line:
            old = next(earlier, None)
        same = old is not None and old.line == line and old.scored and old.digest == digests.of(sample)
        kept = old if same and old is not None and old.whole else None
        if kept is not None:
            keep(kept)
        yield Item(line, sample, kept)


def _survey(source: Path) -> tuple[Counter[str], int, Problems, Problems, bool, int]:
    """Read everything once before anything is spent: group sizes, how many samples, what is wrong, how many references.

    The second Problems are wrong only if lengths matter: lines whose group gives `length` on some lines only. The flag:
    some hold what is not text, which a judge may refuse.
    """
    sizes: Counter[str] = Counter()
    total, references, media = 0, 0, False
    bad, mixed = Problems(), Problems()
    with_length: dict[str, bool] = {}
    for line, sample in read_rollouts(source):
        if isinstance(sample, BadLine):
            bad.add(sample)
            continue
        total += 1
        references += bool((sample.reference or "").strip())
        if sample.group:
            sizes[sample.group] += 1
            known = with_length.setdefault(sample.group, sample.length is not None)
            if known != (sample.length is not None):
                mixed.add(BadLine(line, "length", f"group {sample.group!r} has it on some lines only"))
        media = media or media_in(sample) is not None
    return sizes, total, bad, mixed, media, references


def _usable(source: Path, config: Config) -> tuple[Counter[str], int, Problems, bool]:
    """Group sizes and number of the samples that these judges can be shown, what is wrong with the other lines, and
    whether a sample has a rubric."""
    sizes: Counter[str] = Counter()
    total, refused, rubrics = 0, Problems(), False
    for _, item in _read(source, config):
        if isinstance(item, BadLine):
            refused.add(item)
            continue
        total += 1
        rubrics = rubrics or bool(item.rubric)
        if item.group:
            sizes[item.group] += 1
    return sizes, total, refused, rubrics


def _set_aside(source: Path, rejects: Path, config: Config) -> None:
    """Write the unusable lines, with what is wrong, to a file of their own."""
    descriptor = os.open(rejects, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    count = 0
    with os.fdopen(descriptor, "wb") as stream_:
        for _, item in _read(source, config):
            if isinstance(item, BadLine):
                text = item.raw.decode("utf-8", "replace").rstrip("\r\n")
                note = {"line": item.line, "field": item.field, "problem": item.problem, "text": text}
                stream_.write(msgspec.json.encode(note) + b"\n")
                count += 1
    typer.echo(f"{counted(count, 'unusable line')} set aside in {rejects}", err=True)
