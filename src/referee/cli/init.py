"""`referee init`: a commented starter configuration, and rollouts to try it on."""

from __future__ import annotations

import re
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from referee.errors import ConfigError


class Judge(StrEnum):
    """Judges that there is a starter for."""

    SCORE = "score"
    RUBRIC = "rubric"
    LISTWISE = "listwise"
    PAIRWISE = "pairwise"


RUBRIC = ("starter_rubric.toml", "rubric_rollouts.jsonl")
GROUP = ("starter_group.toml", "group_rollouts.jsonl")
STARTERS = {Judge.RUBRIC: RUBRIC, Judge.LISTWISE: GROUP, Judge.PAIRWISE: GROUP}
"""The judge's section where it is not that of score, and rollouts to try it on."""


def command(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("referee.toml"),
    judge: Annotated[
        Judge,
        typer.Option(help="The kind of judge. Other than score also writes rollouts to try it on, beside it."),
    ] = Judge.SCORE,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented starter configuration."""
    text = _shipped("referee.cli", "starter.toml")
    if judge is Judge.SCORE:
        _write(path, text, overwrite)
        typer.echo(f"wrote {path}. Set the key it names, then: referee doctor -c {path}")
        return
    name, rollouts = STARTERS[judge]
    section = _shipped("referee.cli", name)
    section = re.sub(r'^kind = "\w+"( *)', lambda found: f'kind = "{judge}"{found[1]}', section, flags=re.MULTILINE)
    # What follows the judge's own settings is the same for every kind.
    text = re.sub(r"^\[judge\]\n.*?(?=^# \[judge\.gates\])", lambda _: section, text, flags=re.MULTILINE | re.DOTALL)
    example = path.parent / rollouts
    _write(path, text, overwrite)
    if not example.exists():
        _write(example, _shipped("referee.local", rollouts), overwrite)
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
