"""Starting a worker process, and its pipe as the parent sees it. Keys are on neither command line nor environment."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from referee.errors import RefereeError
from referee.runtime.frames import HEAD, Frames
from referee.runtime.messages import Outbound, decode_outbound

# The first thing a worker reads is where to find modules, as the parent finds them; then it is ours.
_BOOT = """
import socket, sys
pipe = socket.socket(fileno=int(sys.argv[1]))
size = int.from_bytes(pipe.recv(4, socket.MSG_WAITALL), "big")
sys.path[:] = pipe.recv(size, socket.MSG_WAITALL).decode("utf-8", "surrogateescape").split("\\0")
from referee.runtime.worker import main
main(pipe)
"""


class Child:
    """A worker process and the parent's end of its pipe. Lives on the parent's loop."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: socket.socket) -> None:
        self.process = process
        self.pipe = pipe
        self.frames: Frames | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it waits for work; an exception says why it does not."""
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.started = asyncio.get_running_loop().time()

    async def connect(self, took: Callable[[Outbound], None], ended: Callable[[], None]) -> None:
        """Begin to read what it says."""
        frames = Frames(lambda data: took(decode_outbound(data)), ended)
        await asyncio.get_running_loop().create_unix_connection(lambda: frames, sock=self.pipe)
        self.frames = frames

    def send(self, messages: Sequence[bytes]) -> None:
        """Send encoded messages, in order."""
        if self.frames is not None:
            self.frames.send(messages)

    def end(self) -> int:
        """Make sure that it is gone; its exit code."""
        if self.frames is not None:
            self.frames.abort()
        self.process.kill()
        return self.process.wait()

    def cut(self) -> None:
        """In a forked child: let go of the parent's pipe without touching what the parent does with it."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self.pipe.fileno())
        os.close(null)


def start_child(folder: str) -> Child:
    """Start a worker process, with `folder` as its working directory."""
    path = "\0".join(place for place in sys.path if isinstance(place, str)).encode("utf-8", "surrogateescape")
    ours, theirs = socket.socketpair()
    process = None
    try:
        # A session of its own: Ctrl-C in the terminal is for the parent, which decides.
        process = subprocess.Popen(  # noqa: S603  # our own interpreter and code, no shell
            [sys.executable, "-P", "-c", _BOOT, str(theirs.fileno()), "referee-worker"],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
        ours.sendall(len(path).to_bytes(HEAD, "big") + path)
    except OSError as error:
        ours.close()
        if process is not None:
            process.kill()
            process.wait()
        raise RefereeError(
            f"a worker process could not be started ({error.strerror or error}). Nothing was judged. Set "
            'workers lower, or runtime = "thread".'
        ) from None
    finally:
        theirs.close()
    ours.setblocking(False)
    return Child(process, ours)
