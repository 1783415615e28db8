"""A judge inside another one: what it is given, what it returns, and which absence of a verdict ends the asking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from referee.config import JudgeConfig
from referee.judging.kind import Deliberation, Form, Judge, Unit
from referee.records import Ask, How, Part, Reason, Sample, Unscored, Verdict
from referee.soundness import sound

OVER = frozenset({Reason.DEADLINE, Reason.CANCELLED, Reason.BUDGET})
"""After these no further question is answered either."""
POLICY = frozenset({Reason.UNCERTAIN, Reason.ALONE})
"""Nothing has failed: the user's own bar, or the data."""


class Member:
    """One judge of a jury or a cascade."""

    def __init__(self, config: JudgeConfig, judge: Judge) -> None:
        self.name = config.name
        self.judge = judge
        # Its own: what is known of the endpoints of the others says nothing of its own. Where those turn out to take
        # text only, each question brings its text form with it.
        self._form: Form = "text" if config.reply == "text" else "schema"

    def deliberate(self, samples: Sequence[Sample]) -> Deliberation:
        """Its verdicts on these, one for each; a judge of single samples is asked about each by itself."""
        if self.judge.unit == "group" or len(samples) == 1:
            verdicts = yield from self.judge.deliberate(samples, self._form)
        else:
            verdicts = yield from together([self.judge.deliberate((sample,), self._form) for sample in samples])
        if not isinstance(verdicts, list | tuple) or len(verdicts) != len(samples):
            raise ValueError(f"judge {self.name} did not return one verdict for each of {len(samples)} samples")
        return [sound(verdict) for verdict in verdicts]


def together(members: Sequence[Deliberation]) -> Deliberation:
    """Several deliberations side by side, as one: asks what all of them ask, round by round. Returns their verdicts,
    one list after the other.

    A member that is done waits for the others. Each gets the answers to its own questions, in its order.
    """
    ends: list[Sequence[Verdict | Unscored]] = [()] * len(members)
    sent: dict[int, Sequence[Verdict | Unscored] | None] = dict.fromkeys(range(len(members)))
    while sent:
        rounds: list[tuple[int, Sequence[Ask]]] = []
        for number, answers in sent.items():
            try:
                rounds.append((number, members[number].send(answers)))  # type: ignore[arg-type]
            except StopIteration as stop:
                ends[number] = stop.value
        if not rounds:
            break
        replies = yield [request for _, asks in rounds for request in asks]
        sent, start = {}, 0
        for number, asks in rounds:
            sent[number] = replies[start : start + len(asks)]
            start += len(asks)
    return [verdict for verdicts in ends for verdict in verdicts]


def members_of(config: JudgeConfig, used: Mapping[str, Judge]) -> tuple[Member, ...]:
    """The judges that `judge.members` names, in its order."""
    return tuple(Member(member, used[member.name]) for member in config.uses)


def unit_of_members(members: Sequence[Member]) -> Unit:
    """Whole groups as soon as one of them compares."""
    return "group" if any(member.judge.unit == "group" for member in members) else "sample"


def columns_of(judges: Sequence[Judge]) -> tuple[str, ...]:
    """Columns of the rollouts that their templates show, each once."""
    return tuple(dict.fromkeys(name for judge in judges for name in getattr(judge, "columns", ())))


def calls_of(judge: Judge, count: int) -> int:
    """Requests for a group of `count` different responses; one for each where the judge does not say."""
    calls = getattr(judge, "calls", None)
    found: int = count if calls is None else calls(count)
    return found


def first_missing(parts: Sequence[Part]) -> Part | None:
    """The part that says why there is no verdict: one that has failed before one that was left out on purpose."""
    missing = [part for part in parts if isinstance(part.verdict, Unscored)]
    failed = [part for part in missing if isinstance(part.verdict, Unscored) and part.verdict.reason not in POLICY]
    return next(iter(failed or missing), None)


def without_verdict(parts: Sequence[Part], problem: str) -> Unscored:
    """No verdict, for the reason of the first part that has none; all of them are kept."""
    part = first_missing(parts)
    assert part is not None
    missing = part.verdict
    assert isinstance(missing, Unscored)
    return Unscored(reason=missing.reason, detail=f"{problem}; {part.name}: {missing.detail}", parts=tuple(parts))


def of_member(part: Part, parts: tuple[Part, ...], did: str, how: How) -> Verdict | Unscored:
    """What one member said, as the verdict of the judge it is a member of. `did`: that it decided, or was drawn."""
    given = part.verdict
    if isinstance(given, Unscored):
        return Unscored(reason=given.reason, detail=f"{part.name}: {given.detail}", parts=parts)
    gated = given.how == "gate"
    return Verdict(
        score=given.value,
        value=given.value,
        reason=given.reason if gated else f"{did} by {part.name}: {given.reason}",
        how="gate" if gated else how,
        uncertainty=given.uncertainty,
        parts=parts,
    )


def is_settled(given: Verdict | Unscored, by_itself: Deliberation) -> bool:
    """Whether a sample has no verdict and nothing was asked about it, so that no further answer changes that.
    `by_itself`: its judge's deliberation about this sample alone."""
    if isinstance(given, Verdict):
        return False
    try:
        next(by_itself)
    except StopIteration as stop:
        return list(stop.value) == [given]
    by_itself.close()
    return False


def is_over(verdicts: Sequence[Verdict | Unscored]) -> bool:
    """Whether one of them says that nothing more will be answered."""
    return any(isinstance(verdict, Unscored) and verdict.reason in OVER for verdict in verdicts)
