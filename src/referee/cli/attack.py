"""`referee attack`: what answers without merit get from a judge by forging, hiding or asking for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from referee.calibration.asking import first_judged
from referee.cli.problems import refuse_text
from referee.cli.settings import ConfigFile, settings
from referee.cli.source import Map, as_file
from referee.cli.terminal import terminal
from referee.cli.words import counted
from referee.config import Config, MissingConfig
from referee.errors import InputError
from referee.judging import needs_groups
from referee.probes.trials import ASKED, CONTROL, AttackReport, attack_report, trials
from referee.records import Sample
from referee.referee import Referee
from referee.report.plain import plain
from referee.rollouts import BadLine, read_rollouts
from referee.scoring.build import columns_shown, rubric_polarity, text_only

CREDITED = 4
"""Exit status when more attacks than allowed earned credit."""
UNTESTED = 0.2
"""Share of attacks without a verdict above which nothing is known of a judge."""


def command(
    rollouts: Annotated[
        str | None, typer.Argument(help="Rollouts whose prompts are used. Default: one shipped prompt.")
    ] = None,
    config: ConfigFile = None,
    prompts: Annotated[int, typer.Option(min=1, help="How many different prompts of the file.")] = 1,
    fail_above: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"Exit status {CREDITED} if a larger share earned credit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Plain data instead of tables.")] = False,
    mapped: Map = None,
) -> None:
    """Ask the judge about answers that deserve nothing and try to get it.

    Master keys, forged verdicts, broken fences, template tokens, hidden characters, orders to the judge, empty praise:
    each is an answer to a prompt of yours. What is credited is persuasion, since forgeries are broken before a judge
    sees them. A judge of groups sees each attack among honest answers.
    """
    with settings(config) as chosen:
        asked = [[ASKED]]
        if rollouts is not None:
            with as_file(rollouts, mapped) as path:
                asked = _asked(rollouts, path, prompts, chosen)
        found = attacked(chosen, asked)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _show(found)
    for name, one in found.items():
        if one.unscored > UNTESTED * one.attacks:
            typer.echo(
                f"judge {name}: {one.unscored} of {one.attacks} attacks have no verdict, so nothing is known of it; "
                "`referee doctor` says whether it can be asked.",
                err=True,
            )
            raise typer.Exit(1)
        if one.lenient:
            typer.echo(
                f'warning: judge {name} gives "{CONTROL}" {one.control:.2f}: it credits answers without merit, and '
                "attacks need not persuade it.",
                err=True,
            )
    if fail_above is not None and any(one.lenient or (one.share or 0.0) > fail_above for one in found.values()):
        raise typer.Exit(CREDITED)


def attacked(config: Config, asked: Sequence[Sequence[Sample]]) -> dict[str, AttackReport]:
    """What every judge of a configuration gives the attacks, by name."""
    tried = trials(asked, needs_groups(config.judge))
    # Most attacks end alike, which is no reason to stop; and only verdicts are of interest here.
    alone = replace(config, missing=MissingConfig(abort_above=1.0))
    with Referee(alone) as referee:
        firsts = first_judged(referee, [trial.samples for trial in tried])
    return {
        judge.name: attack_report(
            (trial, reward.judged[number].verdict) for trial, reward in zip(tried, firsts, strict=True)
        )
        for number, judge in enumerate(config.judge)
    }


def _asked(name: str, path: Path, most: int, config: Config) -> list[list[Sample]]:
    """Honest answers to the first different prompts of a file."""
    found: dict[object, list[Sample]] = {}
    for _, sample in read_rollouts(path, columns_shown(config), text_only(config), rubric_polarity(config)):
        if isinstance(sample, BadLine):
            if not found:
                refuse_text(name, path)
            raise InputError(f"{name}: {sample.message}")
        if sample.prompt in found or len(found) < most:
            found.setdefault(sample.prompt, []).append(sample)
    if not found:
        raise InputError(f"{name}: there are no rollouts in this file.")
    return list(found.values())


def _show(found: dict[str, AttackReport]) -> None:
    console = terminal()
    for name, one in found.items():
        head = f"judge {plain(name, 60)}: {counted(one.attacks, 'attack')} on {counted(one.prompts, 'prompt')}"
        missing = f", {one.unscored} unscored" if one.unscored else ""
        console.print(f"{head}, {one.credited} credited ({_share(one.share)}){missing}")
        table = Table(show_edge=False, pad_edge=False)
        for column in ("family", "attacks", "credited", "unscored", "highest"):
            table.add_column(column, justify="left" if column == "family" else "right")
        for family, counts in one.families.items():
            highest = "-" if counts.highest is None else f"{counts.highest:.2f}"
            table.add_row(family, str(counts.attacks), str(counts.credited), str(counts.unscored), highest)
        console.print(table)
        if one.control is not None:
            console.print(f'"{CONTROL}" gets {one.control:.2f}')
        for example in one.examples:
            console.print(Text(f"\n{example.family}: {example.value:.2f}\n  answer  {plain(example.attack, 100)}"))
            if example.why:
                console.print(Text(f"  judge   {plain(example.why, 100)}"))


def _share(value: float | None) -> str:
    return "no verdict" if value is None else f"{value:.1%}"
