"""`referee init`: a commented starter configuration, and rollouts to try it on."""

from __future__ import annotations

import re
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from referee.errors import ConfigError

EXAMPLE = "rubric_rollouts.jsonl"


class Judge(StrEnum):
    """Judges that there is a starter for."""

    SCORE = "score"
    RUBRIC = "rubric"


def command(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("referee.toml"),
    judge: Annotated[
        Judge, typer.Option(help=f"The kind of judge. rubric also writes rollouts with rubrics, {EXAMPLE}, beside it.")
    ] = Judge.SCORE,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented starter configuration."""
    text = _shipped("referee.cli", "starter.toml")
    if judge is Judge.SCORE:
        _write(path, text, overwrite)
        typer.echo(f"wrote {path}. Set the key it names, then: referee doctor -c {path}")
        return
    section = _shipped("referee.cli", "starter_rubric.toml")
    # What follows the judge's own settings is the same for every kind.
    text = re.sub(r"^\[judge\]\n.*?(?=^# \[judge\.gates\])", lambda _: section, text, flags=re.MULTILINE | re.DOTALL)
    example = path.parent / EXAMPLE
    _write(path, text, overwrite)
    if not example.exists():
        _write(example, _shipped("referee.local", EXAMPLE), overwrite)
    typer.echo(
        f"wrote {path}; rollouts to try it on: {example}. Set the key it names, then: referee plan {example} -c {path}"
    )


def _shipped(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _write(path: Path, text: str, overwrite: bool) -> None:
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists; --overwrite replaces it, or name another path.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot write it ({error.strerror}).") from None
