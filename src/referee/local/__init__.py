"""An embedded real LLM judge: llama.cpp with SmolLM2-135M, from two wheels, or with a GGUF file of the user's. No key,
no network, no GPU."""

from referee.local.embedded import DISCLAIMER, demo_rollouts, embedded_config, separation
from referee.local.server import LocalJudge, start_local

__all__ = [
    "DISCLAIMER",
    "LocalJudge",
    "demo_rollouts",
    "embedded_config",
    "separation",
    "start_local",
]
