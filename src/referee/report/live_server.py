"""Serves the live page to this machine's browser, from a thread. Loopback only.

A ledger is readable by its owner alone, a port of loopback by every user of the machine: so the page stands under a
name that cannot be guessed.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from referee.errors import ConfigError
from referee.report.live import HEADERS, File

log = logging.getLogger("referee.watch")

HOST = "127.0.0.1"
NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Hosts that are answered, on any port (it may be forwarded). Any other Host header points to DNS rebinding."""
IDLE_TIMEOUT_S = 30.0
"""Seconds a connection may be silent."""


class LiveServer:
    """The page at `url` until `close`."""

    def __init__(self, files: Mapping[str, File], port: int = 0) -> None:
        name = secrets.token_urlsafe(16)
        handler = type("Handler", (_Handler,), {"files": files, "name": name})
        try:
            self._server = _Server((HOST, port), handler)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {HOST}:{port} ({error.strerror or error}). Give --port another number, or 0 for any."
            ) from None
        self.url = f"http://{HOST}:{self._server.server_address[1]}/{name}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="referee-live", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving. Safe to call twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no event."""
        log.debug("a request of the live page ended early", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    files: Mapping[str, File] = {}
    name = ""
    timeout = IDLE_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "referee"
    sys_version = ""

    def do_GET(self) -> None:
        """One of the page's files, or nothing."""
        host = self.headers.get("host", "")
        if host not in NAMES and host.rpartition(":")[0] not in NAMES:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"this page answers to 127.0.0.1 and localhost")
            return
        # Exactly /<the page's name>/<file>.
        parts = [*self.path.partition("?")[0].split("/"), "", ""]
        known = hmac.compare_digest(parts[1].encode("utf-8", "replace"), self.name.encode())
        file = self.files.get(parts[2]) if known and len(parts) == 5 else None
        if file is None:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"nothing here")
            return
        try:
            body = file.body()
        except Exception:
            log.exception("the live page could not be made")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"a fault; the log says more")
            return
        self._answer(HTTPStatus.OK, file.media_type, body)

    def _answer(self, status: HTTPStatus, media_type: str, body: bytes) -> None:
        self.send_response(status)
        headers = {**HEADERS, "content-type": media_type, "content-length": str(len(body)), "cache-control": "no-store"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: their path holds the page's secret name."""
