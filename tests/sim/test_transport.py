"""The provider as a Transport: markers become the faults a client would see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from referee import clock
from referee.engine.port import Response, Transport, TransportFault
from referee.sim.provider import Provider
from referee.sim.spec import Fault, ProviderSpec
from referee.sim.transport import SimTransport
from referee.sim.virtual import run_virtual

MakeBody = Callable[..., bytes]
URL = "http://judge.test/v1/chat/completions"


async def post(transport: Transport, body: bytes, timeout: float = 30.0, url: str = URL) -> tuple[Any, float]:
    """The answer or the fault, and when it came."""
    try:
        return await transport.post(url, {"Authorization": "Bearer k"}, body, timeout), clock.now()
    except TransportFault as fault:
        return fault, clock.now()


def test_a_whole_answer_arrives(body: MakeBody) -> None:
    """Status, lower-case headers and body, after the provider's latency."""
    provider = Provider(ProviderSpec(latency_median=2.0, key="k"))
    answer, when = run_virtual(post(SimTransport(provider), body()))
    assert isinstance(answer, Response)
    assert (answer.status, answer.headers["content-type"], when) == (200, "application/json", 2.0)


@pytest.mark.parametrize(
    ("fault", "kind", "when"),
    [
        ("hang", "timeout", 30.0),
        ("drip", "timeout", 30.0),
        ("reset", "reset", 1.0),
        ("cut", "cut", 1.0),
        ("huge", "too_large", 1.0),
        ("bomb", "too_large", 1.0),
    ],
)
def test_wire_faults_become_transport_faults(body: MakeBody, fault: Fault, kind: str, when: float) -> None:
    """Each marker is the fault the real transport would raise; silence and dripping last until the timeout."""
    spec = ProviderSpec(latency_median=1.0, faults={fault: 1.0}, huge_bytes=100_000)
    answer, ended = run_virtual(post(SimTransport(Provider(spec)), body()))
    assert isinstance(answer, TransportFault)
    assert (answer.kind, ended) == (kind, when)


def test_a_silent_cut_looks_complete(body: MakeBody) -> None:
    """Without a Content-Length half a body looks complete."""
    spec = ProviderSpec(faults={"cut_silent": 1.0})
    whole, _ = run_virtual(post(SimTransport(Provider(ProviderSpec())), body()))
    answer, _ = run_virtual(post(SimTransport(Provider(spec)), body()))
    assert answer.status == 200
    assert len(answer.body) < len(whole.body)
    assert whole.body.startswith(answer.body)


def test_a_slow_answer_is_a_timeout(body: MakeBody) -> None:
    """The timeout counts from the start, and the provider learns that its client left."""
    provider = Provider(ProviderSpec(latency_median=100.0))
    answer, when = run_virtual(post(SimTransport(provider), body(), timeout=5.0))
    assert (answer.kind, when) == ("timeout", 5.0)
    assert provider.stats().abandoned == 1


def test_a_drip_that_ends_in_time_is_an_answer(body: MakeBody) -> None:
    """Slow is not broken, if the client's timeout is long enough."""
    spec = ProviderSpec(faults={"drip": 1.0}, drip_interval=0.01)
    answer, when = run_virtual(post(SimTransport(Provider(spec)), body(), timeout=60.0))
    assert answer.status == 200
    assert when == pytest.approx(0.01 * len(answer.body))


def test_several_providers_by_host(body: MakeBody) -> None:
    """Each host has its own provider; an unknown one does not resolve; a closed transport connects nowhere."""
    one, two = Provider(ProviderSpec()), Provider(ProviderSpec(faults={"http_503": 1.0}))
    transport = SimTransport({"one.test": one, "two.test:8000": two})

    async def main() -> list[Any]:
        found = [await post(transport, body(), url=f"http://{host}/v1") for host in ("one.test", "Two.test:8000", "x")]
        await transport.close()
        return [*found, await post(transport, body(), url="http://one.test/v1")]

    first, second, third, last = (answer for answer, _ in run_virtual(main()))
    assert (first.status, second.status, third.kind, last.kind) == (200, 503, "dns", "connect")
