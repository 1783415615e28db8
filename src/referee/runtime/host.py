"""The far side: a Scorer on a loop of its own that judges samples for somebody elsewhere and sends their ends back.

No shaping and no groups here: those need the whole batch, which stays with whoever submitted it. Ledger lines are
made here, as bytes, and written there, so that every sample stands in the ledger once however often it was sent.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from referee import clock
from referee.batch import Batch
from referee.build import build_scorer
from referee.config import Config
from referee.engine.endpoint import Endpoint
from referee.engine.quota import ALONE, PERIOD, Exchange, Member
from referee.errors import EndpointClosed, RefereeError
from referee.ledger import Line, Tally, verdict_line
from referee.ledger.writer import _without_surrogates
from referee.records import JudgeRequest, Reason, Reward, Sample, Settled, Unscored
from referee.runtime.messages import Cancel, End, Gauge, Landed, Part, Work, end_of
from referee.scorer import Scorer

log = logging.getLogger("referee.runtime")

GATHER = 0.1
"""Seconds an end may wait for company, while there is more to come: to wake the trainer's process costs as much as to
land several."""
TOGETHER = 256
"""Ends that need not wait for more."""
PULSE = 0.5
"""Seconds between two words about how things stand, while nothing lands."""

Emit = Callable[[str, Landed], None]
"""Called with the client's name and what has landed for it."""


class Errand(Batch):
    """Samples of somebody else's batch: each is landed here and goes to the outbox, unshaped."""

    def __init__(self, client: str, work: Work, outbox: Outbox) -> None:
        self.client = client
        self.ticket = work.ticket
        self.id = work.batch
        self.samples = work.samples
        self.seconds = work.seconds
        self.caller = work.caller
        self.late = 0.0
        self.error: RefereeError | None = None
        self.indexes = work.indexes
        self.missing = set(range(len(work.samples)))
        self.ends: list[tuple[int, Settled, bytes]] = []
        """Those not sent yet."""
        self._outbox = outbox

    @property
    def done(self) -> bool:
        """True when every sample has landed."""
        return not self.missing

    def landed(self, index: int) -> bool:
        """True if this sample has its end."""
        return index not in self.missing

    def pending(self) -> list[int]:
        """Samples without an end yet."""
        return sorted(self.missing)

    def land(self, index: int, settled: Settled) -> list[Reward]:
        """Off to the outbox. The ledger line, if one is kept, is added before it is sent."""
        if index in self.missing:
            self.missing.discard(index)
            self._outbox.put(self, index, settled)
        return []

    def add_line(self, line: bytes) -> None:
        """The ledger line of what landed last."""
        self.ends[-1] = (*self.ends[-1][:2], line)

    def fail(self, error: RefereeError) -> None:
        """The work on it has died: every sample that has no end gets one that says so."""
        for index in self.pending():
            self.land(index, Settled(verdict=Unscored(reason=Reason.CONFIG, detail=str(error))))

    def hand_over(self, rewards: list[Reward]) -> None:
        """Ends were put into the outbox when they landed."""


class Outbox:
    """Ends on their way out, by client: gathered for a moment, sent at once when nothing else is to come."""

    def __init__(self, emit: Callable[[str, tuple[Part, ...]], None]) -> None:
        self._emit = emit
        self._errands: dict[str, list[Errand]] = {}
        """Those with ends to send."""
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False
        """All that is here leaves in the next turn of the loop."""
        self.pending: dict[str, int] = {}
        """Samples without an end, by client."""

    def put(self, errand: Errand, index: int, settled: Settled) -> None:
        """One sample's end. It leaves in a later turn of the loop: its ledger line is not there yet."""
        client = errand.client
        if not errand.ends:
            self._errands.setdefault(client, []).append(errand)
        errand.ends.append((errand.indexes[index], settled, b""))
        left = self.pending[client] = self.pending.get(client, 1) - 1
        self._count += 1
        if left <= 0:
            del self.pending[client]
            asyncio.get_running_loop().call_soon(self.send, client)
        elif self._count >= TOGETHER or _is_late(settled):
            if not self._leaving:
                self._leaving = True
                asyncio.get_running_loop().call_soon(self.send_all)
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = clock.at(loop, loop.time() + GATHER, self.send_all)

    def send_all(self) -> None:
        """Send what there is."""
        self._leaving = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for client in list(self._errands):
            self.send(client)

    def send(self, client: str) -> None:
        """Send what there is for one client."""
        parts = []
        for errand in self._errands.pop(client, ()):
            closed = errand.error if isinstance(errand.error, EndpointClosed) else None
            told = (closed.reason, str(closed)) if closed is not None else None
            parts.append(Part(errand.ticket, tuple([end_of(*end) for end in errand.ends]), told))
            self._count -= len(errand.ends)
            errand.ends.clear()
        if parts:
            self._emit(client, tuple(parts))


def _is_late(settled: Settled) -> bool:
    """Somebody waits for this end at this moment: his time is over."""
    return isinstance(settled.verdict, Unscored) and settled.verdict.reason is Reason.DEADLINE


class Host:
    """Takes work, emits ends. Lives on one running loop; make it there."""

    def __init__(
        self,
        config: Config,
        emit: Emit,
        *,
        lines: bool = False,
        exchange: Exchange | None = None,
        members: int = 1,
        rank: int = 0,
        heartbeat: bool = False,
        patience: float = ALONE,
        quiet: float = PERIOD,
        build: Callable[[Config], Scorer] = build_scorer,
    ) -> None:
        """`lines`: make ledger lines. `exchange`: who answers for limits shared with other hosts; None: they are
        this host's own. `members`, `rank`, `heartbeat`, `patience`, `quiet` as in engine.quota.Member."""
        content = config.ledger.content
        self._emit = emit
        self._errands: dict[tuple[str, int], list[Errand]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox = Outbox(self._send)
        self._pulse: asyncio.TimerHandle | None = None
        self._busy: set[str] = set()
        self._worked: set[str] = set()
        """Clients to be told how things stand, and those of them who have had work since the last word: when it is done
        there are two more, for the first may come before things have calmed."""
        self._closing = False
        # What concerns whole batches is decided where they are.
        missing = replace(config.missing, policy="abstain", value=None, abort_above=1.0)
        far = replace(config, ledger=replace(config.ledger, dir=""), missing=missing)
        self.scorer = build(far)
        self._recorder = LineRecorder(lines, content)
        self.scorer.recorder = self._recorder
        self._member: Member | None = None
        if exchange is not None:
            self._member = Member(
                self.scorer.engine.admission,
                self.scorer.engine.paced(exchange),
                members=members,
                rank=rank,
                heartbeat=heartbeat,
                patience=patience,
                quiet=quiet,
            )

    @property
    def pending(self) -> int:
        """Samples taken and not yet landed."""
        return sum(self._outbox.pending.values())

    def take(self, work: Work, client: str = "") -> None:
        """Judge these samples. Those of them that are being judged already are not begun again."""
        running = self._errands.setdefault((client, work.ticket), [])
        known = {errand.indexes[place] for errand in running for place in errand.missing}
        if known:
            kept = [place for place, index in enumerate(work.indexes) if index not in known]
            work = replace(
                work,
                indexes=tuple(work.indexes[place] for place in kept),
                samples=tuple(work.samples[place] for place in kept),
            )
        if not work.samples or self._closing:
            return
        errand = Errand(client, work, self._outbox)
        running.append(errand)
        self._outbox.pending[client] = self._outbox.pending.get(client, 0) + len(work.samples)
        self._busy.add(client)
        self._worked.add(client)
        task = asyncio.get_running_loop().create_task(self.scorer.run(errand))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._finished, errand))
        self._beat()

    def cancel(self, message: Cancel, client: str = "") -> None:
        """End everything of a batch that has no end yet."""
        for errand in list(self._errands.get((client, message.ticket), ())):
            self.scorer.stop(errand, message.why)

    def nudge(self) -> None:
        """Others want more of the shared limits than is free: report soon."""
        if self._member is not None:
            self._member.nudge()

    def forget(self, client: str) -> None:
        """A client is gone: stop its work. What it paid for is in the cache."""
        self._busy.discard(client)
        self._worked.discard(client)
        why = Unscored(reason=Reason.CANCELLED, detail="the client is gone")
        for name, ticket in [key for key in self._errands if key[0] == client]:
            self.cancel(Cancel(ticket, why), name)

    def status(self, parts: tuple[Part, ...] = (), texts: Sequence[str] = ()) -> Landed:
        """How things stand, with these ends."""
        engine = self.scorer.engine
        gauges = tuple(
            Gauge(
                endpoint.label,
                0 if endpoint.breaker.closed else self._whole(endpoint),
                endpoint.in_flight,
                endpoint.sent,
                endpoint.throttled,
            )
            for endpoint in engine.endpoints
        )
        hedged = engine.calls.stragglers.hedged
        return Landed(parts, tuple(texts), gauges, engine.admission.queued, engine.admission.budget.spent, hedged)

    async def close(self) -> None:
        """Cancel what is in the air, land it, write the cache out."""
        self._closing = True
        if self._pulse is not None:
            self._pulse.cancel()
        await self.scorer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await clock.breathe()
        self._outbox.send_all()
        if self._member is not None:
            await self._member.close()

    def _whole(self, endpoint: Endpoint) -> int:
        return self._member.whole(endpoint) if self._member is not None else endpoint.limiter.limit

    def _finished(self, errand: Errand, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("judging failed unexpectedly", exc_info=task.exception())
        errand.fail(RefereeError("internal error: judging these samples failed unexpectedly; see the log"))
        key = (errand.client, errand.ticket)
        running = self._errands.get(key, [])
        if errand in running:
            running.remove(errand)
        if not running:
            self._errands.pop(key, None)

    def _send(self, client: str, parts: tuple[Part, ...]) -> None:
        self._emit(client, self.status(parts, self._recorder.take_texts()))

    def _beat(self) -> None:
        if self._pulse is None and not self._closing:
            loop = asyncio.get_running_loop()
            self._pulse = clock.at(loop, loop.time() + PULSE, self._tell)

    def _tell(self) -> None:
        self._pulse = None
        for client in list(self._busy):
            self._emit(client, self.status())
        working = set(self._outbox.pending)
        self._busy, self._worked = working | self._worked, working
        if self._busy:
            self._beat()


class LineRecorder:
    """Stands where a Scorer keeps its record: makes ledger lines and gives them to the outbox."""

    def __init__(self, lines: bool, content: bool) -> None:
        self.tally = Tally()
        """Stays empty: what has landed is counted where it is collected."""
        self._lines = lines
        self._content = content
        self._known: set[str] = set()
        self._texts: list[str] = []
        self._encode = msgspec.json.Encoder().encode

    def settled(self, batch: Batch, index: int, request: JudgeRequest | None, settled: Settled) -> None:
        """One sample's judging has ended."""
        if not self._lines or not isinstance(batch, Errand):
            return
        if self._content and request is not None and len(request.messages) > 1:
            text = request.messages[0].content
            if text not in self._known:
                self._known.add(text)
                self._texts.append(text)
        batch.add_line(self._line(batch, batch.samples[index], index, request, settled))

    def take_texts(self) -> list[str]:
        """Texts that lines refer to and that were not sent yet."""
        texts, self._texts = self._texts, []
        return texts

    def rewarded(self, batch: Batch, rewards: list[Reward]) -> None:
        """Rewards are made elsewhere."""

    def write(self, line: Line) -> None:
        """Other lines are written elsewhere."""

    def watch_limits(self) -> None:
        """How hard the endpoints are pressed is told with what lands."""

    def close(self) -> None:
        """Nothing is open."""

    def _line(self, batch: Errand, sample: Sample, index: int, request: JudgeRequest | None, settled: Settled) -> bytes:
        line = verdict_line(
            sample,
            settled,
            wall=clock.wall(),
            batch=batch.id,
            index=batch.indexes[index],
            request=request,
            content=self._content,
        )
        try:
            return self._encode(line)
        except UnicodeEncodeError:
            return self._encode(_without_surrogates(msgspec.to_builtins(line)))


__all__ = ["End", "Errand", "Host", "LineRecorder", "Outbox"]
