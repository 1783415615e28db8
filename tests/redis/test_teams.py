"""What teams have spent, kept in Redis: replicas share a budget and a rate, and the script decides as the file does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.limits.test_account import NOON, Kept, team
from tests.redis.server import RedisServer

from referee import clock
from referee.cache import RedisLink
from referee.cache.redis_link import Unavailable
from referee.config import RedisConfig, load
from referee.engine.redis_spend import RedisSpend
from referee.limits.account import Account, Claim
from referee.limits.budget import nano
from referee.records import Sample
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import Provider, ProviderSpec, SimTransport

DAY = "2026-11-18"
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 40, 333, 5000]), st.booleans(), st.booleans()), max_size=25
)


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def exchange(book: RedisSpend, account: Account, busy: bool = True) -> None:
    """One member tells everything."""
    claims = account.claims(NOON, busy)
    answers, _ = await book.exchange([claim for _, claim in claims], NOON)
    for (budget, claim), answer in zip(claims, answers, strict=True):
        budget.answer(claim, answer)


@given(STEPS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_script_decides_as_the_file_does(server: RedisServer, steps: list[tuple[int, int, bool, bool]]) -> None:
    """The same reports of the same members get the same answers."""

    async def main() -> None:
        server.client().flushall()
        link = RedisLink(RedisConfig(url=server.url, timeout=5.0))
        books, kept = [RedisSpend(link) for _ in range(3)], Kept()
        accounts = [Account(team(0.000_01)) for _ in range(3)]
        for who, worst, settled, busy in steps:
            account = accounts[who]
            hold = account.reserve(worst / 1e9, NOON) if worst else None
            for budget in hold if hold is not None and settled else ():
                budget.settle(worst / 1e9, worst / 2e9)
            (day, of_day), (month, of_month) = account.claims(NOON, busy)
            found, _ = await books[who].exchange([of_day, of_month], NOON)
            granted = kept.tell(str(who), of_day, NOON)
            assert found == [granted, kept.tell(str(who), of_month, NOON, granted.granted)]
            day.answer(of_day, found[0])
            month.answer(of_month, found[1])
            for name in (DAY, DAY[:7]):
                rows = server.client().hvals(f"referee:t1:math:{name}")
                assert sum(int(row.split()[3]) for row in rows) == kept.held(name)
        await link.close()

    play(main())


def test_replicas_spend_a_budget_together_to_the_nano_dollar(server: RedisServer) -> None:
    """Whatever each has leased is given back in the end, and nothing passes the limit."""

    async def main() -> None:
        link = RedisLink(RedisConfig(url=server.url, timeout=5.0))
        books = [RedisSpend(link) for _ in range(4)]
        accounts = [Account(team(0.01)) for _ in books]
        spent, rng, refused = 0, random.Random(1), 0
        while refused < 40:
            who = rng.randrange(4)
            hold = accounts[who].reserve(0.000_07, NOON)
            if hold is None:
                refused += 1
                await exchange(books[who], accounts[who])
                continue
            refused = 0
            for budget in hold:
                budget.settle(0.000_07, 0.000_05)
            spent += nano(0.000_05)
            if rng.random() < 0.1:
                await exchange(books[who], accounts[who], busy=False)
        assert nano(0.01) - nano(0.000_07) < spent <= nano(0.01)
        for book, account in zip(books, accounts, strict=True):
            await exchange(book, account, busy=False)
        held = sum(int(row.split()[3]) for row in server.client().hgetall(f"referee:t1:math:{DAY}").values())
        assert held == spent
        await link.close()

    play(main())


def test_an_answer_that_was_lost_and_a_report_that_comes_late_count_once(server: RedisServer) -> None:
    """Sums are told, not differences, and the later report wins."""

    async def main() -> None:
        link = RedisLink(RedisConfig(url=server.url, timeout=5.0))
        book, other = RedisSpend(link), RedisSpend(link)
        claim = Claim("math", DAY, 1000, spent=10, held=100, least=50, most=500)
        await book.exchange([claim], NOON)  # as if the answer never came
        (found,), _ = await book.exchange([claim], NOON)
        assert found.granted == 225
        await book.exchange([Claim("math", DAY, 1000, spent=400, held=400)], NOON)
        book._number = 0
        await book.exchange([claim], NOON)  # the first one, once more, and late
        (seen,), members = await other.exchange([Claim("math", DAY, 1000)], NOON)
        assert (seen.others, seen.free, members) == (400, 600, 2)
        await link.close()

    play(main())


def test_sums_are_there_again_after_redis_lost_them(server: RedisServer) -> None:
    """Those of members that are gone are told by one that has seen them; nothing is granted before all could tell."""

    async def main() -> None:
        link = RedisLink(RedisConfig(url=server.url, timeout=5.0))
        gone, one, two = (RedisSpend(link) for _ in range(3))
        await gone.exchange([Claim("math", DAY, 1000, spent=300, held=320)], NOON)
        key = f"referee:t1:math:{DAY}"
        row = server.client().hget(key, gone._member).split()
        row[1] = b"1.0"  # it has not reported for long
        server.client().hset(key, gone._member, b" ".join(row))
        await two.exchange([Claim("math", DAY, 1000, spent=50, held=60)], NOON)
        (seen,), _ = await one.exchange([Claim("math", DAY, 1000, spent=200, held=200)], NOON)
        assert seen.others == 370
        server.client().flushall()
        await two.exchange([], NOON)
        (seen,), _ = await one.exchange([Claim("math", DAY, 1000, 200, 200, least=10, most=10)], NOON)
        assert (seen.granted, seen.others, seen.final) == (0, 320, False)
        (seen,), _ = await two.exchange([Claim("math", DAY, 1000, 50, 60)], NOON)
        assert (seen.others, seen.free) == (520, 420)
        await link.close()

    play(main())


def scorer_for(server: RedisServer, transport: SimTransport, redis: Mapping[str, Any] = {}, **bounds: Any) -> Scorer:
    """A replica with one team."""
    config = load(
        {
            "endpoint": {"url": "http://a.test/v1", "model": "m", "key_env": "", "price_in": 10.0, "price_out": 10.0},
            "cache": {"path": ""},
            "judge": {"max_tokens": 64},
            "redis": {"url": server.url, "timeout": 5.0, "cache": False, **redis},
            "team": [{"name": "math", "token_env": "T", **bounds}],
            "limits": {"concurrency": 4},
        }
    )
    return build_scorer(config, transport, random.Random(1), b"secret")


async def judge(scorer: Scorer, name: str, count: int, seconds: float = 30.0) -> dict[str, int]:
    """What became of a team's samples."""
    found: dict[str, int] = {}

    def deliver(landed: list[Any], error: Any, done: bool) -> None:
        for reward in landed:
            end = "scored" if reward.scored else str(reward.verdict.reason)
            found[end] = found.get(end, 0) + 1

    given = [Sample(prompt="p", response=f"[[quality=5]] {name} {n}") for n in range(count)]
    batch = Batch(name, given, scorer._config, seconds, deliver)
    batch.team = "math"
    await scorer.run(batch)
    return found


def test_two_replicas_hold_one_budget(server: RedisServer) -> None:
    """Both at once spend no more than the budget, and the sums are what the provider billed."""

    async def main() -> None:
        provider = Provider(ProviderSpec(latency_median=0.005), 1)
        replicas = [scorer_for(server, SimTransport(provider), budget_usd_day=0.5) for _ in range(2)]
        ends = await asyncio.gather(*(judge(replica, str(n), 90) for n, replica in enumerate(replicas)))
        assert all("budget" in end for end in ends)
        scored = sum(end.get("scored", 0) for end in ends)
        assert 0 < scored < 180
        for replica in replicas:
            await replica.aclose()
        stats = provider.stats()
        billed = (stats.tokens_in + stats.tokens_out) * 10_000
        rows = next(
            server.client().hgetall(key) for key in server.client().keys("referee:t1:math:*") if key.count(b"-") == 2
        )
        assert sum(int(row.split()[3]) for row in rows.values()) == billed <= nano(0.5)

    play(main())


def test_without_redis_nothing_is_spent_beyond_what_is_leased(start_redis: Callable[..., RedisServer]) -> None:
    """A team's samples wait for it; back again, they are judged."""

    async def main() -> None:
        server = start_redis()
        transport = SimTransport(Provider(ProviderSpec(latency_median=0.005), 1))
        replica = scorer_for(server, transport, budget_usd_day=5.0)
        assert await judge(replica, "a", 4) == {"scored": 4}
        await clock.sleep(1.3)  # a heartbeat gives the rest of the lease back
        server.kill()
        assert await judge(replica, "b", 4, seconds=1.0) == {"deadline": 4}
        accounts = replica.accounts
        assert accounts is not None
        assert accounts.trouble
        server.start()
        assert await judge(replica, "c", 4) == {"scored": 4}
        assert not accounts.trouble
        await replica.aclose()

    play(main())


def test_a_slow_redis_stops_no_team(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """No caller waits for the sums, so an answer may take longer than `redis.timeout`, which is for verdicts."""

    async def main() -> None:
        transport = SimTransport(Provider(ProviderSpec(latency_median=0.005), 1))
        replica = scorer_for(server, transport, {"timeout": 0.05}, budget_usd_day=5.0)
        assert await judge(replica, "a", 4) == {"scored": 4}
        await clock.sleep(1.3)  # a heartbeat gives the rest of the lease back
        server.freeze()
        asyncio.get_running_loop().call_later(0.3, server.thaw)
        assert await judge(replica, "b", 4) == {"scored": 4}
        await replica.aclose()

    play(main())
    assert "what teams have spent cannot be kept" not in caplog.text


def test_a_memory_that_verdicts_have_filled_stops_no_team(server: RedisServer) -> None:
    """The sums are a few bytes, and are recorded all the same."""

    async def main() -> None:
        link = RedisLink(RedisConfig(url=server.url))
        book, account = RedisSpend(link), Account(team(1.0))
        await exchange(book, account)
        server.client().config_set("maxmemory", "1")
        assert account.reserve(0.5, NOON) is None
        await exchange(book, account)
        assert account.reserve(0.5, NOON) is not None
        await link.close()

    play(main())


def test_a_redis_that_knows_no_flags_is_told_without_them(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before version 7 a script that begins with them does not compile."""
    monkeypatch.setattr("referee.engine.redis_spend.ROOM", "#lua flags=allow-oom\n")

    async def main() -> None:
        link = RedisLink(RedisConfig(url=server.url))
        book, account = RedisSpend(link), Account(team(1.0))
        await exchange(book, account)
        account.reserve(0.5, NOON)
        await exchange(book, account)
        assert account.reserve(0.5, NOON) is not None
        await link.close()

    play(main())


def test_an_unreachable_book_raises(server: RedisServer) -> None:
    """Whoever asks must know that nothing was recorded."""

    async def main() -> None:
        link = RedisLink(RedisConfig(url=server.url, timeout=0.3))
        server.kill()
        with pytest.raises(Unavailable, match="does not answer"):
            await RedisSpend(link).exchange([Claim("math", DAY, 1000)], NOON)
        await link.close()

    play(main())
