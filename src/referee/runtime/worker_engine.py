"""A JudgeWorker for clients in other processes: takes their work, batches results on the way back, shares limits.

Ledger lines are made here, as bytes, and written by the client, so that every sample is in the ledger once however
often it was sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from referee import clock
from referee.config import Config
from referee.engine.quota_client import BROKER_TIMEOUT_S, EXCHANGE_S, Exchange, QuotaClient
from referee.records import Reason, Unscored
from referee.scoring.batch import group_name
from referee.scoring.build import build_worker
from referee.scoring.job import Job
from referee.scoring.lines import LineMaker, Wanted
from referee.scoring.local import BuildWorker
from referee.scoring.messages import Cancel, Fault, Result, Results, Update, Work

log = logging.getLogger("referee.runtime")

GATHER = 0.1
"""Seconds a result may wait for others while more are to come: waking the trainer's process costs as much as landing
several."""
ENOUGH = 256
"""Results that need not wait for more."""
HEARTBEAT = 0.5
"""Seconds between two updates while no results come."""

Send = Callable[[str, Update], None]
"""Called with the client's name and its update."""


class Outbox:
    """Results to be sent, by client: batched for a short time, and sent at once when no more are to come."""

    def __init__(self, send: Callable[[str, tuple[Results, ...]], None]) -> None:
        self._send = send
        self._waiting: dict[str, dict[int, tuple[list[Result], Fault | None]]] = {}
        """By client and ticket."""
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False
        """Everything here leaves in the next turn of the loop."""
        self.pending: dict[str, int] = {}
        """Samples without a result, by client."""

    def put(self, job: Job, results: list[Result], fault: Fault | None) -> None:
        """Results of one job. They leave in a later turn of the loop, with those that follow at once."""
        client, loop = job.client, asyncio.get_running_loop()
        waiting = self._waiting.setdefault(client, {})
        have, known = waiting.get(job.work.ticket, ([], None))
        have += results
        waiting[job.work.ticket] = have, known or fault
        left = self.pending[client] = self.pending.get(client, len(results)) - len(results)
        self._count += len(results)
        if left <= 0:
            del self.pending[client]
            loop.call_soon(self.send, client)
        elif self._count >= ENOUGH or fault is not None or any(map(_is_awaited, results)):
            if not self._leaving:
                self._leaving = True
                loop.call_soon(self.send_all)
        elif self._timer is None:
            self._timer = clock.at(loop, loop.time() + GATHER, self.send_all)

    def send_all(self) -> None:
        """Send what there is."""
        self._leaving = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for client in list(self._waiting):
            self.send(client)

    def send(self, client: str) -> None:
        """Send what there is for one client."""
        parts = []
        for ticket, (results, fault) in self._waiting.pop(client, {}).items():
            self._count -= len(results)
            parts.append(Results(ticket, tuple(results), fault))
        if parts:
            self._send(client, tuple(parts))


def _is_awaited(result: Result) -> bool:
    """The caller waits for this result now: its deadline has come."""
    verdicts = [settled.verdict for settled in result.settled]
    return any(isinstance(verdict, Unscored) and verdict.reason is Reason.DEADLINE for verdict in verdicts)


class WorkerEngine:
    """Takes work, sends updates. Lives on one running loop; make it there."""

    def __init__(
        self,
        config: Config,
        send: Send,
        *,
        wanted: Callable[[str], Wanted | None],
        exchange: Exchange | None = None,
        members: int = 1,
        rank: int = 0,
        heartbeat: bool = False,
        patience: float = BROKER_TIMEOUT_S,
        quiet: float = EXCHANGE_S,
        build: BuildWorker = build_worker,
    ) -> None:
        """`wanted(client)`: its ledger lines. `exchange`: the broker of limits shared with other workers; None: they
        are this one's own. `members`, `rank`, `heartbeat`, `patience`, `quiet` as in engine.quota.QuotaClient."""
        self._send = send
        self._wanted = wanted
        self._jobs: dict[tuple[str, int], list[Job]] = {}
        self._outbox = Outbox(self._send_results)
        self._pulse: asyncio.TimerHandle | None = None
        self._listening: set[str] = set()
        self._worked: set[str] = set()
        """Clients to be sent updates, and those of them that have had work since the last one: when it is done there
        are two more, because the first may come before the limits have settled."""
        self._closing = False
        # The ledger, and what concerns whole batches, is the client's.
        lines = LineMaker(config.judge, wanted)
        self.worker = build(replace(config, ledger=replace(config.ledger, dir="")), lines, self._emit)
        self._member: QuotaClient | None = None
        if exchange is not None:
            paced = self.worker.paced
            self._member = QuotaClient(
                self.worker.engine.admission,
                exchange if paced is None else paced(exchange),
                members=members,
                rank=rank,
                heartbeat=heartbeat,
                patience=patience,
                quiet=quiet,
            )

    @property
    def pending(self) -> int:
        """Samples taken that have no result yet."""
        return sum(self._outbox.pending.values())

    def take(self, work: Work, client: str = "") -> None:
        """Judge these samples. Those of them that are being judged already are not begun again."""
        running = self._jobs.setdefault((client, work.ticket), [])
        running[:] = [job for job in running if not job.done]
        known = {job.work.indexes[place] for job in running for place in job.missing}
        if known:
            work = self._without(work, known)
        if not work.samples or self._closing:
            return
        self._outbox.pending[client] = self._outbox.pending.get(client, 0) + len(work.samples)
        self._listening.add(client)
        self._worked.add(client)
        running.append(self.worker.take(work, client))
        self._beat()

    def cancel(self, message: Cancel, client: str = "") -> None:
        """End every sample of a batch that has no result."""
        for job in list(self._jobs.get((client, message.ticket), ())):
            self.worker.stop(job, message.why)

    def nudge(self) -> None:
        """Others want more of the shared limits than is free: report soon."""
        if self._member is not None:
            self._member.nudge()

    def forget(self, client: str) -> None:
        """A client is gone: stop its work. What it paid for is in the cache."""
        self._listening.discard(client)
        self._worked.discard(client)
        why = Unscored(reason=Reason.CANCELLED, detail="the client is gone")
        for name, ticket in [key for key in self._jobs if key[0] == client]:
            self.cancel(Cancel(ticket, why), name)

    async def close(self) -> None:
        """Cancel what is in flight, send its results, write the cache out."""
        self._closing = True
        if self._pulse is not None:
            self._pulse.cancel()
        await self.worker.close()
        await clock.breathe()
        self._outbox.send_all()
        if self._member is not None:
            await self._member.close()

    def state(self) -> Update:
        """The load on each endpoint from here."""
        return self.worker.state() if self._member is None else self.worker.state(self._member.whole)

    def _without(self, work: Work, known: set[int]) -> Work:
        """The same without the samples of these indexes. A group stays whole as long as one of its samples does."""
        whole = self.worker.whole_groups
        names = [group_name(place, sample) if whole else place for place, sample in enumerate(work.samples)]
        wanted = {name for name, index in zip(names, work.indexes, strict=True) if index not in known}
        kept = [place for place, name in enumerate(names) if name in wanted]
        return replace(
            work,
            indexes=tuple(work.indexes[place] for place in kept),
            samples=tuple(work.samples[place] for place in kept),
        )

    def _emit(self, job: Job, results: list[Result], fault: Fault | None) -> None:
        self._outbox.put(job, results, fault)
        if job.done:
            key = (job.client, job.work.ticket)
            running = [other for other in self._jobs.get(key, ()) if not other.done]
            if running:
                self._jobs[key] = running
            else:
                self._jobs.pop(key, None)

    def _send_results(self, client: str, parts: tuple[Results, ...]) -> None:
        wanted = self._wanted(client)
        texts = tuple(wanted.take_texts()) if wanted is not None else ()
        self._send(client, replace(self.state(), parts=parts, texts=texts))

    def _beat(self) -> None:
        if self._pulse is None and not self._closing:
            loop = asyncio.get_running_loop()
            self._pulse = clock.at(loop, loop.time() + HEARTBEAT, self._tell)

    def _tell(self) -> None:
        self._pulse = None
        for client in list(self._listening):
            self._send(client, self.state())
        working = set(self._outbox.pending)
        self._listening, self._worked = working | self._worked, working
        if self._listening:
            self._beat()
