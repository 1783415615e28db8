"""`referee batches`: what `referee score --batch` has at providers, and stopping it."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from referee import clock
from referee.batch import Journal, Listed
from referee.batch.calls import Pace
from referee.batch.journal import FILE
from referee.batch.open import api_of, endpoint_name
from referee.batch.port import Refused
from referee.cli.help import App
from referee.cli.output import claimed
from referee.cli.settings import settings
from referee.config import Config
from referee.engine import Endpoint, find_key
from referee.engine.port import TransportFault
from referee.errors import ConfigError, RefereeError
from referee.report.files import record_beside

app = App(help="List the batches of `referee score --batch`, or cancel them.", no_args_is_help=True)
OutputArgument = Annotated[Path, typer.Argument(help="The output of the run (out.jsonl), or its folder (out.run).")]
SKEW_S = 3600.0


@app.command("list")
def list_(output: OutputArgument) -> None:
    """List batches, the oldest first, with their last known state."""
    for batch in _read(output):
        when = datetime.datetime.fromtimestamp(batch.created).astimezone().strftime("%Y-%m-%d %H:%M")
        name = batch.remote or f"(no id yet; token {batch.token})"
        typer.echo(f"{name}  {batch.state}  {batch.done}/{batch.items} done  {when}  {batch.endpoint}")


@app.command()
def cancel(
    output: OutputArgument,
    ids: Annotated[list[str] | None, typer.Argument(help="Only these batches. Default: all that are open.")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="For the key. Default: ./referee.toml.")] = None,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Forget those that the provider, or the configuration, does not know."),
    ] = False,
) -> None:
    """Stop open batches. What the provider has done by then is billed, and --batch --resume collects it."""
    wanted = [batch for batch in _read(output) if batch.open and (not ids or batch.remote in ids)]
    if not wanted:
        typer.echo("no open batch")
        return
    with settings(config) as chosen:
        found = asyncio.run(_cancel(chosen, wanted))
    gone = found.unknown if forget else []
    try:
        with claimed(str(_folder(output) / FILE)):
            _record(_folder(output), found, gone)
    except ConfigError:  # a run that goes on sees for itself what was cancelled
        if gone:
            raise
    failed = found.failed - len(gone)
    if failed:
        raise RefereeError(f"{failed} of {len(wanted)} batches could not be cancelled.")


class _Ends(Struct):
    """What came of cancelling."""

    failed: int = 0
    stopped: list[Listed] = []
    absent: list[Listed] = []
    """Never created."""
    unknown: list[Listed] = []
    """Of those that failed, the ones that the provider does not know, or whose provider is not known here."""


def _record(folder: Path, found: _Ends, gone: list[Listed]) -> None:
    journal = Journal(folder)
    for batch in found.stopped:
        journal.stopped(batch.number, batch.remote)
    for batch in [*found.absent, *gone]:
        state = "forgotten" if batch in gone else "not created"
        journal.collected(batch.number, state, (), [item for item, _ in journal.items_of(batch.number)])
    journal.close()


async def _cancel(config: Config, batches: list[Listed]) -> _Ends:
    endpoints = {endpoint_name(endpoint): endpoint for endpoint in config.endpoint}
    pace, ends = Pace(config.batch.poll), _Ends()
    for batch in batches:
        endpoint = endpoints.get(batch.endpoint)
        if endpoint is None:
            typer.echo(f"{batch.remote or batch.token}: its endpoint ({batch.endpoint}) is not configured", err=True)
            ends.failed += 1
            ends.unknown.append(batch)
            continue
        api = api_of(endpoint, Endpoint(endpoint, config.limits, find_key(endpoint)).headers, pace)
        try:
            id, certain = batch.remote, True
            if not id:
                id, certain = await api.find(batch.token, batch.items, batch.created - SKEW_S, ())
            if not id:
                typer.echo(f"{batch.token}: not found at the provider: probably never created")
                if certain and clock.wall() - batch.created > pace.settle:
                    ends.absent.append(batch)
                continue
            if (await api.look(id)).ended:
                typer.echo(f"{id}: has ended already")
            else:
                await api.cancel(id)
                typer.echo(f"{id}: cancelling, {clock.wall() - batch.created:.0f} s after it was sent")
            ends.stopped.append(batch._replace(remote=id))
        except (Refused, TransportFault) as error:
            what = f"status {error.response.status}" if isinstance(error, Refused) else error.kind
            typer.echo(f"{batch.remote or batch.token}: not cancelled ({what})", err=True)
            ends.failed += 1
            if isinstance(error, Refused) and error.response.status in (404, 410):
                ends.unknown.append(batch)
    return ends


def _folder(output: Path) -> Path:
    folder = output if output.is_dir() else record_beside(output)
    if not folder.is_dir():
        raise ConfigError(f"{output}: there is no folder {folder} of a run.")
    return folder


def _read(output: Path) -> list[Listed]:
    journal = Journal(_folder(output), readonly=True)
    try:
        return journal.batches()
    finally:
        journal.close()
