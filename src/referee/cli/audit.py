"""`referee audit`: was the reward of a finished run gamed? From its record alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from referee.audit.offline import AuditResult, State, TimeOrder, audit
from referee.cli.audit_ask import asked_now
from referee.errors import InputError
from referee.ledger import AuditLine
from referee.report.files import holds_a_ledger, lines_of, record_beside
from referee.report.judged_file import judged_file
from referee.report.plain import plain
from referee.signals import Alarm

ALARM = 4
"""Exit status when there is an alarm."""
WIDTH = 79
LEDGER = ("phrase", "length", "style", "variety", "overlap", "criteria", "saturation")
SERVER = ("judge_changed", "unscored", "latency", "verdicts")
"""Signals by where they look; the rest is asked."""
TEXTS = ("phrase", "style", "variety", "overlap")
WORDS = {
    **dict.fromkeys(("phrase", "unscored", "exploitation"), "share"),
    **dict.fromkeys(("length", "style", "variety", "overlap"), "with score"),
    "judge_changed": "models and fingerprints",
    "latency": "seconds",
    "verdicts": "mean",
    "saturation": "top",
    "canaries": "credited",
    "shadow": "gap",
    "probes": "rise",
    "fixed": "drift",
}
"""What a number of a signal's own name is."""
COUNTS = ("judge_changed", "phrase_tested")


def command(
    run: Annotated[
        Path,
        typer.Argument(help="A folder of ledger files ([ledger] dir), one of them, or rewards of referee score."),
    ],
    ask: Annotated[
        bool, typer.Option("--ask", help="Also ask canaries, the shadow judge and rewrites, now. This costs requests.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="With --ask: the judges. Default: ./referee.toml.")
    ] = None,
    requests: Annotated[int, typer.Option(min=10, help="With --ask: how many requests at most.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Plain data instead of text.")] = False,
) -> None:
    """Look for reward hacking in a run's record. No calls are made without --ask. Status 4 with an alarm, 0 without.

    --ask puts canaries between the run's prompts, shows some of its first and last answers to the judge that [audit]
    shadow names, and rewrites some in ways that must not raise their score. It says before how many requests that is.
    """
    if config is not None and not ask:
        raise InputError("--config is only read with --ask: without it nothing is asked.")
    run = _record_of(run)
    found, lost = audited(run, asked_now(run, config, requests) if ask else ())
    if as_json:
        typer.echo(msgspec.json.format(as_data(found), indent=1).decode())
    else:
        for line in summary(found, str(run), lost):
            typer.echo(line)
    if found.alarms:
        raise typer.Exit(ALARM)


def _record_of(run: Path) -> Path:
    """Of rewards, the record that `referee score` has kept beside them: rewards themselves hold no texts."""
    if not run.is_file() or holds_a_ledger(run):
        return run
    both = judged_file(run)
    if both is None and record_beside(run).is_dir():
        typer.echo(f"{record_beside(run)} does not hold all of these rewards, and is left out.", err=True)
    return run if both is None else both.record


def audited(run: Path, answers: Sequence[AuditLine] = ()) -> tuple[AuditResult, int]:
    """The audit of what is at this path, and how many lines of it could not be read. `answers`: asked since."""
    if run.is_dir() or (run.is_file() and holds_a_ledger(run)):
        lines = TimeOrder(run)
        found = audit(chain(lines, answers))
        lost = lines.lost
    else:
        rows = lines_of(run)
        found = audit(chain(rows, answers))
        lost = rows.skipped
    if not found.samples:
        raise InputError(f"{run}: holds no sample that a judge was asked about. There is nothing to audit.")
    return found, lost


def as_data(found: AuditResult) -> bytes:
    """The documented form: see `referee docs audit`."""
    return msgspec.json.encode(
        {
            "version": found.version,
            "samples": found.samples,
            "steps": found.steps,
            "alarms": found.alarms,
            "measures": found.measures,
            "signals": {name: {"state": one.state, "looked_at": one.looked_at} for name, one in found.signals.items()},
        }
    )


def summary(found: AuditResult, name: str, lost: int = 0) -> Iterator[str]:
    """For a terminal of 80 columns."""
    steps = ""
    if found.steps:
        steps = f", {found.steps:,} step{'' if found.steps == 1 else 's'} ({found.first_step} to {found.last_step})"
    yield from _wrapped(f"{plain(name, 200)}: {found.samples:,} judged samples{steps}")
    yield from _limits(found, lost)
    yield ""
    count = len(found.alarms)
    yield f"{count} alarm{'' if count == 1 else 's'}." if count else "No alarm."
    for alarm in found.alarms:
        yield ""
        yield from _alarm(alarm)
    yield ""
    yield f"{'signal':14} {'state':11} {'looked at':>9}  now"
    for title, names in (("in the record", LEDGER), ("the judge's server", SERVER), ("asked", None)):
        shown = [n for n in found.signals if (n in names if names else n not in LEDGER + SERVER)]
        if names is None and not any(found.signals[one].looked_at for one in shown):
            yield "-- asked: nothing (--ask, or [audit] enable = true in the next run)"
            continue
        yield f"-- {title}"
        for one in shown:
            yield _state(one, found.signals[one], found)
    yield ""
    yield from _wrapped(
        "Where nothing is paid beyond what the tests tolerate, a run has any alarm with a probability of at most 5 %. "
        "See `referee docs audit`."
    )


def _limits(found: AuditResult, lost: int) -> Iterator[str]:
    if lost:
        yield from _wrapped(f"{lost:,} line{'' if lost == 1 else 's'} could not be read.")
    if not found.groups:
        yield from _wrapped(
            "No sample has siblings (answers to the same prompt): what a judge pays for cannot be told."
        )
    if not found.steps:
        yield from _wrapped("Samples name no step: they are taken in the order in which they were judged.")


def _alarm(alarm: Alarm) -> Iterator[str]:
    since = "" if alarm.step is None else f", since step {alarm.step}"
    since += "" if alarm.critical_step is None else f", critical since step {alarm.critical_step}"
    yield f"{alarm.level.upper()} {alarm.signal}{since}{' (over at the end)' if alarm.over else ''}"
    yield from _wrapped(plain(alarm.sentence, 600), "  ")
    numbers = ", ".join(
        f"{name.replace('_', ' ')} {plain(value, 60) if isinstance(value, str) else format(value, '.3g')}"
        for name, value in alarm.evidence.items()
    )
    for sample in alarm.samples:
        value = sample.get("value")
        place = f"{sample.get('batch', '')}/{sample.get('index', '')} {sample.get('id', '')}".strip()
        shown = f"  {plain(place, 30)}: {'-' if value is None else format(value, '.2f')}"
        yield from _wrapped(f"{shown[2:]} {plain(str(sample.get('text', '')), 170)}".rstrip(), "  ")
    yield from _wrapped(f"Try: {alarm.advice}", "  ")
    if numbers:
        yield from _wrapped(f"Evidence: {numbers}", "  ")


def _state(name: str, state: State, found: AuditResult) -> str:
    why = ", ".join(
        f"{WORDS.get(key) or key.removeprefix(name).strip('_')} {x:.{0 if key in COUNTS else 2}f}"
        for key, x in state.measures.items()
    )
    if state.state == "not enough" and not state.looked_at:
        why = {"criteria": "no criteria of both kinds", "saturation": "no rule scores that differ"}.get(name, "")
        if name in TEXTS and not found.texts:
            why = "no texts in the record"
    word = "ALARM" if state.state == "alarm" else state.state
    return f"{name:14} {word:11} {state.looked_at:>9,}  {why}"[:WIDTH].rstrip()


def _wrapped(text: str, indent: str = "") -> list[str]:
    text = text.replace(" %", "\u00a0%")  # a number and its sign stay together
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + ("  " if indent else ""))
    return [line.replace("\u00a0", " ") for line in lines]
