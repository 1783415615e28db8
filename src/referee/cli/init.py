"""`referee init`: a commented starter configuration."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from referee.errors import ConfigError


def command(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("referee.toml"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented starter configuration."""
    text = resources.files("referee.cli").joinpath("starter.toml").read_text(encoding="utf-8")
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists; --overwrite replaces it, or name another path.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot write it ({error.strerror}).") from None
    typer.echo(f"wrote {path}. Set the key it names, then: referee doctor -c {path}")
