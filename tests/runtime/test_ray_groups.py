"""Whole groups on the Ray runtime, without Ray: the suite that every runtime passes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.contracts.group_suite import LostGroupContract
from tests.contracts.runtime_suite import LossContract
from tests.runtime.simulated_ray import BASE, Client, Cluster

from referee.config import load
from referee.referee import Referee
from referee.sim import ProviderSpec

pytestmark = pytest.mark.slow


class TestSimulatedRay(LossContract, LostGroupContract):
    """On engines of a simulated cluster."""

    @pytest.fixture(autouse=True, params=[1, 3])
    def _shards(self, request: pytest.FixtureRequest) -> None:
        self.shards = request.param

    def open(self, spec: ProviderSpec, sections: dict[str, Any], stack: contextlib.ExitStack) -> Referee:
        """A client of a cluster of its own."""
        cluster = Cluster(spec)
        stack.callback(cluster.close)
        referee = Referee(load({**BASE, **sections, "shards": self.shards}))
        client = Client(referee.config)
        client.cluster = cluster
        referee._runtime = client
        return referee

    def lose(self, referee: Referee) -> None:
        """All engines at once, with what they know."""
        assert isinstance(referee._runtime, Client)
        referee._runtime.cluster.kill()
