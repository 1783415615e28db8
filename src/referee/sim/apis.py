"""The simulated APIs by name."""

from __future__ import annotations

from referee.sim.api import CHAT, Api

APIS: dict[str, Api] = {"chat": CHAT}


def find_api(name: str) -> Api:
    """The API of this name; `ProviderSpec` has checked that there is one."""
    return APIS[name]
