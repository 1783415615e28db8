"""kind = "cascade": judges from cheap to strong, the next only while one is unsure.

Most samples are easy, so most are decided by the cheap judge, and the strong one is paid for where it matters. Where a
member compares the responses of a group, the whole group goes on to the next one: verdicts of two judges inside a group
would not compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from referee.config import JudgeConfig, Until
from referee.judging.kind import Deliberation, Form, Judge
from referee.judging.members import (
    Member,
    calls_of,
    columns_of,
    is_over,
    is_settled,
    members_of,
    of_member,
    unit_of_members,
)
from referee.records import Part, Sample, Unscored, Verdict

DECIDED, UNSURE, UNSAID, MISSING = "decided", "unsure", "uncertainty unknown", "no verdict"
WENT_ON = "sure, but its group went on"


class CascadeJudge:
    """Asks its members in turn, until one is sure."""

    def __init__(self, config: JudgeConfig, used: Mapping[str, Judge]) -> None:
        """As registry.make_judge."""
        self._members = members_of(config, used)
        self._until = config.until
        self._skips = config.partial == "skip"
        self.unit = unit_of_members(self._members)
        self.columns = columns_of([member.judge for member in self._members])

    def calls(self, count: int) -> int:
        """Requests for a group of `count` different responses, at most."""
        return sum(calls_of(member.judge, count) for member in self._members)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """One member after the other."""
        said: list[Sequence[Verdict | Unscored]] = []
        for member in self._members:
            verdicts = yield from member.deliberate(samples)
            said.append(verdicts)
            if is_over(verdicts) or self._have_decided(member, samples, verdicts):
                break
        last = len(said) - 1
        if self._skips:
            # One for all samples: the last of those that say most.
            last = max(range(len(said)), key=lambda number: (sum(map(_is_there, said[number])), number))
        return [self._verdict([verdicts[place] for verdicts in said], last) for place in range(len(samples))]

    def _have_decided(self, member: Member, samples: Sequence[Sample], verdicts: Sequence[Verdict | Unscored]) -> bool:
        """Whether a member's verdicts are the last ones. One that was not even asked about a sample has decided on its
        siblings all the same."""
        left = [place for place, verdict in enumerate(verdicts) if label_of(verdict, self._until) != DECIDED]
        return len(left) < len(verdicts) and all(
            is_settled(verdicts[place], member.deliberate((samples[place],))) for place in left
        )

    def _verdict(self, said: Sequence[Verdict | Unscored], last: int) -> Verdict | Unscored:
        """Of what each member that was asked said of one sample: that of the last one that counts."""
        parts = tuple([self._part(number, given, number == last) for number, given in enumerate(said)])
        return of_member(parts[last], parts, "decided", "cascade")

    def _part(self, number: int, given: Verdict | Unscored, last: bool) -> Part:
        label = label_of(given, self._until)
        if isinstance(given, Verdict) and last:
            label = DECIDED
        elif label == DECIDED:
            label = WENT_ON
        return Part(name=self._members[number].name, verdict=given, weight=float(last), label=label)


def label_of(verdict: Verdict | Unscored, until: Until) -> str:
    """Whether a member has decided, or why it has not. What a gate has settled is certain."""
    if isinstance(verdict, Unscored):
        return MISSING
    most, band = until.uncertainty, until.outside
    if verdict.how == "gate":
        return DECIDED
    if most is not None and verdict.uncertainty is None:
        return UNSAID
    if most is not None and verdict.uncertainty is not None and verdict.uncertainty > most:
        return UNSURE
    return UNSURE if band is not None and band[0] <= verdict.value <= band[1] else DECIDED


def _is_there(given: Verdict | Unscored) -> bool:
    return isinstance(given, Verdict)
