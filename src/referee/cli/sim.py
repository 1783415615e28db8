"""`referee sim`: the simulated provider as a server, for trying limits, faults and speed without a key."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from referee.sim import ProviderSpec, run_server


def command(
    port: Annotated[int, typer.Option(help="0: any free port.")] = 8700,
    latency: Annotated[float, typer.Option(help="Median seconds per answer.")] = 2.0,
    sigma: Annotated[float, typer.Option(help="Spread of the lognormal latency.")] = 0.6,
    capacity: Annotated[int, typer.Option(help="Answers it works on at once; 0: no limit.")] = 60,
    mode: Annotated[str, typer.Option(help="Beyond capacity: refuse (429), queue, or degrade.")] = "refuse",
    rpm: Annotated[int, typer.Option(help="Requests per minute; 0: no limit.")] = 0,
    tpm: Annotated[int, typer.Option(help="Tokens per minute; 0: no limit.")] = 0,
    speed: Annotated[float, typer.Option(help="Time runs this many times faster.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Same seed, same behaviour.")] = 0,
) -> None:
    """Run the simulated provider on loopback until Ctrl-C."""
    if mode not in ("refuse", "queue", "degrade"):
        raise typer.BadParameter(f"mode must be refuse, queue or degrade, not {mode!r}")
    chosen: Literal["refuse", "queue", "degrade"] = mode  # type: ignore[assignment]
    spec = ProviderSpec(
        latency_median=latency,
        latency_sigma=sigma,
        capacity=capacity or None,
        mode=chosen,
        rpm=rpm or None,
        tpm=tpm or None,
        time_scale=speed,
    )
    run_server(spec, seed, "127.0.0.1", port)
