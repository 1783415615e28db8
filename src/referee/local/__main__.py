"""`python -m referee.local`: the child process that holds the embedded model. Started by `referee.local.server`.

It writes one line of JSON to its standard output when it answers, and it ends when its standard input closes or its
parent is gone, so it is never left behind. Not for use by hand.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import msgspec

from referee import clock
from referee.local.model import MODEL, weights

LOOPBACK = "127.0.0.1"
PARENT_CHECK = 1.0
"""Seconds between looks at the parent, for a pipe that a forked sibling keeps open after the parent has died."""
THREADS = 4
"""More threads than this make a model of this size slower."""
PLAIN = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}\n\n{% endif %}{% endfor %}"
"""The chat template: texts one after the other, no roles. The judge's prompt is examples to be continued; in the
model's own conversation format it starts to chat instead (docs/design/embedded-judge.md)."""


def main(slots: int, context: int) -> None:
    """Serve until the parent goes."""
    parent = os.getppid()
    announce = os.dup(1)
    os.dup2(2, 1)  # llama.cpp prints where it likes; only the address may go down the parent's pipe
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    server = _serve(slots, context)
    os.write(announce, msgspec.json.encode({"url": server.listening_address, "model": MODEL}) + b"\n")
    while os.getppid() == parent:
        clock.pause(PARENT_CHECK)
    os._exit(0)


def _serve(slots: int, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {MODEL}
    params.hostnames = [LOOPBACK]
    params.port = 0  # any free one: llama.cpp would share a port of its own choice with whoever listens there
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.n_gpu_layers = 0
    params.chat_template = PLAIN
    params.cache_prompt = True
    params.cache_ram_mib = 0  # the default keeps up to 8 GB of old prompts
    params.verbosity = -1
    params.ui = False
    params.endpoint_slots = False  # would show every prompt to any program of this machine
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads = min(THREADS, _processors())
    return xllamacpp.Server(params)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes our standard input
    main(*map(int, sys.argv[1:3]))
