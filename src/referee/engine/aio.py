"""HTTP through aiohttp, for proxies and whatever `fast` declines. One session per loop, opened on first use.

The gate stands before the pool, so the pool itself has no limit. Redirects are not followed, the environment's
proxies are not used, bodies are capped after decompression, and idle sockets are dropped before servers' usual 5 s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import aiohttp

from referee import clock
from referee.engine.body import CONNECT, KEEP_ALIVE, MAX_BODY, say, too_large, unpack
from referee.engine.port import STALE, Response, TransportFault


class AioTransport:
    """Transport over aiohttp. `proxy` applies to every request; one transport serves endpoints of one proxy setting."""

    def __init__(self, proxy: str = "") -> None:
        self._proxy = proxy or None
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """Send one request and read its whole answer, or raise TransportFault."""
        session = self._session or self._open()
        connection = SimpleNamespace(reused=-math.inf)
        started = False
        try:
            async with session.post(
                url,
                data=body,
                headers=headers,
                timeout=self._timeout(timeout),
                proxy=self._proxy,
                allow_redirects=False,
                trace_request_ctx=connection,
            ) as answer:
                started = True
                content = await _read(answer)
                return Response(answer.status, {k.lower(): v for k, v in answer.headers.items()}, content)
        except TransportFault:
            raise
        except aiohttp.ConnectionTimeoutError as error:
            raise TransportFault("connect", say(error)) from None
        except TimeoutError:
            raise TransportFault("timeout", f"no complete answer within {timeout:g} s") from None
        except aiohttp.ClientConnectorDNSError as error:
            raise TransportFault("dns", say(error)) from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise TransportFault("tls", say(error)) from None
        except aiohttp.ClientHttpProxyError as error:
            refused = error.status in (401, 403, 407)
            raise TransportFault("proxy" if refused else "connect", f"the proxy answered {error.status}") from None
        except aiohttp.ClientConnectorError as error:
            raise TransportFault("connect", say(error)) from None
        except aiohttp.ClientPayloadError as error:
            raise TransportFault("cut", say(error)) from None
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError) as error:
            stale = not started and clock.now() - connection.reused < STALE
            raise TransportFault("reset", say(error), stale=stale) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise TransportFault("protocol", say(error)) from None

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_mark_reused)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trace_configs=[trace],
            trust_env=False,
        )
        return self._session

    def _timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        found = self._timeouts.get(seconds)
        if found is None:
            found = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT, seconds))
            if len(self._timeouts) < 64:
                self._timeouts[seconds] = found
        return found


async def _mark_reused(_session: aiohttp.ClientSession, context: Any, _params: Any) -> None:
    context.trace_request_ctx.reused = clock.now()


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """The decoded body, never more than MAX_BODY of it in memory."""
    if answer.content_length is not None and answer.content_length > MAX_BODY:
        raise _too_large(answer)
    if answer.content_length is not None:
        raw = await answer.read()
    else:
        chunks: list[bytes] = []
        size = 0
        async for chunk in answer.content.iter_any():
            size += len(chunk)
            if size > MAX_BODY:
                raise _too_large(answer)
            chunks.append(chunk)
        raw = b"".join(chunks)
    return unpack(raw, answer.headers.get("Content-Encoding", ""))


def _too_large(answer: aiohttp.ClientResponse) -> TransportFault:
    answer.close()
    return too_large()
