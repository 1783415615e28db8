"""TRL: a reward function for GRPOTrainer, RLOOTrainer and AsyncGRPOTrainer, TRL 0.27 to 1.16.

    GRPOTrainer(reward_funcs=[reward_func("referee.toml")], …)

or, with several judges, a function for each of them that share one batch: `reward_funcs`.
Judge, length penalty and missing policy are one function on purpose: TRL masks a row only if every function says
None, so a penalty beside the judge would turn "not scored" into "scored 0".
"""

from __future__ import annotations

import base64
import functools
import importlib.metadata
import logging
import os
import re
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from referee.config import load
from referee.errors import ConfigError
from referee.records import Reward, Sample, Settled, Unscored, Verdict
from referee.scoring.batch import depends_on_siblings
from referee.trainers.outcome import has_rubric, rubric_of, values
from referee.trainers.shared import Judged, Pending, Source
from referee.trainers.siblings import spread_over_ranks
from referee.trainers.trl_attach import Attached, attach
from referee.trainers.trl_batch import end_tokens, group_size, is_training, samples_of, trainer_of
from referee.trainers.trl_ranks import SpreadBatch
from referee.trainers.trl_terms import (
    OpenBatches,
    RewardFunctions,
    counted_judges,
    refuse_whole_reward_settings,
    term_values,
)

__all__ = ["Attached", "RewardFunction", "RewardFunctions", "attach", "reward_func", "reward_funcs"]

log = logging.getLogger("referee.trainers")

AUDIT = ("audit/alarms", "audit/open", "audit/asked", "audit/cost_usd")
"""What TRL logs of the audit: the names that all ranks have at all times."""

RewardFunction = Callable[..., Any]
"""(prompts, completions, completion_ids, **columns) -> list[float | None], or a coroutine of it."""
Call = tuple[Sequence[Any], Sequence[Any], Any, Mapping[str, Any]]
"""Prompts, completions, their token ids and the columns, as TRL calls a reward function."""
MASKS_NONE = (1, 6)
"""First TRL release in which None leaves a row out; before, it counted as 0.0."""
EARLY = 4
"""Batches submitted ahead of their reward call that are kept; older ones were abandoned by their trainer."""
WHOLE_TRAINING = (
    "Make per_device_train_batch_size * steps_per_generation a multiple of num_generations; a larger "
    "steps_per_generation takes no memory on the device."
)
WHOLE_EVALUATION = "Make per_device_eval_batch_size a multiple of num_generations_eval."
GATHERED = "Or use reward_func(config), not asynchronous: it gathers groups over ranks."
UNSEEN = (
    "this TRL release does not tell a reward function its groups, and there are several ranks: a group that is spread "
    f"over them would be judged in parts, unnoticed. {WHOLE_TRAINING} With attach(trainer), or TRL 1.0 and newer, this "
    "is checked"
)
PREFIX = "judge_"
TERM = "term_"
NAME = "referee"


def reward_func(
    config: Source, *, name: str = NAME, is_async: bool = False, log_details: bool = True
) -> RewardFunction:
    """A plain function, named and picklable, for `reward_funcs`.

    `name` shows in TRL's metrics (rewards/<name>/mean, <name>/wait_s): two functions of one trainer need two names.
    `is_async` gives an `async def`, which TRL runs together with other asynchronous functions; AsyncGRPO wants it.
    `log_details` sends metrics and columns where TRL takes them.
    """
    return _function(TrlReward(Judged(config), name, is_async, log_details))


def reward_funcs(
    config: Source, *, name: str = NAME, is_async: bool = False, log_details: bool = True
) -> RewardFunctions:
    """A function for each judge that counts, named after it; nothing is judged twice.

    Each gives its judge's number without its weight: pass `reward_weights=funcs.weights`. `name`: for the metrics of
    all of them together. The length penalty and [missing] policy = "value" are refused; they need `reward_func`.
    """
    terms = _shared(TrlTerms(Judged(config), name, is_async, log_details))
    return RewardFunctions([_function(terms, number) for number in range(len(terms.judges))], terms.weights)


class TrlReward:
    """What stands behind the function: TRL's batch to samples, rewards to TRL's list."""

    def __init__(self, judged: Judged, name: str, is_async: bool, log_details: bool) -> None:
        if not name.isidentifier():
            raise ConfigError(f"name = {name!r}: TRL builds metric names from it; use letters, digits and _.")
        self.judged = judged
        self.name = name
        self.is_async = is_async
        self.log_details = log_details
        self._trainer: Callable[[], Any] = lambda: None
        self._early: deque[Pending] = deque()
        self._said: set[str] = set()

    def know(self, trainer: Any) -> None:
        """The trainer whose batches come next. Not kept alive: functions outlive trainers and their models."""
        self._trainer = weakref.ref(trainer)

    def begin(self, call: Call) -> None:
        """Start judging a batch whose reward will be asked for later, with the same arguments."""
        if self._gathers(len(call[0]), trainer_of(call[-1], self._trainer())):
            return  # collective calls belong where TRL makes its own
        while len(self._early) >= EARLY:
            self._early.popleft().cancel()
            self._warn(
                "batches begun by attach are not the ones TRL asks rewards for. Rewards are right, but answers may be "
                "judged, and paid for, twice: leave attach out for this trainer"
            )
        self._early.append(self.judged.submit(self._samples(call)))

    @property
    def begun(self) -> int:
        """Batches begun and not asked for yet."""
        return len(self._early)

    def abandon(self) -> None:
        """Stop what was begun and not asked for."""
        while self._early:
            self._early.popleft().cancel()

    def rewards(self, number: int, call: Call) -> list[float | None]:
        """What one of the functions returns to TRL, waiting in this thread."""
        pending, first = self.batch(number, call)
        return self._finish(number, pending.result(), pending, first, call[-1])

    async def arewards(self, number: int, call: Call) -> list[float | None]:
        """The same on an event loop."""
        pending, first = self.batch(number, call)
        assert not isinstance(pending, SpreadBatch)
        return self._finish(number, await pending, pending, first, call[-1])

    def function_name(self, number: int) -> str:
        """The name of one of the functions, for TRL."""
        return self.name

    def encoded(self, number: int = 0) -> str:
        """Everything needed to make one of the functions again, as an identifier; keys are never part of it."""
        for endpoint in self.judged.config.endpoint:
            if endpoint.api_key is not None or "@" in endpoint.proxy:
                return "not_picklable_with_a_key_inside_the_config__name_its_place_with_key_env_or_key_file"
        parts = (self.judged.config.public(), self.name, self.is_async, self.log_details)
        packed = base64.b32encode(zlib.compress(msgspec.json.encode(parts), 9))
        return self._prefix(number) + packed.decode().rstrip("=")

    def _prefix(self, number: int) -> str:
        return PREFIX

    def batch(self, number: int, call: Call) -> tuple[Pending | SpreadBatch, bool]:
        """The batch a function is asked about, and whether it is the first one that is: the one begun earlier if it is
        exactly this one, else a new one."""
        rows, trainer = len(call[0]), trainer_of(call[-1], self._trainer())
        if self._gathers(rows, trainer):
            read = functools.partial(self._samples, call)
            return SpreadBatch(self.judged, read, trainer.accelerator.process_index, group_size(trainer) or 1), True
        return self._submitted(tuple(self._samples(call))), True

    def _numbers(self, number: int, rewards: list[Reward], pending: Pending | SpreadBatch) -> list[float | None]:
        return values(rewards)

    def _gathers(self, rows: int, trainer: Any) -> bool:
        """Whether groups that are spread over ranks are gathered. Not of asynchronous functions: TRL runs several of
        them at once, and ranks would make their collective calls in different orders."""
        return not self.is_async and _spread(rows, trainer) and depends_on_siblings(self.judged.config)

    def _submitted(self, samples: tuple[Sample, ...]) -> Pending:
        for early in self._early:
            if early.samples == samples:
                self._early.remove(early)
                return early
        return self.judged.submit(samples)

    def _finish(
        self,
        number: int,
        rewards: list[Reward],
        pending: Pending | SpreadBatch,
        first: bool,
        columns: Mapping[str, Any],
    ) -> list[float | None]:
        """TRL's list for a function; the first one sends the metrics of all."""
        if first and self.log_details and rewards:
            _report(self.name, rewards, pending.waited_s, columns, has_rubric(self.judged.config))
            if self.judged.config.audit.enable and callable(log_metric := columns.get("log_metric")):
                counts = self.judged.referee.metrics()
                for name in AUDIT:
                    log_metric(f"{self.name}/{name}", counts[name])
        return self._numbers(number, rewards, pending)

    def _samples(self, call: Call) -> list[Sample]:
        """The batch as samples, after a check that the settings can be kept with it."""
        prompts, completions, ids, columns = call
        trainer = trainer_of(columns, self._trainer())
        self._check_release()
        self._check_groups(len(prompts), trainer, columns)
        gated = any(judge.gates.truncated != "off" for judge in self.judged.config.judge)
        if gated and not end_tokens(trainer):
            self._warn(
                "judge.gates.truncated does nothing here: TRL does not tell a reward function which tokens end an "
                "answer. Answers cut at the token limit are judged as they are. Use TRL 1.0 or newer, attach(trainer), "
                "or for AsyncGRPO score_groups_at_once(trainer)"
            )
        return samples_of(self.judged, prompts, completions, ids, columns, trainer)

    def _check_release(self) -> None:
        """Say if this TRL release would turn None into 0."""
        version = trl_version()
        if version is not None and version < MASKS_NONE and self.judged.config.missing.policy == "abstain":
            self._warn(
                "TRL %s turns a missing reward (None) into 0.0, as if the judge had given the lowest score. Update TRL "
                'to 1.6 or newer, or set [missing] policy = "group_mean" (advantage 0 for the unscored answer)',
                ".".join(map(str, version)),
            )

    def _check_groups(self, rows: int, trainer: Any, columns: Mapping[str, Any]) -> None:
        """Refuse what depends on siblings where a part of them is on another rank."""
        if trainer is None and "trainer_state" in columns and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            if depends_on_siblings(self.judged.config):
                self._warn(UNSEEN)
            return
        if not _spread(rows, trainer) or self._gathers(rows, trainer):
            return
        training = is_training(trainer)
        whole = WHOLE_TRAINING if training else WHOLE_EVALUATION
        problem = spread_over_ranks(self.judged.config, rows, group_size(trainer) or 1, f"{whole} {GATHERED}")
        if problem is not None and training:
            raise problem
        if problem is not None:
            self._warn(str(problem))

    def _warn(self, message: str, *values: Any) -> None:
        """A warning, once."""
        if message not in self._said:
            self._said.add(message)
            log.warning(message, *values)


class TrlTerms(TrlReward):
    """What stands behind a function for each judge: one batch for all of them."""

    def __init__(self, judged: Judged, name: str, is_async: bool, log_details: bool) -> None:
        super().__init__(judged, name, is_async, log_details)
        refuse_whole_reward_settings(judged.config)
        self.judges = counted_judges(judged.config)
        self.weights = [judged.config.shaping.coefficient * judge.weight for _, judge in self.judges]
        self._open = OpenBatches(len(self.judges))

    def function_name(self, number: int) -> str:
        """Its judge's name."""
        return self.judges[number][1].name

    def _prefix(self, number: int) -> str:
        return f"{TERM}{number}_"

    def _gathers(self, rows: int, trainer: Any) -> bool:
        """Not yet: [missing] policy = "group_mean" is computed for each function, from this rank's rows."""
        return False

    def batch(self, number: int, call: Call) -> tuple[Pending, bool]:
        """As for one function, where all of them are asked about each batch."""
        self._check_weights(trainer_of(call[-1], self._trainer()))
        return self._open.take(number, tuple(self._samples(call)), self._submitted)

    def _numbers(self, number: int, rewards: list[Reward], pending: Any) -> list[float | None]:
        return term_values(rewards, self.judges[number][0], self.judged.config, pending.weight)

    def _check_weights(self, trainer: Any) -> None:
        given = getattr(trainer, "reward_weights", None)
        plain = given is None or all(float(weight) == 1 for weight in given)
        if trainer is not None and plain and any(weight != 1 for weight in self.weights):
            self._warn(
                "the weights of the judges are not used: TRL counts each function with 1. Pass reward_weights = %s, "
                "the `weights` of what reward_funcs returned; AsyncGRPO has no such setting, use reward_func there",
                self.weights,
            )


def _spread(rows: int, trainer: Any) -> bool:
    """Whether a rank with this number of rows has a part of a group."""
    size, ranks = group_size(trainer), getattr(getattr(trainer, "accelerator", None), "num_processes", 1)
    return size is not None and rows % size != 0 and ranks > 1


def _function(reward: TrlReward, number: int = 0) -> RewardFunction:
    """One of the functions of a reward. Its qualified name says how to make it again, which is how it pickles."""
    qualified = reward.encoded(number)
    if qualified in _made:
        return _made[qualified]

    def judge(prompts: Any, completions: Any, completion_ids: Any = None, **columns: Any) -> list[float | None]:
        return reward.rewards(number, (prompts, completions, completion_ids, columns))

    async def ajudge(prompts: Any, completions: Any, completion_ids: Any = None, **columns: Any) -> list[float | None]:
        return await reward.arewards(number, (prompts, completions, completion_ids, columns))

    function: Any = ajudge if reward.is_async else judge
    function.__name__, function.__qualname__, function.__module__ = reward.function_name(number), qualified, __name__
    function.__doc__ = f"{reward.judged!r} as a TRL reward."
    function.referee = reward
    if qualified.startswith((PREFIX, TERM)):
        _made[qualified] = function
    return function  # type: ignore[no-any-return]


def _shared(terms: TrlTerms) -> TrlTerms:
    """The one object behind all functions of a configuration, also where they are unpickled one by one."""
    name = terms.encoded()
    return _terms.setdefault(name, terms) if name.startswith(TERM) else terms


_made: dict[str, RewardFunction] = {}
_terms: dict[str, TrlTerms] = {}


def __getattr__(name: str) -> Any:
    """Functions are found by their qualified name: here, and in a process that only unpickles them."""
    if not name.startswith((PREFIX, TERM)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _made:
        number, _, packed = name.removeprefix(PREFIX).removeprefix(TERM).rpartition("_")
        text = zlib.decompress(base64.b32decode(packed + "=" * (-len(packed) % 8)))
        config, title, is_async, log_details = msgspec.json.decode(text)
        arguments = (Judged(load(config)), title, is_async, log_details)
        if number:
            _function(_shared(TrlTerms(*arguments)), int(number))
        else:
            _function(TrlReward(*arguments))
    return _made[name]


@functools.cache
def trl_version() -> tuple[int, int] | None:
    """Major and minor number of the installed TRL, None if there is none (or it has no number)."""
    try:
        found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("trl"))
    except importlib.metadata.PackageNotFoundError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def _report(name: str, rewards: list[Reward], waited: float, columns: Mapping[str, Any], rubric: bool) -> None:
    """Always the same names: all ranks of a distributed run must log alike."""
    log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
    if callable(log_metric):
        count = len(rewards)
        log_metric(f"{name}/unscored_share", sum(not reward.scored for reward in rewards) / count)
        log_metric(f"{name}/cached_share", sum(r.settled.origin in ("cache", "shared") for r in rewards) / count)
        log_metric(f"{name}/penalty_mean", sum(reward.penalty for reward in rewards) / count)
        log_metric(f"{name}/cost_usd", sum(reward.settled.cost for reward in rewards))
        log_metric(f"{name}/wait_s", waited)
        for judge, ends in _by_judge(rewards).items():
            given = [end.verdict.value for end in ends if isinstance(end.verdict, Verdict)]
            log_metric(f"{name}/{judge}/score_mean", sum(given) / len(given) if given else float("nan"))
            log_metric(f"{name}/{judge}/unscored_share", 1 - len(given) / count)
            log_metric(f"{name}/{judge}/cost_usd", sum(end.cost for end in ends))
    if callable(log_extra):
        judge = "judge" if name == NAME else f"{name}_judge"
        scores = [r.verdict.score if isinstance(r.verdict, Verdict) else None for r in rewards]
        log_extra(judge, [None if score is None else round(score, 4) for score in scores])
        log_extra(f"{judge}_said", [_said(reward.verdict) for reward in rewards])
        if rubric:
            found = [rubric_of(reward) for reward in rewards]
            log_extra(f"{judge}_rubric_met", [None if one is None else round(one.met, 4) for one in found])
            log_extra(f"{judge}_rubric_missing", [None if one is None else one.missing for one in found])


def _by_judge(rewards: list[Reward]) -> dict[str, list[Settled]]:
    """What each judge said of them."""
    names = [term.judge for term in rewards[0].terms]
    return {name: [reward.terms[place].settled for reward in rewards] for place, name in enumerate(names)}


def _said(verdict: Verdict | Unscored) -> str:
    if not isinstance(verdict, Verdict):
        return f"not scored: {verdict.reason}"
    if verdict.how == "terms":  # of several judges
        return "\n".join(f"{part.name}: {_said(part.verdict)}" for part in verdict.parts)
    return verdict.reason
