"""Samples judged to the end, however long it takes; an interrupted caller leaves nothing running."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from referee.records import Reward, Sample
from referee.referee import Referee


def judged(referee: Referee, samples: Sequence[Sample]) -> list[Reward]:
    """The rewards of all of them."""
    ticket = referee.submit(samples, deadline=math.inf)
    try:
        return ticket.result()
    except BaseException:
        ticket.cancel()
        raise


def first_judged(referee: Referee, cases: Sequence[Sequence[Sample]]) -> list[Reward]:
    """The reward of the first sample of each case; the others are its siblings."""
    rewards = judged(referee, [sample for samples in cases for sample in samples])
    starts = itertools.accumulate([len(samples) for samples in cases], initial=0)
    return [rewards[start] for start, _ in zip(starts, cases, strict=False)]
