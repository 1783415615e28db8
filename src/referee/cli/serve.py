"""`referee serve`: the judge over HTTP, for trainers in many processes and in other languages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from referee.cli.live import add_live_page
from referee.cli.settings import settings
from referee.errors import ConfigError


def command(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Default: ./referee.toml, else the embedded judge.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen. Anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8900,
    token_env: Annotated[str, typer.Option(help="Environment variable that holds the token callers must send.")] = "",
) -> None:
    """Serve rewards over HTTP until SIGTERM or Ctrl-C.

    /v1/score judges a batch; /get_reward, /slime and /llamafactory are for trainers; /openapi.json lists all paths.
    """
    try:
        from referee.server import run
    except ImportError as error:
        raise ConfigError(
            f'referee serve needs packages of its own ({error.name} is missing): pip install "llm-referee[serve]".'
        ) from None
    with settings(config, references=False) as chosen:
        if token_env:
            chosen = replace(chosen, serve=replace(chosen.serve, token_env=token_env))
        run(chosen, host, port, ready=_ready, extend=add_live_page)


def _ready(url: str) -> None:
    typer.echo(f"serving at {url} ({url}/openapi.json lists the paths; Ctrl-C ends it)")
