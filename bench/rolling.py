"""A rolling restart of two replicas of `referee serve` over one Redis, under load: `python -m bench.rolling`.

Clients submit tickets through either replica and collect them through either, all the time. The replicas are restarted
in turn, by SIGTERM and by kill -9. Every ticket must come back with the right rewards, and the provider may be paid
twice for no more than what was in flight at a kill. Then the same by ten teams, each with its token and a budget a day,
one of which is too small: of each what counts as spent must be at least what its rows cost, and within its budget.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.common import table
from bench.service import start_serve
from referee import clock
from referee.sim import ProviderSpec, start_server_process

PATIENCE = 60.0
"""Seconds after which something that must happen is a failure."""
HOST = "127.0.0.1"
TEAMS = [f"team-{number}" for number in range(10)]
POOR = TEAMS[-1]
BUDGET = {**dict.fromkeys(TEAMS, 5.0), POOR: 0.008}
TOKENS = {name: f"token-of-{name}-0123456789" for name in TEAMS}
PRICE = 0.4
"""US dollars per million tokens of either kind."""
CONCURRENCY = 24
"""Requests that one replica has in flight, at most."""
SETTLED_S = 13.0
"""Seconds after a kill until what the dead replica had leased counts as spent."""


class Outcome(Struct, kw_only=True):
    """What came of it."""

    tickets: int = 0
    """Collected."""
    samples: int = 0
    wrong: int = 0
    """Samples whose reward was not the right one."""
    lost: int = 0
    """Tickets that no replica knew any more."""
    elsewhere: int = 0
    """Tickets collected from another replica than the one that took them."""
    turned_away: int = 0
    """Times a client was told to come back, or its connection broke."""
    cut_off: int = 0
    """Samples of submissions whose connection broke: some may have been taken, and nobody has their ticket."""
    asked: int = 0
    """Requests that reached the provider. No two samples are equal, so one each would do."""
    taken_over: int = 0
    """Tickets that a replica judged again because another had died."""
    in_flight: list[int] = []
    """Requests in service at the provider, looked up just before each kill -9. Answers on their way are not in it."""
    reloads: int = 0
    """SIGHUPs after which the configuration was read again."""
    exits: list[int] = []
    """Status of each replica that was ended by SIGTERM."""
    refused: int = 0
    """Tickets of a team whose budget was spent."""
    billed_usd: float = 0.0
    """By the provider, to all teams."""
    rows_usd: dict[str, float] = {}
    """By team: in the rows it collected."""
    spent_usd: dict[str, float] = {}
    """By team: what counts against its budget, as /metrics says at the end."""
    waits_s: list[float] = []
    """Seconds from submission to results: of half of the tickets, of 99 %, of all, at most."""


class Replica:
    """One `referee serve` on a port of its own, started again after it has ended."""

    def __init__(self, folder: Path, name: str) -> None:
        self.port = free_port()
        self.log = folder / f"{name}.log"
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Start, and wait until it listens."""
        tokens = {variable(name): token for name, token in TOKENS.items()}
        self.child, _ = start_serve(self._folder, self.port, tokens, self.log.name)

    def end(self, number: signal.Signals) -> int:
        """Send it a signal and wait for its end."""
        self.child.send_signal(number)
        self.child.communicate(timeout=PATIENCE)
        return self.child.returncode


class Client(threading.Thread):
    """Submits a ticket, collects it, and so on until told to stop. Has then collected all it submitted."""

    def __init__(
        self, number: int, ports: list[int], batch: int, outcome: Outcome, stop: threading.Event, team: str = ""
    ) -> None:
        super().__init__(daemon=True)
        self._team = team
        self._number, self._ports, self._batch = number, ports, batch
        self._outcome, self._stop_it = outcome, stop
        self._chance = random.Random(number)
        self.error: BaseException | None = None

    def run(self) -> None:
        """Work; what goes wrong is kept in `error`."""
        try:
            count = 0
            while not self._stop_it.is_set():
                self._one(count)
                count += 1
        except BaseException as error:
            self.error = error

    def _one(self, count: int) -> None:
        qualities = [self._chance.randint(1, 10) for _ in range(self._batch)]
        samples = [
            {"prompt": f"question {count}", "response": f"[[quality={q}]] {self._number}-{count}-{n}"}
            for n, q in enumerate(qualities)
        ]
        began = clock.monotonic()
        port, taken = self._until_done("POST", "/v1/tickets", {"samples": samples})
        while True:
            where, state = self._until_done("GET", f"/v1/tickets/{taken['id']}?wait=5")
            if state is None:
                self._outcome.lost += 1
                return
            if "error" in state:
                self._outcome.refused += 1
                clock.pause(0.1)
                return
            if state["done"]:
                break
        paid = [(q, row) for q, row in zip(qualities, state["results"], strict=True) if row["unscored"] != "budget"]
        if self._team:
            before = self._outcome.rows_usd.get(self._team, 0.0)
            self._outcome.rows_usd[self._team] = before + sum(row["cost"] for _, row in paid)
        else:
            assert len(paid) == self._batch
        self._outcome.tickets += 1
        self._outcome.samples += len(paid)
        self._outcome.elsewhere += where != port
        self._outcome.wrong += sum(row["score"] != q for q, row in paid)
        self._outcome.waits_s.append(clock.monotonic() - began)

    def _until_done(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The port and the body of a success, from whichever replica gives it; None for a ticket that is unknown."""
        until = clock.monotonic() + PATIENCE
        while clock.monotonic() < until:
            port = self._chance.choice(self._ports)
            try:
                status, found = ask(port, method, path, body, TOKENS.get(self._team, ""))
            except ConnectionRefusedError:
                pass
            except (OSError, http.client.HTTPException):
                self._outcome.cut_off += len(body["samples"]) if body else 0
            else:
                if status < 300 or (self._team == POOR and status == 429 and b'"budget"' in found):
                    return port, json.loads(found)
                if status == 404:
                    return port, None
                if status not in (429, 503):
                    raise RuntimeError(f"{method} {path}: {status} {found[:300]!r}")
            self._outcome.turned_away += 1
            clock.pause(0.1)
        raise RuntimeError(f"{method} {path}: no success within {PATIENCE:g} s")


def ask(port: int, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, bytes]:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        text = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def variable(team: str) -> str:
    """The environment variable of a team's token."""
    return team.upper().replace("-", "_")


def spent_by(team: str, port: int) -> float:
    """What a team has spent today, as it is told itself."""
    page = ask(port, "GET", "/metrics", token=TOKENS[team])[1].decode()
    found = re.search(rf'^referee_team_spent_usd{{period="day",team="{team}"}} (\S+)$', page, re.M)
    assert found is not None, page
    return float(found[1])


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A redis-server that keeps nothing on disk; gives its URL."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        raise RuntimeError("redis-server is not installed")
    port = free_port()
    plain = ["--bind", HOST, "--save", "", "--appendonly", "no", "--dir", str(folder)]
    child = subprocess.Popen([binary, "--port", str(port), *plain], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://{HOST}:{port}/0"
    finally:
        child.terminate()
        child.wait()


def rolling(
    folder: Path, seconds: float, clients: int = 6, batch: int = 16, rounds: int = 1, teams: bool = False
) -> Outcome:
    """Reload both replicas and restart them by SIGTERM and SIGKILL, `rounds` times, `seconds` apart, under load.
    `teams`: each client is one of TEAMS."""
    outcome, stop = Outcome(), threading.Event()
    replicas: list[Replica] = []
    spec = ProviderSpec(capacity=64, latency_median=0.3, latency_sigma=0.3)
    with redis_server(folder) as url, start_server_process(spec, 1) as provider:
        config = folder / "referee.toml"
        config.write_text(
            f'[endpoint]\nurl = "{provider.url}"\nmodel = "m"\nkey_env = ""\nprice_in = {PRICE}\nprice_out = {PRICE}\n'
            f"[limits]\nconcurrency = {CONCURRENCY}\n"
            f'[redis]\nurl = "{url}"\n[cache]\npath = ""\n' + (teams_toml() if teams else "")
        )
        try:
            replicas.append(Replica(folder, "a"))
            replicas.append(Replica(folder, "b"))
            ports = [replica.port for replica in replicas]
            names = TEAMS if teams else [""] * clients
            threads = [Client(number, ports, batch, outcome, stop, name) for number, name in enumerate(names)]
            for thread in threads:
                thread.start()
            for number in [signal.SIGTERM, signal.SIGKILL] * rounds:
                for replica in replicas:
                    clock.pause(seconds / 2)
                    replica.child.send_signal(signal.SIGHUP)
                    clock.pause(seconds / 2)
                    if number is signal.SIGKILL:
                        outcome.in_flight.append(provider.stats().busy)
                    status = replica.end(number)
                    if number is signal.SIGTERM:
                        outcome.exits.append(status)
                    replica.start()
            clock.pause(seconds)
            stop.set()
            for thread in threads:
                thread.join(2 * PATIENCE)
                if thread.error is not None:
                    raise thread.error
                if thread.is_alive():
                    raise RuntimeError("a client did not come to an end")
            stats = provider.stats()
            if teams:
                clock.pause(SETTLED_S)
                outcome.spent_usd = {name: spent_by(name, ports[0]) for name in TEAMS}
        finally:
            stop.set()
            for replica in replicas:
                if replica.child.poll() is None:
                    replica.end(signal.SIGKILL)
    outcome.asked = stats.received
    outcome.billed_usd = (stats.tokens_in + stats.tokens_out) * PRICE / 1e6
    logs = "".join(replica.log.read_text() for replica in replicas)
    outcome.taken_over, outcome.reloads = logs.count("is judged again here"), logs.count("configuration read again")
    waits = sorted(outcome.waits_s)
    outcome.waits_s = [round(waits[(len(waits) - 1) * share // 100], 1) for share in (50, 99, 100)]
    return outcome


def teams_toml() -> str:
    """The settings of all teams."""
    team = '[[team]]\nname = "{}"\ntoken_env = "{}"\nbudget_usd_day = {}\n'
    return "[judge]\nmax_tokens = 64\n" + "".join(team.format(name, variable(name), BUDGET[name]) for name in TEAMS)


def run(quick: bool) -> dict[str, Any]:
    """Two rounds of restarts under the load of eight clients, then of ten teams."""
    load = (1.0, 4, 8, 1) if quick else (5.0, 8, 16, 2)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        found, teams = rolling(Path(one), *load), rolling(Path(two), *load, teams=True)
    return {**msgspec.to_builtins(found), "teams": msgspec.to_builtins(teams)}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    found = [msgspec.convert(item, Outcome) for item in (results, results["teams"]) if item]
    waits = [", ".join(map(str, one.waits_s)) for one in found]
    teams = found[1]
    rich = [name for name in TEAMS if name != POOR]
    hold = all(teams.rows_usd[name] <= teams.spent_usd[name] + 1e-9 <= BUDGET[name] + 2e-9 for name in TEAMS)
    return [
        "Two `referee serve` over one Redis, restarted in turn by SIGTERM and by kill -9 and reloaded by SIGHUP, while "
        "clients submit through either and collect through either. All samples differ. A kill is noticed after 6 s.",
        "",
        *table(
            ["what", "eight callers", "ten teams"],
            [
                ["tickets collected", *(f"{one.tickets:,}" for one in found)],
                ["of them from the other replica", *(f"{one.elsewhere:,}" for one in found)],
                ["tickets lost", *(str(one.lost) for one in found)],
                ["samples, of them with a wrong reward", *(f"{one.samples:,}, {one.wrong}" for one in found)],
                ["tickets judged again because their replica was killed", *(str(one.taken_over) for one in found)],
                ["reloads (SIGHUP); status after SIGTERM", *(f"{o.reloads}; {sorted(set(o.exits))}" for o in found)],
                ["requests to the judge beyond one a sample", *(str(one.asked - one.samples) for one in found)],
                [
                    "in service just before the kills; submissions cut off",
                    *(f"{sum(o.in_flight)}; {o.cut_off}" for o in found),
                ],
                ["seconds from submission to results: p50, p99, most", *waits],
            ],
        ),
        "",
        f"Nine of the ten teams may spend ${BUDGET[rich[0]]:g} a day, the tenth ${BUDGET[POOR]:g}. It spent "
        f"${teams.spent_usd[POOR]:.6f} and was then refused {teams.refused:,} times; the others never were. Billed to "
        f"all: ${teams.billed_usd:.6f}; in collected rows: ${sum(teams.rows_usd.values()):.6f}; counted as spent: "
        f"${sum(teams.spent_usd.values()):.6f}, what the killed replicas had leased included. For every team what "
        f"counts as spent is at least what its rows cost and within its budget: {hold}.",
    ]


if __name__ == "__main__":
    print("\n".join(report(run(quick=False))))
