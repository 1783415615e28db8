"""Tickets in Redis: any replica answers for any ticket, and none is lost with a replica or with Redis."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.redis.server import RedisServer
from tests.server.harness import PATIENCE, TOKEN, Served, sample, samples, serving, until

from referee import clock
from referee.server import ticket_store
from referee.sim import ProviderSpec

Two = tuple[Served, Served]


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life come often; a dead replica is still one that gave none for the usual time."""
    monkeypatch.setattr(ticket_store, "BEAT_S", 0.05)


@contextlib.asynccontextmanager
async def replicas(server: RedisServer, held: bool = False, **sections: Any) -> AsyncIterator[Two]:
    """Two services over one Redis. Verdicts are not shared, so that what is judged twice can be seen."""
    redis = {"url": server.url, "timeout": PATIENCE, "cache": False, "limits": False}
    async with (
        serving(held=held, redis=redis, **sections) as one,
        serving(held=held, redis=redis, **sections) as two,
    ):
        yield one, two


async def submit(served: Served, count: int = 2, **more: Any) -> str:
    """A new ticket's id."""
    answer = await served.post("/v1/tickets", {"samples": samples(count), **more})
    assert answer.status_code == 202, answer.text
    found: str = answer.json()["id"]
    return found


async def scores(served: Served, name: str) -> list[float]:
    """The results of a ticket, from this replica, once they are there."""
    until_ = clock.monotonic() + PATIENCE
    while clock.monotonic() < until_:
        answer = await served.get(f"/v1/tickets/{name}", params={"wait": 20})
        assert answer.status_code == 200, answer.text
        state = answer.json()
        if state["done"]:
            assert state["landed"] == state["samples"]
            return [result["score"] for result in state["results"]]
    raise AssertionError("the ticket did not end")


def test_any_replica_answers_for_any_ticket(server: RedisServer) -> None:
    """While it is judged, when it is done, and again; only its own replica judged it."""

    async def main() -> None:
        async with replicas(server, held=True) as (one, two):
            name = await submit(one)
            await until(lambda: one.held.asked == 2)
            state = (await two.get(f"/v1/tickets/{name}")).json()
            assert state == {"id": name, "samples": 2, "landed": 0, "done": False, "results": None}
            waiting = asyncio.create_task(scores(two, name))
            one.held.release()
            assert await waiting == [1, 2] == await scores(one, name) == await scores(two, name)
            assert two.held.asked == 0

    asyncio.run(main())


def test_a_replica_that_ends_leaves_its_tickets_to_the_other(server: RedisServer) -> None:
    """What it has judged can be collected; what it has not is judged again; nobody gets a cancelled sample."""

    async def main() -> None:
        async with replicas(server, held=True) as (one, two):
            one.held.release()
            done = await submit(one)
            assert await scores(one, done) == [1, 2]
            two.held.release()
            one.held.hold()
            open_ = (await one.post("/v1/tickets", {"samples": [sample(7, "late")]})).json()["id"]
            await until(lambda: one.held.asked == 3)
            waiting = asyncio.create_task(one.get(f"/v1/tickets/{open_}", params={"wait": 20}))
            await one.service.drain(0.01)
            answer = await waiting
            assert (answer.status_code, answer.json()["error"]) == (503, "moved")
            assert int(answer.headers["retry-after"]) > 0
            assert await scores(two, open_) == [7]
            assert await scores(two, done) == [1, 2]
            assert two.held.asked == 1

    asyncio.run(main())


def test_a_dead_replicas_ticket_is_judged_once_by_whoever_is_asked(server: RedisServer) -> None:
    """Many ask for it at the same time: it is taken over once. A replica that drains takes none over."""

    async def main() -> None:
        async with replicas(server, held=True) as (one, two):
            name = await submit(one)
            await until(lambda: one.held.asked == 2)
            await one.service.drain(0)
            assert (await one.get(f"/v1/tickets/{name}")).status_code == 503
            asking = [asyncio.create_task(scores(two, name)) for _ in range(8)]
            await until(lambda: two.held.asked == 2)
            two.held.release()
            assert [await task for task in asking] == [[1, 2]] * 8
            assert two.held.asked == 2

    asyncio.run(main())


def test_a_ticket_waits_where_there_is_no_room_for_it(server: RedisServer) -> None:
    """A replica that is full does not take it over, and does not lose it: it is still open when there is room."""

    async def main() -> None:
        async with replicas(server, held=True, serve={"max_queue": 3}) as (one, two):
            name = await submit(one, 3)
            await one.service.drain(0)
            full = asyncio.create_task(two.post("/v1/score", {"samples": samples(3)}))
            await until(lambda: two.service.pending == 3)
            state = (await two.get(f"/v1/tickets/{name}")).json()
            assert (state["done"], state["samples"]) == (False, 3)
            two.held.release()
            await full
            assert await scores(two, name) == [1, 2, 3]

    asyncio.run(main())


def test_what_one_deletes_the_other_stops(server: RedisServer) -> None:
    """Its judge's calls are given up, its place is free, and no replica knows it."""

    async def main() -> None:
        async with replicas(server, held=True) as (one, two):
            name = await submit(one)
            await until(lambda: one.held.asked == 2)
            waiting = asyncio.create_task(one.get(f"/v1/tickets/{name}", params={"wait": 50}))
            assert (await two.client.delete(f"/v1/tickets/{name}")).status_code == 204
            await until(lambda: one.held.left == 2 and len(one.service.tickets) == 0)
            assert (await waiting).status_code == 404
            for served in (one, two):
                assert (await served.get(f"/v1/tickets/{name}")).status_code == 404
                assert (await served.client.delete(f"/v1/tickets/{name}")).status_code == 404

    asyncio.run(main())


def test_a_ticket_deleted_elsewhere_is_gone_here_at_once(server: RedisServer) -> None:
    """Also a finished one, which this replica has in memory."""

    async def main() -> None:
        async with replicas(server) as (one, two):
            name = await submit(one)
            assert await scores(one, name) == [1, 2]
            assert (await two.client.delete(f"/v1/tickets/{name}")).status_code == 204
            assert (await one.get(f"/v1/tickets/{name}")).status_code == 404

    asyncio.run(main())


def test_a_refusal_is_what_every_replica_gives(server: RedisServer) -> None:
    """The end of a ticket may be an error."""

    async def main() -> None:
        spec = ProviderSpec(faults={"refusal": 1.0})
        redis = {"url": server.url, "cache": False, "limits": False}
        async with (
            serving(spec, redis=redis, missing={"policy": "raise"}) as one,
            serving(redis=redis) as two,
        ):
            name = await submit(one)
            for served in (one, two, two):
                answer = await served.get(f"/v1/tickets/{name}", params={"wait": 50})
                assert (answer.status_code, answer.json()["error"]) == (503, "unscored")

    asyncio.run(main())


def test_tickets_end_with_their_time(server: RedisServer) -> None:
    """Every key in Redis has an end, and a collected ticket is deleted where room is needed."""

    async def main() -> None:
        async with replicas(server, serve={"max_tickets": 1}) as (one, two):
            name = await submit(one)
            assert await scores(two, name) == [1, 2]
            client = server.client()
            keys = [key for key in client.keys("referee:*") if b":ticket:" in key or b":replica:" in key]
            assert len(keys) >= 2
            assert all(client.pttl(key) > 0 for key in keys)
            await until(lambda: one.service.tickets._held[name].collected)
            other = await submit(one)
            await until(
                lambda: not client.exists(f"referee:ticket:{name}") or client.hget(f"referee:ticket:{name}", "gone")
            )
            assert (await two.get(f"/v1/tickets/{name}")).status_code == 404
            assert await scores(two, other) == [1, 2]
            client.close()

    asyncio.run(main())


def test_redis_holds_no_secret(server: RedisServer) -> None:
    """Neither the token of the service nor a name that is one."""

    async def main() -> None:
        redis = {"url": server.url, "cache": False, "limits": False}
        async with serving(token=TOKEN, held=True, redis=redis) as served:
            body = {"samples": [sample(name="what is judged")]}
            headers = {"authorization": f"Bearer {TOKEN}"}
            name = (await served.post("/v1/tickets", body, headers=headers)).json()["id"]
            client = server.client()
            held = client.hgetall(f"referee:ticket:{name}")
            client.close()
            assert b"what is judged" in held[b"work"]
            assert TOKEN.encode() not in b"".join((*held.keys(), *held.values()))
            served.held.release()

    asyncio.run(main())


def test_without_redis_tickets_stay_and_it_is_said_once(
    start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Their own replica serves them; another does not call them unknown, but asks to come again."""
    server = start_redis()

    async def main() -> None:
        async with replicas(server) as (one, two):
            known = await submit(one)
            assert await scores(two, known) == [1, 2]
            await asyncio.to_thread(server.kill)
            names = [await submit(one) for _ in range(3)]
            for name in names:
                assert await scores(one, name) == [1, 2]
            answer = await two.get(f"/v1/tickets/{names[0]}")
            assert (answer.status_code, answer.json()["error"]) == (503, "tickets")
            assert await scores(one, known) == [1, 2]
            assert (await one.client.delete(f"/v1/tickets/{names[0]}")).status_code == 204
            assert (await one.get(f"/v1/tickets/{names[0]}")).status_code in (404, 503)

    with caplog.at_level(logging.WARNING, "referee.redis"):
        asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if "Tickets stay" in record.getMessage()]
    assert 1 <= len(said) <= 2


def test_when_redis_is_back_it_learns_of_the_tickets(
    start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it comes back empty: open and finished tickets can be collected anywhere again."""
    monkeypatch.setattr("referee.cache.redis_link.PROBE_INTERVAL_S", 0.05)
    server = start_redis()

    async def main() -> None:
        async with replicas(server, held=True) as (one, two):
            one.held.release()
            done = await submit(one)
            assert await scores(one, done) == [1, 2]
            one.held.hold()
            open_ = (await one.post("/v1/tickets", {"samples": [sample(7, "late")]})).json()["id"]
            await asyncio.to_thread(server.kill)
            await until(lambda: not one.service.tickets._store.up)
            await asyncio.to_thread(server.start)
            client = server.client()
            await until(lambda: all(client.exists(f"referee:ticket:{name}") for name in (done, open_)))
            client.close()
            assert await scores(two, done) == [1, 2]
            waiting = asyncio.create_task(scores(two, open_))
            one.held.release()
            assert await waiting == [7]
            assert two.held.asked == 0

    asyncio.run(main())


@pytest.mark.parametrize("field", ["work", "end"])
def test_damage_is_an_error_and_no_reward(field: str, server: RedisServer) -> None:
    """What cannot be read is said, once; then the ticket is unknown or still unreadable."""

    async def main() -> None:
        async with replicas(server, held=True) as (one, two):
            if field == "end":
                one.held.release()
            name = await submit(one)
            if field == "end":
                await scores(one, name)
            await one.service.drain(0)
            client = server.client()
            client.hset(f"referee:ticket:{name}", field, b"\x93\x01garbage")
            client.close()
            answer = await two.get(f"/v1/tickets/{name}", params={"wait": 1})
            assert (answer.status_code, answer.json()["error"]) == (500, "ticket")
            assert two.held.asked == 0
            assert (await two.get(f"/v1/tickets/{name}")).status_code in (404, 500)

    asyncio.run(main())


def test_a_ticket_too_large_for_redis_stays_with_its_replica(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is judged and collected there as ever, and the log says so once."""
    monkeypatch.setattr(ticket_store, "LARGEST", 100)

    async def main() -> None:
        async with replicas(server) as (one, two):
            for _ in range(2):
                name = await submit(one, 3)
                assert await scores(one, name) == [1, 2, 3]
                assert (await two.get(f"/v1/tickets/{name}")).status_code == 404

    with caplog.at_level(logging.WARNING, "referee.redis"):
        asyncio.run(main())
    assert len([record for record in caplog.records if "kept in Redis" in record.getMessage()]) == 1


@pytest.mark.parametrize("without", ["room in Redis", "a ticket small enough"])
def test_draining_waits_for_results_that_redis_does_not_have(
    without: str, server: RedisServer, start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis answers, but the ticket is in this process alone: no other replica could give its results, or judge it."""
    if without == "room in Redis":
        server = start_redis("--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
    else:
        monkeypatch.setattr(ticket_store, "LARGEST", 100)

    async def main() -> None:
        async with replicas(server, held=True) as (one, _):
            name = await submit(one)
            draining = asyncio.create_task(one.service.drain(PATIENCE))
            one.held.release()
            await until(lambda: one.service.pending == 0)
            await asyncio.sleep(3 * ticket_store.BEAT_S)
            assert not draining.done()
            assert await scores(one, name) == [1, 2]
            await draining

    asyncio.run(main())


def test_results_on_their_way_to_redis_take_their_room(start_redis: Callable[..., RedisServer]) -> None:
    """A Redis that hangs does not let in more than max_queue meanwhile."""
    server = start_redis()

    async def main() -> None:
        async with replicas(server, held=True, serve={"max_queue": 2}) as (one, _):
            await submit(one)
            server.freeze()
            one.held.release()
            await until(lambda: one.service.pending == 0)
            assert (await one.post("/v1/score", {"samples": samples(1)})).status_code == 429
            server.thaw()

    asyncio.run(main())


def test_the_documented_rights_are_enough(start_redis: Callable[..., RedisServer]) -> None:
    """A user with the ACL of docs/redis.md can do all that tickets need."""
    from referee.cache.redis_link import COMMANDS

    server = start_redis()
    admin = server.client()
    admin.execute_command(
        "ACL", "SETUSER", "referee", "on", ">pw", "~referee:*", "resetchannels", "-@all", *COMMANDS.split()
    )
    admin.close()
    redis = {"url": server.url.replace("redis://", "redis://referee:pw@"), "cache": False, "limits": False}

    async def main() -> None:
        async with serving(held=True, redis=redis) as one, serving(redis=redis) as two:
            kept, dropped = await submit(one), await submit(one)
            assert (await two.client.delete(f"/v1/tickets/{dropped}")).status_code == 204
            await until(lambda: len(one.service.tickets) == 1)
            await one.service.drain(0)
            assert await scores(two, kept) == [1, 2]

    asyncio.run(main())
