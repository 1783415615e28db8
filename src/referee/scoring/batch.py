"""A batch: samples submitted together, settled one by one, shaped group by group, rewards in the caller's order.

State only: no loop, no thread, no clock. One thread lands results; `deliver` hands finished rewards on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real

from referee.config import Config, JudgeConfig, asking_judges
from referee.errors import InputError, RefereeError, UnscoredError
from referee.judging import needs_groups
from referee.records import Reward, Sample, Settled, Tool, Unscored
from referee.rollouts import Polarity, ReadError, media_in, not_text, read_rubric, read_text, read_tools
from referee.shaping import check_lengths, needs_group, shape_group

LARGEST = 2**63 - 1
"""The largest whole number that travels to a worker."""


class Batch:
    """Samples on their way to rewards."""

    caller = ""
    """Batches of different callers take turns; those of one are judged in the order they are due."""
    team = ""
    """The team it is for, whose budget and rate it uses."""
    asked: tuple[int, ...] = ()
    """Numbers of the judges it is for, in the configuration of the workers; none: all of them."""

    def __init__(
        self,
        id: str,
        samples: Sequence[Sample],
        config: Config,
        seconds: float,
        deliver: Callable[[list[Reward], RefereeError | None, bool], None],
    ) -> None:
        """`deliver(rewards, error, done)` is called as rewards become final, the last time with done = True. The judges
        of `config` are those of this batch."""
        samples = checked(samples, any(judge.parts == "refuse" for judge in asking_judges(config.known_judges)))
        if config.shaping.length.enable:
            check_lengths(samples)
        self.id = id
        self.samples = samples
        self.seconds = seconds
        """How long the whole batch may take, from submission."""
        self.late = 0.0
        """Seconds of that which were over when its work began: a busy loop takes it up later than it was submitted."""
        self.shaped = True
        """False: the caller makes its own rewards of the verdicts, and has them recorded."""
        self.error: RefereeError | None = None
        """Why the batch must not be used, if so: the endpoint is closed, too much is unscored."""
        self._config = config
        self._deliver = deliver
        self._settled: list[tuple[Settled, ...] | None] = [None] * len(self.samples)
        self._left = len(self.samples)
        self._groups = groups_of(self.samples) if needs_group(config) else {}
        self._waiting = {name: len(members) for name, members in self._groups.items()}

    @property
    def judges(self) -> tuple[JudgeConfig, ...]:
        """The judges it is for: each sample lands with what each of them said."""
        return self._config.judge

    @property
    def done(self) -> bool:
        """True when every sample has landed."""
        return self._left == 0

    @property
    def settled(self) -> int:
        """How many samples have their end. Their rewards may still wait for siblings."""
        return len(self.samples) - self._left

    def landed(self, index: int) -> bool:
        """True if this sample has its end."""
        return self._settled[index] is not None

    def pending(self) -> list[int]:
        """Samples without an end yet."""
        return [index for index, settled in enumerate(self._settled) if settled is None]

    def land(self, index: int, settled: tuple[Settled, ...]) -> list[Reward]:
        """Record a sample's end, one Settled for each judge. Returns the rewards that became final with it: its own, or
        its whole group's."""
        if self._settled[index] is not None:
            return []
        self._settled[index] = settled
        self._left -= 1
        rewards = self._shape(index)
        if self._config.missing.policy == "raise" and self.error is None:
            for reward in rewards:
                verdict = reward.verdict
                if isinstance(verdict, Unscored):
                    self.error = UnscoredError(
                        f"sample {reward.index} was not scored ({verdict.reason}: {verdict.detail}) and [missing] "
                        'policy is "raise". What was judged is kept in the cache.'
                    )
                    break
        return rewards

    def fail(self, error: RefereeError) -> None:
        """The work on it has died: its waiters get this error."""
        if not self.done:
            self._left = 0
            self._pass_on([], error)

    def hand_over(self, rewards: list[Reward]) -> None:
        """Deliver rewards; the last time with the batch's error, if any."""
        if rewards or self.done:
            self._pass_on(rewards, self.error)

    def _pass_on(self, rewards: list[Reward], error: RefereeError | None) -> None:
        deliver = self._deliver
        if self.done:
            self._deliver = _dropped  # the receiver may hold this batch: a reference cycle would keep all its samples
        deliver(rewards, error, self.done)

    def _shape(self, index: int) -> list[Reward]:
        sample = self.samples[index]
        if not self._groups:
            settled = self._settled[index]
            assert settled is not None
            return shape_group([(index, sample, settled)], self._config)
        name = group_name(index, sample)
        self._waiting[name] -= 1
        if self._waiting[name]:
            return []
        members = [(i, self.samples[i], end) for i in self._groups.pop(name) if (end := self._settled[i]) is not None]
        return shape_group(members, self._config)


def _dropped(rewards: list[Reward], error: RefereeError | None, done: bool) -> None:
    return None


def listed(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """What a caller handed in as a list of samples. One sample by itself is not a list."""
    if isinstance(samples, Iterable) and not isinstance(samples, str | bytes | Mapping):
        return tuple(samples)
    raise InputError(
        f"expected a list of referee.Sample, got one {type(samples).__name__}: write [sample], with brackets. Nothing "
        "was spent.",
        field="samples",
    )


def checked(samples: Iterable[Sample], text_only: bool = True, polarity: Polarity = "by_phrase") -> tuple[Sample, ...]:
    """The samples, made of Python's own types. What cannot be judged is refused, by position and field, before anything
    is spent. `text_only`: also images and the like. `polarity`: what pitfalls of rubrics mean."""
    return tuple(
        [
            sample if _is_plain(sample) else _made_plain(index, sample, text_only, polarity)
            for index, sample in enumerate(samples)
        ]
    )


def _made_plain(index: int, sample: Sample, text_only: bool, polarity: Polarity) -> Sample:
    """Numbers and texts of other libraries, such as numpy's, stand for Python's: no encoder takes them."""
    if not isinstance(sample, Sample):
        raise InputError(
            f"sample {index}: expected a referee.Sample, got {type(sample).__name__}. Make one of it: "
            "Sample(prompt=..., response=...), or Sample(**row) of a dict with those names. Nothing was spent.",
            field="sample",
        )
    texts: dict[str, str | None] = {}
    for field in ("id", "group", "reference"):
        value = getattr(sample, field)
        if not isinstance(value, str) and not (field == "reference" and value is None):
            raise _wrong(index, field, "str or None" if field == "reference" else "str", value)
        texts[field] = None if value is None else str.__str__(value)
    columns = sample.columns
    if not isinstance(columns, Mapping) or not all(isinstance(part, str) for item in columns.items() for part in item):
        raise _wrong(index, "columns", "a mapping of names to text", columns)
    if not isinstance(sample.truncated, bool):
        raise _wrong(index, "truncated", "bool", sample.truncated)
    try:
        prompt, response = read_text(sample.prompt, "prompt"), read_text(sample.response, "response")
        given = sample.tools
        is_read = isinstance(given, tuple) and all(isinstance(tool, Tool) for tool in given)
        tools = given if is_read else read_tools(given)
        rubric = read_rubric(sample.rubric, "rubric", polarity)
    except ReadError as error:
        raise InputError(
            f"sample {index}: {error.where}: {error.problem}. Nothing was spent.", field=error.where
        ) from None
    made = Sample(
        prompt=prompt,
        response=response,
        tools=tools,
        rubric=rubric,
        columns=dict(columns),
        **texts,  # type: ignore[arg-type]
        truncated=sample.truncated,
        rule_score=_real(index, "rule_score", sample.rule_score),
        length=_whole(index, "length", sample.length, 0),
        step=_whole(index, "step", sample.step, -LARGEST),
    )
    media = media_in(made) if text_only else None
    if media is not None:
        raise InputError(f"sample {index}: {media[0]}: {not_text(media[1])} Nothing was spent.", field=media[0])
    return made


def _real(index: int, field: str, value: object) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(index, field, "a finite number", value)
    return number


def _whole(index: int, field: str, value: object, least: int) -> int | None:
    if value is None:
        return None
    number = least - 1 if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if not least <= number <= LARGEST:
        raise _wrong(index, field, f"a whole number{' of at least 0' if least == 0 else ''}, or None", value)
    return number


def _is_plain(sample: object) -> bool:
    """True of nearly every sample: nothing in it needs a closer look. Thousands are submitted together."""
    return (
        type(sample) is Sample
        and type(sample.prompt) is type(sample.response) is type(sample.id) is type(sample.group) is str
        and type(sample.truncated) is bool
        and not sample.columns
        and sample.tools == ()
        and type(sample.rubric) is tuple
        and not sample.rubric
        and (sample.reference is None or type(sample.reference) is str)
        and type(sample.rule_score) is float
        and math.isfinite(sample.rule_score)
        and (sample.length is None or (type(sample.length) is int and 0 <= sample.length <= LARGEST))
        and (sample.step is None or (type(sample.step) is int and -LARGEST <= sample.step <= LARGEST))
    )


def _wrong(index: int, field: str, wanted: str, got: object) -> InputError:
    shown = repr(got) if isinstance(got, int | float) else type(got).__name__
    return InputError(f"sample {index}: {field} must be {wanted}, not {shown}. Nothing was spent.", field=field)


def depends_on_siblings(config: Config) -> bool:
    """True if a group must be submitted in one batch: a judge is given all of it, a reward depends on the others, or
    the audit may weigh one batch and not the next."""
    return needs_group(config) or needs_groups(config.judge) or config.audit.weighs


def group_name(index: int, sample: Sample) -> str | int:
    """What its group is known by in `groups_of`."""
    return sample.group or index


def groups_of(samples: Sequence[Sample]) -> dict[str | int, list[int]]:
    """Which samples share a group, by their positions. One without a group is a group of its own."""
    groups: dict[str | int, list[int]] = {}
    for index, sample in enumerate(samples):
        groups.setdefault(group_name(index, sample), []).append(index)
    return groups
