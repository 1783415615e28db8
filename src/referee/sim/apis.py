"""The simulated APIs by name."""

from __future__ import annotations

from referee.sim.api import CHAT, Api
from referee.sim.numbers import ClassifyApi, DecisionApi, PoolingApi, ScoreApi

APIS: dict[str, Api] = {
    "chat": CHAT,
    "classify": ClassifyApi(),
    "score": ScoreApi(),
    "pooling": PoolingApi(),
    "decision": DecisionApi(),
}


def find_api(name: str) -> Api:
    """The API of this name; `ProviderSpec` has checked that there is one."""
    return APIS[name]
