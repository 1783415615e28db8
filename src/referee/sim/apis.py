"""The simulated APIs by name."""

from __future__ import annotations

from referee.sim.anthropic import ANTHROPIC
from referee.sim.api import CHAT, Api
from referee.sim.gemini import GEMINI
from referee.sim.responses import RESPONSES

APIS: dict[str, Api] = {
    "anthropic": ANTHROPIC,
    "chat": CHAT,
    "gemini": GEMINI,
    "responses": RESPONSES,
}


def find_api(name: str) -> Api:
    """The API of this name; `ProviderSpec` has checked that there is one."""
    return APIS[name]
