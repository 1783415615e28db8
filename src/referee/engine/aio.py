"""HTTP through aiohttp: the only module that imports an HTTP client. One session per loop, opened on first use.

The gate stands before the pool, so the pool itself has no limit. Redirects are not followed, the environment's
proxies are not used, bodies are capped after decompression, and idle sockets are dropped before servers' usual 5 s.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import aiohttp

from referee.engine.port import Response, TransportFault

MAX_BODY = 4 * 1024 * 1024
"""Bytes of one decoded reply. A verdict is a few hundred; this only stops a runaway or hostile server."""
KEEP_ALIVE = 4.0
"""Seconds a socket may idle: uvicorn and vLLM close theirs at 5, and a race with that close costs an attempt."""
CONNECT = 10.0
"""Seconds to open a connection, within the attempt's own timeout."""


class AioTransport:
    """Transport over aiohttp. `proxy` applies to every request; one transport serves endpoints of one proxy setting."""

    def __init__(self, proxy: str = "") -> None:
        self._proxy = proxy or None
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """Send one request and read its whole answer, or raise TransportFault."""
        session = self._session or self._open()
        connection = SimpleNamespace(reused=False)
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
            raise TransportFault("connect", _say(error)) from None
        except TimeoutError:
            raise TransportFault("timeout", f"no complete answer within {timeout:g} s") from None
        except aiohttp.ClientConnectorDNSError as error:
            raise TransportFault("dns", _say(error)) from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise TransportFault("tls", _say(error)) from None
        except aiohttp.ClientHttpProxyError as error:
            refused = error.status in (401, 403, 407)
            raise TransportFault("proxy" if refused else "connect", f"the proxy answered {error.status}") from None
        except aiohttp.ClientConnectorError as error:
            raise TransportFault("connect", _say(error)) from None
        except aiohttp.ClientPayloadError as error:
            raise TransportFault("cut", _say(error)) from None
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError) as error:
            raise TransportFault("reset", _say(error), stale=connection.reused and not started) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise TransportFault("protocol", _say(error)) from None

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
    context.trace_request_ctx.reused = True


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
    encoding = answer.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "deflate"):
        raise TransportFault("protocol", f"the server used content-encoding {encoding!r}, which was not asked for")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        content = unpack.decompress(raw, MAX_BODY)
    except zlib.error as error:
        raise TransportFault("protocol", f"bad {encoding} body: {error}") from None
    if unpack.unconsumed_tail:
        raise _too_large(answer)
    if not unpack.eof:
        raise TransportFault("cut", f"{encoding} body ends early")
    return content


def _too_large(answer: aiohttp.ClientResponse) -> TransportFault:
    answer.close()
    return TransportFault("too_large", f"the reply passed {MAX_BODY} bytes")


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
