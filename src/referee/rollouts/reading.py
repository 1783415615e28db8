"""What every reader of people's data shares: the error that names a place, and fields of mappings and objects alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ReadError(ValueError):
    """Data of an unknown shape: the place and the problem."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where = where
        self.problem = problem


def field(item: Any, name: str) -> Any:
    """A field of a mapping, or of an object that has it as an attribute. None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def held(value: Any) -> bool:
    """False of None and of empty texts, lists and mappings. Arrays have no truth value and no equality: only their
    length is asked."""
    return value is not None and not (
        hasattr(value, "__len__") and getattr(value, "shape", None) != () and not len(value)
    )


def named(value: Any) -> str:
    """The type of a value, for errors."""
    return "null" if value is None else f"`{type(value).__name__}`"


def as_json(value: Any) -> str:
    """Text as it is, anything else as JSON with its keys in order: equal values are equal texts."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return msgspec.json.encode(value, order="sorted", enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        return str(value)
