"""Opening a connection to the host of one URL: name resolution, TCP, an HTTP proxy's tunnel, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import SplitResult

from referee.engine.body import say
from referee.engine.connection import Connection
from referee.engine.port import TransportFault
from referee.engine.proxy import Proxy, Tunnel

DNS_TTL_S = 300.0

P = TypeVar("P", bound=asyncio.Protocol)


class Dialer:
    """Opens connections; remembers resolved addresses, and tries the one that worked last first."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        url: SplitResult,
        proxy: Proxy | None,
        tls: ssl.SSLContext | None,
        new: Callable[[], Connection],
    ) -> None:
        """`new` makes the protocol of a connection. `tls` replaces the system's certificate authorities."""
        secure = url.scheme == "https"
        self._loop = loop
        self._new = new
        self._proxy = proxy
        self._host, self._port = url.hostname or "", url.port or (443 if secure else 80)
        self._tls = (tls or _context()) if secure else None
        self._proxy_tls = (tls or _context()) if proxy and proxy.secure else None
        self._addresses: list[tuple[int, str]] = []
        self._resolved = float("-inf")

    async def connect(self, limit: float) -> Connection:
        """A connection on which requests can be sent, by `limit` on the loop's clock. Raises TransportFault."""
        proxy = self._proxy
        if proxy is None:
            return await self._reach(self._new, self._host, self._port, self._tls, "", limit)
        where = f"{proxy.name}: "
        if self._tls is None:
            return await self._reach(self._new, proxy.host, proxy.port, self._proxy_tls, where, limit)
        new_tunnel = functools.partial(Tunnel, self._loop, proxy)
        tunnel = await self._reach(new_tunnel, proxy.host, proxy.port, self._proxy_tls, where, limit)
        seconds = max(0.0, limit - self._loop.time())
        with _named_faults(f"no tunnel to {self._host} within {seconds:.3g} s", f"through {where}"):
            async with asyncio.timeout(seconds):
                secured = await tunnel.open(proxy.connect(self._host, self._port), self._tls, self._host)
        connection = self._new()
        secured.set_protocol(connection)
        connection.connection_made(secured)
        return connection

    async def _reach(
        self, new: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None, where: str, limit: float
    ) -> P:
        """A socket to one of the host's addresses, with TLS if there is a context. `where` begins a fault's detail."""
        addresses = await self._resolve(host, port, where, limit)
        failure = TransportFault("connect", f"{where}no address")
        for at, (family, address) in enumerate(addresses):
            left = limit - self._loop.time()
            seconds = max(0.0, left if at == len(addresses) - 1 else left / 2)
            try:
                with _named_faults(f"no connection to {host} within {seconds:.3g} s", where):
                    async with asyncio.timeout(seconds):
                        _, protocol = await self._loop.create_connection(
                            new, address, port, family=family, ssl=tls, server_hostname=host if tls else None
                        )
            except TransportFault as fault:
                failure = fault
                if fault.kind == "tls":
                    break
                continue
            if at:
                self._addresses = [addresses[at], *(a for a in addresses if a is not addresses[at])]
            return protocol
        self._resolved = float("-inf")  # the server may have moved: resolve its name again
        raise failure

    async def _resolve(self, host: str, port: int, where: str, limit: float) -> list[tuple[int, str]]:
        now = self._loop.time()
        if now - self._resolved < DNS_TTL_S:
            return self._addresses
        try:
            async with asyncio.timeout_at(limit):
                found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise TransportFault("dns", f"{where}{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise TransportFault("dns", where + say(error)) from None
        self._addresses = list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))
        self._resolved = now
        return self._addresses


@contextlib.contextmanager
def _named_faults(late: str, where: str) -> Iterator[None]:
    """Errors of the loop as TransportFaults; `late` is the detail of a timeout."""
    try:
        yield
    except TimeoutError:
        raise TransportFault("connect", where + late) from None
    except ssl.SSLError as error:
        raise TransportFault("tls", where + say(error)) from None
    except OSError as error:
        raise TransportFault("connect", where + say(error)) from None


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
