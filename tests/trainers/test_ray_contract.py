"""The Ray runtime passes the suite that every runtime passes, on a real local cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from tests.contracts.group_suite import KINDS, BackgroundGroupContract
from tests.contracts.runtime_suite import BackgroundContract, open_over_http
from tests.trainers.ray_tools import local_ray

from referee.referee import Referee
from referee.runtime.ray import shutdown
from referee.sim import ProviderSpec

pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """One cluster for all of them."""
    yield from local_ray()


class TestRay(BackgroundContract, BackgroundGroupContract):
    """On an engine actor."""

    @pytest.fixture(params=["listwise", "pairwise"])
    def settings(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        """Of one judge of groups: each kind, in the cheapest way."""
        return KINDS[request.param]

    def open(self, spec: ProviderSpec, sections: dict[str, Any], stack: contextlib.ExitStack) -> Referee:
        """A Referee whose provider is a process of its own; the engine ends before the provider."""
        referee = open_over_http("ray", spec, sections, stack)
        stack.callback(shutdown, referee.config)
        return referee
