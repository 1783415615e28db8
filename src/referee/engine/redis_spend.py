"""What teams have spent, in Redis, shared by replicas. The script decides as `limits.account.grant` does.

For each team and period a hash with one field per member, which holds sums and not differences: an answer that was lost
is asked for again, and counts once. Redis that comes back empty is told the sums again by those members that know them.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from referee.cache import RedisLink
from referee.cache.redis_link import Unavailable, run_script
from referee.limits.account import ALIVE_S, LEAVE, Claim, ClaimResult

if TYPE_CHECKING:
    from redis.asyncio import Redis

SETTLE_S = 5.0
"""After Redis came back without its data: the time members have to tell their sums before anything is granted."""
ROOM = "#!lua flags=allow-oom\n"
"""Sums are recorded also where verdicts have filled the memory: else that would stop every team with a budget. From
Redis 7 on."""
KEEP_S = 400 * 86400
"""Hashes expire this long after the last report."""

CLAIM = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local me, number, alive, leave = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local settle, kept = tonumber(ARGV[5]), ARGV[6]
local members, before = 0, 0
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  if math.abs(now - tonumber(rows[i + 1])) > alive then
    redis.call('HDEL', KEYS[1], rows[i])
  elseif rows[i] ~= me then
    members = members + 1
  end
end
redis.call('HSET', KEYS[1], me, string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], kept)
local out = {members + 1}
for k = 2, #KEYS do
  local base = 6 + (k - 2) * 7
  local function arg(i) return tonumber(ARGV[base + i]) end
  local limit, spent, held, least, most, known = arg(1), arg(2), arg(3), arg(4), arg(5), arg(6)
  if arg(7) == 1 then held = held + before end
  local theirs, gone, others, pending, mine, stale, began = 0, 0, 0, false, false, false, 0
  local found = redis.call('HGETALL', KEYS[k])
  for i = 1, #found, 2 do
    if found[i] == 'gone' then
      theirs, others = theirs + tonumber(found[i + 1]), others + tonumber(found[i + 1])
      gone = gone + tonumber(found[i + 1])
    elseif found[i] == 'began' then
      began = tonumber(found[i + 1])
    else
      local n, seen, s, h = string.match(found[i + 1], '^(%S+) (%S+) (%S+) (%S+)$')
      n, seen, s, h = tonumber(n), tonumber(seen), tonumber(s), tonumber(h)
      if found[i] == me then
        mine, stale = true, n >= number
      elseif math.abs(now - seen) <= alive then
        theirs, others, pending = theirs + h, others + s, pending or h > s
      else
        theirs, others, gone = theirs + h, others + h, gone + h
      end
    end
  end
  if #found == 0 and known >= 0 and (known > 0 or members > 0) then
    theirs, others, gone, began = known, known, known, now
    redis.call('HSET', KEYS[k], 'gone', string.format('%.0f', known), 'began', string.format('%.6f', now))
  end
  local granted, final, free = 0, 0, math.max(0, limit - theirs - held)
  if not stale then
    if limit >= 0 and least > 0 then
      if math.abs(now - began) < settle then
        pending = true
      elseif free >= least then
        granted = math.min(free, most, math.max(least, math.floor(free / leave)))
      end
      if granted == 0 and not pending then final = 1 end
    end
    if mine or held > 0 or granted > 0 then
      redis.call('HSET', KEYS[k], me, string.format('%d %.6f %.0f %.0f', number, now, spent, held + granted))
      redis.call('PEXPIRE', KEYS[k], kept)
    end
  end
  before = granted
  out[k] = string.format('%.0f %.0f %d %.0f %.0f', granted, others, final, free - granted, gone)
end
return out
"""
"""KEYS the members, then a hash for each claim. ARGV: the member's name, the number of this report (a later one that
came first wins), ALIVE_S, LEAVE, SETTLE_S, KEEP_S in ms; for each claim: limit (-1: none), spent, held, least, most,
what members that are gone had spent when this one last looked (-1: it saw nothing there), and 1 where it holds what is
granted to the claim before it. Out: members; for each claim: granted, what others have spent, whether that is final,
what is left, what those that are gone have spent."""


class RedisSpend:
    """The sums in Redis, over a link of its own."""

    shared = True

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._member = secrets.token_hex(8)
        self._number = 0
        self._script = ROOM + CLAIM
        self._gone: dict[str, int] = {}
        """By name of a hash: what members that are gone had spent, where there was anything in it."""

    async def exchange(self, claims: Sequence[Claim], wall: float) -> tuple[Sequence[ClaimResult], int]:
        """Record the claims and answer them, in one script. Raises Unavailable."""
        self._number += 1
        prefix = f"{self._link.config.prefix}:t1"
        names = [f"{prefix}:{claim.team}:{claim.period}" for claim in claims]
        told: list[object] = [self._member, self._number, ALIVE_S, LEAVE, SETTLE_S, 1000 * KEEP_S]
        for name, claim in zip(names, claims, strict=True):
            limit = -1 if claim.limit is None else claim.limit
            told += [
                limit,
                claim.spent,
                claim.held,
                claim.least,
                claim.most,
                self._gone.get(name, -1),
                int(claim.follows),
            ]
        arguments = [str(item) for item in told]
        keys = [f"{prefix}:members", *names]
        members, *lines = await self._link.run(functools.partial(self._run, keys, arguments))
        answers = []
        for name, line, claim in zip(names, lines, claims, strict=True):
            granted, others, final, free, gone = map(int, line.split())
            answers.append(ClaimResult(granted, others, bool(final), free))
            if granted or others or claim.held:
                self._gone[name] = gone
        return answers, int(members)

    async def _run(self, keys: list[str], arguments: list[str], client: Redis) -> list[Any]:
        from redis.exceptions import ResponseError

        try:
            found: list[Any] = await run_script(self._script, keys, arguments, client)
        except ResponseError as error:
            if self._script == CLAIM or "compiling" not in str(error):
                raise
            self._script = CLAIM  # an earlier Redis, which knows no flags
            found = await run_script(self._script, keys, arguments, client)
        return found

    async def close(self) -> None:
        """Its part of the rates is the others' from now on."""
        with contextlib.suppress(Unavailable):
            await self._link.run(self._leave)
        await self._link.close()

    async def _leave(self, client: Redis) -> None:
        await client.hdel(f"{self._link.config.prefix}:t1:members", self._member)
