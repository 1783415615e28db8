"""An embedded real LLM judge: llama.cpp with SmolLM2-135M, from two wheels, or with a GGUF file of the user's. No key,
no network, no GPU."""

from referee.local.embedded import DISCLAIMER, demo_rollouts, embedded_config, separation

__all__ = [
    "DISCLAIMER",
    "demo_rollouts",
    "embedded_config",
    "separation",
]
