"""A server that remembers what it was sent and always gives the same answer: what an SDK sends, as bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from msgspec import Struct


class Sent(Struct, frozen=True):
    """One request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@contextmanager
def recording(answer: bytes) -> Iterator[tuple[str, list[Sent]]]:
    """The address, and the requests so far."""
    sent: list[Sent] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            sent.append(Sent(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()
            thread.join()
