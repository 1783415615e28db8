"""SIGHUP: another configuration for new work, the old one for work in flight, and counters that never go back."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.harness import HeldTransport, Served, config_for, sample, samples, serving, until
from tests.server.processes import ServeProcess, judge, service
from tests.server.processes import until as until_here
from typer.testing import CliRunner

from referee.cli.main import app
from referee.config import Config, load
from referee.errors import ConfigError
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.server.reload import Reload, with_fixed
from referee.sim import ProviderSpec

PRICES = {"price_in": 1000.0, "price_out": 1000.0}


def another(held: bool = False, **sections: Any) -> tuple[Referee, HeldTransport]:
    """A Referee to go on with, over a provider of its own."""
    transport = HeldTransport(ProviderSpec())
    if not held:
        transport.release()
    return Referee(config_for(**sections), worker_with(lambda: transport, random.Random(1), b"secret")), transport


async def counters(served: Served) -> dict[tuple[str, ...], float]:
    """All that may only grow."""
    text = (await served.get("/metrics")).text
    families = [found for found in text_string_to_metric_families(text) if found.type in ("counter", "histogram")]
    return {
        (item.name, *map(str, sorted(item.labels.items()))): item.value
        for family in families
        for item in family.samples
        if family.name.startswith("referee_") and not item.name.endswith("_created")
    }


def test_work_in_flight_ends_under_the_old_configuration() -> None:
    """A ticket and a waiting caller get their results; new work goes to the new judge; then the old one closes."""

    async def main() -> None:
        async with serving(held=True) as served:
            old = served.referee
            waiting = asyncio.create_task(served.post("/v1/score", {"samples": samples(2)}))
            ticket = (await served.post("/v1/tickets", {"samples": [sample(4, "t")]})).json()["id"]
            await until(lambda: served.held.asked == 3)
            new, asked = another()
            served.service.renew(new)
            answer = await served.post("/v1/score", {"samples": [sample(9)]})
            assert answer.json()["results"][0]["score"] == 9
            assert (asked.asked, served.held.asked, served.held.left) == (1, 3, 0)
            assert served.service.referees.older == [old]
            served.held.release()
            assert [r["score"] for r in (await waiting).json()["results"]] == [1, 2]
            state = (await served.get(f"/v1/tickets/{ticket}", params={"wait": 50})).json()
            assert state["results"][0]["score"] == 4
            await until(lambda: not served.service.referees.older)
            assert "closed" in old._runtime.trouble(False)
            assert (await served.post("/v1/score", {"samples": [sample(3, "z")]})).status_code == 200

    asyncio.run(main())


def test_counters_never_go_back() -> None:
    """At no moment of a reload, nor after it: what older Referees counted stays."""

    async def main() -> None:
        async with serving() as served:
            seen: dict[tuple[str, ...], float] = {}

            async def look() -> None:
                found = await counters(served)
                fallen = {name: (count, found.get(name)) for name, count in seen.items() if found.get(name, -1) < count}
                assert not fallen
                seen.update(found)

            for round_ in range(3):
                await served.post("/v1/score", {"samples": [sample(n + 1, f"{round_}") for n in range(4)]})
                await look()
                served.service.renew(another()[0])
                while served.service.referees.older:
                    await look()
                    await asyncio.sleep(0)
                await look()
            assert seen["referee_samples_total",] == 12
            assert seen["referee_judge_requests_total",] == 12
            assert seen["referee_score_count", "('judge', '')"] == 12
            assert seen["referee_latency_seconds_count",] == 12

    asyncio.run(main())


def test_what_older_judges_end_with_says_nothing_of_the_new_one() -> None:
    """A wrong key of the configuration before does not make the service unready under the corrected one."""

    async def main() -> None:
        async with serving(ProviderSpec(key="right"), held=True) as served:
            waiting = asyncio.create_task(served.post("/v1/score", {"samples": [sample()]}))
            await until(lambda: served.held.asked == 1)
            served.service.renew(another()[0])
            served.held.release()
            assert (await waiting).status_code == 503
            assert (await served.get("/readyz")).status_code == 200

    asyncio.run(main())


def test_a_closed_judge_is_open_again_after_the_correction() -> None:
    """/readyz tells of the configuration in use."""

    async def main() -> None:
        async with serving(ProviderSpec(key="right")) as served:
            await served.post("/v1/score", {"samples": [sample()]})
            assert (await served.get("/readyz")).status_code == 503
            served.service.renew(another()[0])
            assert (await served.get("/readyz")).status_code == 200

    asyncio.run(main())


def test_bounds_are_those_of_the_new_configuration() -> None:
    """max_queue, max_tickets, and the columns that samples must have."""

    async def main() -> None:
        async with serving() as served:
            served.service.renew(another(serve={"max_queue": 2, "max_tickets": 1})[0])
            assert (await served.post("/v1/score", {"samples": samples(3)})).status_code == 413
            assert (await served.post("/v1/tickets", {"samples": samples(1)})).status_code == 202
            assert (await served.post("/v1/tickets", {"samples": samples(1)})).status_code == 429

    asyncio.run(main())


def test_a_wrong_file_is_one_line_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Also one that is gone, and one whose key is not there."""
    faults: list[Exception] = [
        ConfigError("limits.deadline must be positive,\nnot -1.", setting="limits.deadline"),
        FileNotFoundError(2, "No such file", "referee.toml"),
    ]

    def read() -> Config:
        if faults:
            raise faults.pop(0)
        return load({"endpoint": {"url": "https://a.test/v1", "model": "m", "key_env": "NOT_SET_ANYWHERE"}})

    async def main() -> None:
        async with serving() as served:
            reload = Reload(served.service, read)
            for _ in range(3):
                reload.ask()
                await reload.end()
            assert served.service.referee is served.referee
            assert (await served.post("/v1/score", {"samples": [sample()]})).status_code == 200

    asyncio.run(main())
    found = [record.getMessage() for record in caplog.records if record.name == "referee.server"]
    assert len(found) == 3
    assert all("refused" in line and "\n" not in line for line in found)
    assert "limits.deadline" in found[0]
    assert "referee.toml" in found[1]
    assert "NOT_SET_ANYWHERE" in found[2]


def test_what_cannot_change_is_named_and_stays() -> None:
    """The new configuration is used with the old values of these; all else is new."""
    before = config_for(serve={"token_env": "A_TOKEN", "drain_seconds": 1}, ledger={"dir": "old"})
    after = config_for(
        serve={"token_env": "B_TOKEN", "drain_seconds": 2}, ledger={"dir": "run"}, redis={"url": "redis://a/0"}
    )
    used, kept = with_fixed(before, after)
    assert kept == ["serve.token_env", "ledger.dir", "[redis]"]
    assert (used.serve.token_env, used.serve.drain_seconds, used.ledger.dir) == ("A_TOKEN", 2, "old")
    assert used.redis == before.redis
    assert with_fixed(before, before) == (before, [])
    math, code = ({"name": name, "token_env": name.upper()} for name in ("math", "code"))
    none, one, both = config_for(), config_for(team=[math]), config_for(team=[math, code])
    assert with_fixed(one, both) == (both, [])
    assert with_fixed(none, one)[0].team == ()
    assert with_fixed(one, none)[0].team == one.team
    assert with_fixed(one, none)[1] == ["[[team]], the first or the last one"]


def settings(folder: Path, url: str, text: str = "") -> None:
    """Another configuration file for a running service."""
    head = f'[endpoint]\nurl = "{url}"\nmodel = "m"\nkey_env = ""\n[cache]\npath = "cache.sqlite"\n'
    (folder / "referee.toml").write_text(head + text)


def reloads(process: ServeProcess, what: str = "read again") -> int:
    """Lines about reloads in its log."""
    return process.log().count(what)


@pytest.mark.slow
def test_a_signal_reloads_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    """Callers never notice; what is wrong is refused; what was judged before is found in the shared cache file."""
    wrong: list[Any] = []
    stop = threading.Event()

    def client(number: int, process: ServeProcess) -> None:
        count = 0
        while not stop.is_set():
            body = {"samples": [sample(n + 1, f"{number}-{count}") for n in range(3)]}
            count += 1
            status, reply = process.ask("POST", "/v1/tickets", body)
            if status != 202:
                wrong.append((status, reply))
                continue
            status, state = process.ask("GET", f"/v1/tickets/{reply['id']}?wait=50")
            if status != 200 or [r["score"] for r in state["results"]] != [1, 2, 3]:
                wrong.append((status, state))

    with judge() as (provider, url):
        provider.release()
        with service(tmp_path, url, "[ledger]\ndir = 'run'") as process:
            settings(tmp_path, url)
            assert process.ask("POST", "/v1/score", {"samples": [sample(5, "kept")]})[0] == 200
            threads = [threading.Thread(target=client, args=(number, process), daemon=True) for number in range(3)]
            for thread in threads:
                thread.start()
            for round_ in range(1, 4):
                settings(tmp_path, url, f"[limits]\ndeadline = {100 + round_}\n")
                process.signal(signal.SIGHUP)
                until_here(lambda: reloads(process) == round_)  # noqa: B023
                process.ask("POST", "/v1/score", {"samples": [sample(5, "again")]})
            asked = provider.asked
            settings(tmp_path, url, "[limits]\ndeadlin = 5\n")
            process.signal(signal.SIGHUP)
            until_here(lambda: reloads(process, "refused") == 1)
            stop.set()
            for thread in threads:
                thread.join()
            assert process.child.poll() is None
            assert "limits.deadlin" in process.log()
            assert "after a restart: ledger.dir" in process.log()
            assert asked > 12
            status, reply = process.ask("POST", "/v1/score", {"samples": [sample(5, "again")]})
            assert (status, reply["results"][0]["origin"]) == (200, "cache")
            process.signal(signal.SIGTERM)
            assert process.wait() == 0
            assert "Traceback" not in process.log()
    assert wrong == []


@pytest.mark.slow
def test_the_budget_counts_on(tmp_path: Path) -> None:
    """A reload does not make spent money available again; a larger budget makes the difference available."""
    prices = "price_in = 1000.0\nprice_out = 1000.0\n"

    def write(url: str, budget: float) -> None:
        (tmp_path / "referee.toml").write_text(
            f'[endpoint]\nurl = "{url}"\nmodel = "m"\nkey_env = ""\n{prices}[limits]\nbudget_usd = {budget}\n'
            '[cache]\npath = ""\n[judge]\nmax_tokens = 16\n[missing]\nabort_above = 1.0\n'
        )

    with judge() as (provider, url):
        provider.release()
        with service(tmp_path, url) as process:
            write(url, 5.0)
            process.signal(signal.SIGHUP)
            until_here(lambda: reloads(process) == 1)

            def spend(name: str) -> str:
                result = process.ask("POST", "/v1/score", {"samples": [sample(5, name)]})[1]["results"][0]
                return str(result["unscored"])

            count = 0
            while spend(f"a{count}") != "budget":
                count += 1
                assert count < 1000
            assert count > 0
            assert process.ask("GET", "/readyz")[1]["status"] == "budget"
            process.signal(signal.SIGHUP)
            until_here(lambda: reloads(process) == 2)
            assert spend("b") == "budget"
            write(url, 50.0)
            process.signal(signal.SIGHUP)
            until_here(lambda: reloads(process) == 3)
            assert spend("c") == ""


@pytest.mark.slow
def test_a_signal_adds_a_team(tmp_path: Path) -> None:
    """Its token works at once; one whose variable is not there is refused; the last team goes with a restart only. The
    file with what they have spent is its owner's."""

    def team(name: str) -> str:
        return f'[[team]]\nname = "{name}"\ntoken_env = "{name.upper()}_TOKEN"\n'

    tokens = {name: f"token-of-{name}-0123456789" for name in ("MATH_TOKEN", "CODE_TOKEN")}
    with judge() as (provider, url), service(tmp_path, url, team("math"), **tokens) as process:
        provider.release()

        def status(variable: str) -> int:
            return process.ask("POST", "/v1/score", {"samples": [sample()]}, tokens.get(variable, ""))[0]

        def reload(text: str, says: str) -> None:
            settings(tmp_path, url, text)
            process.signal(signal.SIGHUP)
            until_here(lambda: says in process.log())

        assert (status("MATH_TOKEN"), status("CODE_TOKEN"), status("")) == (200, 401, 401)
        reload(team("math") + team("code"), "read again")
        assert (status("MATH_TOKEN"), status("CODE_TOKEN"), status("")) == (200, 200, 401)
        reload(team("math") + team("else"), "'ELSE_TOKEN' must name an environment variable")
        reload("", "after a restart: [[team]], the first or the last one")
        assert (status("MATH_TOKEN"), status("CODE_TOKEN"), status("")) == (200, 200, 401)
        found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / ".referee").iterdir()}
        assert found.pop("serve.sqlite") == 0o600
        assert set(found.values()) <= {0o600}
        assert "Traceback" not in process.log()


def test_without_a_file_a_signal_only_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SIGHUP ends no service."""

    async def main() -> None:
        async with serving() as served:
            reload = Reload(served.service, None)
            reload.ask()
            await reload.end()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "without a file" in caplog.text


def test_a_signal_while_it_starts_is_heard_when_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come after the file was read: it neither ends the process nor is it lost."""
    heard: list[int] = []

    def starting(*_: Any, ready: Callable[[str], None], **__: Any) -> None:
        signal.raise_signal(signal.SIGHUP)
        signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
        ready("http://127.0.0.1:8900")

    (tmp_path / "referee.toml").write_text('[endpoint]\nurl = "http://a.test/v1"\nmodel = "m"\nkey_env = ""\n')
    monkeypatch.setattr("referee.server.run", starting)
    monkeypatch.setattr("referee.server.logs.start_logging", lambda *_: None)
    before = signal.getsignal(signal.SIGHUP)
    try:
        done = CliRunner().invoke(app, ["serve", "--config", str(tmp_path / "referee.toml")])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.exit_code, heard) == (0, [signal.SIGHUP]), done.output
    assert "serving at" in done.output


@pytest.mark.slow
def test_lines_of_the_service_are_json_when_asked_for(tmp_path: Path) -> None:
    """Start, requests, a refused reload and the end: each line, on either stream, is one JSON object."""
    with judge() as (provider, url), service(tmp_path, url, "", "--log-format", "json") as process:
        provider.release()
        assert process.ask("POST", "/v1/score?token=x", {"samples": [sample()]})[0] == 200
        (tmp_path / "referee.toml").write_text("[endpoint\n")
        process.signal(signal.SIGHUP)
        until_here(lambda: "refused" in process.log())
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        found = [json.loads(line) for line in (process.announced, *process.log().splitlines())]
    assert found[0]["message"].startswith("serving at http://127.0.0.1:")
    access = [line for line in found if line["logger"] == "referee.access"]
    assert (access[0]["path"], access[0]["samples"], access[0]["status"]) == ("/v1/score", 1, 200)
    assert {"ts", "level", "logger", "message"} <= set.intersection(*map(set, found))


@pytest.mark.slow
def test_a_wrong_start_is_json_too(tmp_path: Path) -> None:
    """Exit status 2 and one object that names the setting."""
    text = "[limits]\ndeadlin = 5\n"
    with service(tmp_path, "http://127.0.0.1:9/v1", text, "--log-format", "json") as process:
        assert process.wait() == 2
        (line,) = map(json.loads, process.log().splitlines())
    assert "limits.deadlin" in line["message"]
    assert line["level"] == "error"
