"""Several processes share one judge, one cache and one budget through `referee serve`. Only the standard library.

    python examples/serve_client.py http://127.0.0.1:8900   # a service you started; its token, if any, in JUDGE_TOKEN
    python examples/serve_client.py                         # by itself: starts a service over the simulated judge

Copy `Client` into any trainer: it needs no referee installed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

Sample = dict[str, Any]


class Client:
    """Submit, keep computing, collect. Asks again when the service says so, up to `patience` seconds."""

    def __init__(self, url: str, token: str = "", patience: float = 300.0) -> None:
        self._url = urlsplit(url)
        self._headers = {"content-type": "application/json"}
        self._patience = patience
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    def submit(self, samples: list[Sample]) -> str:
        """Start judging; returns a ticket."""
        ticket: str = self._ask("POST", "/v1/tickets", {"samples": samples})["id"]
        return ticket

    def collect(self, ticket: str) -> list[dict[str, Any]]:
        """The results in order, when all are final. A result whose `reward` is None was not scored: see `unscored`."""
        while True:
            state = self._ask("GET", f"/v1/tickets/{quote(ticket)}?wait=30")
            if state["done"]:
                results: list[dict[str, Any]] = state["results"]
                return results

    def metrics(self) -> str:
        """Prometheus text."""
        return self._once("GET", "/metrics", None)[2].decode()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        until = time.monotonic() + self._patience
        while True:
            status, wait, text = self._once(method, path, None if body is None else json.dumps(body))
            if status < 300:
                return json.loads(text)
            if not wait or time.monotonic() + wait > until:
                raise RuntimeError(f"{method} {path}: {status} {text.decode(errors='replace')}")
            time.sleep(wait)

    def _once(self, method: str, path: str, body: str | None) -> tuple[int, float, bytes]:
        """Status, seconds to wait before asking again (0: do not), body."""
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        connection = kind(self._url.netloc, timeout=90)
        try:
            connection.request(method, path, body, self._headers)
            answer = connection.getresponse()
            return answer.status, float(answer.headers.get("retry-after") or 0), answer.read()
        finally:
            connection.close()


def worker(url: str, rank: int) -> tuple[int, list[float | None]]:
    """What a trainer's process does in a step."""
    client = Client(url, os.environ.get("JUDGE_TOKEN", ""))
    answers = [{"prompt": "What is 2 + 2?", "response": f"It is {n}.", "id": f"{rank}-{n}"} for n in range(8)]
    ticket = client.submit(answers)
    # ... here the GPU computes log-probabilities ...
    return rank, [result["reward"] for result in client.collect(ticket)]


def main(url: str) -> None:
    """Three processes judge the same eight answers: each is paid for once."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        for rank, rewards in pool.starmap(worker, [(url, rank) for rank in range(3)]):
            print(f"process {rank}: {[None if reward is None else round(reward, 2) for reward in rewards]}")
    wanted = ("referee_samples_total", "referee_judge_requests_total")
    text = Client(url, os.environ.get("JUDGE_TOKEN", "")).metrics()
    print("; ".join(line for line in text.splitlines() if line.startswith(wanted)))


def first_url(child: subprocess.Popen[str]) -> str:
    """The URL in the first line a child prints."""
    assert child.stdout is not None
    line = child.stdout.readline()
    return next((word for word in line.split() if word.startswith("http")), "")


def start(*arguments: str) -> subprocess.Popen[str]:
    """A `referee` command of our own as a child."""
    command = [sys.executable, "-m", "referee.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603  # our own module, no shell


def by_itself() -> None:
    """Run against a service of its own, over the simulated judge."""
    children = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            children.append(start("sim", "--port", "0", "--latency", "0.1"))
            endpoint = f'[endpoint]\nurl = "{first_url(children[0])}"\nmodel = "simulated"\nkey_env = ""\n'
            file = Path(folder) / "referee.toml"
            file.write_text(f'{endpoint}[cache]\npath = ""\n')
            children.append(start("serve", "-c", str(file), "--port", "0"))
            main(first_url(children[1]))
        finally:
            for child in reversed(children):
                child.terminate()
                child.communicate(timeout=30)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        by_itself()
