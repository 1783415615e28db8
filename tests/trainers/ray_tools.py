"""A local Ray cluster for tests: small, on this machine only, without usage reports."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PATIENCE = 120.0
"""Seconds to wait for something that must come, on a machine that does other things too."""

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # One process less to start with; actors bring their own.
    "RAY_prestart_worker_first_driver": "0",
}


def start_ray(**options: Any) -> Any:
    """Ray with a cluster of its own, whatever else runs on this machine."""
    ray = pytest.importorskip("ray")
    os.environ.update(ENVIRONMENT)
    os.environ.pop("RAY_ADDRESS", None)
    if ray.is_initialized():
        ray.shutdown()
    settings: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False, **options}
    ray.init(address="local", namespace="tests", **settings)
    return ray


def local_ray() -> Iterator[Any]:
    """For a module's fixture: one cluster for all its tests."""
    ray = start_ray()
    yield ray
    ray.shutdown()


def wait_for(condition: Callable[[], Any], what: str = "it") -> Any:
    """The condition's first true value. Waits long, because only its absence would mean something."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        found = condition()
        if found:
            return found
        pause.wait(0.05)
    raise AssertionError(f"{what} did not happen within {PATIENCE:g} s")
