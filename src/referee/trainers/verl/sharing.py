"""One set of limits for a whole verl job: its reward workers are many processes, and each would have its own."""

from __future__ import annotations

import logging
import sys
from typing import Any

from msgspec.structs import replace

from referee.config import Config

log = logging.getLogger("referee.trainers")


def job_wide(config: Config, workers: int) -> Config:
    """The same judge, shared by all reward workers: in an engine actor on their Ray cluster. Elsewhere than on Ray, or
    where the configuration names another place, nothing is changed."""
    if config.runtime == "ray" or (config.runtime == "thread" and on_ray()):
        return replace(config, runtime="ray", audit=replace(config.audit, processes=workers))
    return config


def divided(config: Config, workers: int) -> Config:
    """Limits of which `workers` processes together keep to the configured ones. Their audits share one rate."""
    if workers <= 1:
        return config
    limits = config.limits
    ceiling = limits.max_concurrency if limits.concurrency == "auto" else limits.concurrency
    if ceiling < workers:
        log.warning(
            "%d reward workers share %d calls in flight: each has one. Lower reward.num_workers", workers, ceiling
        )
    parts: dict[str, Any] = {"max_concurrency": max(1, limits.max_concurrency // workers)}
    if limits.concurrency != "auto":
        parts["concurrency"] = max(1, limits.concurrency // workers)
    for name in ("rpm", "tpm"):
        whole = getattr(limits, name)
        parts[name] = None if whole is None else max(1, whole // workers)
    if limits.budget_usd is not None:
        parts["budget_usd"] = limits.budget_usd / workers
    audit = replace(config.audit, processes=workers)
    return replace(config, limits=replace(limits, **parts), audit=audit)


def on_ray() -> bool:
    """True inside a Ray worker or driver. Ray is not imported for the question."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
