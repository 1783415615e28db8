"""The lease script on a real server: what several jobs are granted never adds up to more than there is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.redis.server import PATIENCE, RedisServer

from referee.cache.redis_link import RedisLink
from referee.config import Secret, load
from referee.engine import Endpoint
from referee.engine.redis_lease import RedisLease, paced_by_redis
from referee.limits import FixedLimit
from referee.limits.quota_broker import Broker, EndpointReport, Grant, Hints, PaceReport, Report, SharedEndpoint

pytestmark = pytest.mark.slow

KEY = "sk-a-key-that-must-not-be-seen"


@asynccontextmanager
async def jobs(
    server: RedisServer, count: int, redis: dict[str, Any] | None = None, **limits: Any
) -> AsyncIterator[Any]:
    """Leases as of so many jobs with the same key."""
    section = {"url": server.url, "timeout": PATIENCE, **(redis or {})}
    config = load({"endpoint": {"url": "https://a.test/v1", "key_env": ""}, "limits": limits, "redis": section})
    endpoint = Endpoint(config.endpoint[0], config.limits, Secret(KEY))
    link = RedisLink(config.redis)
    try:
        yield [RedisLease(config, [endpoint], link, True) for _ in range(count)]
    finally:
        await link.close()


def asks(requests: float = 0.0, tokens: float = 0.0, most: int = 1, **more: Any) -> Report:
    """A report of a job that needs so much for the next request, and for `most` of them."""
    return Report(
        endpoints=(
            EndpointReport(
                requests=PaceReport(least=requests, most=requests * most),
                tokens=PaceReport(least=tokens, most=tokens * most),
                **more,
            ),
        )
    )


def seconds(server: RedisServer) -> float:
    """Redis' own clock."""
    client = server.client()
    whole, part = client.time()  # type: ignore[misc]
    client.close()
    return float(whole) + part / 1e6


def test_a_minute_is_divided_not_multiplied(server: RedisServer) -> None:
    """Four jobs that want everything get, together, a second's worth and what has been refilled since."""

    async def main() -> None:
        async with jobs(server, 4, rpm=6000, tpm=60_000) as leases:
            begin = seconds(server)
            requests = tokens = 0.0
            for _ in range(100):
                for lease in leases:
                    grant = (await lease.exchange(asks(1, 10, most=1000))).endpoints[0]
                    requests += grant.requests
                    tokens += grant.tokens
                passed = seconds(server) - begin
                assert requests <= 100 * (1 + passed) + 1
                assert tokens <= 1000 * (1 + passed) + 10
            assert requests >= 90, "the first second's worth was there at once"
            assert leases[0].jobs == 4

    asyncio.run(main())


def test_a_request_needs_both_or_takes_neither(server: RedisServer) -> None:
    """Where tokens have run out, requests are not taken from the others in vain."""

    async def main() -> None:
        async with jobs(server, 2, rpm=600, tpm=60) as (one, two):
            first = (await one.exchange(asks(1, 50))).endpoints[0]
            assert (first.requests, first.tokens) == (1, 50), "larger than a second's worth: from a full pool it passes"
            for lease in (one, two):
                second = (await lease.exchange(asks(1, 50))).endpoints[0]
                assert (second.requests, second.tokens) == (0, 0), "and leaves a debt"
            only = (await two.exchange(asks(1, 0))).endpoints[0]
            assert only.requests == 1

    asyncio.run(main())


def test_what_is_returned_can_be_had_by_others(server: RedisServer) -> None:
    """Tokens that were estimated and not used go back into the pool."""

    async def main() -> None:
        async with jobs(server, 2, tpm=60) as (one, two):
            assert (await one.exchange(asks(0, 40))).endpoints[0].tokens == 40
            assert (await two.exchange(asks(0, 1))).endpoints[0].tokens == 0
            back = replace(asks().endpoints[0], tokens=PaceReport(returned=40.0))
            await one.exchange(Report(endpoints=(back,)))
            assert (await two.exchange(asks(0, 1))).endpoints[0].tokens == 1

    asyncio.run(main())


def test_a_servers_headers_hold_everybody(server: RedisServer) -> None:
    """One job was told that nothing remains: the others wait too. A pause travels the same way."""

    async def main() -> None:
        async with jobs(server, 2, rpm=6000) as (one, two):
            told = replace(asks().endpoints[0], requests=PaceReport(hints=Hints(None, 0, 50.0)), pause=40.0)
            await one.exchange(Report(endpoints=(told,)))
            grant = (await two.exchange(asks(1))).endpoints[0]
            assert grant.requests == 0
            assert 0 < grant.pause <= 40

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(5))
def test_shares_never_add_up_to_more_than_the_limit(server: RedisServer, seed: int) -> None:
    """Jobs that come, want, idle and leave at random: at no time may more be in flight than the limit says."""
    chance = random.Random(seed)
    limit, count = chance.choice([(1, 3), (5, 3), (16, 4), (100, 5)])

    async def main() -> None:
        async with jobs(server, count, concurrency=limit) as leases:
            share, flying = [0] * count, [0] * count
            for _ in range(300):
                place = chance.randrange(count)
                waiting = chance.choice([0, 0, 1, 3, 200])
                flying[place] = chance.randint(0, max(share[place], flying[place]))
                if chance.random() < 0.03:
                    flying[place] = share[place] = 0
                    await leases[place].leave()
                    continue
                report = asks(share=share[place], in_flight=flying[place], waiting=waiting)
                grant = (await leases[place].exchange(report)).endpoints[0]
                share[place] = grant.share
                flying[place] = max(flying[place], min(grant.share, flying[place] + waiting))
                assert sum(max(s, f) for s, f in zip(share, flying, strict=True)) <= limit
            for _ in range(6):  # everybody wants everything, and what is over has come back
                for place in range(count):
                    share[place] = (
                        (await leases[place].exchange(asks(share=share[place], waiting=200))).endpoints[0].share
                    )
            assert min(share) >= limit // count, "odd ones go around, the rest is even"

    asyncio.run(main())


def test_after_losing_everything_nobody_gets_more_before_all_have_spoken(server: RedisServer) -> None:
    """Redis comes back empty while shares are in use: they stay as they are until each job has said what it holds."""

    async def main() -> None:
        async with jobs(server, 2, concurrency=10, rpm=60_000) as (one, two):
            share = [0, 0]
            for _ in range(3):
                for place, lease in enumerate((one, two)):
                    share[place] = (await lease.exchange(asks(share=share[place], waiting=50))).endpoints[0].share
            assert share == [5, 5]
            client = server.client()
            client.flushall()
            client.close()
            begin = seconds(server)
            busy = asks(1, most=10_000, share=5, in_flight=5, waiting=50)
            grant = (await one.exchange(busy)).endpoints[0]
            assert grant.share == 5
            assert grant.requests <= 1000 * (seconds(server) - begin) + 1, "nor is there another second's worth"
            assert (await two.exchange(busy)).endpoints[0].share == 5

    asyncio.run(main())


def test_a_job_that_leaves_makes_room(server: RedisServer) -> None:
    """Its share is free at once."""

    async def main() -> None:
        async with jobs(server, 2, concurrency=8) as (one, two):
            share = [0, 0]
            for _ in range(3):
                for place, lease in enumerate((one, two)):
                    share[place] = (await lease.exchange(asks(share=share[place], waiting=50))).endpoints[0].share
            assert share == [4, 4]
            await one.leave()
            assert (await two.exchange(asks(share=4, waiting=50))).endpoints[0].share == 8
            assert two.jobs == 1

    asyncio.run(main())


def test_jobs_with_another_fixed_number_do_not_meet(server: RedisServer) -> None:
    """One job's limit of 2 does not starve beside another's of 100, and both count for an even part."""

    async def main() -> None:
        async with jobs(server, 1, concurrency=100) as (large,), jobs(server, 1, concurrency=2) as (small,):
            assert (await large.exchange(asks(waiting=500))).endpoints[0].share == 100
            assert (await small.exchange(asks(waiting=500))).endpoints[0].share == 2
            assert small.jobs == 2

    asyncio.run(main())


def test_without_redis_a_job_goes_by_its_even_part(server: RedisServer) -> None:
    """It never raises, begins with nothing, and takes no more in flight than its part."""

    async def main() -> None:
        async with jobs(server, 2, concurrency=10, rpm=6000) as (one, two):
            for lease in (one, two, one):
                await lease.exchange(asks(1, share=0, waiting=1))
            server.kill()
            grant = (await one.exchange(asks(1, most=1000, share=9, in_flight=9, waiting=50))).endpoints[0]
            assert one.alone
            assert (grant.share, grant.requests) == (5, 0)
            grant = (await two.exchange(asks(1, share=0, waiting=50))).endpoints[0]
            assert grant.share == 1, "what it gains it takes later"
            while not grant.requests:
                grant = (await two.exchange(asks(1, share=1, waiting=50))).endpoints[0]
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_without_redis_from_the_start_the_configured_number_of_jobs_counts(server: RedisServer) -> None:
    """`redis.jobs` says how many parts there are."""
    server.kill()

    async def main() -> None:
        async with jobs(server, 1, {"jobs": 3}, concurrency=9) as (one,), jobs(server, 1, concurrency=9) as (alone,):
            one._since = -100.0
            assert (await one.exchange(asks(share=9, waiting=50))).endpoints[0].share == 3
            assert (await alone.exchange(asks(share=9, waiting=50))).endpoints[0].share == 9

    asyncio.run(main())


def test_workers_of_one_job_take_their_pace_from_redis(server: RedisServer) -> None:
    """A broker of the job's own divides concurrency and money, Redis requests and tokens."""

    async def main() -> None:
        async with jobs(server, 1, rpm=60) as (lease,):
            broker = Broker([SharedEndpoint(FixedLimit(7), 1000.0, None)], 1.0)

            async def own(report: Report) -> Grant:
                return broker.exchange("worker", report, asyncio.get_running_loop().time())

            both = paced_by_redis(lease, own)
            grant = (await both(asks(1, waiting=9))).endpoints[0]
            assert (grant.share, grant.requests) == (7, 1)

    asyncio.run(main())


def test_no_key_is_kept_in_redis(server: RedisServer) -> None:
    """Neither in names nor in values, nor anything it could be read from."""

    async def main() -> None:
        async with jobs(server, 1, concurrency=8, rpm=60, tpm=600) as (one,):
            await one.exchange(asks(1, 1))
        client = server.client()
        names: Any = client.keys("*")
        assert len(names) == 2
        seen = repr([(name, client.hgetall(name)) for name in names])
        assert KEY not in seen
        assert "a.test" not in seen
        assert all(client.ttl(name) > 0 for name in names)
        client.close()

    asyncio.run(main())
