"""Teams inside the service: what the judges of each read, what each may spend, and what a spent budget is answered."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from msgspec.structs import replace

from referee import clock
from referee.config import JudgeConfig, chosen_judges
from referee.errors import InputError
from referee.limits.account import Account, PeriodBudget
from referee.records import Reason, Reward, Unscored, Verdict
from referee.referee import Referee
from referee.rollouts import Polarity
from referee.scoring.build import columns_shown, rubric_polarity
from referee.server.refusals import LATER, Refusal, refusal_of
from referee.server.tokens import Caller

log = logging.getLogger("referee.server")

OPERATOR = Caller()


class Reads(NamedTuple):
    """What some judges are shown of samples."""

    judges: Sequence[JudgeConfig]
    columns: Sequence[str]
    """Columns that their templates show, and every sample must have."""
    polarity: Polarity | None
    """How rubrics of samples are read; None: there is no judge for them."""


class Teams:
    """The teams of one Referee. Without any, all callers are the operator."""

    def __init__(self, referee: Referee, before: Teams | None = None) -> None:
        """`before`: those of the configuration before a reload."""
        self.names = [team.name for team in referee.config.team]
        self.accounts = referee.open_accounts() if self.names else None
        self.refused: Counter[tuple[str, str]] = Counter() if before is None else before.refused
        """Requests that were answered 429, by team and why."""
        self._said: dict[tuple[str, str], str] = {} if before is None else before._said
        """Of which day or month the log has said that a team's budget is spent."""
        self._config = referee.config
        self._reads: dict[tuple[str, ...], Reads] = {}
        self.reads(OPERATOR)  # a mistake in a judge is told at the start

    def account(self, team: str) -> Account | None:
        """What a team may spend."""
        return None if self.accounts is None else self.accounts.of(team)

    def reads(self, caller: Caller) -> Reads:
        """What the judges of a caller are shown of its samples."""
        found = self._reads.get(caller.judges)
        if found is None:
            try:
                config = replace(self._config, judge=chosen_judges(self._config.judge, caller.judges))
            except InputError as error:  # the configuration was read again since the caller came
                raise refusal_of(error) from None
            found = self._reads[caller.judges] = Reads(config.judge, columns_shown(config), rubric_polarity(config))
        return found

    def lacking(self, caller: Caller) -> PeriodBudget | None:
        """The day or month whose money the caller's team has spent."""
        account = self.account(caller.team)
        return None if account is None else account.lacking(clock.wall())

    def spent(self) -> list[str]:
        """The teams whose budget of this day or month is spent."""
        return [name for name in self.names if self.lacking(Caller(team=name)) is not None]

    def check(self, caller: Caller) -> None:
        """Refuse where it is not known what the caller's team may spend."""
        account = self.account(caller.team)
        if account is None or self.accounts is None or not self.accounts.trouble or not account.stuck(clock.wall()):
            return
        raise Refusal(
            503,
            "state",
            f"What team {caller.team!r} has spent cannot be looked up ([redis] url or [serve] state; the log of the "
            "service says more), so nothing may be spent. Try again.",
            LATER,
        )

    def refuse_spent(self, caller: Caller, rewards: Sequence[Reward]) -> None:
        """Refuse where samples have no verdict because the caller's team has spent its budget, or because they waited
        in vain to learn what it may spend."""
        if any(isinstance(reward.verdict, Unscored) and reward.verdict.reason is Reason.DEADLINE for reward in rewards):
            self.check(caller)
        budget = self.lacking(caller)
        if budget is None or not any(unpaid(reward.verdict) for reward in rewards):
            return
        self.refused[caller.team, "budget"] += 1
        period = budget.period
        if self._said.get((caller.team, period.kind)) != period.name:
            self._said[caller.team, period.kind] = period.name
            log.warning(
                "team %s has spent $%.6g of its budget_usd_%s = %g in %s: its requests are answered 429 until the next "
                "%s, but for what is cached",
                caller.team,
                budget.total_spent,
                period.kind,
                budget.limit_usd,
                period.name,
                period.kind,
            )
        raise Refusal(
            429,
            "budget",
            f"Team {caller.team!r} has spent ${budget.total_spent:.6g} of its budget_usd_{period.kind} = "
            f"{budget.limit_usd:g} in {period.name} (UTC), and another request could pass it. What is cached is still "
            f"answered; the rest was not judged. Retry-After is the next {period.kind}.",
            max(1, math.ceil(period.ends - clock.wall())),
        )


def unpaid(verdict: Verdict | Unscored) -> TypeGuard[Unscored]:
    """Whether there is no verdict because a budget is spent."""
    return isinstance(verdict, Unscored) and verdict.reason is Reason.BUDGET


def of_team(detail: str, team: str) -> bool:
    """Whether an unpaid verdict tells of this team's own budget: the others go on. What the team has now does not say
    so: a new day may have begun since."""
    return bool(team) and f"team {team}: budget_usd_" in detail
