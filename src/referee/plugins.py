"""Judges and dialects from other packages: entry points, found by name and imported when a setting names them.

Loading is an import. It happens while judges and endpoints are built, never while they work.
"""

from __future__ import annotations

import functools
import os
import platform
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from referee.errors import ConfigError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

JUDGES = "referee.judges"
DIALECTS = "referee.dialects"


class Loaded(Struct, frozen=True):
    """What an entry point names, and which package it is of."""

    value: Any
    package: str


@functools.cache
def load(group: str, name: str, setting: str, shipped: tuple[str, ...]) -> Loaded:
    """What the entry point `name` of a group stands for, or a ConfigError about `setting`. `shipped`: names that need
    no package."""
    from importlib.metadata import entry_points  # most runs name nothing from another package, and it is slow to import

    installed = list(entry_points(group=group))
    found = {point.value: point for point in installed if point.name == name}
    if not found:
        raise _unknown(group, name, setting, shipped, sorted({point.name for point in installed}))
    packages = {value: _package(point) for value, point in found.items()}
    if len(found) > 1:
        raise ConfigError(
            f"{setting}: {name!r} is in several packages: {' and '.join(packages.values())}. Keep one of them.",
            setting=setting,
        )
    ((value, point),) = found.items()
    try:
        return Loaded(point.load(), packages[value])
    except Exception as error:
        raise ConfigError(
            f"{setting}: {name!r} is in the package {packages[value]}, which cannot be imported: "
            f"{type(error).__name__}: {error}. Every process that judges must import it; this is {here()}.",
            setting=setting,
        ) from error


def here() -> str:
    """This process, for errors that may come from another one."""
    return f"process {os.getpid()} on {platform.node() or 'this machine'}"


def _unknown(group: str, name: str, setting: str, shipped: tuple[str, ...], installed: list[str]) -> ConfigError:
    return ConfigError(
        f"{setting}: {name!r} is not known.{nearest(name, (*shipped, *installed))} One of another package must be "
        f"installed wherever judging runs, with an entry point in the group {group!r}; this is {here()}.",
        setting=setting,
    )


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module
