"""Which configuration a command uses: the file named, ./referee.toml, or the embedded judge."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from referee.config import AuditConfig, Config, load
from referee.local import DISCLAIMER, embedded_config
from referee.scoring.build import with_rubrics

DEFAULT_FILE = Path("referee.toml")
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="Default: ./referee.toml, else the embedded judge.")
]


@contextlib.contextmanager
def settings(path: Path | None, references: bool = True, audit: bool = False) -> Iterator[Config]:
    """The configuration; without a file, that of the embedded judge.

    `references`: every sample has one, so that the embedded judge can compare, which it does best. `audit`: the command
    is about rewards, which the audit watches. For others the shadow judge is a judge like any other.
    """
    if path is None and DEFAULT_FILE.exists():
        path = DEFAULT_FILE
        typer.echo(f"using {DEFAULT_FILE}", err=True)
    if path is not None:
        chosen = with_rubrics(load(path, os.environ))
        yield chosen if audit else replace(chosen, judge=chosen.known_judges, audit=AuditConfig())
        return
    typer.echo("no configuration: using the embedded judge (SmolLM2-135M on this CPU). " + DISCLAIMER, err=True)
    yield load(embedded_config(references), os.environ)


def with_ledger(config: Config, folder: Path | None) -> Config:
    """The same configuration with a ledger in `folder`, unless it names one itself."""
    if folder is None or config.ledger.dir:
        return config
    return replace(config, ledger=replace(config.ledger, dir=str(folder)))
