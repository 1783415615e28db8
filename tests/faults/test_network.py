"""A real Referee over real sockets through a network that misbehaves: every sample ends, and no score is invented."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.engine.harness import expected, samples
from tests.faults.proxy import Mode, Proxy
from tests.faults.served import Served
from tests.faults.tunnel import Tunnelled, trusted_file

from referee import Referee, clock
from referee.errors import EndpointClosed
from referee.sim import ProviderSpec

# The proxy drops connections in every state there is; what asyncio says of its streams then is not about referee.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

MENDED: tuple[Mode, ...] = ("clean", "slow", "sliced", "mixed")
"""Modes in which some connections work, so everything is scored in the end."""


def referee_for(port: int, tunnel: str = "", **limits: Any) -> Referee:
    """`tunnel`: the https endpoint that is reached through an HTTP proxy at that port."""
    to = {"url": f"{tunnel}/v1", "proxy": f"http://127.0.0.1:{port}"} if tunnel else {"url": f"http://127.0.0.1:{port}"}
    return Referee.from_config(
        {
            "endpoint": {**to, "model": "m", "key_env": ""},
            "limits": {"attempt_timeout": 2.0, "deadline": 45.0, **limits},
            "cache": {"path": ""},
            "missing": {"abort_above": 1.0},
        }
    )


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates of `Tunnelled` are trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", trusted_file(tmp_path))


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("route", ["direct", "tunnel"])
@pytest.mark.parametrize("mode", MENDED)
def test_what_can_be_scored_is_scored_right(mode: Mode, route: str) -> None:
    """Slow, sliced and mixed networks cost time, not scores, and every answer is the right one's."""
    given = samples(120)
    with Served(ProviderSpec(latency_median=0.005)) as server, Tunnelled(urlsplit(server.url).port or 0) as tunnel:
        base = tunnel.base if route == "tunnel" else ""
        with Proxy(urlsplit(tunnel.proxy if base else server.url).port or 0, mode) as proxy:
            with referee_for(proxy.port, base, concurrency=16) as referee:
                rewards = referee.score(given)
            sent = Counter(server.arrivals)
    scores = [reward.verdict.score if reward.scored else None for reward in rewards]  # type: ignore[union-attr]
    assert scores == expected(given), [reward.verdict for reward in rewards if not reward.scored][:3]
    if mode != "mixed":
        assert max(sent.values()) == 1, "a network that only delays makes nothing be asked twice"


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("route", ["direct", "tunnel"])
@pytest.mark.parametrize("mode", ["cut", "reset", "reset_late", "silent", "down"])
def test_a_network_that_delivers_nothing_gives_no_score(mode: Mode, route: str) -> None:
    """Within the deadline every sample is unscored, with a reason of the wire, and the sends stay few."""
    given = samples(30)
    with Served(ProviderSpec()) as server, Tunnelled(urlsplit(server.url).port or 0) as tunnel:
        base = tunnel.base if route == "tunnel" else ""
        with Proxy(urlsplit(tunnel.proxy if base else server.url).port or 0, mode) as proxy:
            with referee_for(proxy.port, base, concurrency=8, attempt_timeout=0.5, deadline=3.0) as referee:
                with contextlib.suppress(EndpointClosed):
                    rewards = referee.score(given, timeout=60.0)
                    assert not any(reward.scored for reward in rewards)
                metrics = referee.metrics()
            connections = proxy.connections
    assert metrics["scored"] == 0
    assert metrics["unscored"] == len(given)
    reasons = {name for name in ("connection", "timeout", "deadline", "overloaded") if metrics[f"unscored/{name}"]}
    assert sum(metrics[f"unscored/{name}"] for name in reasons) == len(given)
    assert connections <= 8 * len(given), "a dead network is not hammered"


def test_a_network_that_comes_back_is_used_again() -> None:
    """Down at first, clean later: everything is scored within the same batch."""
    given = samples(60)
    with (
        Served(ProviderSpec()) as server,
        Proxy(urlsplit(server.url).port or 0, "clean") as proxy,
        referee_for(proxy.port, concurrency=8) as referee,
    ):
        first = referee.score(given[:10])
        proxy.mode = "reset"
        ticket = referee.submit(given[10:])
        seen = proxy.connections
        for _ in range(2000):
            if proxy.connections >= seen + 3:
                break
            clock.pause(0.01)
        proxy.mode = "clean"
        rewards = first + ticket.result(60.0)
    assert [reward.scored for reward in rewards] == [True] * 60


def test_a_key_goes_to_its_own_host_only() -> None:
    """A redirect is not followed, so a key never reaches where it points."""
    with Served(ProviderSpec()) as elsewhere:
        spec = ProviderSpec(faults={"redirect": 1.0}, redirect_to=elsewhere.url)
        with Served(spec) as server:
            with Referee.from_config(
                {
                    "endpoint": {"url": server.url, "model": "m", "api_key": "sk-canary-000000"},
                    "cache": {"path": ""},
                    "missing": {"abort_above": 1.0},
                }
            ) as referee:
                with pytest.raises(EndpointClosed, match="redirect"):
                    referee.score(samples(3), timeout=30.0)
                assert referee.metrics()["scored"] == 0
            assert server.provider.stats().received >= 1
        assert elsewhere.provider.stats().received == 0
