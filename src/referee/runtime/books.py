"""The record of work that is done elsewhere: a tally, and the ledger if there is one. Lines arrive as bytes."""

from __future__ import annotations

import asyncio
import os

import msgspec

from referee import clock
from referee.batch import Batch
from referee.config import Config
from referee.ledger import (
    LimitsLine,
    Line,
    RunLine,
    Tally,
    TextLine,
    VerdictLine,
    open_ledger,
    reward_line,
    verdict_line,
)
from referee.ledger.lines import MAX_LINE, digest
from referee.records import Reward, Settled, Verdict
from referee.runtime.messages import Gauge
from referee.version import VERSION

_HEAD = b'{"type":"verdict"'


class Books:
    """Counts what has landed and keeps the ledger. Used from one loop; lines go to the file once per turn of it."""

    def __init__(self, config: Config) -> None:
        self.tally = Tally()
        self._ledger = open_ledger(config.ledger)
        self._content = config.ledger.content
        self._seq = 0
        self._texts: set[str] = set()
        self._flush_due = False
        self._ready: list[bytes] = []
        self._lines = 0
        self._encode_lines = msgspec.json.Encoder().encode_lines
        if self.kept:
            self.write(
                RunLine(
                    wall=clock.wall(), version=VERSION, pid=os.getpid(), digest=config.digest(), config=config.public()
                )
            )

    @property
    def kept(self) -> bool:
        """True if there is a ledger."""
        return self._ledger.enabled

    def settled(self, batch: Batch, index: int, settled: Settled, line: bytes) -> None:
        """One sample's judging has ended. `line`: its ledger line, if the far side made one."""
        self._seq += 1
        self.tally.add(_counted(batch, index, settled))
        if not self.kept:
            return
        if line.startswith(_HEAD) and len(line) < MAX_LINE:
            self._ready += (_HEAD, b',"seq":%d' % self._seq, line[len(_HEAD) :], b"\n")
            self._lines += 1
            self._flush_soon()
        else:
            self._append(
                verdict_line(
                    batch.samples[index],
                    settled,
                    seq=self._seq,
                    wall=clock.wall(),
                    batch=batch.id,
                    index=index,
                    content=self._content,
                )
            )

    def rewarded(self, batch: Batch, rewards: list[Reward]) -> None:
        """These rewards are final."""
        if not batch.shaped:
            return
        wall = clock.wall()
        lines = [reward_line(r, wall=wall, batch=batch.id, step=batch.samples[r.index].step) for r in rewards]
        for line in lines:
            self.tally.add(line)
        if not self.kept or not lines:
            return
        try:
            self._ready.append(self._encode_lines(lines))
            self._lines += len(lines)
            self._flush_soon()
        except UnicodeEncodeError:
            for line in lines:
                self._append(line)

    def texts(self, texts: tuple[str, ...]) -> None:
        """Texts that lines refer to, each once."""
        for text in texts:
            if text not in self._texts:
                self._texts.add(text)
                self.write(TextLine(wall=clock.wall(), digest=digest(text), text=text))

    def limits(self, gauges: list[Gauge], queued: int) -> None:
        """How hard each endpoint is pressed at this moment, by all far sides together."""
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
        self._hand_on()
        self._ledger.append(line)
        self._flush_soon()

    def _hand_on(self) -> None:
        """Lines that are ready go to the ledger, in order and together."""
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


def _counted(batch: Batch, index: int, settled: Settled) -> VerdictLine:
    """As much of a line as a tally counts: the rest would cost the trainer's process more than the counting."""
    verdict, reply = settled.verdict, settled.reply
    value, unscored = (verdict.value, "") if isinstance(verdict, Verdict) else (None, verdict.reason.value)
    used = reply if settled.origin in ("call", "none") else None
    sample = batch.samples[index]
    return VerdictLine(
        group=sample.group,
        step=sample.step,
        prompt=sample.prompt,
        origin=settled.origin,
        value=value,
        unscored=unscored,
        attempts=settled.attempts,
        queued_s=settled.queued_s,
        latency_s=settled.latency_s,
        tokens_in=used.tokens_in if used else 0,
        tokens_out=used.tokens_out if used else 0,
        tokens_cached=used.tokens_cached if used else 0,
        cost=settled.cost,
        saved=settled.saved,
    )
