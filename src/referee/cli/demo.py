"""`referee demo`: the main job on this machine alone. A small LLM judges a shipped file; then waiting is compared."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from referee import clock
from referee.cli.report import make_report
from referee.cli.ways_to_wait import compare, comparison_table
from referee.cli.words import counted
from referee.config import CacheConfig, LedgerConfig, load
from referee.errors import RefereeError
from referee.local import DISCLAIMER, demo_rollouts, embedded_config, separation
from referee.local.embedded import ruled_rollouts
from referee.progress import Meter
from referee.records import Reward, Sample, Unscored, Verdict
from referee.referee import Referee
from referee.rollouts import plain


def command(
    speed: Annotated[float, typer.Option(help="The simulated comparison runs this many times faster.")] = 20.0,
    page: Annotated[Path, typer.Option(help="Where the report page of what was judged goes.")] = Path(
        ".referee/demo.html"
    ),
) -> None:
    """Judge shipped rollouts with an embedded LLM, then compare three ways to wait for a judge."""
    started = clock.monotonic()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "demo.run"  # named like the record of `referee score`: there is no trainer that waits
        _judge(console, run)
        _show(console, run, page)
    show_rules(console)
    console.print()
    console.print(
        "100 responses, a judge that takes about 0.6 s each, and 10 s of other work in the training step "
        f"(simulated provider, time scaled {speed:g} times down; figures are scaled back up)."
    )
    console.print(comparison_table(compare(speed)))
    console.print(f"\ndone in {clock.monotonic() - started:.0f} s. Next: referee init, or referee score --help")


def _show(console: Console, run: Path, page: Path) -> None:
    """The report page of what was judged, where its charting library is installed."""
    try:
        page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_report(run, page, "referee demo")
        console.print(f"the page: {page} ({page.stat().st_size / 1e6:.1f} MB); open it in a browser", markup=False)
    except (RefereeError, OSError) as error:
        console.print(f"No report page: {error}", markup=False)


def _judge(console: Console, run: Path) -> None:
    labelled = demo_rollouts()
    samples = [sample for sample, _ in labelled]
    console.print(
        f"Judging {len(samples)} rollouts of {len({s.group for s in samples})} prompts with SmolLM2-135M on this CPU. "
        + DISCLAIMER
    )
    config = replace(load(embedded_config()), cache=CacheConfig(path=""), ledger=LedgerConfig(dir=str(run)))
    with Referee(config) as referee:
        with Meter(len(samples), referee.metrics) as meter:
            rewards = referee.submit(samples).result()
            metrics = referee.metrics()
        if not console.is_terminal:
            typer.echo(meter.line(), err=True)  # lines come every ten seconds; the last one says that all is done
    console.print(_table(labelled, rewards))
    unscored = [reward for reward in rewards if not reward.scored]
    console.print(
        f"{counted(len(rewards), 'rollout')}: {counted(metrics['requests'], 'request')}, "
        f"{metrics['gated']:.0f} settled without a call, "
        f"{len(unscored)} unscored"
    )
    for reward in unscored:
        verdict = reward.verdict
        assert isinstance(verdict, Unscored)
        console.print(f"  {reward.id}: {verdict.reason}: {verdict.detail}", markup=False)
    judged = [
        (label, reward.value)
        for (_, label), reward in zip(labelled, rewards, strict=True)
        if reward.value is not None and reward.settled.origin != "gate"
    ]
    everything = [
        (label, reward.value) for (_, label), reward in zip(labelled, rewards, strict=True) if reward.value is not None
    ]
    console.print(
        "How well it tells good answers from the rest (1 = always, 0.5 = by chance): "
        f"{separation(judged):.2f} by the model alone, {separation(everything):.2f} with the gates."
    )


def show_rules(console: Console) -> None:
    """Rubrics, by the criteria that need no judge."""
    samples = ruled_rollouts()
    settings = {"judge": {"kind": "rubric"}, "endpoint": {"key_env": ""}, "cache": {"path": ""}}
    with Referee(load(settings)) as referee:
        rewards = referee.submit(samples).result()
    found: dict[tuple[str, str], list[bool]] = {}
    for sample, reward in zip(samples, rewards, strict=True):
        assert isinstance(reward.verdict, Verdict), reward.verdict
        for part in reward.verdict.parts:
            found.setdefault((sample.group, part.text), []).append(part.label == "yes")
    console.print(
        f"\nRubrics: {counted(len(samples), 'rollout')} by those of their criteria that a rule decides, without "
        "a call. The other criteria need a larger model: referee init --judge rubric writes a configuration for yours."
    )
    table = Table(show_edge=False, pad_edge=False)
    for name in ("rollouts", "criterion", "true of"):
        table.add_column(name, no_wrap=True)
    for (group, text), truths in found.items():
        table.add_row(group, _plain(text), f"{sum(truths)} of {len(truths)}")
    console.print(table)


def _table(labelled: list[tuple[Sample, str]], rewards: list[Reward]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name, least in (("rollout", 9), ("written as", 10), ("reward", 6), ("settled by", 20), ("response", 10)):
        justify: Literal["left", "right"] = "right" if name == "reward" else "left"
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least, justify=justify)
    for (sample, label), reward in zip(labelled, rewards, strict=True):
        verdict = reward.verdict
        if isinstance(verdict, Unscored):
            by = f"unscored, {verdict.reason}"
        elif verdict.how == "gate":
            by = verdict.reason
        else:
            by = verdict.how
        shown = " ".join(plain(sample.response).split())[:48]
        value = "none" if reward.value is None else f"{reward.value:.2f}"
        table.add_row(*(_plain(cell) for cell in (sample.id, label, value, by.split(":")[0], shown)))
    return table


def _plain(text: str) -> str:
    """Rollouts are hostile text: no markup, no control characters reach the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("[", "\\[")
