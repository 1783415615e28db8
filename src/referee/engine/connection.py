"""One HTTP/1.1 connection: one request out, one whole answer back, then perhaps another. Opening and pooling live in
`dial` and `transport`.

HTTP/1.1 does not say which request an answer belongs to. So bytes on an idle connection, or beyond the end of an
answer, close the connection; and so does an answer that came before on the same connection: it is a copy, and the
request's own answer would be taken for the next one's.
"""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable
from typing import NoReturn

import httptools

from referee.engine.body import MAX_BODY, say, too_large, unpack
from referee.engine.port import STALE_S, Response, TransportFault

MAX_HEAD = 64 * 1024
"""Bytes of status line and headers."""
COMPARED_BYTES = 4096
"""Bodies are compared by their first bytes: the id and the beginning of the text are among them."""
COMPARED_ANSWERS = 128
"""Earlier answers of a connection that a new one is compared with."""

_names: dict[bytes, str] = {}
"""Header names decoded and in lower case: servers send the same dozen every time."""


class Connection(asyncio.Protocol):
    """A socket and the parser of its input.

    `on_open` and `on_lost` are called when the socket is open and when it is closed, `on_free` when it can take another
    request. `may_repeat` says of a body that came before whether it can be another request's answer.
    """

    __slots__ = (
        "_asked",
        "_body",
        "_complete",
        "_ends_by_close",
        "_fault",
        "_future",
        "_head_done",
        "_headers",
        "_keep",
        "_loop",
        "_may_repeat",
        "_most",
        "_on_free",
        "_on_lost",
        "_on_open",
        "_parser",
        "_poll",
        "_received",
        "_reused",
        "_seen",
        "_size",
        "_timeout",
        "_transport",
        "due",
        "idle_since",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_open: Callable[[Connection], None],
        on_free: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
        may_repeat: Callable[[bytes], bool],
    ) -> None:
        self._loop = loop
        self._on_open = on_open
        self._on_free = on_free
        self._on_lost = on_lost
        self._may_repeat = may_repeat
        self._seen: set[int] = set()
        self._poll: select.poll | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._future: asyncio.Future[Response] | None = None
        self._reused = False
        self._asked = 0.0
        self._timeout = 0.0
        self._most = MAX_BODY
        self.due = math.inf
        """When the answer under way must be whole; the pool calls `expire` then."""
        self.idle_since = 0.0
        self._clear()

    def _clear(self) -> None:
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._received = 0
        self._head_done = False
        self._complete = False
        self._keep = False
        self._ends_by_close = False
        self._fault: TransportFault | None = None
        """Why a callback of the parser raised; the parser itself only reports that one did."""

    @property
    def usable(self) -> bool:
        """Open, and no answer is awaited on it."""
        return self._transport is not None and self._future is None and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """The socket holds nothing that the loop has not read yet: no unsolicited bytes, no end of stream."""
        return self._poll is None or not self._poll.poll(0)

    async def ask(self, request: bytes, deadline: float, timeout: float, most: int = MAX_BODY) -> Response:
        """Send the whole request in one write and wait for the whole answer, of at most that many bytes. `timeout` is
        only for the message."""
        transport = self._transport
        if transport is None:
            raise TransportFault("reset", "the connection was closed before it was used", stale=True)
        future: asyncio.Future[Response] = self._loop.create_future()
        self._future = future
        self._asked = self._loop.time()
        self.due, self._timeout, self._most = deadline, timeout, most
        transport.write(request)
        try:
            return await future
        except asyncio.CancelledError:
            if self._future is future:  # else the answer came first, and another request may use the connection by now
                self.abort()
            raise

    def expire(self, now: float) -> None:
        """Fail the request under way if its answer is late."""
        if self.due <= now and self._future is not None:
            self._fail(TransportFault("timeout", f"no complete answer within {self._timeout:g} s"))

    def abort(self) -> None:
        """Close at once; nothing more is sent or read."""
        self._future = None
        self.due = math.inf
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """Close at once; a request under way fails."""
        self._fail(TransportFault("reset", "the connection was closed here"))

    def close(self) -> None:
        """Close an idle connection gracefully."""
        if self._transport is not None:
            self._transport.close()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = transport  # type: ignore[assignment]  # a stream's, as create_connection gives
        socket = transport.get_extra_info("socket")
        if socket is not None and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(socket.fileno(), select.POLLIN)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Some bytes of the answer."""
        if self._future is None:
            self.abort()  # unsolicited
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._complete:
                self._finish(keep=False)  # the answer is whole; what follows is unsolicited
                return
            self._fail(self._fault or TransportFault("protocol", say(error)))
        else:
            if self._complete:
                self._finish(self._keep)
            elif not self._head_done and self._received > MAX_HEAD:
                self._fail(TransportFault("protocol", f"the headers passed {MAX_HEAD} bytes"))
            elif self._received > 2 * self._most:
                self._fail(too_large(self._most))  # framing without content

    def eof_received(self) -> None:
        """The server has closed its side; `connection_lost` follows and says what that means."""

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed, by either side."""
        self._transport = None
        self._on_lost(self)
        if self._future is None:
            return
        if self._head_done and self._ends_by_close and error is None:
            self._finish(keep=False)
        elif self._head_done:
            self._fail(TransportFault("cut", "the answer ended early" if error is None else say(error)))
        else:
            detail = "the server closed the connection" if error is None else say(error)
            stale = self._reused and not self._received and self._loop.time() - self._asked < STALE_S
            self._fail(TransportFault("reset", detail, stale=stale))

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        if self._complete:
            self._refuse(TransportFault("protocol", "the server sent more than one answer"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. A trailer, after a chunked body, is ignored: it must not replace what a header said."""
        if self._head_done:
            return
        known = _names.get(name)
        if known is None:
            known = name.decode("latin-1").lower()
            if len(_names) < 512:
                _names[name] = known
        self._headers[known] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The headers say how the body ends."""
        self._head_done = True
        length = self._headers.get("content-length")
        if length is None:
            self._ends_by_close = "chunked" not in self._headers.get("transfer-encoding", "").lower()
        elif int(length) > self._most:  # the parser has refused what is not a number
            self._refuse(too_large(self._most))

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._size += len(data)
        if self._size > self._most:
            self._refuse(too_large(self._most))
        self._body.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it is an interim one (1xx)."""
        status = self._parser.get_status_code()
        if status == 101:
            self._refuse(TransportFault("protocol", "the server switched protocols"))
        if status < 200:
            received = self._received
            self._clear()
            self._received = received
        else:
            self._complete = True
            self._keep = self._parser.should_keep_alive()  # the parser resets this with the next message

    def _refuse(self, fault: TransportFault) -> NoReturn:
        self._fault = fault
        raise fault

    def _finish(self, keep: bool) -> None:
        future = self._future
        assert future is not None
        status, headers = self._parser.get_status_code(), self._headers
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        encoding = headers.get("content-encoding")
        if encoding is not None:
            try:
                body = unpack(body, encoding)
            except TransportFault as fault:
                self._fail(fault)
                return
        if self._came_before(body):
            served = 200 <= status < 300 and body != b""
            if served and not self._may_repeat(body):
                self._fail(TransportFault("repeated", "an earlier answer of this connection came once more"))
                return
            keep = keep and served  # failures are often equal; one that is a copy must not shift the answers after it
        self._future = None
        self.due = math.inf
        self._clear()
        if keep and self._transport is not None:
            self._reused = True
            self._on_free(self)
        elif self._transport is not None:
            self._transport.close()
        if not future.done():
            future.set_result(Response(status, headers, body))

    def _came_before(self, body: bytes) -> bool:
        known = hash(body[:COMPARED_BYTES])
        if known in self._seen:
            return True
        if len(self._seen) >= COMPARED_ANSWERS:
            self._seen.clear()
        self._seen.add(known)
        return False

    def _fail(self, fault: TransportFault) -> None:
        future = self._future
        self.abort()
        if future is not None and not future.done():
            future.set_exception(fault)
