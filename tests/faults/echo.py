"""A server that echoes the key it was sent, in every place an answer has. Also an HTTP proxy, which sees it all."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from urllib.parse import quote

VERDICT = json.dumps({"reason": "fine", "score": 7})


def answer(body: object, status: int = 200, headers: str = "") -> bytes:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def completion(text: str = VERDICT, **more: object) -> dict[str, object]:
    message = {"role": "assistant", "content": text, "refusal": more.pop("refusal", None)}
    return {"id": "1", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}], **more}


def error(status: int, message: str, code: str = "bad") -> bytes:
    return answer({"error": {"message": message, "code": code, "type": code, "param": code}}, status)


SCORED: dict[str, Callable[[str], bytes]] = {
    "content": lambda key: answer(completion(json.dumps({"reason": f"You sent {key} here", "score": 7}))),
    "model": lambda key: answer(completion(model=key)),
    "id": lambda key: answer(completion(id=key)),
    "request id header": lambda key: answer(completion(), headers=f"X-Request-Id: {key}\r\n"),
    "a cookie": lambda key: answer(completion(), headers=f"Set-Cookie: {key}\x7f={key}; Path={key}\r\n"),
    "rate limit header": lambda key: answer(completion(), headers=f"X-RateLimit-Remaining-Requests: {key}\r\n"),
}
"""Places in an answer that holds a verdict."""
UNSCORED: dict[str, Callable[[str], bytes]] = {
    "refusal": lambda key: answer(completion("", refusal=f"I will not tell {key}.")),
    "no verdict": lambda key: answer(completion(f"{key} is my verdict")),
    "error message": lambda key: error(400, f"Bad request with {key} in it"),
    "error code": lambda key: error(400, "bad", key),
    "error text": lambda key: answer(f"The header was {key}", 400),
    "error inside a 200": lambda key: answer({"error": {"message": f"Got {key}", "code": 400}}),
    "no json": lambda key: answer(f"Hello {key}"),
    "status line": lambda key: f"{key} HTTP/1.1\r\n\r\n".encode(),
    "content encoding": lambda key: answer("{}", headers=f"Content-Encoding: {key}\r\n"),
    "header without a colon": lambda key: answer("{}", headers=f"{key}\r\n"),
}
"""Places in an answer that holds none."""
CLOSING: dict[str, Callable[[str], bytes]] = {
    "401": lambda key: error(401, f"Incorrect API key provided: {key}"),
    "403": lambda key: error(403, f"{key} may not do this"),
    "404 code": lambda key: error(404, "unknown", key),
    "location": lambda key: answer("", 302, f"Location: https://elsewhere.test/{key}/login?key={key}\r\n"),
}
"""Places in an answer after which nothing more is asked."""

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": lambda key: quote(key, safe=""),
    "basic": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "json": lambda key: key.replace("/", "\\/"),
}


class Echo:
    """Context manager: `url` to send to. What was echoed is in `echoed`, by place."""

    def __init__(self, places: dict[str, Callable[[str], bytes]], form: str = "plain", header: str = "authorization"):
        self._places = list(places.items())
        self._form = FORMS[form]
        self._header = re.compile(rf"{header}: (?:Bearer |Basic )?(\S+)", re.I)
        self.echoed: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="echo")
        self._lock = threading.Lock()

    def __enter__(self) -> Echo:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.create_connection(self._listening.getsockname()):
            self._listening.close()
        self._thread.join(30.0)

    def _accept(self) -> None:
        while True:
            try:
                talk, _ = self._listening.accept()
            except OSError:
                return
            with talk:
                self._serve(talk)

    def _serve(self, talk: socket.socket) -> None:
        """One request per connection, one connection at a time: places come in order."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = talk.recv(65536)
            if not more:
                return
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        while length is not None and len(body) < int(length[1]):
            body += talk.recv(65536)
        key = self._header.search(head.decode())
        assert key is not None
        name, place = self._places[len(self.echoed) % len(self._places)]
        self.echoed.append(name)
        sent = place(self._form(key[1]))
        talk.sendall(sent.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
