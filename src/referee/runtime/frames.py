"""Messages on a byte stream: four bytes of length, then the message. Both ends of a worker's pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

HEAD = 4


class Frames(asyncio.Protocol):
    """Cuts a stream into messages. `took` gets each, good until it returns. `ended` is called once, at the end."""

    def __init__(self, took: Callable[[memoryview], None], ended: Callable[[], None]) -> None:
        self._took = took
        self._ended = ended
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes: perhaps part of a message, perhaps many."""
        buffer = self._buffer
        buffer += data
        at, end = 0, len(buffer)
        if end < HEAD or end < HEAD + int.from_bytes(buffer[:HEAD], "big"):
            return
        view = memoryview(buffer)
        try:
            while end - at >= HEAD:
                size = int.from_bytes(view[at : at + HEAD], "big")
                if end - at - HEAD < size:
                    break
                message = view[at + HEAD : at + HEAD + size]
                at += HEAD + size
                self._took(message)
        finally:
            view.release()
            self._buffer = buffer[at:]

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
