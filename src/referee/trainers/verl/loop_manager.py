"""RefereeRewardManager: verl's reward loop with a judge. Plugged in by config lines alone, see `referee docs verl`.

Judging starts the moment a rollout arrives. Where a reward depends on its siblings (length penalty, group mean), which
arrive in other processes, only the arithmetic waits for them. Only where a judge compares answers, judging starts with
the last sibling, in one of their workers. verl's own base class is not needed, so neither verl nor torch is imported
before a rollout comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import statistics
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from referee.config import AuditConfig, LengthConfig, MissingConfig
from referee.errors import ConfigError, RefereeError, UnscoredError
from referee.judging import needs_groups
from referee.records import Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.runtime.ray_group_actor import open_groups
from referee.runtime.ray_group_client import GroupClient
from referee.runtime.ray_group_coordinator import KEEP, SILENT
from referee.runtime.ray_judged_groups import End
from referee.shaping import shape_group, weighted
from referee.trainers.outcome import has_rubric, why
from referee.trainers.shared import Judged, Pending
from referee.trainers.verl.columns import columns_of, numeric, terms_filled, terms_given
from referee.trainers.verl.config import in_own_keys
from referee.trainers.verl.data import (
    Row,
    RuleFunction,
    default_rule,
    is_async,
    last_of,
    lengths_of,
    number_of,
    place,
    rows_of,
)
from referee.trainers.verl.legacy_keys import refuse_legacy_keys
from referee.trainers.verl.loop_groups import (
    UNJUDGED,
    packed_error,
    packed_outcome,
    packed_sample,
    recorded,
    unpacked_outcome,
    unpacked_samples,
)
from referee.trainers.verl.loop_settings import is_validation, loop_settings
from referee.trainers.verl.sharing import job_wide

log = logging.getLogger("referee.trainers")

Rewarded = tuple[Reward, float, dict[str, float], dict[str, Any]]
"""A reward, the number for verl, one of each of several judges, and what the rule said beside its score."""
Report = tuple[float | None, float, dict[str, float | None]]
"""What siblings are sent of a reward: its value, that without the judges, and what each of several judges said."""
NOTHING = Settled(verdict=Verdict(score=0.0, value=0.0, how="gate"), origin="none")


class RefereeRewardManager:
    """One per reward worker; all of them share one set of limits, one cache and one budget."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: RuleFunction | None = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        """As verl calls it. Old keys that verl would ignore are refused here."""
        refuse_legacy_keys(config)
        self.tokenizer = tokenizer
        self.compute_score = compute_score
        self.settings = settings = loop_settings(config)
        # Judging is the engine's; what depends on siblings in other processes is computed here.
        alone = replace(
            settings.config,
            shaping=replace(settings.config.shaping, length=LengthConfig()),
            missing=MissingConfig(abort_above=settings.config.missing.abort_above),
        )
        self._judged = Judged(job_wide(alone, settings.workers))
        self._complete = replace(settings.config, missing=MissingConfig())
        self._compares = settings.asks and needs_groups(settings.config.judge)
        if settings.workers > 1 and not self._compares:
            _refuse_weight(settings.config.audit)
        self._policy = self._chosen_policy()
        counted = [judge for judge in settings.config.judge if judge.weight != 0]
        # Rows may then have a reward and lack a judge's column, which is filled with its siblings' mean.
        optional = self._policy != "value" and len(counted) > 1 and any(judge.optional for judge in counted)
        self._meets = optional or self._policy == "group_mean"
        self._groups: GroupClient | None = None
        self._telling: set[asyncio.Task[Any]] = set()
        self._without_rule: set[str] = set()

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: Sequence[float]) -> Any:
        """Scores on the last valid token of each row."""
        return place(scores, lengths_of(data), data.batch["responses"])

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The reward of one rollout: {"reward_score", "reward_extra_info"}. Of several outputs the last one counts, and
        the judge may see all of them."""
        with in_own_keys() if self.settings.own_keys else contextlib.nullcontext():
            return await self._rewarded(data)

    async def _rewarded(self, data: Any) -> dict[str, Any]:
        row = last_of(rows_of(data, self.tokenizer, window=self.settings.response_length))
        member = row.session or uuid.uuid4().hex
        found = self._with_siblings(row, member) if self._compares else self._by_itself(row, member)
        reward, value, terms, extra = await found
        columns = columns_of(reward, value, terms, rubric=has_rubric(self.settings.config))
        return {"reward_score": value, "reward_extra_info": columns | numeric(extra, self.settings.rule_keys)}

    async def _by_itself(self, row: Row, member: str) -> Rewarded:
        """One rollout, judged at once; siblings are met for arithmetic only."""
        lengths = self._start(self._lengths(row, member)) if self.settings.config.shaping.length.enable else None
        rule, extra = await self._rule(row)
        sample = row.sample(self._judged if self.settings.asks else None, rule, member)
        pending: Pending | None = None
        try:
            if self.settings.asks:
                pending = await self._judged.asubmit([sample], shaped=False)
            nothing = (NOTHING,) * len(self.settings.config.judge)
            settled = (await pending)[0].judged if pending is not None else nothing
            factor = pending.weight if pending is not None else 1.0
            siblings = await lengths if lengths is not None else [row.length]
            if not siblings:
                settled = tuple(replace(end, verdict=self._late(row)) for end in settled)
            reward = self._shaped(sample, settled, siblings, factor)
        except BaseException:
            if lengths is not None:
                lengths.cancel()  # its report is out; siblings do not miss it
            raise
        final = reward
        try:
            value, terms = await self._value(row, member, reward)
            final = replace(reward, value=value, filled=self._policy if reward.value is None else "")
        finally:
            if pending is not None:
                pending.rewarded([final])
        return reward, value, terms, extra

    async def _with_siblings(self, row: Row, member: str) -> Rewarded:
        """One rollout, judged with its siblings in the worker of one of them."""
        settings = self.settings
        name, expected = self._group(row, "sample")
        try:
            rule, extra = await self._rule(row)
            sample = row.sample(self._judged, rule, member)
            text = packed_sample(sample, settings.config)
        except BaseException:
            if expected > 1:
                self._coordinator().gone(name, member, expected)
            raise
        judge = functools.partial(self._judge_group, row, expected)
        if expected <= 1:
            end = End((await judge({member: text}))[member])
        else:
            # Time for one worker to judge it, to be missed, and for another one to judge it.
            limit = 2 * (settings.config.limits.deadline + SILENT)
            end = await self._coordinator().judge(
                name, member, text, expected, judge, wait=settings.group_wait, limit=limit
            )
        if end.why:
            verdict = (
                self._late(row) if end.why == "late" else Unscored(reason=Reason.DEADLINE, detail=UNJUDGED[end.why])
            )
            reward = self._shaped(sample, (Settled(verdict=verdict),) * len(settings.config.judge), [row.length])
            return reward, *await self._value(row, member, reward), extra
        outcome = unpacked_outcome(end.data)
        if outcome.value is None:
            raise self._unscored(row, outcome.reward)
        return outcome.reward, outcome.value, outcome.terms, extra

    async def _judge_group(self, row: Row, expected: int, texts: Mapping[str, bytes]) -> dict[str, bytes]:
        """The outcomes of a whole group, on whichever loop. Siblings in other workers wait for them, so it does not
        raise; `row` is one of the group."""
        try:
            samples = unpacked_samples(texts)
            pending = await self._judged.asubmit(samples, shaped=False)
            ends = [reward.judged for reward in await pending]
            members = list(zip(range(len(samples)), samples, ends, strict=True))
            rewards = shape_group(members, weighted(self._complete, pending.weight))
            reports = [_report(reward) for reward in rewards]
            outcomes = [(reward, *self._final(reward, reports)) for reward in rewards]
            pending.rewarded([recorded(reward, value, self._policy) for reward, value, _ in outcomes])
            if len(samples) < expected and self._meets:
                for sample, one in zip(samples, reports, strict=True):  # for those that come too late
                    self._coordinator().tell(self._group(row, "reward")[0], sample.id, one, expected)
            return {reward.id: packed_outcome(reward, value, terms) for reward, value, terms in outcomes}
        except Exception as error:
            if not isinstance(error, RefereeError):
                log.exception("judging a group failed")
            return dict.fromkeys(texts, packed_error(error))

    def __repr__(self) -> str:
        return f"RefereeRewardManager({self._judged!r}, {self._policy} where there is no score)"

    async def _rule(self, row: Row) -> tuple[float, dict[str, Any]]:
        if not self.settings.rule:
            return 0.0, {}
        rule = self.compute_score or default_rule()
        try:
            if is_async(rule):
                return number_of(await rule(**row.arguments()))
            return number_of(await asyncio.to_thread(rule, **row.arguments()))
        except NotImplementedError:
            source = str(row.data_source)
            if source not in self._without_rule:
                self._without_rule.add(source)
                log.warning("no rule for data source %r: its reward is the judge's alone", source)
            return 0.0, {}

    def _shaped(
        self, sample: Sample, settled: tuple[Settled, ...], lengths: Sequence[int], factor: float = 1.0
    ) -> Reward:
        """The reward with its group's median; siblings are there by their lengths only. `factor`: the audit's."""
        config = weighted(self._complete, factor)
        others = list(lengths)
        if sample.length in others:
            others.remove(sample.length)
        nothing = (NOTHING,) * len(config.judge)
        siblings = [(0, Sample(prompt="", response="", length=length), nothing) for length in others]
        return shape_group([(0, sample, settled), *siblings], config)[0]

    async def _value(self, row: Row, member: str, reward: Reward) -> tuple[float, dict[str, float]]:
        """The number for verl, and one of each of several judges; or UnscoredError, which verl's V1 trainer takes for
        "leave this prompt out". Only a row that lacks one waits for its siblings."""
        report = _report(reward)
        found = [report]
        if self._meets:
            lacks = None in report[2].values() if reward.value is not None else self._policy == "group_mean"
            if lacks:
                found = await self._meet(row, member, "reward", report) or [report]
            else:
                name, expected = self._group(row, "reward")
                if expected > 1:
                    self._coordinator().tell(name, member, report, expected)
        value, terms = self._final(reward, found)
        if value is None:
            raise self._unscored(row, reward)
        return value, terms

    def _final(self, reward: Reward, found: Sequence[Report]) -> tuple[float | None, dict[str, float]]:
        """The same, given what siblings report; None where there is no number."""
        value = self._filled(found) if reward.value is None else reward.value
        return value, terms_filled(_report(reward)[2], [terms for _, _, terms in found], self.settings.config.missing)

    def _filled(self, found: Sequence[Report]) -> float | None:
        """What the policy puts in place of a reward."""
        if self._policy == "value" and self.settings.config.missing.value is not None:
            return self.settings.config.missing.value
        values = [value for value, _, _ in found if value is not None]
        if self._policy == "group_mean" and values:
            return statistics.fmean(values)
        if self._policy != "group_mean" or self.settings.drops_groups:
            return None
        return statistics.fmean([bare for _, bare, _ in found])  # one number for all: the group teaches nothing

    async def _lengths(self, row: Row, member: str) -> list[int]:
        return [int(length) for length in await self._meet(row, member, "length", row.length)]

    async def _meet(self, row: Row, member: str, what: str, value: Any) -> list[Any]:
        """What all siblings report; this one's own alone where it has no group; nothing if it comes after its group's
        values were given out."""
        name, expected = self._group(row, what)
        if expected <= 1:
            return [value]
        found = await self._coordinator().meet(name, member, value, expected, self.settings.group_wait)
        return [] if found.late else list(found.values.values())

    def _group(self, row: Row, what: str) -> tuple[str, int]:
        """The name under which siblings meet, and how many there are. uids alone may repeat from step to step."""
        settings = self.settings
        expected = settings.validation_siblings if is_validation(row.extra_info) else settings.siblings
        name = f"{what}/{settings.config.digest()}/{'' if row.step is None else row.step}/{row.uid}"
        return name, expected if row.uid else 1

    def _coordinator(self) -> GroupClient:
        if self._groups is None:
            self._groups = open_groups(keep=max(KEEP, 2 * self.settings.group_wait))
        return self._groups

    def _late(self, row: Row) -> Unscored:
        """Why there is no reward: its siblings were compared without it. Shaped alone, its length penalty would be 0,
        and the rollout that comes last is often the longest."""
        wait = self.settings.group_wait
        log.warning(
            "a rollout of prompt %s came after its siblings, which waited %g s for it, were given their rewards: they "
            "were compared without it, so it counts as not scored. Raise +reward.referee.group_wait if rollouts take "
            "longer",
            row.uid,
            wait,
        )
        detail = f"its siblings were given their rewards without it, after group_wait = {wait:g} s"
        return Unscored(reason=Reason.DEADLINE, detail=detail)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._telling.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.debug("a report to siblings failed: %s", task.exception())

    def _chosen_policy(self) -> str:
        policy = self.settings.config.missing.policy
        if policy == "abstain" and not self.settings.drops_groups:
            log.warning(
                "this verl trainer stops at a missing reward, so [missing] policy = abstain is taken as group_mean: a "
                "rollout without a score gets the mean of its siblings. trainer.use_v1=true leaves such prompts out"
            )
            return "group_mean"
        return policy

    def _unscored(self, row: Row, reward: Reward) -> UnscoredError:
        return UnscoredError(
            f"rollout {row.session or '?'} of prompt {row.uid or '?'} was not scored ({why(reward)}), so it has no "
            "reward. verl's V1 trainer leaves the prompt out of the step, or replaces it with "
            "trainer.v1.sampler.sync_refill_failed_groups=True. To train on a number instead, set [missing] policy to "
            "group_mean or value in referee.toml."
        )


def _report(reward: Reward) -> Report:
    return reward.value, reward.rule - reward.penalty, terms_given(reward)


def _refuse_weight(audit: AuditConfig) -> None:
    """Each worker sees its own rollouts, and its alarm would weigh these alone: siblings would not compare."""
    if audit.weighs:
        raise ConfigError(
            f'[audit] on_alarm = "{audit.on_alarm}": the rollouts of a prompt are judged in several reward workers, '
            'each with an audit of its own, and would be weighed differently. Set on_alarm to "log" or "stop", or '
            "reward.num_workers to 1.",
            setting="audit.on_alarm",
        )
