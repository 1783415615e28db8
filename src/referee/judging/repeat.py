"""judge.repeat: the same question several times, of any kind of judge. The value is the mean, the spread says how sure
it is.

Equal requests are one flight and one entry in the cache, so every answer after the first is known by a facet of its
own. The first has none: it is shared with runs that ask once. What is sent is the same, temperature included.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from referee.config import JudgeConfig
from referee.judging.kind import Deliberation, Form, Judge
from referee.judging.members import calls_of, columns_of, is_over, is_settled, together, without_verdict
from referee.records import Ask, Part, Sample, Unscored, Verdict

FACET = "repeat"


def repeated(judge: Judge, config: JudgeConfig) -> Judge:
    """The judge of this configuration, asked as often as `judge.repeat` says."""
    if config.repeat == 1:
        return judge
    return RepeatJudge(judge, config.repeat, is_graded(config), max(map(_levels, config.uses), default=0))


def is_graded(config: JudgeConfig) -> bool:
    """Whether its values are rarely 0 or 1: then a majority says little, and all answers are asked for at once."""
    match config.kind:
        case "score" | "integer" | "listwise":
            return config.high - config.low > 1
        case "rubric":
            return config.combined_by not in ("all", "any", "threshold")
        case "jury":
            return config.combined_by != "majority"
        case kind:
            return kind in ("pairwise", "reward_model")


def _levels(config: JudgeConfig) -> int:
    return (config.repeat > 1) + max(map(_levels, config.uses), default=0)


class RepeatJudge:
    """Asks another judge several times."""

    def __init__(self, judge: Judge, times: int, graded: bool, level: int) -> None:
        """`graded`: as `is_graded`. `level`: how many repetitions there are inside it, whose facets must differ."""
        self._judge = judge
        self._times = times
        self._first = times if graded else times // 2 + 1
        self._facet = f"{FACET} {level}" if level else FACET
        self.unit = judge.unit
        self.columns = columns_of([judge])

    def calls(self, count: int) -> int:
        """Requests for a group of `count` different responses, at most."""
        return self._times * calls_of(self._judge, count)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """As many answers as a majority needs, then the rest while they could change it."""
        answers: list[Sequence[Verdict | Unscored]] = []
        settled: set[int] = set()
        wanted = self._first
        while wanted and len(answers) < self._times:
            numbers = range(len(answers), min(self._times, len(answers) + wanted))
            said = yield from together(
                [self._numbered(self._judge.deliberate(samples, form), number + 1) for number in numbers]
            )
            count = len(samples)
            if len(said) != count * len(numbers):
                raise ValueError(f"the judge did not return one verdict for each of its {count} samples")
            answers += [said[start : start + count] for start in range(0, len(said), count)]
            if is_over(said):
                break
            if len(answers) == len(numbers):
                settled = {place for place in range(count) if self._is_settled(said[place], samples[place], form)}
            wanted = max(
                [
                    0,
                    *(
                        self._missing([said[place] for said in answers])
                        for place in range(count)
                        if place not in settled
                    ),
                ]
            )
        return [
            answers[0][place] if place in settled else self._verdict([said[place] for said in answers])
            for place in range(len(samples))
        ]

    def _is_settled(self, given: Verdict | Unscored, sample: Sample, form: Form) -> bool:
        return is_settled(given, self._judge.deliberate((sample,), form))

    def _missing(self, said: Sequence[Verdict | Unscored]) -> int:
        """How many more answers about a sample may matter: what a side of yes or no lacks to more than half; all that
        are left where answers are graded."""
        values = [verdict.value for verdict in said if isinstance(verdict, Verdict)]
        if all(isinstance(verdict, Verdict) and verdict.how == "gate" for verdict in said):
            return 0
        if any(value not in (0.0, 1.0) for value in values):
            return self._times - len(said)
        return max(0, self._times // 2 + 1 - max(values.count(1.0), values.count(0.0)))

    def _numbered(self, deliberation: Deliberation, number: int) -> Deliberation:
        """The same deliberation, its questions known as those of this answer."""
        if number == 1:
            return (yield from deliberation)
        facet = (self._facet, str(number))
        answers: Sequence[Verdict | Unscored] | None = None
        while True:
            try:
                asks = deliberation.send(answers)  # type: ignore[arg-type]
            except StopIteration as stop:
                verdicts: Sequence[Verdict | Unscored] = stop.value
                return verdicts
            answers = yield [_known_as(facet, request) for request in asks]

    def _verdict(self, said: Sequence[Verdict | Unscored]) -> Verdict | Unscored:
        """One verdict of the answers there are. More than half of all must be."""
        there = [verdict for verdict in said if isinstance(verdict, Verdict)]
        if there and all(verdict.how == "gate" for verdict in there):
            return there[0]
        parts = tuple([Part(name=f"answer {number + 1}", verdict=verdict) for number, verdict in enumerate(said)])
        if 2 * len(there) <= self._times:
            return without_verdict(parts, f"{len(there)} of {self._times} answers have a verdict, more than half must")
        values = [verdict.value for verdict in there]
        words = f"mean of {len(there)} answers"
        if len(there) < len(said):
            words += f" ({len(said) - len(there)} without a verdict)"
        return Verdict(
            score=statistics.fmean([verdict.score for verdict in there]),
            value=statistics.fmean(values),
            reason=f"{words}; the first: {there[0].reason}",
            how="repeat",
            uncertainty=statistics.pstdev(values),
            parts=parts,
        )


def _known_as(facet: tuple[str, str], request: Ask) -> Ask:
    other = request.in_text
    in_text = None if other is None else functools.partial(_in_text, facet, other)
    return replace(request, facets=(*request.facets, facet), in_text=in_text)


def _in_text(facet: tuple[str, str], other: Callable[[], Ask | Verdict | Unscored]) -> Ask | Verdict | Unscored:
    planned = other()
    return _known_as(facet, planned) if isinstance(planned, Ask) else planned
