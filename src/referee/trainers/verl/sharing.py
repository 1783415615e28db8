"""One set of limits for a whole verl job: its reward workers are many processes, and each would have its own."""

from __future__ import annotations

import sys

from msgspec.structs import replace

from referee.config import Config


def job_wide(config: Config, workers: int) -> Config:
    """The same judge, shared by all reward workers: in an engine actor on their Ray cluster. Elsewhere than on Ray, or
    where the configuration names another place, nothing is changed."""
    if config.runtime == "ray" or (config.runtime == "thread" and on_ray()):
        return replace(config, runtime="ray", audit=replace(config.audit, processes=workers))
    return config


def on_ray() -> bool:
    """True inside a Ray worker or driver. Ray is not imported for the question."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
