"""The simulated APIs by name."""

from __future__ import annotations

from referee.errors import ConfigError
from referee.sim.anthropic import ANTHROPIC
from referee.sim.api import CHAT, Api
from referee.sim.gemini import GEMINI
from referee.sim.numbers import ClassifyApi, DecisionApi, PoolingApi, ScoreApi
from referee.sim.responses import RESPONSES

APIS: dict[str, Api] = {
    "anthropic": ANTHROPIC,
    "chat": CHAT,
    "classify": ClassifyApi(),
    "decision": DecisionApi(),
    "gemini": GEMINI,
    "pooling": PoolingApi(),
    "responses": RESPONSES,
    "score": ScoreApi(),
}


def find_api(name: str) -> Api:
    """The API of this name, or a ConfigError that lists those there are."""
    found = APIS.get(name)
    if found is None:
        raise ConfigError(f"simulated provider: api needs one of {', '.join(APIS)}, not {name!r}", setting="api")
    return found
