"""One look at Redis, for `referee doctor`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from referee import clock
from referee.cache.redis_link import RedisLink, explain
from referee.config import RedisConfig

if TYPE_CHECKING:
    from redis.asyncio import Redis

TIMEOUT_S = 3.0
"""Longer than redis.timeout: a user waits for this answer."""


def examine(config: RedisConfig) -> tuple[bool, str]:
    """Whether it can be used, and a line about it. A wrong password variable raises, as it does when judging starts."""
    return asyncio.run(_examine(config))


async def _examine(config: RedisConfig) -> tuple[bool, str]:
    link = RedisLink(replace(config, timeout=TIMEOUT_S))
    shared = " and ".join(name for name, on in (("verdicts", config.cache), ("limits", config.limits)) if on)
    try:
        about, took = await link.look(_ask)
    except Exception as error:
        return False, f"redis {link.name}: {explain(error, link.config)[1]} Without it nothing is shared."
    finally:
        await link.close()
    policy = about.get("maxmemory_policy", "unknown")
    evicts = config.limits and policy not in ("noeviction", "unknown")
    hint = "; limits should live where nothing is evicted: maxmemory-policy noeviction" if evicts else ""
    return True, (
        f"redis {link.name}: version {about.get('redis_version', 'unknown')}, answers in {1e3 * took:.1f} ms, shares "
        f"{shared or 'nothing'} under {config.prefix!r}, memory policy {policy}{hint}"
    )


async def _ask(client: Redis) -> tuple[dict[str, str], float]:
    await client.ping()
    began = clock.monotonic()
    await client.eval("return 1", 0)  # type: ignore[misc,no-untyped-call,unused-ignore]
    took = clock.monotonic() - began
    return await client.info("server") | await client.info("memory"), took
