"""Bodies that would fill the memory are read in a child with a hard limit on it: refused, and the child lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.faults.served import Served
from tests.faults.tunnel import Tunnelled, trusted_file

from referee.sim import ProviderSpec

LIMIT_MB = 160
"""More address space than the child has when it starts, for everything it reads."""
CHILD = """
import asyncio, resource, sys
from referee.engine.transport import HttpTransport
from referee.engine.port import TransportFault

def used():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) // 1024

async def main():
    url, proxy, room = sys.argv[1:]
    transport = HttpTransport(proxy)
    limit = (used() + int(room)) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(5):
        try:
            await transport.post(url, {}, b'{"model": "m", "messages": []}', 60.0)
        except TransportFault as fault:
            print(fault.kind)
    await transport.close()
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)

asyncio.run(main())
"""


@pytest.mark.parametrize("route", ["direct", "tunnel"])
@pytest.mark.parametrize("fault", ["huge", "bomb"])
def test_a_body_without_end_is_refused_in_bounded_memory(fault: str, route: str, tmp_path: Path) -> None:
    """256 MB, plain or as a gzip bomb, five times over: too large each time."""
    spec = ProviderSpec(faults={fault: 1.0}, huge_bytes=256 * 1024 * 1024)  # type: ignore[dict-item]
    with Served(spec) as server:
        parts = urlsplit(server.url)
        with Tunnelled(parts.port or 0) as tunnel:
            to = [server.url, ""] if route == "direct" else [tunnel.base + parts.path, tunnel.proxy]
            done = subprocess.run(
                [sys.executable, "-c", CHILD, *to, str(LIMIT_MB)],
                env=os.environ | {"SSL_CERT_FILE": trusted_file(tmp_path)},
                capture_output=True,
                text=True,
                timeout=55,
            )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[:5] == ["too_large"] * 5
