"""`python -m referee.local`: the child process that runs the embedded model, started by `referee.local.server`.

It prints one line of JSON when it listens, and exits when its standard input closes or its parent is gone, so it is
never orphaned. Not for use by hand.
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
PARENT_POLL_S = 1.0
"""How often the parent is checked: a forked sibling may hold the pipe open after the parent has died."""
MAX_THREADS = 4
"""More make a model of this size slower."""
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}\n\n{% endif %}{% endfor %}"
)
"""Chat template that concatenates the texts without roles. The judge's prompt is few-shot examples to be continued; in
the model's own chat format it starts to chat instead (docs/design/embedded-judge.md)."""


def main(slots: int, context: int) -> None:
    """Serve until the parent exits."""
    parent = os.getppid()
    announce = os.dup(1)
    os.dup2(2, 1)  # llama.cpp prints to stdout; only the address may go to the parent's pipe
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    server = _serve(slots, context)
    os.write(announce, msgspec.json.encode({"url": server.listening_address, "model": MODEL}) + b"\n")
    while os.getppid() == parent:
        clock.pause(PARENT_POLL_S)
    os._exit(0)


def _serve(slots: int, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {MODEL}
    params.hostnames = [LOOPBACK]
    params.port = 0  # any free one: on its default port llama.cpp could end up sharing it with another server
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.n_gpu_layers = 0
    params.chat_template = PLAIN_TEMPLATE
    params.cache_prompt = True
    params.cache_ram_mib = 0  # the default keeps up to 8 GB of old prompts
    params.verbosity = -1
    params.ui = False
    params.endpoint_slots = False  # would show every prompt to any local process
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads = min(MAX_THREADS, _processors())
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes our standard input
    main(*map(int, sys.argv[1:3]))
