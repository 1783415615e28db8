"""Teams' accounts, and the task that leases their money from the kept sums: a file, or Redis.

Nothing touches the sums before a team is first used, or `open` is called: a configuration with teams may be used by
other commands than `referee serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

from referee import clock
from referee.cache.redis_link import RedisLink, patient
from referee.config import Config
from referee.engine.admission import Admission
from referee.engine.redis_spend import RedisSpend
from referee.engine.spend_file import SpendFile
from referee.limits.account import Account, Claim, ClaimResult

log = logging.getLogger("referee.engine")

EXCHANGE_S = 0.02
"""Seconds between two exchanges at least: a file is synced to disk with each."""
RETRY_S = 0.2
"""After an exchange that granted nothing of what was needed."""
HEARTBEAT_S = 1.0
"""Seconds between two at most: money that is not needed is given back, and members know of each other."""
CLOSE_S = 1.5
"""For the last exchange: an interpreter that exits waits no more than 2 s for all of it."""
RAISE_S = 3 * HEARTBEAT_S
"""A larger part of a rate is used only after this: the other members must have come down to theirs."""


class SpendStore(Protocol):
    """Where the sums are kept."""

    shared: bool
    """Other members may change them, so that they are asked for also when there is nothing to tell."""

    async def exchange(self, claims: Sequence[Claim], wall: float) -> tuple[Sequence[ClaimResult], int]:
        """Record the claims and answer them; also how many members there are. Raises if that cannot be done."""

    async def close(self) -> None:
        """Nothing follows."""


class Accounts:
    """The accounts of all teams of one engine."""

    def __init__(self, gate: Admission, store: SpendStore) -> None:
        self._gate = gate
        self._store = store
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._alone_since: float | None = None
        self.members = 0
        """That share the rates, this one included; 0: not known yet."""
        self.trouble = ""
        """Why the sums cannot be reached; what is leased may still be spent."""
        gate.poke = self.poke

    def of(self, team: str) -> Account | None:
        """The account of a team."""
        return self._gate.accounts.get(team)

    def sent(self) -> dict[str, float]:
        """Requests sent for each team, by the name of the metric."""
        return {f"team/{name}/requests": float(account.sent) for name, account in self._gate.accounts.items()}

    def poke(self) -> None:
        """There is something to ask for."""
        self.open()
        self._wake.set()

    def open(self) -> None:
        """Begin to keep the sums, if that has not begun."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Tell what was spent, and give the rest back."""
        self._closed = True
        if self._task is not None:
            self._wake.set()
            with contextlib.suppress(TimeoutError):
                await clock.within(self._last(self._task), CLOSE_S)
            await self._store.close()

    async def _last(self, task: asyncio.Task[None]) -> None:
        await task  # first: an exchange under way would come after the last one
        await self._once()

    async def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            try:
                enough = await self._once()
            except Exception:  # a bug of ours: what waits for money must not wait for ever
                log.exception("leasing money for teams failed unexpectedly")
                enough = False
            await clock.sleep(EXCHANGE_S if enough else RETRY_S)
            try:
                await clock.within(self._wake.wait(), HEARTBEAT_S)
            except TimeoutError:
                continue

    async def _once(self) -> bool:
        """Tell and ask everything there is. False: what is needed was not granted."""
        wall = clock.wall()
        told = []
        for account in self._gate.accounts.values():
            busy = not self._closed and (account.in_flight > 0 or self._gate.queues.waiting(account.team.name))
            claims = account.claims(wall, busy)
            if self._store.shared or any(budget.untold(claim) for budget, claim in claims):
                told += claims
        if not told and self.members:
            return True
        try:
            answers, members = await self._store.exchange([claim for _, claim in told], wall)
        except Exception as error:
            self._failed(error)
            return False
        if self.trouble:
            self.trouble = ""
            log.warning("what teams have spent is kept again")
        before = 0
        for (budget, claim), given in zip(told, answers, strict=True):
            budget.answer(claim, given, before if claim.follows else 0)
            before = given.granted
        self._divide(members)
        self._gate.pump()
        return all(given.granted or not claim.least for (_, claim), given in zip(told, answers, strict=True))

    def _failed(self, error: Exception) -> None:
        if not self.trouble:
            log.warning(
                "what teams have spent cannot be kept (%s: %s). Teams with a budget may spend what is leased already, "
                "and nothing after that. Look at [redis] url or [serve] state.",
                type(error).__name__,
                error,
            )
        self.trouble = type(error).__name__

    def _divide(self, members: int) -> None:
        """Rates are divided evenly: a smaller part is used at once, a larger one when the others know of it."""
        now = clock.now()
        if members >= self.members and self.members:
            self._alone_since = None
        elif members > 1 or self.members:
            self._alone_since = now if self._alone_since is None else self._alone_since
            if self.members and now - self._alone_since < RAISE_S:
                return
        if members != self.members:
            self.members, self._alone_since = members, None
            for account in self._gate.accounts.values():
                account.divide(members, now)


def open_accounts(config: Config, gate: Admission) -> Accounts:
    """The accounts of a configuration's teams."""
    if not config.redis.url:
        return Accounts(gate, SpendFile(config.serve.state))
    without = "What teams have spent cannot be recorded there."
    return Accounts(gate, RedisSpend(RedisLink(patient(config.redis), without=without)))
