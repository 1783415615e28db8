"""`referee watch`: a run as it goes, in a terminal, in a browser, or as data."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.live import Live

from referee import clock
from referee.cli.screen import frame, line
from referee.cli.terminal import terminal
from referee.errors import InputError
from referee.report.files import holds_a_ledger
from referee.report.index import mark_of, runs_in
from referee.report.live import live_files
from referee.report.live_server import LiveServer
from referee.report.watch import Watch

PAUSE_RATIO = 4.0
"""After a look, pause at least this many times as long as it took: at most a fifth of a core is used."""
LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


def command(
    run: Annotated[Path, typer.Argument(help="The run's ledger: its folder ([ledger] dir) or a file.")],
    once: Annotated[bool, typer.Option("--once", help="Show the state now and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The state now as plain data.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    page: Annotated[bool, typer.Option("--page", help="Show it in a browser: serve a page on 127.0.0.1.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="For --page. 0: any free port.")] = 0,
) -> None:
    """Show a run while it goes on: scores, unscored, speed, limits, cost, waiting. Ctrl-C ends it."""
    if run.is_file() and run.stat().st_size and not holds_a_ledger(run):
        raise InputError(f"{run}: no ledger. That of `referee score -o OUT.jsonl` is in the folder OUT.run.")
    runs = runs_in(run) if run.is_dir() else []
    if runs and run not in runs:
        newest = max(runs, key=lambda one: mark_of(one)[1])
        raise InputError(
            f"{run}: no ledger, but a folder of {len(runs)} runs (`referee report` makes an index of them). The one "
            f"written to last: referee watch {shlex.quote(str(newest))}"
        )
    watch = Watch(run)
    console = terminal()
    if once or as_json:
        _once(watch, run, as_json, console)
        return
    try:
        if page:
            _page(watch, port)
        elif console.is_terminal:
            _live(watch, every, console)
        else:
            _lines(watch, max(every, LINE_EVERY))
    except KeyboardInterrupt:
        return


def _once(watch: Watch, run: Path, as_json: bool, console: Console) -> None:
    watch.catch_up()
    shot = watch.snapshot(clock.wall())
    if not shot.files:
        raise InputError(f"{run}: no ledger there (no ledger-*.jsonl). Is [ledger] dir set to this folder?")
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(shot), indent=1).decode())
    else:
        console.print(frame(shot))


def _page(watch: Watch, port: int) -> None:
    with LiveServer(live_files(watch), port) as server:
        typer.echo(f"{server.url}\nonly from this machine; over ssh, forward the port. Ctrl-C ends it.")
        while True:
            clock.pause(1.0)


def _live(watch: Watch, every: float, console: Console) -> None:
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            started = clock.monotonic()
            watch.update()
            live.update(frame(watch.snapshot(clock.wall()), console.height), refresh=True)
            clock.pause(max(every, PAUSE_RATIO * (clock.monotonic() - started)))


def _lines(watch: Watch, every: float) -> None:
    while True:
        watch.catch_up()
        typer.echo(line(watch.snapshot(clock.wall())))
        clock.pause(every)
