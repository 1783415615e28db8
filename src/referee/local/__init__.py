"""An embedded real LLM judge: llama.cpp and SmolLM2-135M from two wheels. No key, no network, no GPU."""

from referee.local.embedded import HONESTY, demo_rollouts, embedded_config, separation
from referee.local.server import LocalJudge, start_local

__all__ = ["HONESTY", "LocalJudge", "demo_rollouts", "embedded_config", "separation", "start_local"]
