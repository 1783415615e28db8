"""One case: a judge's deliberation about one sample, or about a group, driven round by round. State only: no event
loop and no engine; `asking` takes its questions there and brings the answers back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from referee.judging import Deliberation, Form, Judge
from referee.records import Ask, Origin, Reason, Sample, Settled, Unscored, Verdict
from referee.shaping import joined
from referee.soundness import sound

log = logging.getLogger("referee")

MAX_ROUNDS = 64
MAX_ASKS = 20_000
"""Rounds and questions of one case. A judge from outside that asks for ever is ended there."""
LAST_ROUNDS = 4
"""Rounds that a case may ask after its end: each is answered at once."""
SEQUENCES = (list, tuple)
NOTHING = Settled(verdict=Unscored(reason=Reason.CANCELLED))
"""What a question has cost that was never asked."""


class Case:
    """The questions and answers of one judge about its samples, and its verdicts once there are any."""

    __slots__ = ("_deliberation", "_rounds", "_shared", "asked", "judge", "missing", "places", "slots", "verdicts")

    def __init__(self, judge: int, places: Sequence[int]) -> None:
        """`judge`: its number in the configuration. `places`: which samples, by their place in the job."""
        self.judge = judge
        self.places = places
        self._deliberation: Deliberation
        self._rounds = 0
        self._shared: Settled | None = None
        self.slots: list[Any]
        """Of each question of the round under way: its answer or, until that is there, what the worker put here. None:
        it was not asked yet."""
        self.missing: int
        """How many answers are still to come."""
        self.asked: list[tuple[Ask, Settled]] = []
        """Every question that has its answer, and how that came about."""
        self.verdicts: Sequence[Verdict | Unscored] | None = None
        """One for each sample, when the judge is done."""

    def begin(self, judge: Judge, samples: Sequence[Sample], form: Form) -> Sequence[Ask]:
        """The first round of questions. None: there is nothing to ask, and the verdicts are there."""
        try:
            self._deliberation = judge.deliberate(samples, form)
        except Exception as error:
            self.failed(error)
            return ()
        return self._resume(None)

    def answered(self, slot: int, request: Ask, settled: Settled) -> bool:
        """One question has its answer. True: the round is complete."""
        self.asked.append((request, settled))
        self.slots[slot] = settled.verdict
        self.missing -= 1
        return not self.missing

    def next_round(self) -> Sequence[Ask]:
        """More questions, after a complete round. None: the verdicts are there."""
        return self._resume(self.slots)

    def end(self, why: Unscored) -> None:
        """No more can be asked: what has no answer is answered with `why`, and the judge may still decide. One that
        only asks more is closed. What was cancelled is not decided: it has no listener, and half a case must not be
        taken for a whole one when the run is resumed."""
        for _ in range(0 if why.reason is Reason.CANCELLED else LAST_ROUNDS):
            self._resume([why if answer is None else answer for answer in self.slots])
            if self.verdicts is not None:
                return
        self._close()
        self.verdicts = [why] * len(self.places)

    def failed(self, error: Exception) -> None:
        """The judge raised, or asked what cannot be asked. One case's failure must not end its batch."""
        log.error("a judge failed; its samples are unscored (config)", exc_info=error)
        self._fail(f"the judge raised {type(error).__name__}; see the log")

    def settled(self, which: int) -> Settled:
        """How the judging of one of its samples ended. What a whole group has cost is shared by its samples evenly."""
        assert self.verdicts is not None
        verdict = self.verdicts[which]
        if len(self.asked) == 1 and len(self.places) == 1:
            only = self.asked[0][1]
            return only if verdict is only.verdict else replace(only, verdict=verdict)
        if not self.asked:
            gate = isinstance(verdict, Verdict) and verdict.how == "gate"
            return Settled(verdict=verdict, origin="gate" if gate else "none")
        if self._shared is None:
            self._shared = _sum([settled for _, settled in self.asked], len(self.places))
        whole, count = self._shared, len(self.places)
        return replace(
            whole,
            verdict=verdict,
            attempts=whole.attempts if which == 0 else 0,
            tokens_in=_part(whole.tokens_in, which, count),
            tokens_out=_part(whole.tokens_out, which, count),
            tokens_cached=_part(whole.tokens_cached, which, count),
            tokens_cache_write=_part(whole.tokens_cache_write, which, count),
        )

    def _resume(self, answers: Sequence[Any] | None) -> Sequence[Ask]:
        self._rounds += 1
        try:
            asks = self._deliberation.send(answers)  # type: ignore[arg-type]
            while not asks:
                self._rounds += 1
                if self._rounds > MAX_ROUNDS:
                    raise RuntimeError(f"more than {MAX_ROUNDS} rounds of questions")
                asks = self._deliberation.send(())
            count, questions = len(asks), all([isinstance(request, Ask) for request in asks])
        except StopIteration as stop:
            try:
                self._finish(stop.value)
            except Exception as error:  # a sequence or a verdict of a class of its own
                self.failed(error)
            return ()
        except Exception as error:
            self.failed(error)
            return ()
        if self._rounds > MAX_ROUNDS or len(self.asked) + count > MAX_ASKS:
            self._close()
            self._fail(f"the judge asked for more than {MAX_ROUNDS} rounds or {MAX_ASKS} questions")
            return ()
        if not questions:
            self._close()
            self._fail("the judge asked something that is no Ask")
            return ()
        self.slots = [None] * count
        self.missing = count
        return asks

    def _finish(self, verdicts: Sequence[Verdict | Unscored]) -> None:
        """Take what the judge returned."""
        if not isinstance(verdicts, SEQUENCES) or len(verdicts) != len(self.places):
            self._fail(f"the judge did not return one verdict for each of its {len(self.places)} samples")
        elif self.asked and verdicts is self.slots:
            self.verdicts = verdicts  # the answers themselves: what the engine has read is sound
        else:
            self.verdicts = [sound(verdict) for verdict in verdicts]

    def _close(self) -> None:
        try:
            self._deliberation.close()
        except Exception as error:
            log.error("a judge raised while its deliberation was closed", exc_info=error)

    def _fail(self, detail: str) -> None:
        self.verdicts = [Unscored(reason=Reason.CONFIG, detail=detail)] * len(self.places)


def _part(total: int, which: int, count: int) -> int:
    """One of `count` whole parts that add up to the total."""
    return total // count + (which < total % count)


def _sum(ends: Sequence[Settled], samples: int) -> Settled:
    """What all questions of a case took together; money as the share of one of its samples."""
    last = ends[-1]
    # Not by which answered first: rows of one run must name the same judges in the same order.
    named = sorted(ends, key=lambda end: (end.endpoint, end.model))
    return Settled(
        verdict=last.verdict,
        origin=_origin(ends),
        key=last.key,
        reply=last.reply,
        endpoint=joined(end.endpoint for end in named),
        model=joined(end.model for end in named),
        attempts=sum(end.attempts for end in ends),
        sent=min((end.sent for end in ends if end.sent), default=0.0),
        queued_s=max(end.queued_s for end in ends),
        latency_s=max(end.latency_s for end in ends),
        tokens_in=sum(end.tokens_in for end in ends),
        tokens_out=sum(end.tokens_out for end in ends),
        tokens_cached=sum(end.tokens_cached for end in ends),
        tokens_cache_write=sum(end.tokens_cache_write for end in ends),
        cost=sum(end.cost for end in ends) / samples,
        saved=sum(end.saved for end in ends) / samples,
    )


def _origin(ends: Sequence[Settled]) -> Origin:
    origins = {end.origin for end in ends}
    return next((name for name in ("call", "shared", "cache") if name in origins), "none")


def with_costs(settled: Settled, before: Settled) -> Settled:
    """An answer that took two forms of asking took the attempts and the money of both."""
    if before is NOTHING:
        return settled
    return replace(
        settled,
        attempts=settled.attempts + before.attempts,
        tokens_in=settled.tokens_in + before.tokens_in,
        tokens_out=settled.tokens_out + before.tokens_out,
        tokens_cached=settled.tokens_cached + before.tokens_cached,
        tokens_cache_write=settled.tokens_cache_write + before.tokens_cache_write,
        cost=settled.cost + before.cost,
    )
