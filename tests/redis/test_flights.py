"""One flight per key among machines: who judges, who waits, who takes over, and what is left behind."""

from __future__ import annotations

import asyncio

import pytest
from tests.contracts.cache_suite import entry, key
from tests.redis.searching import machines, search, start, until
from tests.redis.server import RedisServer

from referee.cache import redis as shared
from referee.cache.entry import bare

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for seconds loses no lock, unless a test is about that."""
    monkeypatch.setattr(shared, "LOCK_TTL_S", 600.0)


def test_the_second_waits_for_the_first(server: RedisServer) -> None:
    """The first who misses judges; the other gets that verdict."""

    async def main() -> None:
        async with machines(server, 2) as (one, two):
            mine, nothing = start(one, key())
            assert await nothing is None
            _, waiting = start(two, key())
            await until(lambda: two._waiting, "the second notices that the first is at it")
            one.put(key(), entry())
            mine.release()
            assert await waiting == (key(), bare(entry()))
            assert two.hits == 1

    asyncio.run(main())


def test_a_failure_hands_the_key_on(server: RedisServer) -> None:
    """An owner without a verdict lets go, and exactly one of those who wait goes on."""

    async def main() -> None:
        async with machines(server, 4) as (first, *others):
            mine, nothing = start(first, key())
            await nothing
            searches = [start(other, key()) for other in others]
            await until(lambda: all(other._waiting for other in others), "everybody waits")
            mine.release()
            await until(lambda: any(future.done() for _, future in searches), "one takes over")
            await until(lambda: sum(bool(other._waiting) for other in others) == 2, "the rest waits again")
            assert [future.result() for _, future in searches if future.done()] == [None]
            for claim, _ in searches:
                claim.release()

    asyncio.run(main())


def test_a_dead_owner_is_replaced(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that vanishes without a word holds a key no longer than its lease."""
    monkeypatch.setattr(shared, "LOCK_TTL_S", 0.3)

    async def main() -> None:
        async with machines(server, 2) as (one, two):
            _, nothing = start(one, key())
            await nothing
            await one.link.close()
            _, waiting = start(two, key())
            assert await waiting is None
            assert two._held

    asyncio.run(main())


def test_a_living_owner_keeps_its_lock(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long judging takes, the lease is renewed."""
    monkeypatch.setattr(shared, "LOCK_RENEWAL_S", 0.05)

    async def main() -> None:
        client = server.client()
        async with machines(server) as (one,):
            _, nothing = start(one, key())
            await nothing
            name = f"referee:f1:{key()}"
            for _ in range(3):
                client.pexpire(name, 1000)
                await until(lambda: client.pttl(name) > 2000, "a renewal")
            client.delete(name)
            await until(lambda: client.exists(name), "a lock lost in a restart is taken again")
        assert not client.keys("referee:f1:*"), "locks are let go at the end"
        client.close()

    asyncio.run(main())


def test_patience_has_an_end(server: RedisServer) -> None:
    """Who has waited long enough judges by itself."""

    async def main() -> None:
        async with machines(server, 2) as (one, two):
            _, nothing = start(one, key())
            await nothing
            assert await search(two, key(), patience=0.2) is None

    asyncio.run(main())


def test_a_cancelled_wait_leaves_nothing(server: RedisServer) -> None:
    """Released while it is asked for, while it waits, or after it was claimed: no call, no lock, no entry in a list."""

    async def main() -> None:
        client = server.client()
        async with machines(server, 2) as (one, two):
            mine, nothing = start(one, key())
            await nothing
            waits, future = start(two, key())
            await until(lambda: two._waiting, "the second waits")
            asked, other = start(two, key(2))
            asked.release()
            late, third = start(two, key(3))
            await asyncio.sleep(0)  # its round trip is under way
            late.release()
            waits.release()
            waits.release()
            mine.release()
            await until(lambda: not client.keys("referee:f1:*"), "no lock is left")
            assert [*two._waiting, *two._asked, *two._held] == []
            assert [f.done() for f in (future, other, third)] == [False] * 3
        client.close()

    asyncio.run(main())


def test_what_is_looked_for_together_travels_together(server: RedisServer) -> None:
    """A hundred searches of one turn of the loop are one command."""

    async def main() -> None:
        client = server.client()
        async with machines(server, 2) as (one, two):
            for n in range(100):
                one.put(key(n), entry(n))
            await until(lambda: client.dbsize() == 100, "everything is stored")
            assert await search(two, key(1000)) is None  # from here on the script is known
            await until(lambda: not client.keys("referee:f1:*"), "the lock of that is let go")
            client.config_resetstat()
            searches = [start(two, key(n))[1] for n in range(100)]
            found = await asyncio.gather(*searches)
            assert found == [(key(n), bare(entry(n))) for n in range(100)]
            assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
        client.close()

    asyncio.run(main())


def test_any_of_several_keys_will_do(server: RedisServer) -> None:
    """With two endpoints a verdict of either is found, under its own key."""

    async def main() -> None:
        async with machines(server, 2) as (one, two):
            one.put(key(2), entry(2))
            await until(lambda: not one._writes, "it is stored")
            _, future = start(two, key(1), key(2))
            assert await future == (key(2), bare(entry(2)))

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "another", "list"])
def test_a_damaged_value_is_a_miss(server: RedisServer, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """A flipped byte, half a value, another key's value or somebody's list: never a wrong score, and it is replaced."""

    async def main() -> None:
        client = server.client()
        async with machines(server, 2) as (one, two):
            one.put(key(1), entry(1))
            one.put(key(2), entry(2))
            await until(lambda: client.dbsize() == 2, "both are stored")
            name = f"referee:v1:{key(1)}"
            value = client.get(name)
            assert isinstance(value, bytes)
            if damage == "list":
                client.delete(name)
                client.rpush(name, "x")
            else:
                spoilt = {
                    "flipped": value[:-3] + bytes([value[-3] ^ 1]) + value[-2:],
                    "cut": value[: len(value) // 2],
                    "empty": b"",
                    "another": client.get(f"referee:v1:{key(2)}"),
                }
                client.set(name, spoilt[damage])
            assert await search(two, key(1)) is None
            two.put(key(1), entry(1))
            await until(lambda: not two._writes, "it is stored again")
            assert await search(one, key(1)) == bare(entry(1))
        client.close()

    asyncio.run(main())


def test_verdicts_expire_and_locks_too(server: RedisServer) -> None:
    """Nothing of ours stays for ever, unless that is asked for."""

    async def main() -> None:
        client = server.client()
        async with machines(server, 1, keep_days=2) as (one,), machines(server, 1, keep_days=0, prefix="p") as (two,):
            one.put(key(), entry())
            two.put(key(), entry())
            start(one, key(2))
            await until(lambda: client.dbsize() == 3, "all are there")
            assert 86_400 < client.ttl(f"referee:v1:{key()}") <= 2 * 86_400
            assert client.ttl(f"p:v1:{key()}") == -1
            assert 0 < client.pttl(f"referee:f1:{key(2)}") <= 1000 * shared.LOCK_TTL_S
        client.close()

    asyncio.run(main())
