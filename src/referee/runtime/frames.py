"""Messages on a byte stream: four bytes of length, then the message. Both ends of a worker's pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

HEAD = 4
SMALL, LARGE = 2**16, 2**22
"""Bytes of the buffer at first, and those up to which one that has grown is kept."""


class Frames(asyncio.BufferedProtocol):
    """Cuts a stream into messages. `took` gets each, good until it returns; `ended` is called once when the other end
    is gone. All are received in one place: messages are large, and memory that is touched for the first time is slow.
    """

    def __init__(self, took: Callable[[memoryview], None], ended: Callable[[], None]) -> None:
        self._took = took
        self._ended = ended
        self._buffer = memoryview(bytearray(SMALL))
        self._filled = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open."""
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Some bytes: perhaps part of a message, perhaps many."""
        self._filled += nbytes
        at, needed = 0, HEAD
        try:
            while self._filled - at >= HEAD:
                needed = HEAD + int.from_bytes(self._buffer[at : at + HEAD], "big")
                if self._filled - at < needed:
                    break
                message = self._buffer[at + HEAD : at + needed]
                at, needed = at + needed, HEAD
                self._took(message)
        finally:
            self._keep(at, needed)

    def _keep(self, at: int, needed: int) -> None:
        """Go on behind what was taken, with room for `needed` bytes: what is known of the next message."""
        rest, room = self._filled - at, len(self._buffer)
        if needed > room or needed <= LARGE < room:
            fresh = memoryview(bytearray(max(needed, SMALL)))
            fresh[:rest] = self._buffer[at : self._filled]
            self._buffer = fresh
        elif at:
            self._buffer[:rest] = self._buffer[at : self._filled]
        self._filled = rest

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end is gone."""
        self._transport = None
        self._ended()

    def send(self, messages: Iterable[bytes]) -> None:
        """Send messages in order. On a closed stream they are dropped: `ended` has been or will be called."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(framed(messages))

    def close(self) -> None:
        """Send what is left and close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def framed(messages: Iterable[bytes]) -> list[bytes]:
    """Each message after its length."""
    found = []
    for message in messages:
        found += [len(message).to_bytes(HEAD, "big"), message]
    return found
