"""The simulated provider behind TLS, in a process of its own: `python -m bench.tls_server <certificate> <key>`.

It prints its URL, answers every request alike and at once, and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import uvloop

from referee.sim import Provider, ProviderSpec
from referee.sim.http import _Connection


async def serve(certificate: str, key: str) -> None:
    """Listen on a free port until standard input ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.get_running_loop()
    provider, peers = Provider(ProviderSpec(judge="constant")), set[_Connection]()
    server = await loop.create_server(lambda: _Connection(provider, None, peers), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"https://127.0.0.1:{port}/v1/chat/completions\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextlib.contextmanager
def tls_server(folder: Path) -> Iterator[tuple[str, int, ssl.SSLContext]]:
    """Start it with a certificate made for the occasion; its URL, its process, and a context that trusts it."""
    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    command = [sys.executable, "-m", "bench.tls_server", str(certificate), str(key)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield child.stdout.readline().strip(), child.pid, trusted
    finally:
        child.communicate(timeout=10)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], sys.argv[2]))
