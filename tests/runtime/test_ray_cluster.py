"""Joining a Ray cluster: what is said while it takes long."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from referee.runtime import ray_cluster


def test_an_address_without_an_answer_is_said_while_ray_still_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray retries a dead address without a word: one warning names it, and the error that follows is Ray's."""
    warned = threading.Event()

    class Ray:
        def init(self, **_: Any) -> None:
            warned.wait(30.0)
            raise ConnectionError("nobody there")

    def warning(message: str, *args: object) -> None:
        said.append(message % args)
        warned.set()

    said: list[str] = []
    monkeypatch.setattr(ray_cluster, "SLOW_JOIN", 0.01)
    monkeypatch.setattr(ray_cluster.log, "warning", warning)
    failure = ray_cluster._init_in_lasting_thread(Ray(), "10.0.0.1:6379")
    assert isinstance(failure, ConnectionError)
    assert len(said) == 1
    assert "10.0.0.1:6379" in said[0]
