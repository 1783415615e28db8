"""What needs no server: settings, addresses, explanations, and how cache and lease behave with nobody there."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.contracts.cache_suite import entry, key

from redis import exceptions
from referee.cache import MemoryCache
from referee.cache.entry import bare, pack
from referee.cache.redis import RedisCache
from referee.cache.redis_link import Address, RedisLink, Unavailable, explain, parse
from referee.config import Config, RedisConfig, Secret, load
from referee.engine import Endpoint
from referee.engine.redis_lease import Meter, RedisLease, scope
from referee.errors import ConfigError
from referee.limits.quota_broker import EndpointReport, Hints, PaceReport, Report
from referee.sim import run_virtual

PASSWORD = "correct-horse"


class FakeLink(RedisLink):
    """Answers scripts from a function, or goes down."""

    def __init__(self, answer: Callable[[list[str]], Any] | None = None, **settings: Any) -> None:
        super().__init__(RedisConfig(url="redis://nowhere.test", **settings), {})
        self._answer = answer

    async def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        if self._answer is None:
            self.up = False
            self._tell()
            raise Unavailable
        await asyncio.sleep(0.001)
        keys = work.args[1] if hasattr(work, "args") else []
        return self._answer(keys)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("redis://h", Address("h", 6379, "", 0, None, None, False)),
        ("redis://h:7000/3", Address("h", 7000, "", 3, None, None, False)),
        ("rediss://me:p%40ss@h/", Address("h", 6379, "", 0, "me", "p@ss", True)),
        ("redis://:pw@[::1]:1", Address("::1", 1, "", 0, None, "pw", False)),
        ("unix:///run/redis.sock", Address("", 0, "/run/redis.sock", 0, None, None, False)),
    ],
)
def test_addresses(url: str, found: Address) -> None:
    """The parts of a url, unquoted."""
    assert load({"redis": {"url": url}}).redis.url == url
    assert parse(url) == found


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@h",
        f"redis://:{PASSWORD}@",
        f"redis://:{PASSWORD}@h:0",
        f"redis://:{PASSWORD}@h/name",
        f"redis://h?password={PASSWORD}",
        f"redis://:x/{PASSWORD}@h",
        f"redis://:x#{PASSWORD}@h",
        f"redis://:x?{PASSWORD}@h",
        "unix://",
        "h:6379",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    """The message names the setting and shows nothing secret."""
    with pytest.raises(ConfigError, match=r"redis\.url") as caught:
        load({"redis": {"url": url}})
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"prefix": ""}, "redis.prefix"),
        ({"prefix": "a b"}, "redis.prefix"),
        ({"prefix": "{a}"}, "redis.prefix"),
        ({"timeout": 0}, "redis.timeout"),
        ({"timeout": 61}, "redis.timeout"),
        ({"keep_days": -1}, "redis.keep_days"),
        ({"jobs": 0}, "redis.jobs"),
    ],
)
def test_values_out_of_range_are_refused(settings: dict[str, Any], setting: str) -> None:
    """With the name of the setting."""
    with pytest.raises(ConfigError) as caught:
        load({"redis": settings})
    assert caught.value.setting == setting


def test_unknown_keys_are_refused_and_the_environment_counts() -> None:
    """As everywhere in the configuration."""
    with pytest.raises(ConfigError, match="Did you mean `url`"):
        load({"redis": {"uri": "redis://h"}})
    assert load({}, {"REFEREE_REDIS_URL": "redis://h", "REFEREE_REDIS_TIMEOUT": "0.5"}).redis.timeout == 0.5


def test_a_password_in_the_url_does_not_show() -> None:
    """Not in repr, not in what is published, and not in the digest, which is the same for another password."""
    one = load({"redis": {"url": f"redis://me:{PASSWORD}@h/1"}})
    other = load({"redis": {"url": "redis://me:other@h/1"}})
    link = RedisLink(one.redis)
    for shown in (
        repr(one),
        repr(one.redis),
        repr(one.public()),
        repr(link),
        link.name,
        str(one.redis.__rich_repr__()),
    ):
        assert PASSWORD not in shown
    assert one.digest() == other.digest()


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A url without the client is a mistake to hear of at once."""
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r'pip install "llm-referee\[redis\]"'):
        RedisLink(RedisConfig(url="redis://h"))


@pytest.mark.parametrize(
    ("error", "about"),
    [
        (exceptions.AuthenticationError("invalid username-password pair"), "auth"),
        (exceptions.ResponseError("WRONGPASS invalid"), "auth"),
        (exceptions.NoPermissionError("no permissions to run evalsha"), "auth"),
        (exceptions.TimeoutError("late"), "away"),
        (TimeoutError(), "away"),
        (exceptions.BusyLoadingError("loading"), "away"),
        (ConnectionRefusedError(), "away"),
        (exceptions.OutOfMemoryError("full"), "full"),
        (exceptions.ResponseError(f"ERR unknown {PASSWORD}"), "refused"),
        (exceptions.ReadOnlyError("read only"), "refused"),
        (KeyError(PASSWORD), "internal"),
    ],
)
def test_every_trouble_has_a_name_and_a_sentence(error: Exception, about: str) -> None:
    """What the server said is not repeated: nobody knows what is in it."""
    found, text = explain(error, RedisConfig(url=f"redis://:{PASSWORD}@h"))
    assert found == about
    assert text.endswith(".")
    assert PASSWORD not in text


def test_a_link_that_is_down_costs_nothing() -> None:
    """No search begins, nothing is kept for later, and the local cache works as ever."""

    async def main() -> None:
        cache = RedisCache(MemoryCache(10), FakeLink())
        ended: list[object] = []
        assert cache.claim([key()], 10.0, ended.append) is not None
        await asyncio.sleep(0.01)
        assert ended == [None]
        assert cache.claim([key()], 10.0, ended.append) is None
        assert not cache.put(key(), entry())
        assert cache.get(key()) == bare(entry())
        assert not cache._writes
        await cache.finish()

    run_virtual(main())


def test_a_search_waits_for_others_until_patience_ends() -> None:
    """Somebody else is judging it: looked at again and again, more slowly, and given up in time."""
    looks: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def held(keys: list[str]) -> list[Any]:
            looks.append(loop.time())
            return [-1, b""] * (len(keys) // 2)

        cache = RedisCache(MemoryCache(10), FakeLink(held))
        future: asyncio.Future[Any] = loop.create_future()
        cache.claim([key()], 3.0, future.set_result)
        assert await future is None
        assert 3.0 <= loop.time() < 3.5
        assert not cache._waiting

    run_virtual(main())
    gaps = [b - a for a, b in itertools.pairwise(looks)]
    assert gaps[0] < 0.1
    assert max(gaps) < 0.3
    assert len(looks) < 20


def test_an_outage_ends_those_who_wait() -> None:
    """A link that goes down while searches wait for somebody else's verdict answers all of them."""

    async def main() -> None:
        link = FakeLink(lambda keys: [-1, b""] * (len(keys) // 2))
        cache = RedisCache(MemoryCache(10), link)
        ended: list[object] = []
        for n in range(5):
            cache.claim([key(n)], 100.0, ended.append)
        await asyncio.sleep(0.5)
        assert len(cache._waiting) + len(cache._asked) <= 5
        assert ended == []
        link._answer = None
        await asyncio.sleep(0.5)
        assert ended == [None] * 5

    run_virtual(main())


def test_what_is_found_is_kept_near() -> None:
    """The second look needs no Redis."""

    async def main() -> None:
        cache = RedisCache(MemoryCache(10), FakeLink(lambda keys: [1, pack(key(), entry())]))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        cache.claim([key()], 3.0, future.set_result)
        assert await future == (key(), bare(entry()))
        assert cache.get(key()) == bare(entry())

    run_virtual(main())


def lease(link: RedisLink, **limits: Any) -> RedisLease:
    config = load({"limits": limits, "redis": {"url": "redis://nowhere.test"}})
    return RedisLease(config, [endpoint(config, "k")], link, True)


def endpoint(config: Config, secret: str) -> Endpoint:
    return Endpoint(config.endpoint[0], config.limits, Secret(secret))


def test_a_lease_without_redis_is_an_even_part() -> None:
    """In a minute not more than the limit, and in flight not more than a part of it."""

    async def main() -> None:
        held = lease(FakeLink(), rpm=60, concurrency=6)
        held.jobs, held.rank = 4, 3
        granted, share = 0.0, 6
        for _ in range(600):
            told = EndpointReport(share=share, waiting=9, requests=PaceReport(least=1, most=9))
            grant = (await held.exchange(Report(endpoints=(told,)))).endpoints[0]
            granted += grant.requests
            assert grant.share is not None
            share = grant.share
            await asyncio.sleep(0.1)
        assert 13 <= granted <= 15
        assert share == 1

    run_virtual(main())


def test_meters_follow_the_servers_limit() -> None:
    """A lower limit in the headers counts for the pool in Redis; a higher one does not."""
    meter = Meter(6000)
    burst, rate = meter.shape(PaceReport(), 0.0)
    assert 98 < burst < 100
    assert 94 < rate < 100
    lower, _ = meter.shape(PaceReport(hints=Hints(600, 5, 1.0)), 1.0)
    assert lower == 10
    again, _ = meter.shape(PaceReport(hints=Hints(60_000, 5, 1.0)), 2.0)
    assert again == burst
    assert Meter(None).shape(PaceReport(), 0.0) == (0.0, 0.0)


@pytest.mark.parametrize("api", ["anthropic", "gemini", "responses", "chat"])
def test_a_scope_tells_keys_hosts_and_models_apart(api: str) -> None:
    """And says none of them. Keys are told apart whatever header an API has for them."""
    base = {"url": "https://a.test/v1", "model": "m", "key_env": "", "api": api}
    names = {
        scope(endpoint(load({"endpoint": base | more}), secret))
        for more, secret in [
            ({}, "k1"),
            ({}, "k2"),
            ({"model": "n"}, "k1"),
            ({"url": "https://b.test/v1"}, "k1"),
            ({"name": "only a label"}, "k1"),
        ]
    }
    assert len(names) == 4
    assert all(len(name) == 24 for name in names)
