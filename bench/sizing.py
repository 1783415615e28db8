"""What a replica of `referee serve` needs, for docs/operations.md: `python -m bench.sizing`.

The service in a process of its own with cache and ledger on disk, and the simulated provider in another. Memory:
samples that are accepted while no answer comes. Processor and disk: samples never judged before, as fast as they go.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import msgspec

from bench.common import table
from bench.service import start_serve
from referee import clock
from referee.sim import ProviderSpec, start_server_process

BATCH = 256
CALLERS = 16
HELD = (0, 5_000, 10_000, 20_000)
"""Samples pending at each look at the memory."""
JUDGED = 120 * BATCH
SIZES = {"1 KB": 1_000, "8 KB": 8_000}
"""Of a response."""


def body(first: int, size: int) -> bytes:
    """A request of samples that no other has."""
    rows = [
        {"prompt": f"Question {n // 8}", "response": f"{n} " + "word " * (size // 5), "group": str(n // 8)}
        for n in range(first, first + BATCH)
    ]
    return msgspec.json.encode({"samples": rows})


@contextmanager
def service(url: str, folder: Path, content: bool) -> Iterator[str]:
    """`referee serve` with its files in `folder`; gives its URL."""
    text = f'[endpoint]\nurl = "{url}"\nmodel = "m"\nkey_env = ""\n[serve]\nmax_queue = 100000\n'
    text += f'[limits]\nattempt_timeout = 300.0\n[ledger]\ndir = "ledger"\ncontent = {str(content).lower()}\n'
    (folder / "referee.toml").write_text(text)
    child, found = start_serve(folder)
    with child:
        try:
            yield found
        finally:
            child.terminate()
            clock.pause(0.5)
            child.terminate()  # what is still pending is of no use


async def figure(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """One of the service's own metrics."""
    async with session.get(f"{url}/metrics") as answer:
        found = re.search(rf"^{name} (\S+)", await answer.text(), re.M)
        assert found is not None
        return float(found[1])


async def held(url: str, size: int) -> list[float]:
    """Megabytes of memory at each number of samples pending."""
    found: list[float] = []
    first = 0
    async with aiohttp.ClientSession() as session:
        await session.post(f"{url}/v1/tickets", data=body(10**9, size), headers={"content-type": "application/json"})
        for target in HELD:
            while first < target:
                answer = await session.post(
                    f"{url}/v1/tickets", data=body(first, size), headers={"content-type": "application/json"}
                )
                assert answer.status == 202, await answer.text()
                first += BATCH
            await clock.sleep(5.0)
            found.append(await figure(session, url, "process_resident_memory_bytes") / 1e6)
    return found


async def judged(url: str, size: int) -> tuple[float, float]:
    """Samples a second, and microseconds of processor time of each."""
    numbers = iter(range(0, JUDGED, BATCH))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def caller() -> None:
            for first in numbers:
                async with session.post(
                    f"{url}/v1/score", data=body(first, size), headers={"content-type": "application/json"}
                ) as answer:
                    assert answer.status == 200, await answer.text()

        used, began = await figure(session, url, "process_cpu_seconds_total"), clock.monotonic()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        elapsed = clock.monotonic() - began
        return JUDGED / elapsed, (await figure(session, url, "process_cpu_seconds_total") - used) * 1e6 / JUDGED


def main() -> None:
    """Print the tables."""
    rows = []
    for name, size in SIZES.items():
        slow = ProviderSpec(latency_median=600.0, latency_sigma=0.0)
        with (
            tempfile.TemporaryDirectory() as folder,
            start_server_process(slow) as judge,
            service(judge.url, Path(folder), True) as url,
        ):
            memory = asyncio.run(held(url, size))
        slope = (memory[-1] - memory[0]) / (HELD[-1] - HELD[0]) * 1000
        rows.append([name, *(f"{value:.0f}" for value in memory), f"{slope:.1f}"])
    print("\n".join(table(["response", *(f"MB, {n} pending" for n in HELD), "MB per 1,000"], rows)), flush=True)

    rows = []
    for name, size in SIZES.items():
        for content in (True, False):
            fast = ProviderSpec(latency_median=0.05)
            with (
                tempfile.TemporaryDirectory() as folder,
                start_server_process(fast) as judge,
                service(judge.url, Path(folder), content) as url,
            ):
                rate, cost = asyncio.run(judged(url, size))
                clock.pause(1.0)  # for the last commit
                parts = [Path(folder, part).glob("*") for part in (".referee", "ledger")]
                used = [sum(path.stat().st_size for path in part) for part in parts]
            cells = [f"{rate:.0f}", f"{cost:.0f}", *(f"{value / JUDGED / 1e3:.1f}" for value in used)]
            rows.append([name, "yes" if content else "no", *cells])
    head = ["response", "ledger.content", "samples/s", "µs CPU a sample", "cache, KB a sample", "ledger, KB a sample"]
    print("\n" + "\n".join(table(head, rows)))


if __name__ == "__main__":
    main()
