"""The live audit of one Referee: a daemon thread that observes finished batches, asks its own questions, raises alarms.

A batch is handed over by reference, in one call: making records of it, looking and asking happen on the audit's thread.
What does not fit the queue is dropped and counted. Nothing here can fail or delay a reward.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import queue
import shlex
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from referee import clock
from referee.audit.clients import Client, Ends, JudgeClients, processes_of
from referee.audit.judged import judged_samples, observations_of
from referee.audit.plan import Plan
from referee.audit.questions import Question, answer_of
from referee.audit.user_canaries import read_user_canaries
from referee.config import Config
from referee.errors import RewardHacked
from referee.judging import needs_groups
from referee.ledger import AlarmLine, MeasuresLine, NoteLine
from referee.records import Reward, Sample
from referee.signals import RATE, Alarm, Watch

log = logging.getLogger("referee.audit")

MAX_SAMPLES = 16384
"""Samples of finished batches that wait to be looked at; batches beyond that are dropped."""
ONE_BY_ONE = 64
"""Samples that count as a batch where they are submitted one at a time."""
MEASURED = 256
"""Samples from one record of the signals' numbers to the next."""
EXIT_S = 1.0
"""Seconds the thread may take when the interpreter exits."""
STEPS = 64
"""Latest steps whose weight is remembered."""


class Auditor:
    """One for each Referee and process. `put` may be called from any thread."""

    def __init__(self, config: Config, record: Callable[[Any], None], open_client: Callable[[Config], Client]) -> None:
        """`record` adds a line to the ledger, from any thread; `open_client` makes the Referees that the audit asks."""
        self._config = config
        self._record = record
        self._open_client = open_client
        self._user_canaries = read_user_canaries(config.audit.canaries)
        self._groups = needs_groups(config.known_judges)
        self._reset()
        _alive.add(self)
        _close_at_exit()

    def _reset(self) -> None:
        """As new. Also in a forked child: its parent's thread does not exist there, and its locks may be held."""
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a finalizer may close it from inside
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._watch = Watch(RATE / processes_of(self._config))
        self._plan = Plan(self._config, self._user_canaries)
        self._clients = JudgeClients(self._config, self._open_client)
        self._busy = 0
        """Sets of questions under way."""
        self._held = self._dropped = self._measured = self._begun = 0
        self._closed = self._failed = False
        self._step: int | None = None
        self._cost = 0.0
        self._measures: dict[str, float] = {}
        self._open: dict[str, Alarm] = {}
        self._ever: dict[tuple[str, str], bool] = {}
        self._stop: Alarm | None = None
        self._weight = 1.0
        self._weights: dict[int, float] = {}
        self._waiting: list[threading.Event] = []

    def put(self, batch: str, samples: Sequence[Sample], rewards: Sequence[Reward]) -> None:
        """A batch is done."""
        with self._lock:
            if self._closed:
                return
            if self._held and self._held + len(samples) > MAX_SAMPLES:
                self._dropped += 1
                return
            self._held += len(samples)
            self._inbox.put(functools.partial(self._look, batch, samples, rewards))
            self._start()

    def announce(self, why: str) -> None:
        """A change on purpose: the baselines are learned anew."""
        with self._lock:
            if not self._closed:
                self._inbox.put(functools.partial(self._announced, why))
                self._start()

    def hacked(self) -> RewardHacked | None:
        """The error to raise instead of handing out rewards, if an alarm says so."""
        alarm = self._stop
        if alarm is None:
            return None
        numbers = ", ".join(f"{name} {_number(value)}" for name, value in alarm.evidence.items())
        return RewardHacked(
            f"[audit] on_alarm = stop: {alarm.sentence} ({alarm.signal}{f': {numbers}' if numbers else ''}). Training "
            f"on would reward that, so the run stops. {alarm.advice}{self._where()}",
            alarm=alarm,
        )

    def weight_for(self, samples: Sequence[Sample]) -> float:
        """The factor on the judges' part of the reward. All of a step that names itself have the same: siblings may be
        submitted in several batches."""
        step = samples[0].step if samples else None
        if step is None or self._config.audit.action != "weight":
            return self._weight
        with self._lock:
            while len(self._weights) > STEPS:
                del self._weights[next(iter(self._weights))]
            return self._weights.setdefault(step, self._weight)

    def alarms(self) -> dict[tuple[str, str], bool]:
        """Every signal and level that was an alarm so far, and whether it is now."""
        return dict(self._ever)

    def metrics(self) -> dict[str, float]:
        """Counts and the signals' numbers, by the names of `referee docs metrics`."""
        found = {f"audit/{name}": value for name, value in self._measures.items()}
        return {
            **found,
            "audit/alarms": float(self._begun),
            "audit/open": float(len(self._open)),
            "audit/asked": float(self._plan.share.asked),
            "audit/cost_usd": self._cost,
            "audit/dropped": float(self._dropped),
            "audit/weight": self._weight,
        }

    def settle(self, seconds: float) -> bool:
        """Wait until all batches handed over were looked at and all questions under way are answered."""
        over = threading.Event()
        with self._lock:
            if self._closed or self._thread is None:
                return True
            self._inbox.put(functools.partial(self._waiting.append, over))
        return over.wait(seconds)

    def close(self, seconds: float = 2.0) -> None:
        """Look at what waits, take back what was asked, end the thread. Safe to call twice."""
        until = clock.monotonic() + seconds
        with self._lock:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
            thread = self._thread
            if thread is not None:
                self._inbox.put(lambda: self._report(self._watch.finish()))  # no more will come
                self._inbox.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
        self._clients.cancel()
        self._clients.close(max(0.0, until - clock.monotonic()))

    def _start(self) -> None:
        """Under the lock: the thread, if it is not there."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, args=(self._inbox,), name="referee-audit", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self, inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (message := inbox.get()) is not None:
            try:
                message()
            except Exception:  # whatever it is, rewards go on, and so does the next look
                log.log(logging.DEBUG if self._failed else logging.ERROR, "the audit failed", exc_info=True)
                self._failed = True
            if self._waiting and not self._busy and inbox.empty():
                for over in self._waiting:
                    over.set()
                self._waiting.clear()

    def _look(self, batch: str, samples: Sequence[Sample], rewards: Sequence[Reward]) -> None:
        with self._lock:
            self._held -= len(samples)
        steps = [sample.step for sample in samples if sample.step is not None]
        self._step = max(steps) if steps else self._step
        judged = judged_samples(batch, samples, rewards, self._groups)
        self._plan.record_batch(judged, rewards, 1.0 if len(samples) > 1 else 1.0 / ONE_BY_ONE)
        self._report(self._watch.observe(observations_of(batch, samples, rewards)))
        if self._watch.samples - self._measured >= MEASURED:
            self._measured = self._watch.samples
            self._record(MeasuresLine(wall=clock.wall(), step=self._step, measures=dict(self._measures)))
        self._ask()

    def _announced(self, why: str) -> None:
        self._watch.announce()
        self._plan.announce()
        self._record(NoteLine(wall=clock.wall(), step=self._step, what="announced", text=why))
        self._report(self._watch.observe_answers(()))  # open alarms are over: a run that was stopped may go on

    def _ask(self) -> None:
        if self._closed:
            return
        by_judge: dict[str, list[Question]] = {}
        for one in self._plan.next_questions():
            by_judge.setdefault(one.judge, []).append(one)
        for judge, questions in by_judge.items():
            self._busy += 1
            try:
                self._clients.ask(judge, questions, functools.partial(self._on_answers, judge, questions))
            except Exception:  # the others are asked nevertheless
                self._busy -= 1
                self._plan.drop(judge)
                log.exception("the audit cannot ask judge %s, and does not try again. Rewards go on", judge)

    def _on_answers(self, judge: str, questions: Sequence[Question], ends: Ends) -> None:
        """On the client's thread."""
        self._inbox.put(functools.partial(self._take_answers, judge, questions, ends))

    def _take_answers(self, judge: str, questions: Sequence[Question], ends: Ends) -> None:
        self._busy -= 1
        if self._clients.exhausted(judge, ends):
            self._plan.drop(judge)
        self._plan.share.count_audit(judge, [end for case in ends for end in case])
        self._cost += sum(end.cost for case in ends for end in case)
        content, known = self._config.ledger.content, judge in self._plan.lenient
        answers = [(one, answer_of(one, case, content, self._step)) for one, case in zip(questions, ends, strict=True)]
        counted = self._plan.record_answers(judge, answers)
        named = judge if len(self._config.known_judges) > 1 else ""
        for one in [one for _, one in answers if one is not None]:
            wrong = one.wrong if any(one is other for other in counted) else None
            self._record(replace(one, wall=clock.wall(), judge=named, wrong=wrong))
        if judge in self._plan.lenient and not known:
            words = f"judge {judge} credits a worthless answer that tries nothing: wrong canaries tell nothing about it"
            log.info("%s, and are asked no more", words)
            self._record(NoteLine(wall=clock.wall(), step=self._step, what="lenient", text=words))
        self._report(self._watch.observe_answers(counted))
        self._ask()

    def _report(self, alarms: Sequence[Alarm]) -> None:
        """Alarms that begin, become critical or end."""
        self._measures = self._watch.measures()
        for alarm in alarms:
            for (signal, level), _ in list(self._ever.items()):
                if signal == alarm.signal:
                    self._ever[signal, level] = False
            if alarm.over:
                self._open.pop(alarm.signal, None)
            else:
                self._begun += alarm.signal not in self._open
                self._open[alarm.signal] = alarm
                self._ever[alarm.signal, alarm.level] = True
            critical = [one for one in self._open.values() if one.level == "critical"]
            weight = self._config.audit.factor if critical else 1.0
            stop = critical[-1] if critical and self._config.audit.action == "stop" else None
            action = self._config.audit.action if (weight, stop) != (self._weight, self._stop) else "log"
            self._record(self._alarm_line(alarm, action, weight))
            self._warn(alarm, action, weight, stop is not None)
            self._weight, self._stop = weight, stop  # last: a caller that is stopped finds it in the log

    def _alarm_line(self, alarm: Alarm, action: str, weight: float) -> AlarmLine:
        keep = self._config.ledger.content
        return AlarmLine(
            wall=clock.wall(),
            signal=alarm.signal,
            level=alarm.level,
            step=alarm.step,
            over=alarm.over,
            sentence=alarm.sentence,
            evidence=dict(alarm.evidence),
            samples=tuple([{k: v for k, v in one.items() if keep or k != "text"} for one in alarm.samples]),
            advice=alarm.advice,
            action=action,
            weight=weight,
        )

    def _warn(self, alarm: Alarm, action: str, weight: float, stops: bool) -> None:
        at = "" if alarm.step is None else f" at step {alarm.step}"
        done = ""
        if action == "weight":
            done = f" The judge's part of the reward counts times {weight:g} from the next batch on."
        elif action == "stop":
            done = " The next collect raises RewardHacked." if stops else " Rewards are handed out again."
        if alarm.over:
            log.warning("audit: %s is back to normal%s.%s", alarm.signal, at, done)
            return
        log.warning(
            "audit: %s (%s)%s: %s %s%s%s",
            alarm.signal,
            alarm.level,
            at,
            alarm.sentence,
            alarm.advice,
            done,
            self._where(),
        )

    def _where(self) -> str:
        folder = self._config.ledger.dir
        return f" To see more: referee audit {shlex.quote(folder)}" if folder else ""

    def __repr__(self) -> str:
        return f"Auditor({self._watch.samples} samples, {self._plan.share.asked} asked, {len(self._open)} alarms)"


def _number(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


_alive: weakref.WeakSet[Auditor] = weakref.WeakSet()


def close_all() -> None:
    """The interpreter exits: what was found by then is recorded. Before the runtimes, which keep the ledger."""
    for auditor in list(_alive):
        auditor.close(EXIT_S)


def _after_fork() -> None:
    for auditor in list(_alive):
        closed = auditor._closed
        auditor._reset()
        auditor._closed = closed


@functools.cache
def _close_at_exit() -> None:
    """Called when runtimes have registered themselves: the latest is called first."""
    atexit.register(close_all)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
