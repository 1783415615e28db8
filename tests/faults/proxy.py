"""A proxy on loopback that spoils connections: what a network does to a client, switched while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import struct
import threading
from types import TracebackType
from typing import Literal

Mode = Literal["clean", "slow", "sliced", "cut", "reset", "reset_late", "silent", "down", "mixed"]
"""clean: as it comes. slow: each piece late. sliced: byte by byte at first. cut: the answer ends in the middle.
reset: RST before an answer. reset_late: RST in the middle of one. silent: nothing comes back. down: refuses to connect.
mixed: each connection draws one of the others."""
SPOILED: tuple[Mode, ...] = ("clean", "slow", "sliced", "cut", "reset", "reset_late", "silent")


class Proxy:
    """Context manager in a thread of its own: `port` to connect to, `mode` to set at any time."""

    def __init__(self, target: int, mode: Mode = "clean", seed: int = 1) -> None:
        self.mode: Mode = mode
        self.port = 0
        self.connections = 0
        self._target = target
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy")

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait(30.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)
        gc.collect()  # what the dropped streams have to say is said now, not in a later test

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        """Let go of every connection and its task."""
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[arg-type]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        mode = self._rng.choice(SPOILED) if self.mode == "mixed" else self.mode
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if mode in ("down", "reset"):
                if mode == "reset":
                    await reader.read(1)
                _reset(writer)
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            pump = asyncio.ensure_future(_copy(reader, far_writer))
            try:
                await self._answer(mode, far_reader, writer)
            finally:
                pump.cancel()
                far_writer.close()
        writer.close()

    async def _answer(self, mode: Mode, far: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await far.read(65536):
            mode = mode if self.mode == "mixed" else self.mode  # a switch reaches connections that are open
            if mode in ("down", "reset"):
                _reset(writer)
                return
            if mode == "silent":
                continue
            if mode == "slow":
                await asyncio.sleep(0.02)
            elif mode == "sliced":
                for at in range(min(64, len(data))):
                    writer.write(data[at : at + 1])
                    await asyncio.sleep(0)
                data = data[64:]
            elif mode in ("cut", "reset_late"):
                writer.write(data[: len(data) // 2])
                await writer.drain()
                if mode == "reset_late":
                    _reset(writer)
                return
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.CancelledError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
