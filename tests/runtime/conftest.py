"""A simulated Ray cluster for each test that asks for one, and clients of it; all of them end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.runtime.simulated_ray import BASE, Client, Cluster

from referee.config import load
from referee.referee import Referee
from referee.sim import ProviderSpec


@pytest.fixture
def made() -> Iterator[list[Referee]]:
    found: list[Referee] = []
    yield found
    for referee in found:
        referee.close()


@pytest.fixture
def start(made: list[Referee]) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def start(**spec: Any) -> Cluster:
        started.append(Cluster(ProviderSpec(**spec)))
        return started[-1]

    yield start
    for referee in made:
        referee.close()
    for cluster in started:
        cluster.close()


@pytest.fixture
def connect(made: list[Referee]) -> Callable[..., Referee]:
    def connect(cluster: Cluster, **sections: Any) -> Referee:
        referee = Referee(load({**BASE, **sections}))
        client = Client(referee.config)
        client.cluster = cluster
        referee._runtime = client
        made.append(referee)
        return referee

    return connect
