"""Ten teams on one `referee serve`: does a greedy one harm the others, and do rows, bills and kept sums agree?

    python -m bench.run teams, or python -m bench.teams [--quick]

Nine teams send batches of 64 one after another; the tenth sends 20,000 samples at once and has a budget for a part of
them. The same is run without the tenth, and with the service killed and started again in the middle. The simulated
provider keeps a bill by team: it knows by the text of a request whose it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench.service import quantiles, start_serve
from referee import clock
from referee.sim import Provider, ProviderSpec, SimResponse, serve_http

NANO_A_TOKEN = 400
"""US $0.40 per million tokens of either kind."""
BATCH = 64
SMALL = [f"small-{number}" for number in range(9)]
BUDGET = {"greedy": 0.9, **dict.fromkeys(SMALL, 5.0)}
TOKENS = {name: f"token-of-the-bench-{name}" for name in BUDGET}
KILLS = 3


class Bills(Provider):
    """A provider with a bill for each team, in nano-dollars."""

    def __init__(self) -> None:
        super().__init__(ProviderSpec(latency_median=0.2, latency_sigma=0.3), 1)
        self.nano: dict[str, int] = {}

    async def serve(self, body: bytes, headers: Mapping[str, str], path: str = "") -> SimResponse:
        """Answer, and bill what was answered."""
        answer = await super().serve(body, headers, path)
        found = re.search(rb"of-([a-z]+(?:-\d)?)", body)
        if found and answer.status == 200:
            usage = msgspec.json.decode(answer.body)["usage"]
            name, tokens = found[1].decode(), usage["prompt_tokens"] + usage["completion_tokens"]
            self.nano[name] = self.nano.get(name, 0) + tokens * NANO_A_TOKEN
        return answer


@contextlib.contextmanager
def provider() -> Iterator[tuple[Bills, str]]:
    """The provider in a thread, and its URL."""
    ready, found, stop = threading.Event(), list[tuple[Bills, str]](), list[Callable[[], object]]()

    async def main() -> None:
        bills, end, loop = Bills(), asyncio.Event(), asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(end.set))
        server = await serve_http(bills)
        found.append((bills, server.url))
        ready.set()
        await end.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield found[0]
    stop[0]()
    thread.join(30)


class Service:
    """`referee serve` in a folder, started as often as one likes."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        price = NANO_A_TOKEN / 1000
        lines = [
            f'[endpoint]\nurl = "{url}"\nmodel = "m"\nkey_env = ""\nprice_in = {price}\nprice_out = {price}',
            '[cache]\npath = ""\n[limits]\nconcurrency = 64\n[judge]\nmax_tokens = 64\n[missing]\nabort_above = 1.0',
            f"[serve]\nmax_queue = 40000\nstate = {json.dumps(str(folder / 'serve.sqlite'))}",
        ]
        lines += [
            f'[[team]]\nname = "{name}"\ntoken_env = "T_{name.upper().replace("-", "_")}"\nbudget_usd_day = {limit}'
            for name, limit in BUDGET.items()
        ]
        (folder / "referee.toml").write_text("\n".join(lines) + "\n")
        self.child: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start it, and wait until it listens."""
        tokens = {f"T_{name.upper().replace('-', '_')}": token for name, token in TOKENS.items()}
        self.child, self.url = start_serve(self.folder, env=tokens)

    def end(self, how: signal.Signals) -> None:
        """End it, with this signal."""
        assert self.child is not None
        self.child.send_signal(how)
        self.child.communicate(timeout=60)

    def kept(self) -> dict[str, int]:
        """What the file says, in nano-dollars, over all days."""
        with contextlib.closing(sqlite3.connect(self.folder / "serve.sqlite")) as link:
            query = "SELECT team, SUM(held) FROM spent WHERE LENGTH(period) = 10 GROUP BY team"
            return {str(team): int(held) for team, held in link.execute(query)}


@contextlib.asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without limits of its own."""
    connector, patience = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=connector, timeout=patience) as client:
        yield client


async def ask(client: aiohttp.ClientSession, url: str, team: str, count: int, name: str) -> tuple[int, Any]:
    """Status and body of one batch of a team."""
    rows = [{"prompt": "p", "response": f"[[quality={n % 10 + 1}]] of-{team} {name} {n}"} for n in range(count)]
    headers = {"authorization": f"Bearer {TOKENS[team]}", "content-type": "application/json"}
    body = msgspec.json.encode({"samples": rows})
    async with client.post(f"{url}/teams/{team}/v1/score", data=body, headers=headers) as answer:
        return answer.status, msgspec.json.decode(await answer.read())


def costs(body: Any) -> int:
    """Nano-dollars of a batch's rows."""
    return sum(round(row["cost"] * 1e9) for row in body["results"])


async def beside(url: str, greedy: int, batches: int) -> tuple[list[float], dict[str, int], dict[str, int]]:
    """Seconds of the small teams' batches, and by team the costs of all rows and the samples without a verdict."""
    took, rows, missing = list[float](), dict[str, int](), dict[str, int]()

    def note(team: str, body: Any) -> None:
        rows[team] = rows.get(team, 0) + costs(body)
        missing[team] = missing.get(team, 0) + sum(bool(row["unscored"]) for row in body["results"])

    async with session() as client:

        async def small(team: str) -> None:
            for number in range(batches):
                began = clock.monotonic()
                status, body = await ask(client, url, team, BATCH, f"b{number}")
                took.append(clock.monotonic() - began)
                assert status == 200, body
                note(team, body)

        large = asyncio.ensure_future(ask(client, url, "greedy", greedy, "g")) if greedy else None
        await clock.sleep(3.0)  # it has filled its part of the queue
        await asyncio.gather(*map(small, SMALL))
        if large is not None:
            status, body = await large
            assert status == 200, body
            note("greedy", body)
    return took, rows, missing


async def killed(service: Service, count: int) -> int:
    """Greedy batches beside small ones, `kill -9` in the middle, again and again. Samples asked for."""
    asked = 0
    for number in range(KILLS):
        service.start()
        async with session() as client:
            working = [
                asyncio.ensure_future(ask(client, service.url, team, size, f"k{number}"))
                for team, size in (("greedy", count), *((name, BATCH) for name in SMALL))
            ]
            asked += count + BATCH * len(SMALL)
            await clock.sleep(1.5)
            service.end(signal.SIGKILL)
            await asyncio.gather(*working, return_exceptions=True)
    return asked


def run(quick: bool) -> dict[str, Any]:
    """With and without the greedy team, and with kills."""
    greedy, batches = (4_000, 2) if quick else (20_000, 6)
    found: dict[str, Any] = {"greedy": greedy, "batches": batches, "budget": BUDGET["greedy"]}
    for name, count in (("alone", 0), ("beside", greedy)):
        with tempfile.TemporaryDirectory() as folder, provider() as (bills, url):
            service = Service(Path(folder), url)
            service.start()
            took, rows, missing = asyncio.run(beside(service.url, count, batches))
            service.end(signal.SIGTERM)
            found[name] = quantiles(took)
            found["agree"] = found.get("agree", True) and rows == bills.nano == service.kept()
            found["within"] = found.get("within", True) and all(bills.nano[t] <= BUDGET[t] * 1e9 for t in bills.nano)
            if count:
                found["spent"], found["missing"] = rows["greedy"] / 1e9, missing
    with tempfile.TemporaryDirectory() as folder, provider() as (bills, url):
        service = Service(Path(folder), url)
        asyncio.run(killed(service, 400))
        kept = service.kept()
        found["kills"] = {
            "billed": bills.nano["greedy"] / 1e9,
            "kept": kept["greedy"] / 1e9,
            "hold": all(bills.nano[team] <= kept[team] <= BUDGET[team] * 1e9 for team in bills.nano),
        }
        service.start()
        _, last = asyncio.run(_last(service.url))
        service.end(signal.SIGTERM)
        found["kills"]["after"] = last
    return found


async def _last(url: str) -> tuple[int, Any]:
    async with session() as client:
        status, body = await ask(client, url, "small-0", BATCH, "last")
        return status, {"status": status, "scored": sum(not row["unscored"] for row in body.get("results", ()))}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    alone, near, kills = results["alone"], results["beside"], results["kills"]
    scored = results["greedy"] - results["missing"]["greedy"]
    return [
        f"Ten teams on one `referee serve`, 64 calls at once. Nine send {results['batches']} batches of {BATCH} each; "
        f"the tenth sends {results['greedy']} samples at once, with a budget of ${results['budget']:g}.",
        "",
        "| seconds for a batch of 64 | p50 | p95 |",
        "|---|---|---|",
        f"| nine teams | {alone['p50']:.2f} | {alone['p95']:.2f} |",
        f"| nine teams beside the greedy one | {near['p50']:.2f} | {near['p95']:.2f} |",
        "",
        f"The greedy team spent ${results['spent']:.6f} for {scored} samples; the rest is unscored (budget). Rows, the "
        f"provider's bill and the kept sums agree to the nano-dollar for every team: {results['agree']}; none is over "
        f"its budget: {results['within']}. After {KILLS} times kill -9 in the middle the provider had billed "
        f"${kills['billed']:.6f} to the greedy team and ${kills['kept']:.6f} counted as spent; no team over its "
        f"budget, none below its bill: {kills['hold']}. A small team's next batch: {kills['after']['scored']} scored.",
    ]


if __name__ == "__main__":
    print("\n".join(report(run("--quick" in sys.argv))))
