"""Redis hung, killed, started again empty, locked or full: one wait, one warning, and scoring goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contracts.cache_suite import entry, key
from tests.redis.searching import machines, search, start, until
from tests.redis.server import PATIENCE, RedisServer

from referee.cache import redis_link as link
from referee.cache.entry import bare
from referee.cache.redis_check import examine
from referee.cache.redis_link import COMMANDS, RedisLink, Unavailable
from referee.config import RedisConfig, load
from referee.engine import Endpoint
from referee.engine.redis_lease import RedisLease
from referee.errors import MissingKeyError
from referee.limits.quota_broker import EndpointReport, Report

pytestmark = pytest.mark.slow

PASSWORD = "correct-horse-battery"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes in quick succession."""
    monkeypatch.setattr(link, "PROBE_INTERVAL_S", 0.1)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "referee.redis" and r.levelno >= logging.WARNING]


@pytest.mark.parametrize("how", ["hung", "killed"])
def test_an_outage_ends_every_search_and_is_noticed_once(
    server: RedisServer, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All searches end with nothing, later ones do not begin, and when Redis is back they do."""

    async def main() -> None:
        async with machines(server, 2, timeout=0.25) as (one, two):
            # A loaded machine may be too slow for the first answer, which is an outage like any other.
            await until(lambda: one.link.up and two.link.up, "Redis is up")
            _, holding = start(one, key())
            await holding
            before = start(two, key())[1] if two.link.up else None
            server.freeze() if how == "hung" else server.kill()
            searches = [start(two, key(n))[1] for n in range(50, 60) if two.link.up]
            for future in [*searches, *([before] if before else [])]:
                assert await future is None
            await until(lambda: not two.link.up, "the breaker opens")
            assert two.claim([key(7)], PATIENCE, lambda found: None) is None
            two.put(key(8), entry(8))
            assert not two._writes, "nothing is kept for a server that is away"
            with pytest.raises(Unavailable):
                await two.link.run(lambda client: client.ping())
            server.thaw() if how == "hung" else server.start()
            await until(lambda: two.link.up, "the probe finds it")

    asyncio.run(main())
    assert len(warnings(caplog)) <= 2, "one for each machine"
    assert any("Scoring goes on" in line for line in warnings(caplog))


def test_after_a_restart_the_cache_works_again(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """A server that comes back empty is filled again: scripts, locks and all."""

    async def main() -> None:
        async with machines(server, 2) as (one, two):
            one.put(key(), entry())
            await until(lambda: not one._writes, "it is stored")
            assert await search(two, key()) == bare(entry())
            server.kill()
            server.start()
            assert await search(two, key()) is None
            one.put(key(), entry())
            await until(lambda: not one._writes, "it is stored again")
            assert await search(two, key()) == bare(entry())

    asyncio.run(main())
    assert warnings(caplog) == []


def test_a_wrong_password_is_one_clear_warning(
    start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the setting, and neither password."""
    server = start_redis("--requirepass", PASSWORD)
    monkeypatch.setenv("REDIS_WORD", "wrong-horse")

    async def main() -> None:
        async with machines(server, 1, password_env="REDIS_WORD") as (one,):
            assert await search(one, key()) is None
            assert not one.link.up
            await until(lambda: _refused(server) >= 4, "a few probes are refused")
            assert "horse" not in repr(one) + repr(one.link._client)

    asyncio.run(main())
    (line,) = warnings(caplog)
    assert "refuses the user or password" in line
    assert "REDIS_WORD" in line
    assert "horse" not in caplog.text


def _refused(server: RedisServer) -> int:
    """How often the server has refused a password."""
    client = server.client(password=PASSWORD)
    try:
        return int(client.info("errorstats").get("errorstat_WRONGPASS", {}).get("count", 0))
    finally:
        client.close()


def test_the_right_password_works_wherever_it_is(
    start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From the environment, or inside the url, where it does not show."""
    server = start_redis("--requirepass", PASSWORD)
    monkeypatch.setenv("REDIS_WORD", PASSWORD)
    inside = server.url.replace("redis://", f"redis://:{PASSWORD}@")

    async def main() -> None:
        async with machines(server, 1, password_env="REDIS_WORD") as (one,), machines(server, 1, url=inside) as (two,):
            one.put(key(), entry())
            await until(lambda: not one._writes, "it is stored")
            assert await search(two, key()) == bare(entry())
            assert PASSWORD not in repr(one) + repr(two)
            assert PASSWORD not in repr(two.link._client)

    asyncio.run(main())
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(RedisConfig(url=inside))


def test_a_missing_password_is_an_error_at_the_start() -> None:
    """It is named before anything is sent."""
    with pytest.raises(MissingKeyError, match="REDIS_WORD is not set"):
        RedisLink(RedisConfig(url="redis://h", password_env="REDIS_WORD"), {})


def test_a_user_with_too_few_rights_is_one_warning(
    start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """The warning says what the user must be allowed, in the words of an ACL."""
    server = start_redis("--user", "default", "on", "nopass", "~*", "-@all", "+ping")

    async def main() -> None:
        async with machines(server) as (one,):
            assert await search(one, key()) is None

    asyncio.run(main())
    (line,) = warnings(caplog)
    assert f"~referee:* {COMMANDS}" in line


def test_a_full_memory_is_one_warning_and_reading_goes_on(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """With noeviction new verdicts stay local; those that are there are still found."""

    async def main() -> None:
        client = server.client()
        async with machines(server, 2) as (one, two):
            one.put(key(), entry())
            await until(lambda: not one._writes, "it is stored")
            client.config_set("maxmemory", "1")
            for n in range(2, 5):
                one.put(key(n), entry(n))
                await until(lambda: not one._writes, "it is refused")
            assert await search(two, key()) == bare(entry())
            assert await search(two, key(2)) is None
            with pytest.raises(Unavailable):
                await one.link.run(lambda client: client.set("x", "y"))
            assert one.link.up
            assert two.link.up
            client.config_set("maxmemory", "0")
        client.close()

    asyncio.run(main())
    stored, full = warnings(caplog)
    assert "does not store verdicts" in stored
    assert "memory is full" in full


def test_tls_with_an_authority_of_our_own(
    start_redis: Callable[..., RedisServer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """rediss:// works with ca_file, and without it the certificate is refused."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    server = start_redis()
    port = server.port
    files = {"tls-cert-file": "cert.pem", "tls-key-file": "key.pem", "tls-ca-cert-file": "ca.pem"}
    client = server.client()
    try:
        for name, file in files.items():
            client.config_set(name, str(tmp_path / file))
        client.config_set("tls-auth-clients", "no")
        client.config_set("port", "0")
        client.config_set("tls-port", str(port))
    except Exception as error:
        pytest.skip(f"this redis-server has no TLS ({error})")
    finally:
        client.close()
    url = f"rediss://127.0.0.1:{port}"

    async def main() -> None:
        async with machines(server, 1, url=url, ca_file=str(tmp_path / "ca.pem")) as (one,):
            one.put(key(), entry())
            await until(lambda: not one._writes, "it is stored")
            assert await search(one, key()) == bare(entry())
        assert warnings(caplog) == []
        async with machines(server, 1, url=url) as (other,):
            assert await search(other, key()) is None
            assert not other.link.up

    asyncio.run(main())
    assert len(warnings(caplog)) == 1


def test_the_documented_rights_are_enough(
    start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The ACL line of docs/redis.md allows everything that is done: cache, locks, leases and the doctor's look."""
    text = (Path(__file__).parents[2] / "docs" / "redis.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("user referee "))
    assert line.endswith(f"-@all {COMMANDS}")
    server = start_redis("--user", *line.replace("PASSWORD", PASSWORD).split()[1:])
    monkeypatch.setenv("REDIS_WORD", PASSWORD)
    url = server.url.replace("redis://", "redis://referee@")
    section = {"url": url, "password_env": "REDIS_WORD", "timeout": PATIENCE}

    async def main() -> None:
        async with machines(server, 2, **section) as (one, two):
            mine, nothing = start(one, key())
            await nothing
            await one._renew()
            one.put(key(), entry())
            mine.release()
            await until(lambda: not (one._writes or one._unlocks), "it is stored")
            assert await search(two, key()) == bare(entry())
            config = load({"redis": section, "limits": {"rpm": 60, "concurrency": 3}})
            lease = RedisLease(config, [Endpoint(config.endpoint[0], config.limits, None)], one.link, True)
            await lease.exchange(Report(endpoints=(EndpointReport(waiting=1),)))
            assert not lease.alone
            await lease.leave()

    asyncio.run(main())
    assert warnings(caplog) == []
    good, said = examine(RedisConfig(**section))
    assert good, said
    assert "noeviction" in said


def test_the_doctor_says_what_is_wrong(server: RedisServer) -> None:
    """One line, with the setting."""
    url = server.url
    assert examine(RedisConfig(url=url))[0]
    server.kill()
    good, said = examine(RedisConfig(url=url))
    assert not good
    assert "cannot be reached" in said
