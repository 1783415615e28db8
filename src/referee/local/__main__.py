"""`python -m referee.local`: the child process that runs the embedded model, started by `referee.local.server`.

It prints one line of JSON when it listens, and exits when no process holds a lock on the file of its users. So it is
never left running. Not for use by hand.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from referee import clock
from referee.local.model import ServerSpec

LOOPBACK = "127.0.0.1"
LINGER_S = 2.0
"""How long a shared server stays without users: one Referee after the other need not load the model again."""
LOCK_POLL_S = 0.25


def main(spec: ServerSpec) -> None:
    """Serve until nothing uses it."""
    announce = os.dup(1)
    os.dup2(2, 1)  # llama.cpp prints to stdout; only the address may go to the parent's pipe
    server = _serve(spec)
    os.write(announce, msgspec.json.encode({"url": server.listening_address, "model": spec.alias}) + b"\n")
    os.close(announce)
    _wait_for_users_to_leave(spec.users)
    os._exit(0)


def _wait_for_users_to_leave(name: str) -> None:
    """Returns once no process has held a lock on the file for LINGER_S, and holds it then: newcomers start another."""
    import fcntl

    file = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    left = LINGER_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            left = LINGER_S
        else:
            if left <= 0:
                os.unlink(name)
                return
            fcntl.flock(file, fcntl.LOCK_UN)
            left -= LOCK_POLL_S
        clock.pause(LOCK_POLL_S)


def _serve(spec: ServerSpec) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = spec.path
    params.model_alias = {spec.alias}
    params.hostnames = [LOOPBACK]
    params.port = 0  # any free one: on its default port llama.cpp could end up sharing it with another server
    params.n_parallel = spec.slots
    params.n_ctx = spec.slots * spec.context
    params.n_gpu_layers = 0
    params.chat_template = spec.template
    params.cache_prompt = True
    params.cache_ram_mib = 0  # the default keeps up to 8 GB of old prompts
    params.verbosity = -1
    params.ui = False
    params.endpoint_slots = False  # would show every prompt to any local process
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads = min(spec.threads or _processors(), _processors())
    return xllamacpp.Server(params)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=ServerSpec))
