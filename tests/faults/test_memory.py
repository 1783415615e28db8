"""Bodies that would fill the memory are read in a child with a hard limit on it: refused, and the child lives."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.faults.served import Served

from referee.sim import ProviderSpec

LIMIT_MB = 160
"""More address space than the child has when it starts, for everything it reads."""
CHILD = """
import asyncio, resource, sys
from referee.engine.aio import AioTransport
from referee.engine.fast import FastTransport
from referee.engine.port import TransportFault

def used():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) // 1024

async def main():
    transport = {"fast": FastTransport, "aiohttp": AioTransport}[sys.argv[1]]()
    limit = (used() + int(sys.argv[3])) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(5):
        try:
            await transport.post(sys.argv[2], {}, b'{"model": "m", "messages": []}', 60.0)
        except TransportFault as fault:
            print(fault.kind)
    await transport.close()
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)

asyncio.run(main())
"""


@pytest.mark.parametrize("transport", ["fast", "aiohttp"])
@pytest.mark.parametrize("fault", ["huge", "bomb"])
def test_a_body_without_end_is_refused_in_bounded_memory(fault: str, transport: str) -> None:
    """256 MB, plain or as a gzip bomb, five times over: too large each time."""
    spec = ProviderSpec(faults={fault: 1.0}, huge_bytes=256 * 1024 * 1024)  # type: ignore[dict-item]
    with Served(spec) as server:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, transport, server.url, str(LIMIT_MB)],
            capture_output=True,
            text=True,
            timeout=55,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[:5] == ["too_large"] * 5
