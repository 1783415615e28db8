"""What is kept of the work: every end and every reward goes to the tally, and to the ledger if there is one."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from referee import clock
from referee.batch import Batch
from referee.config import Config
from referee.engine import Engine
from referee.ledger import LimitsLine, Line, RunLine, Tally, TextLine, open_ledger, reward_line, verdict_line
from referee.ledger.lines import digest
from referee.records import JudgeRequest, Reward, Settled
from referee.tracing import open_tracer
from referee.version import VERSION

SAMPLE_EVERY = 1.0
"""Seconds between two looks at the limits, while there is work."""


class RecorderPort(Protocol):
    """Whom a Scorer tells what became of its samples."""

    tally: Tally

    def settled(self, batch: Batch, index: int, request: JudgeRequest | None, settled: Settled) -> None:
        """One sample's judging has ended."""

    def rewarded(self, batch: Batch, rewards: list[Reward]) -> None:
        """These rewards are final."""

    def write(self, line: Line) -> None:
        """Keep a line."""

    def watch_limits(self) -> None:
        """There is work."""

    def close(self) -> None:
        """There is none any more."""


class Recorder:
    """Tally and ledger of one Scorer. Ledger lines are written once per turn of the loop, whole lines only."""

    def __init__(self, config: Config, engine: Engine) -> None:
        self.tally = Tally()
        self._ledger = open_ledger(config.ledger)
        self._content = config.ledger.content or not self._ledger.enabled
        self._engine = engine
        self._tracer = open_tracer(config)
        self._seq = 0
        self._texts: set[str] = set()
        self._waiting: list[Line] = []
        """Of this turn of the loop."""
        self._sampler: asyncio.TimerHandle | None = None
        if self._ledger.enabled:
            run = RunLine(
                wall=clock.wall(), version=VERSION, pid=os.getpid(), digest=config.digest(), config=config.public()
            )
            self.tally.add(run)
            self._ledger.append(run)
            self._ledger.flush()

    def settled(self, batch: Batch, index: int, request: JudgeRequest | None, settled: Settled) -> None:
        """One sample's judging has ended."""
        self._seq += 1
        if self._content and request is not None and len(request.messages) > 1:
            self._keep_text(request.messages[0].content)
        self.write(
            verdict_line(
                batch.samples[index],
                settled,
                seq=self._seq,
                wall=clock.wall(),
                batch=batch.id,
                index=index,
                request=request,
                content=self._content,
            )
        )
        if self._tracer is not None:
            self._tracer.settled(batch.samples[index], request, settled, clock.wall())

    def _keep_text(self, text: str) -> None:
        """A text that many lines refer to, once."""
        if text not in self._texts:
            self._texts.add(text)
            self.write(TextLine(wall=clock.wall(), digest=digest(text), text=text))

    def rewarded(self, batch: Batch, rewards: list[Reward]) -> None:
        """These rewards are final."""
        wall = clock.wall()
        for reward in rewards if batch.shaped else ():
            self.write(reward_line(reward, wall=wall, batch=batch.id, step=batch.samples[reward.index].step))

    def write(self, line: Line) -> None:
        """Count a line and, if there is a ledger, add it."""
        self.tally.add(line)
        if not self._ledger.enabled:
            return
        self._waiting.append(line)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def watch_limits(self) -> None:
        """There is work: note once a second how hard each endpoint is pressed, until there is none."""
        if self._sampler is None and self._ledger.enabled:
            loop = asyncio.get_running_loop()
            self._sampler = clock.at(loop, loop.time() + SAMPLE_EVERY, self._sample_limits)

    def close(self) -> None:
        """Write out what is left, and the totals of work that ended since the last look at the limits."""
        if self._sampler is not None:
            self._sampler.cancel()
            self._write_limits()
        self._flush()
        self._ledger.close()

    def _sample_limits(self) -> None:
        self._sampler = None
        self._write_limits()
        if self._engine.flying:
            self.watch_limits()

    def _write_limits(self) -> None:
        for endpoint in self._engine.endpoints:
            self.write(
                LimitsLine(
                    wall=clock.wall(),
                    endpoint=endpoint.label,
                    limit=endpoint.limiter.limit,
                    in_flight=endpoint.in_flight,
                    queued=self._engine.admission.queued,
                    throttled=endpoint.throttled,
                    requests=endpoint.sent,
                )
            )

    def _flush(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            self._ledger.extend(lines)
            self._ledger.flush()
