"""The record of what was judged: a tally of everything, and the ledger if there is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import msgspec

from referee import clock
from referee.config import Config
from referee.engine.identity import Change
from referee.ledger import (
    ChangeLine,
    LimitsLine,
    Line,
    RunLine,
    Tally,
    TextLine,
    VerdictLine,
    judge_line,
    open_ledger,
    reward_line,
    verdict_line,
)
from referee.ledger.build_lines import digest
from referee.ledger.lines import MAX_LINE
from referee.records import Reward, Settled, Verdict
from referee.rollouts import plain
from referee.scoring.batch import Batch
from referee.scoring.lines import MAX_TEXTS
from referee.scoring.messages import Gauge, Result
from referee.version import VERSION

_HEAD = b'{"type":"verdict"'


class Recorder:
    """Counts what has landed and keeps the ledger. Used from one loop; lines go to the file once per turn of it."""

    def __init__(self, config: Config, encoded: bool = False) -> None:
        """`encoded`: lines of verdicts come as bytes; those made here are encoded at once, in their order."""
        self._encoded = encoded
        self._lone = len(config.judge) == 1
        self.tally = Tally(() if self._lone else [judge.name for judge in config.judge])
        self._ledger = open_ledger(config.ledger)
        self._content = config.ledger.content
        self._seq = 0
        self._texts: set[str] = set()
        self._flush_due = False
        self._waiting: list[Line] = []
        """Lines of this turn of the loop, where verdict lines come as they are."""
        self._ready: list[bytes] = []
        self._lines = 0
        """Where they come encoded: pieces of lines of this turn, and how many lines they are."""
        self._encode_lines = msgspec.json.Encoder().encode_lines
        if self.kept:
            run = RunLine(
                wall=clock.wall(), version=VERSION, pid=os.getpid(), digest=config.digest(), config=config.public()
            )
            self.tally.add(run)
            self._ledger.append(run)
            self._ledger.flush()

    @property
    def kept(self) -> bool:
        """True if there is a ledger."""
        return self._ledger.enabled

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._ledger.lost

    def next_seq(self) -> int:
        """The number of the next verdict line."""
        self._seq += 1
        return self._seq

    def settled(self, batch: Batch, result: Result, ended: Settled) -> None:
        """One sample has its result. `ended`: what its judges said as one."""
        if self._lone and not self._encoded and result.lines:
            self.tally.add(result.lines[-1])
            self._waiting += result.lines
            if not self._flush_due:
                self._flush_soon()
            return
        self.tally.add(_counted(batch, result.index, ended))
        if self._lone:
            self.tally.made_of("", ended)
        else:
            for judge, end in zip(batch.judges, result.settled, strict=True):
                self.tally.judged(judge.name, end)
        if not self.kept:
            return
        if not self._encoded:
            self._waiting += result.lines
        elif self._add_encoded(result.lines):
            return
        sample, wall = batch.samples[result.index], clock.wall()
        if not self._lone and not result.lines:  # no worker was asked
            for judge, end in zip(batch.judges, result.settled, strict=True):
                line = verdict_line(sample, end, wall=wall, batch=batch.id, index=result.index, team=batch.team)
                self._append(judge_line(judge.name, line))
        self._append(
            verdict_line(
                sample,
                ended,
                seq=self.next_seq(),
                wall=wall,
                batch=batch.id,
                index=result.index,
                content=self._content,
                team=batch.team,
            )
        )

    def _add_encoded(self, lines: Sequence[bytes]) -> bool:
        """Lines of one sample. True: its verdict line was among them, as it is of a lone judge."""
        found = False
        for line in lines:
            if len(line) >= MAX_LINE:
                continue
            if line.startswith(_HEAD):
                found = True
                self._ready += (_HEAD, b',"seq":%d' % self.next_seq(), line[len(_HEAD) :], b"\n")
            else:
                self._ready += (line, b"\n")
            self._lines += 1
        self._flush_soon()
        return found

    def rewarded(self, batch: Batch, rewards: list[Reward]) -> None:
        """These rewards are final."""
        if not batch.shaped:
            return
        wall = clock.wall()
        lines = [
            reward_line(r, wall=wall, batch=batch.id, step=batch.samples[r.index].step, team=batch.team)
            for r in rewards
        ]
        for line in lines:
            self.tally.add(line)
        if not self.kept or not lines:
            return
        if not self._encoded:
            self._waiting += lines
            self._flush_soon()
            return
        try:
            self._ready.append(self._encode_lines(lines))
            self._lines += len(lines)
            self._flush_soon()
        except UnicodeEncodeError:
            for line in lines:
                self._append(line)

    def texts(self, texts: Sequence[str]) -> None:
        """Texts that lines refer to, each once."""
        for text in texts:
            if text not in self._texts:
                if len(self._texts) >= MAX_TEXTS:
                    self._texts.clear()
                self._texts.add(text)
                self.write(TextLine(wall=clock.wall(), digest=digest(text), text=text))

    def limits(self, gauges: Sequence[Gauge], queued: int) -> None:
        """How hard each endpoint is pressed at this moment, by all workers together."""
        for gauge in gauges:
            self.write(
                LimitsLine(
                    wall=clock.wall(),
                    endpoint=gauge.endpoint,
                    limit=gauge.limit,
                    in_flight=gauge.in_flight,
                    queued=queued,
                    throttled=gauge.throttled,
                    requests=gauge.sent,
                )
            )

    def write(self, line: Line) -> None:
        """Count a line and, if there is a ledger, add it."""
        self.tally.add(line)
        if self.kept:
            self._append(line)

    def close(self) -> None:
        """Write out what is left."""
        self._hand_on()
        self._ledger.close()

    def _append(self, line: Line) -> None:
        if self._encoded:
            self._hand_on()
            self._ledger.append(line)
        else:
            self._waiting.append(line)
        self._flush_soon()

    def _hand_on(self) -> None:
        """Lines that are ready go to the ledger, in order and together."""
        if self._waiting:
            self._ledger.extend(self._waiting)
            self._waiting = []
        if self._ready:
            self._ledger.append_encoded(b"".join(self._ready), self._lines)
            self._ready.clear()
            self._lines = 0

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self._hand_on()
        self._ledger.flush()


def change_line(change: Change, step: int | None) -> ChangeLine:
    """The line of a change of what answers at an endpoint."""
    before, after = change.before, change.after
    return ChangeLine(
        wall=change.wall,
        endpoint=change.endpoint,
        step=step,
        model=after.model,
        provider=after.provider,
        fingerprint=after.fingerprint,
        before_model=before.model,
        before_provider=before.provider,
        before_fingerprint=before.fingerprint,
    )


def _counted(batch: Batch, index: int, settled: Settled) -> VerdictLine:
    """As much of a line as a tally counts: the rest would cost the trainer's process more than the counting."""
    verdict = settled.verdict
    value, unscored = (verdict.value, "") if isinstance(verdict, Verdict) else (None, verdict.reason.value)
    sample = batch.samples[index]
    return VerdictLine(
        group=sample.group,
        step=sample.step,
        prompt=plain(sample.prompt),
        team=batch.team,
        origin=settled.origin,
        value=value,
        unscored=unscored,
        attempts=settled.attempts,
        queued_s=settled.queued_s,
        latency_s=settled.latency_s,
        cost=settled.cost,
        saved=settled.saved,
        tokens_in=settled.tokens_in,
        tokens_out=settled.tokens_out,
        tokens_cached=settled.tokens_cached,
        tokens_cache_write=settled.tokens_cache_write,
    )
