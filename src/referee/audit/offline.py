"""The audit of a finished run: its ledger through the same watch as a live one. No calls are made."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from referee.errors import InputError
from referee.judging.folding import PASSED
from referee.ledger import AuditLine, BatchLine, JudgeLine, Line, RewardLine, RunLine, VerdictLine, read
from referee.ledger.build_lines import digest
from referee.records import Reason
from referee.rollouts.messages import read_text
from referee.rollouts.turns import own_words
from referee.signals import Alarm, Observation, Watch, presence
from referee.version import VERSION

OPEN = 8192
"""Samples of unfinished batches that are kept; with more, the oldest batch is looked at as it is."""
TOGETHER = 64
"""Answers to the audit's own questions that are observed as one round."""

_presence = functools.lru_cache(maxsize=4096)(presence)


class State(Struct, frozen=True):
    """How one signal stands at the end."""

    state: str
    """quiet, alarm, or not enough."""
    looked_at: int
    measures: dict[str, float]


class AuditResult(Struct, kw_only=True):
    """What the audit of a run found."""

    version: str = VERSION
    samples: int = 0
    """Looked at: those that a gate settled or the caller gave up are not among them."""
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    texts: bool = False
    """Whether texts are in the record."""
    groups: bool = False
    """Whether samples have siblings."""
    alarms: list[Alarm] = []
    """Each once, as it stood when it began or became critical; `over`: it ended before the run did."""
    measures: dict[str, float] = {}
    signals: dict[str, State] = {}


def audit(lines: Iterable[Line]) -> AuditResult:
    """Feed the lines of a run, in time order, to a watch."""
    return _LedgerAudit().read(lines)


class TimeOrder:
    """The lines of a ledger file, or of all files in a folder side by side: several processes write one each."""

    def __init__(self, path: Path) -> None:
        whole = read(path)
        self._readings = [read(file) for file in whole.files]

    def __iter__(self) -> Iterator[Line]:
        streams = [_timed(reading, place) for place, reading in enumerate(self._readings)]
        return (line for _, _, line in heapq.merge(*streams, key=lambda one: one[:2]))

    @property
    def lost(self) -> int:
        """Lines that could not be read."""
        return sum(one.skipped + one.unknown + one.torn for one in self._readings)


def _timed(lines: Iterable[Line], place: int) -> Iterator[tuple[float, int, Line]]:
    """With the latest time so far: clocks may step back, and old lines may have none."""
    now = 0.0
    for line in lines:
        now = max(now, line.wall)
        yield now, place, line


class _LedgerAudit:
    """Brings the lines of a batch together."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._open: dict[str, list[Observation]] = {}
        self._waiting = 0
        self._criteria: dict[tuple[str, int], list[tuple[bool | None, bool]]] = {}
        self._lengths: dict[str, dict[int, int]] = {}
        """By batch and index, as rewards say them."""
        self._answers: list[AuditLine] = []
        self._digest = ""
        self._steps: set[int] = set()
        self._alarms: dict[str, list[Alarm]] = {}
        self._found = AuditResult()

    def read(self, lines: Iterable[Line]) -> AuditResult:
        for line in lines:
            if isinstance(line, VerdictLine):
                self._verdict(line)
            elif isinstance(line, JudgeLine):
                if line.how == "rubric":
                    self._criteria.setdefault((line.batch, line.index), []).extend(_criteria(line))
            elif isinstance(line, RewardLine):
                if line.length and line.batch in self._open:
                    self._lengths.setdefault(line.batch, {})[line.index] = line.length
            elif isinstance(line, BatchLine):
                self._finish(line.batch)
            elif isinstance(line, AuditLine):
                self._answers.append(line)
                if len(self._answers) >= TOGETHER:
                    self._observe_answers()
            elif isinstance(line, RunLine):
                self._run(line)
            elif line.__struct_config__.tag == "note" and getattr(line, "what", "") == "announced":
                self._announce()
        self._flush()
        self._report(self._watch.finish())
        return self._result()

    def _run(self, line: RunLine) -> None:
        """A new configuration is a change on purpose."""
        if self._digest and line.digest != self._digest:
            self._announce()
        self._digest = line.digest

    def _announce(self) -> None:
        self._flush()
        self._report(self._watch.finish())
        self._watch.announce()

    def _verdict(self, line: VerdictLine) -> None:
        criteria = self._criteria.pop((line.batch, line.index), [])
        if line.origin == "gate" or line.unscored == Reason.CANCELLED.value:
            return
        if line.how == "rubric":
            criteria = _criteria(line)
        self._open.setdefault(line.batch, []).append(_observation(line, tuple(criteria)))
        self._found.samples += 1
        if line.step is not None:
            self._steps.add(line.step)
        self._found.texts = self._found.texts or bool(line.response)
        self._waiting += 1
        if self._waiting > OPEN:
            self._finish(next(iter(self._open)))

    def _finish(self, batch: str) -> None:
        """A batch is complete, as far as it will be."""
        self._observe_answers()
        samples, lengths = self._open.pop(batch, None), self._lengths.pop(batch, {})
        if samples:
            if not self._found.texts:
                samples = [_with_length(one, lengths.get(one.index)) for one in samples]
            self._waiting -= len(samples)
            if batch:  # rows of a file that name no batch stand in their order
                samples.sort(key=lambda one: one.index)
            self._report(self._watch.observe(samples))

    def _observe_answers(self) -> None:
        if self._answers:
            answers, self._answers = self._answers, []
            self._report(self._watch.observe_answers(answers))

    def _flush(self) -> None:
        for batch in list(self._open):
            self._finish(batch)
        self._observe_answers()

    def _report(self, alarms: Iterable[Alarm]) -> None:
        """One entry for an alarm from its beginning to its end."""
        for alarm in alarms:
            mine = self._alarms.setdefault(alarm.signal, [])
            before = mine[-1] if mine and not mine[-1].over else None
            if before is None:
                mine.append(alarm)
            elif alarm.over:
                mine[-1] = msgspec.structs.replace(before, over=True)
            else:
                mine[-1] = msgspec.structs.replace(alarm, step=before.step, critical_step=alarm.step)

    def _result(self) -> AuditResult:
        found, watch = self._found, self._watch
        found.steps = len(self._steps)
        if self._steps:
            found.first_step, found.last_step = min(self._steps), max(self._steps)
        found.alarms = [alarm for mine in self._alarms.values() for alarm in mine]
        found.measures = watch.measures()
        states = watch.states()
        found.signals = {one.name: State(*states[one.name], one.measures()) for one in watch.signals}
        found.groups = watch.groups > 0
        return found


def _observation(line: VerdictLine, criteria: tuple[tuple[bool | None, bool], ...]) -> Observation:
    """A sample as signals observe it, from its line."""
    prompt = line.prompt_digest or (digest(line.prompt) if line.prompt else "")
    return Observation(
        step=line.step,
        batch=line.batch,
        index=line.index,
        id=line.id,
        prompt_key=prompt or line.group,
        prompt=line.prompt,
        response=_response(line),
        reference=line.reference,
        length=line.length,
        rule=line.rule_score,
        value=line.value,
        unscored=line.unscored,
        model=line.model,
        fingerprint=line.fingerprint,
        provider=line.provider,
        latency_s=line.latency_s if line.origin == "call" else 0.0,
        criteria=criteria,
    )


def _with_length(one: Observation, length: int | None) -> Observation:
    """Where there is no text whose words could be counted, the reward's length does."""
    return one if one.length is not None or length is None else msgspec.structs.replace(one, length=length)


def _response(line: VerdictLine) -> str:
    """What the policy itself wrote."""
    messages = line.more.get("response")
    if not isinstance(messages, list):
        return line.response
    try:
        return own_words(read_text(messages))
    except InputError:
        return line.response


def _criteria(line: VerdictLine | JudgeLine) -> list[tuple[bool | None, bool]]:
    """Whether each speaks for the answer, and whether it only asks that something is there."""
    found = []
    for part in line.parts:
        value = part.get("value")
        passed = None
        if isinstance(value, int | float) and not part.get("unscored"):
            passed = (value if part.get("true_is") != "bad" else 1.0 - value) > PASSED
        found.append((passed, _presence(str(part.get("text") or part.get("name", "")))))
    return found
