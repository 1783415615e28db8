"""`referee serve`: the judge over HTTP, for trainers in many processes and in other languages."""

from __future__ import annotations

import enum
import logging
import os
import signal
from typing import Annotated

import typer
from msgspec.structs import replace

from referee.cli.live import add_live_page
from referee.cli.settings import DEFAULT_FILE, ConfigFile, settings
from referee.config import Config, load
from referee.errors import ConfigError, RefereeError, install
from referee.scoring.build import with_rubrics


class LogFormat(enum.StrEnum):
    """What lines on standard error look like."""

    text = "text"
    json = "json"


def command(
    config: ConfigFile = None,
    host: Annotated[str, typer.Option(help="Where to listen. Anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8900,
    token_env: Annotated[str, typer.Option(help="Environment variable that holds the token callers must send.")] = "",
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines on stderr: text, or one JSON object each.")
    ] = LogFormat.text,
    access_log: Annotated[
        bool | None,
        typer.Option("--access-log/--no-access-log", help="A line for each request. Default: with json only."),
    ] = None,
) -> None:
    """Serve rewards over HTTP until SIGTERM or Ctrl-C. SIGHUP reads the configuration file again.

    /v1/score judges a batch; /get_reward, /slime and /llamafactory are for trainers; /openapi.json lists all paths.
    """
    early: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, frame: early.append(number))  # starting takes seconds; it would end us

    def ready(url: str) -> None:
        text = f"serving at {url} ({url}/openapi.json lists the paths; Ctrl-C ends it)"
        if log_format is LogFormat.json:  # where a container's two streams are one, each line is an object
            text = JsonLines().format(log.makeRecord(log.name, logging.INFO, "", 0, text, (), None))
        typer.echo(text)
        for number in early[:1]:
            signal.raise_signal(number)

    try:
        from referee.server import run
        from referee.server.logs import JsonLines, log, start_logging
    except ImportError as error:
        raise ConfigError(
            f"referee serve needs packages of its own ({error.name} is missing): {install('serve')}."
        ) from None
    start_logging(log_format, access_log if access_log is not None else log_format is LogFormat.json)
    file = config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)

    def with_token(chosen: Config) -> Config:
        return replace(chosen, serve=replace(chosen.serve, token_env=token_env)) if token_env else chosen

    def read() -> Config:
        assert file is not None
        return with_token(with_rubrics(load(file, os.environ)))

    try:
        with settings(config, references=False, audit=True) as chosen:
            run(with_token(chosen), host, port, ready=ready, extend=add_live_page, read=read if file else None)
    except RefereeError as error:
        if log_format is LogFormat.text:
            raise
        log.error("%s", error)
        raise typer.Exit(2) from None
