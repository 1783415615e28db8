"""The simulated provider as a Transport, in process: for tests in virtual time. No sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from referee import clock
from referee.engine.port import Response, TransportFault
from referee.sim.provider import Provider
from referee.sim.replies import SimResponse


class SimTransport:
    """Sends requests to a provider, or to several by host (`{"a.test": …, "b.test:8000": …}`; others: DNS error)."""

    def __init__(self, provider: Provider | Mapping[str, Provider]) -> None:
        self._provider = provider
        self._closed = False

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """One request and its complete reply within `timeout` seconds, or TransportFault."""
        if self._closed:
            raise TransportFault("connect", "the transport is closed")
        provider = self._find(url)
        lowered = {name.lower(): value for name, value in headers.items()}
        try:
            async with asyncio.timeout(timeout):
                return await self._deliver(provider, await provider.serve(body, lowered, urlsplit(url).path))
        except TimeoutError:
            raise TransportFault("timeout", f"no whole answer within {timeout:g} s") from None

    async def close(self) -> None:
        """Refuse further requests."""
        self._closed = True

    def _find(self, url: str) -> Provider:
        if isinstance(self._provider, Provider):
            return self._provider
        host = urlsplit(url).netloc.rpartition("@")[2].lower()
        found = self._provider.get(host)
        if found is None:
            raise TransportFault("dns", f"no host {host}")
        return found

    async def _deliver(self, provider: Provider, answer: SimResponse) -> Response:
        """What a client sees of a reply with its wire fault."""
        body = answer.body
        match answer.wire:
            case "hang":
                await asyncio.get_running_loop().create_future()
            case "drip":
                await clock.sleep(len(body) * provider.spec.drip_interval / provider.spec.time_scale)
            case "reset":
                raise TransportFault("reset", "connection reset by peer")
            case "cut":
                raise TransportFault("cut", f"{answer.keep} of {len(body)} bytes")
            case "cut_silent":
                body = body[: answer.keep]
            case "huge" | "bomb":
                raise TransportFault("too_large", f"{provider.spec.huge_bytes} bytes")
            case "":
                pass
        return Response(answer.status, answer.headers, body)
