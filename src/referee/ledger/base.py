"""What every line of a ledger has."""

from __future__ import annotations

from msgspec import Struct


class BaseLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """A line: one JSON object, told apart from others by `type`."""

    wall: float = 0.0
    """When it was written, in seconds since the epoch."""
