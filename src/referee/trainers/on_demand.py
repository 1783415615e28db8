"""Classes that inherit from a framework's own: made when first asked for, because only then is the framework there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def on_demand(namespace: dict[str, Any], **makers: Callable[[], type]) -> Callable[[str], Any]:
    """A module's `__getattr__` for these names. `namespace`: the module's globals(), where they are then found."""

    def find(name: str) -> Any:
        if name not in makers:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        if name not in namespace:
            made = makers[name]()
            made.__module__, made.__qualname__ = namespace["__name__"], name
            namespace[name] = made
        return namespace[name]

    return find
