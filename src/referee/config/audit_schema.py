"""Settings of the audit, as in `schema`, and what goes together in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from referee.config.judge_schema import JudgeConfig
from referee.errors import Refuse

MAX_SHARE = 0.5
ACTIONS = "log, stop, or weight:0.5 (any number from 0 to below 1)"


class AuditConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Watches for reward hacking, see `referee docs audit`. Never part of a reward, never waited for."""

    enable: bool = False
    """Watch answers and scores, and ask the judge about answers whose worth is known. False: nothing of it."""
    share: float = 0.02
    """Of the run's judge requests, how many more the audit may make, beyond its first round; the same share of
    limits.budget_usd is set aside for it, and of the calls in flight it may add as many, but always one."""
    every: Annotated[int, Meta(ge=1)] = 20
    """Batches between two rounds of canaries. Rollouts that are submitted one by one count as a batch of 64."""
    shadow: str = ""
    """Name of a [[judge]] with weight = 0, best of another model family, that is asked about some of the live answers,
    more often about those with high scores. The audit alone asks it, not the run. Empty: none."""
    canaries: str = ""
    """JSONL file of your own canaries: `response`, `wrong` (true or false), and `prompt` and `reference` if they belong
    to one; without `prompt` the run's own prompts are used. Relative: to the TOML file that says so."""
    on_alarm: str = "log"
    """What a critical alarm does besides being told. log: nothing. stop: the next collect raises RewardHacked.
    weight:0.5: until it is over, the judge's part of the reward counts half in what is submitted then."""
    judge: tuple[JudgeConfig, ...] = field(default_factory=tuple)  # the shadow judge; filled in by `load`
    processes: int = field(default_factory=int)  # of one run, each with an audit, where there are several; by hooks

    @property
    def action(self) -> str:
        """log, stop or weight."""
        return self.on_alarm.partition(":")[0]

    @property
    def weighs(self) -> bool:
        """Whether batches may have different factors."""
        return self.enable and self.action == "weight"

    @property
    def factor(self) -> float:
        """On the judge's part of the reward, while a critical alarm is open."""
        return float(self.on_alarm.partition(":")[2]) if self.action == "weight" else 1.0


def take_shadow(
    judges: Sequence[JudgeConfig], audit: AuditConfig, refuse: Refuse
) -> tuple[tuple[JudgeConfig, ...], AuditConfig]:
    """The judges that the run asks, and the audit with the one that only it asks."""
    known = {judge.name for judge in audit.judge}
    if known - {audit.shadow}:
        raise refuse("audit.judge", "is not for you to set: name a judge in audit.shadow.")
    if not audit.shadow or known:
        return tuple(judges), audit
    found = next((judge for judge in judges if judge.name == audit.shadow), None)
    if found is None:
        raise refuse(
            "audit.shadow",
            f"no judge by itself is named {audit.shadow!r}. Write a [[judge]] of that name with weight = 0; it cannot "
            "be a member of another one.",
        )
    if found.weight != 0:
        raise refuse(
            "audit.shadow",
            f"judge {audit.shadow!r} has weight {found.weight:g}, and a shadow judge is no part of the reward: write "
            "weight = 0 into it.",
        )
    return tuple(judge for judge in judges if judge is not found), replace(audit, judge=(found,))


def check_audit(audit: AuditConfig, refuse: Refuse) -> None:
    """Raise what `refuse` makes of the first problem."""
    if not 0 < audit.share <= MAX_SHARE:
        raise refuse("audit.share", f"must be above 0 and at most {MAX_SHARE:g}, not {audit.share}.")
    try:
        factor = audit.factor
    except ValueError:
        factor = math.nan
    right = 0 <= factor < 1 if audit.action == "weight" else audit.on_alarm in ("log", "stop")
    if not right:
        raise refuse("audit.on_alarm", f"must be {ACTIONS}, not {audit.on_alarm!r}.")
