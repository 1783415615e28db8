"""The simulated APIs by name."""

from __future__ import annotations

from referee.sim.api import CHAT, Api
from referee.sim.responses import RESPONSES

APIS: dict[str, Api] = {
    "chat": CHAT,
    "responses": RESPONSES,
}


def find_api(name: str) -> Api:
    """The API of this name; `ProviderSpec` has checked that there is one."""
    return APIS[name]
