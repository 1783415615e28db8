"""uvicorn's HTTP/1.1 protocol with limits on what a client may send before it is known: header bytes and time. And on
how long it may leave an answer unread.

uvicorn itself has neither: headers are kept until memory ends, and a connection that never completes its request stays
open. The token can only be checked once the headers are complete, so both must be bounded here.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from referee.server.gate import BODY_SECONDS
from referee.server.refusals import Refusal

HEAD_BYTES = 32 * 1024
"""Request line and headers, each header counted with HEADER_COST bytes more. Trailers count too."""
HEADER_COST = 32
"""What a header costs beside its text, so that many empty ones meet the same limit."""
HEAD_SECONDS = 10.0
"""From the connection, or the first byte of a further request, to the end of its headers."""
READ_SECONDS = 300.0
"""How long a client may read nothing of an answer. Else one that hangs would hold it in memory for ever: no other
timeout ends a connection with something left to send."""
PIPELINED = 16
"""Requests a client may send before the first one is answered."""
LINGER = 2.0
"""Seconds a refused client has to read why, and the application to answer 408 before a late body ends the connection.
Closing with unread input would reset the connection, and the answer with it."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection. What waits is the head of a request, its body, or nothing (the application is at work)."""

    head_seconds = HEAD_SECONDS
    body_seconds = BODY_SECONDS + LINGER
    read_seconds = READ_SECONDS
    linger = LINGER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: Literal["head", "body", "nothing"] = "head"
        self._parts = 0
        """Counts changes of `_awaited`, so that a deadline starts anew with each part of each request."""
        self._head = 0
        self._unparsed = 0
        """Bytes since the parser last reported anything: one endless header is not reported before it ends."""
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._backlog = 0
        """Bytes that the client had not read when `_unread` was set."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request has to come, too."""
        super().connection_made(transport)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._cancel_timer()
        self._cancel_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More is to be sent than the client has read."""
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        """It reads."""
        super().resume_writing()
        self._cancel_unread()

    def data_received(self, data: bytes) -> None:
        """Parse it, unless the client was refused: then it is read and dropped until it ends."""
        if self._refused:
            return
        before = self._parts
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > HEAD_BYTES:
            self._refuse(431)
        if self._parts == before and self._awaited == "nothing":
            self._await("head")  # empty lines before a request are no message yet, and keep-alive no longer counts
        if self._parts != before and not self._refused:
            self._set_timer()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head = 0
        self._await("head")
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._count(len(url))
        if not self._refused:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One whole header, or trailer."""
        self._count(len(name) + len(value) + HEADER_COST)
        if not self._refused:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The application starts, or the request is queued behind the one it works on."""
        if len(self.pipeline) >= PIPELINED:
            self._refuse(431)
        if not self._refused:
            self._await("body")
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body; `gate.Bodies` bounds its size and time."""
        self._unparsed = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if not self._refused:
            self._await("nothing")
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what is not HTTP; a client that was refused has its answer."""
        if not self._refused:
            super().send_400_response(msg)

    def _await(self, part: Literal["head", "body", "nothing"]) -> None:
        self._unparsed = 0
        self._awaited = part
        self._parts += 1

    def _count(self, size: int) -> None:
        self._unparsed = 0
        self._head += size
        if self._head > HEAD_BYTES:
            self._refuse(431)

    def _set_timer(self) -> None:
        self._cancel_timer()
        if self._awaited != "nothing":
            seconds = self.head_seconds if self._awaited == "head" else self.body_seconds
            self._timer = self.loop.call_later(seconds, self._late)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_reading(self) -> None:
        self._backlog = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.read_seconds, self._see_reading)

    def _see_reading(self) -> None:
        if self.transport.get_write_buffer_size() < self._backlog:
            self._await_reading()  # it reads, only slowly
        else:
            self.transport.abort()

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _late(self) -> None:
        if self.pipeline or (self._awaited == "head" and self._answering()):
            self._set_timer()  # reading is paused until the request before it is answered
        elif self._parts == 0:
            self.transport.close()  # it never sent anything, so it waits for no answer
        else:
            self._refuse(408)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: Literal[408, 431]) -> None:
        """Answer once, where no answer is under way, and close the connection. Nothing of the request is kept."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._cancel_timer()
        self._unset_keepalive_if_required()
        self.headers = []
        if self._answering() or self._awaited == "body":
            self.transport.close()
            return
        body = (_TOO_LONG if status == 431 else _TOO_SLOW).body()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%s"
            % (status, HTTPStatus(status).phrase.encode(), len(body), body)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(self.linger, self.transport.close)


_TOO_LONG = Refusal(
    431,
    "too_long",
    f"Request line and headers are longer than {HEAD_BYTES} bytes together. Nothing was judged.",
)
_TOO_SLOW = Refusal(408, "slow_head", f"The headers were not there within {HEAD_SECONDS:g} s. Nothing was judged.")
