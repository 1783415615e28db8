"""kind = "jury": several judges of the same samples, their verdicts combined; or one of them, drawn for each prompt.

Judges of different families err differently, so several cheap ones are often nearer to people than one strong one.
They are all asked at once. Each juror's verdict stands in the parts, and their spread is the uncertainty.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

from referee.config import JudgeConfig, quorum_of
from referee.judging.kind import Deliberation, Form, Judge
from referee.judging.members import (
    calls_of,
    columns_of,
    members_of,
    of_member,
    together,
    unit_of_members,
    without_verdict,
)
from referee.records import Part, Sample, Unscored, Verdict
from referee.rollouts import plain


class JuryJudge:
    """Combines what its members say."""

    def __init__(self, config: JudgeConfig, used: Mapping[str, Judge]) -> None:
        """As registry.make_judge."""
        self._members = members_of(config, used)
        self._one = config.ask == "one"
        self._rule = config.combined_by
        self._combine = RULES[config.combined_by]
        self._quorum = quorum_of(config)
        self.unit = unit_of_members(self._members)
        self.columns = columns_of([member.judge for member in self._members])

    def calls(self, count: int) -> int:
        """Requests for a group of `count` different responses; where one member is drawn, at most."""
        each = [calls_of(member.judge, count) for member in self._members]
        return max(each) if self._one else sum(each)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """All members side by side, or the one that is drawn."""
        asked = [self._members[self._drawn(samples)]] if self._one else self._members
        said = yield from together([member.deliberate(samples) for member in asked])
        verdicts = []
        for place in range(len(samples)):
            mine = said[place :: len(samples)]
            parts = tuple(
                [Part(name=member.name, verdict=verdict) for member, verdict in zip(asked, mine, strict=True)]
            )
            verdicts.append(of_member(parts[0], parts, "judged", "jury") if self._one else self._combined(parts))
        return verdicts

    def _drawn(self, samples: Sequence[Sample]) -> int:
        """Which member judges these. By the prompt: siblings must meet the same one, or its leniency would be noise
        inside the group. Not by the process's secret: a resumed run, and a worker that takes over from another, must
        ask the same one, too."""
        prompts = sorted({plain(sample.prompt) for sample in samples})
        content = "\0".join([*(member.name for member in self._members), *prompts])
        drawn = blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8, person=b"juror").digest()
        return int.from_bytes(drawn, "big") % len(self._members)

    def _combined(self, parts: tuple[Part, ...]) -> Verdict | Unscored:
        there = [part.verdict for part in parts if isinstance(part.verdict, Verdict)]
        if len(there) < self._quorum:
            least = "all must have one" if self._quorum == len(parts) else f"judge.quorum is {self._quorum}"
            return without_verdict(parts, f"{len(there)} of {len(parts)} jurors have a verdict, and {least}")
        values = [verdict.value for verdict in there]
        value = self._combine(values)
        words = f"{self._rule} of {len(there)} jurors"
        if len(there) < len(parts):
            words += f"; without a verdict: {', '.join([p.name for p in parts if isinstance(p.verdict, Unscored)])}"
        gated = all(verdict.how == "gate" for verdict in there)
        return Verdict(
            score=value,
            value=value,
            reason=there[0].reason if gated else words,
            how="gate" if gated else "jury",
            uncertainty=statistics.pstdev(values) if len(values) > 1 and not gated else None,
            parts=parts,
        )


def majority(values: Sequence[float]) -> float:
    """1 if more of them are above one half than below it, 0 if fewer are, 0.5 if as many."""
    lead = sum((value > 0.5) - (value < 0.5) for value in values)
    return 0.5 if lead == 0 else float(lead > 0)


def trimmed(values: Sequence[float]) -> float:
    """The mean without the lowest and the highest."""
    return statistics.fmean(sorted(values)[1:-1])


RULES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "majority": majority,
    "min": min,
    "trimmed": trimmed,
}
