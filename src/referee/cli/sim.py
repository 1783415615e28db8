"""`referee sim`: the simulated provider as a server, for trying limits, faults and speed without a key."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import typer

from referee.config import is_variable
from referee.errors import ConfigError
from referee.sim import BatchSpec, ProviderSpec, run_server
from referee.sim.apis import APIS


def command(
    port: Annotated[int, typer.Option(help="0: any free port.", min=0, max=65535)] = 8700,
    api: Annotated[str, typer.Option(help=f"The API it speaks, as endpoint.api: {', '.join(APIS)}.")] = "chat",
    latency: Annotated[float, typer.Option(help="Median seconds per answer.")] = 2.0,
    sigma: Annotated[float, typer.Option(help="Spread of the lognormal latency.")] = 0.6,
    capacity: Annotated[int, typer.Option(help="Answers it works on at once; 0: no limit.")] = 60,
    mode: Annotated[str, typer.Option(help="Beyond capacity: refuse (429), queue, or degrade.")] = "refuse",
    rpm: Annotated[int, typer.Option(help="Requests per minute; 0: no limit.")] = 0,
    tpm: Annotated[int, typer.Option(help="Tokens per minute; 0: no limit.")] = 0,
    speed: Annotated[float, typer.Option(help="Time runs this many times faster.")] = 1.0,
    batch: Annotated[
        float | None,
        typer.Option(help="Also serve batches, each done after this many seconds (chat, anthropic).", min=0),
    ] = None,
    model: Annotated[str, typer.Option(help="The only model it knows; empty: any name will do.")] = "",
    key_env: Annotated[str, typer.Option(help="Environment variable with the key callers must send.")] = "",
    seed: Annotated[int, typer.Option(help="Same seed, same behaviour.")] = 0,
) -> None:
    """Run the simulated provider on loopback until Ctrl-C. What it refuses for speed it says to ask again in 1 s.

    Its scores mean nothing. In the configuration: url = "http://127.0.0.1:8700/v1", model = "sim", key_env = "".
    """
    if mode not in ("refuse", "queue", "degrade"):
        raise typer.BadParameter(f"mode must be refuse, queue or degrade, not {mode!r}")
    chosen: Literal["refuse", "queue", "degrade"] = mode  # type: ignore[assignment]
    spec = ProviderSpec(
        api=api,
        latency_median=latency,
        latency_sigma=sigma,
        capacity=capacity or None,
        mode=chosen,
        rpm=rpm or None,
        tpm=tpm or None,
        time_scale=speed,
        batch=None if batch is None else BatchSpec(process_s=batch),
        model=model,
        key=_key(key_env),
    )
    run_server(spec, seed, "127.0.0.1", port)


def _key(variable: str) -> str:
    if variable and not os.environ.get(variable):
        shown = variable if is_variable(variable) else "(not shown: no name of a variable)"
        raise ConfigError(f"--key-env: the environment variable {shown} is not set.")
    return os.environ[variable] if variable else ""
