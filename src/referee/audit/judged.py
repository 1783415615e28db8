"""Judged samples of the run: as the signals observe them, and as the audit may ask about them again."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from msgspec import Struct

from referee.judging.folding import PASSED
from referee.ledger.build_lines import digest
from referee.records import Part, Reason, Reward, Sample, Unscored, Verdict
from referee.rollouts import own_words, plain
from referee.signals import Observation, presence

_presence = functools.lru_cache(maxsize=4096)(presence)
SIBLINGS = 3
"""Honest answers that a judge of groups is shown beside the one it is asked about."""


class JudgedSample(Struct, frozen=True):
    """A sample of the run with a verdict."""

    batch: str
    index: int
    sample: Sample
    value: float
    """What its judges said, in [0, 1]."""
    values: tuple[float | None, ...]
    """What each said."""
    fresh: bool
    """It was asked for now; not an old verdict from the cache."""
    siblings: tuple[Sample, ...] = ()

    @property
    def prompt(self) -> str:
        """Its prompt as text."""
        return plain(self.sample.prompt)


def judged_samples(
    batch: str, samples: Sequence[Sample], rewards: Sequence[Reward], groups: bool
) -> list[JudgedSample]:
    """The samples that a judge has scored. `groups`: with siblings, for judges that compare."""
    members: dict[str, list[Sample]] = {}
    if groups:
        for sample in samples:
            members.setdefault(sample.group, []).append(sample)
    found = []
    for reward in rewards:
        verdict, sample = reward.verdict, samples[reward.index]
        if not isinstance(verdict, Verdict) or reward.settled.origin == "gate":
            continue
        values = tuple([end.verdict.value if isinstance(end.verdict, Verdict) else None for end in reward.judged])
        fresh = reward.settled.origin == "call"
        others = [other for other in members.get(sample.group, ()) if other is not sample] if sample.group else []
        found.append(JudgedSample(batch, reward.index, sample, verdict.value, values, fresh, tuple(others[:SIBLINGS])))
    return found


def observations_of(batch: str, samples: Sequence[Sample], rewards: Sequence[Reward]) -> list[Observation]:
    """The samples as signals observe them, but for those that a gate settled or the caller gave up."""
    keys: dict[str, str] = {}
    found: list[Observation] = []
    for reward in rewards:
        settled, verdict, sample = reward.settled, reward.verdict, samples[reward.index]
        missing = verdict.reason if isinstance(verdict, Unscored) else None
        if settled.origin == "gate" or missing is Reason.CANCELLED:
            continue
        prompt = plain(sample.prompt)
        key = keys.get(prompt)
        if key is None:
            key = keys[prompt] = digest(prompt)
        reply = settled.reply
        found.append(
            Observation(
                step=sample.step,
                batch=batch,
                index=reward.index,
                id=sample.id,
                prompt_key=key,
                prompt=prompt,
                response=own_words(sample.response),
                reference=sample.reference,
                length=sample.length,
                rule=sample.rule_score,
                value=verdict.value if isinstance(verdict, Verdict) else None,
                unscored=missing.value if missing is not None else "",
                model=settled.model,
                fingerprint=reply.fingerprint if reply else "",
                provider=reply.provider if reply else "",
                latency_s=settled.latency_s if settled.origin == "call" else 0.0,
                criteria=_criteria(reward),
            )
        )
    return found


def _criteria(reward: Reward) -> tuple[tuple[bool | None, bool], ...]:
    """Those of all rubrics."""
    verdicts = [term.settled.verdict for term in reward.terms]
    parts = [part for one in verdicts if isinstance(one, Verdict) and one.how == "rubric" for part in one.parts]
    return tuple([(_passed(part), _presence(part.text or part.name)) for part in parts])


def _passed(part: Part) -> bool | None:
    given = part.verdict
    if not isinstance(given, Verdict):
        return None
    return (given.value if part.good else 1.0 - given.value) > PASSED
