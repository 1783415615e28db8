"""verl: the user's reward managers and functions, on verl as it is released: `pkg://referee.trainers.verl`.

Importing this package imports neither verl nor torch. `LengthPenaltyRewardManager` is entered in verl's registry under
the name `length_penalty`: at once if verl is loaded, else the moment it is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from referee.trainers.verl.registration import enter_registry

if TYPE_CHECKING:
    from referee.trainers.verl.batch_manager import LengthPenaltyRewardManager
    from referee.trainers.verl.config import LengthPenaltyConfig
    from referee.trainers.verl.functions import acompute_score, compute_score
    from referee.trainers.verl.legacy_keys import refuse_legacy_keys
    from referee.trainers.verl.loop_manager import RefereeRewardManager
    from referee.trainers.verl.openai_manager import AsyncOpenAIManager, get_request_hash

__all__ = [
    "AsyncOpenAIManager",
    "LengthPenaltyConfig",
    "LengthPenaltyRewardManager",
    "RefereeRewardManager",
    "acompute_score",
    "compute_score",
    "get_request_hash",
    "refuse_legacy_keys",
]

_HOMES = {
    "AsyncOpenAIManager": "openai_manager",
    "LengthPenaltyConfig": "config",
    "LengthPenaltyRewardManager": "batch_manager",
    "RefereeRewardManager": "loop_manager",
    "acompute_score": "functions",
    "compute_score": "functions",
    "get_request_hash": "openai_manager",
    "refuse_legacy_keys": "legacy_keys",
}


def __getattr__(name: str) -> Any:
    """Each name is loaded when it is first asked for; verl asks with getattr."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


enter_registry()
