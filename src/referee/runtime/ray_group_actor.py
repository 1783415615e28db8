"""Where the group coordinator is: a named Ray actor, or this process where there is no cluster.

The actor belongs to one Ray job and dies with the process that made it, one of a trainer's reward workers: the names of
one training run mean nothing to the next.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from referee.runtime.ray_cluster import calls_of, end, find, find_or_make, join, joined
from referee.runtime.ray_group_client import CoordinatorHandle, GroupClient
from referee.runtime.ray_group_coordinator import KEEP, GroupCoordinator
from referee.version import VERSION

MANY = 10_000
"""Polls that may be open at once."""


def actor_name() -> str:
    """The actor's name in our namespace: one for each Ray job, and for each version, because versions may not
    understand each other."""
    import ray

    return f"referee-groups-{VERSION}-{ray.get_runtime_context().get_job_id()}"


def _attach_ray(keep: float) -> CoordinatorHandle:
    if not joined():  # a client polls on for a while, and must not start a cluster after the trainer has left its own
        raise ConnectionError("this process has left its Ray cluster")
    join()
    name = actor_name()
    handle = find_or_make(GroupCoordinator, name, lambda: (keep,), detached=False, max_concurrency=MANY)
    # It lives as long as a handle of the process that made it: a newer one of the same actor does not keep it.
    _handles.append(handle)
    coordinator: CoordinatorHandle = calls_of(handle)
    return coordinator


def open_groups(keep: float = KEEP) -> GroupClient:
    """The client of the group coordinator: one for all processes of a Ray job, or of this process alone without Ray."""
    with _opening:
        on_ray = joined()
        if on_ray not in _open:
            if on_ray:
                _open[on_ray] = GroupClient(functools.partial(_attach_ray, keep))
            else:
                coordinator = GroupCoordinator(keep)
                _open[on_ray] = GroupClient(lambda: coordinator)
        return _open[on_ray]


def shutdown() -> bool:
    """End this job's actor at once, for all its clients. False if there is none."""
    if find(actor_name()) is None:
        return False
    return end(actor_name())


_handles: list[Any] = []
_open: dict[bool, GroupClient] = {}
_opening = threading.Lock()
