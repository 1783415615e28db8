"""An HTTP proxy and a server with TLS behind it, in a thread of their own: the way to an https endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from pathlib import Path
from types import TracebackType

from tests.engine.proxies import HttpProxy, authority, joined, listening, server_tls


class Tunnelled:
    """Context manager: `base` is the https URL of the plain server at `port`, `proxy` the URL of the proxy."""

    def __init__(self, port: int) -> None:
        self.base = ""
        self.proxy = ""
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), name="tunnel")

    def __enter__(self) -> Tunnelled:
        self._thread.start()
        self._ready.wait(30.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30.0)
        self._loop.close()

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            secure = await stack.enter_async_context(
                listening(functools.partial(joined, port=self._port), server_tls())
            )
            self.base = f"https://127.0.0.1:{secure}"
            at = await stack.enter_async_context(listening(HttpProxy(secure).talk))
            self.proxy = f"http://127.0.0.1:{at}"
            self._ready.set()
            await self._over.wait()


def trusted_file(folder: Path) -> str:
    """What SSL_CERT_FILE must name so that the certificate of `base` is trusted."""
    path = folder / "authority.pem"
    authority().cert_pem.write_to_path(str(path))
    return str(path)
