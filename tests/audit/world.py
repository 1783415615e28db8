"""Referees that audit themselves, on simulated judges: one for the run and one for the shadow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from referee.config import load
from referee.ledger import Line, read
from referee.records import Sample
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.signals import Alarm, AuditAnswer, Observation, Watch
from referee.sim import Provider, ProviderSpec, SimTransport
from referee.sim.chat import Question
from referee.sim.judge import Answer, write

PATIENCE = 60.0
"""Seconds to wait for something that must come. Nothing is asserted about time."""
KEY = "sk-live-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"
MAIN = {"url": "http://main.test/v1", "model": "m", "key_env": "", "name": "main"}
SHADOW = {"url": "http://shadow.test/v1", "model": "s", "key_env": "", "name": "other"}
JUDGES = [{"name": "quality", "endpoint": "main"}, {"name": "check", "endpoint": "other", "weight": 0}]
Score = Callable[[str], int]


def merit(text: str) -> int:
    """Honest: what the answer is marked with, or the lowest score."""
    return int(text.split("quality=")[1].split("]")[0]) if "quality=" in text else 1


class Scored:
    """A simulated judge that scores by a function, and counts."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.asked: list[str] = []

    def answer(self, question: Question) -> Answer:
        """Its verdict."""
        self.asked.append(question.candidate)
        value = self.score(question.candidate)
        return Answer(write(question, value), value)


class World:
    """Two judges and a Referee that asks them."""

    def __init__(
        self,
        sections: dict[str, Any],
        main: Score = merit,
        shadow: Score = merit,
        spec: ProviderSpec | None = None,
        shadow_spec: ProviderSpec | None = None,
    ) -> None:
        first, second = self.main, self.shadow = Scored(main), Scored(shadow)

        def transport() -> SimTransport:
            return SimTransport(
                {
                    "main.test": Provider(spec or ProviderSpec(), judge=first),
                    "shadow.test": Provider(shadow_spec or ProviderSpec(), judge=second),
                }
            )

        config = load({"endpoint": [MAIN, SHADOW], "judge": JUDGES, "cache": {"path": ""}, **sections})
        self.referee = Referee(config, worker_with(transport, random.Random(0), b"the same nonces"))

    def run(self, batches: int, size: int = 16, first: int = 0) -> list[float | None]:
        """So many steps of live answers, collected one after the other."""
        found: list[float | None] = []
        for step in range(first, first + batches):
            found += [reward.value for reward in self.referee.score(rollouts(step, size))]
        return found

    def settle(self) -> None:
        """Wait for the audit."""
        assert self.referee.auditor is not None
        assert self.referee.auditor.settle(PATIENCE)


def look(referee: Referee) -> None:
    """Have the audit look at one more batch, an empty one that nobody collects, and wait for it."""
    assert referee.auditor is not None
    referee.auditor.put("empty", [], [])
    assert referee.auditor.settle(PATIENCE)


def rollouts(step: int, size: int = 16) -> list[Sample]:
    """Answers of all qualities, four to a prompt, each different."""
    return [
        Sample(
            prompt=f"Question {step * 64 + place // 4}?",
            response=f"The answer {place} of step {step} is a plain one. It has two sentences. [[quality={q}]]",
            group=f"{step}/{place // 4}",
            reference=f"reference {step * 64 + place // 4}",
            step=step,
        )
        for place in range(size)
        for q in [(place * 7 + step) % 10 + 1]
    ]


@contextmanager
def world(audit: dict[str, Any] | None = None, **more: Any) -> Iterator[World]:
    """A World with the audit on; `main`, `shadow`, `spec`, `shadow_spec` are the judges', the rest sections."""
    judges = {name: more.pop(name) for name in ("main", "shadow", "spec", "shadow_spec") if name in more}
    settings = {"enable": True, "shadow": "check", **(audit or {})}
    made = World({"audit": settings, **more}, **judges)
    try:
        yield made
    finally:
        made.referee.close()


def lines(folder: Path, kind: type[Any]) -> list[Any]:
    """Lines of one kind in a ledger."""
    found: list[Line] = [line for line in read(folder) if isinstance(line, kind)]
    return found


def critical(sentence: str = "Answers with 'delve' score higher than their siblings.") -> Alarm:
    """An alarm that something is done about."""
    return Alarm(
        signal="phrase",
        level="critical",
        sentence=sentence,
        evidence={"paid": 0.31},
        samples=({"batch": "1-1", "index": 0, "id": "", "value": 1.0, "text": "delve"},),
        advice="Read the samples.",
    )


def over() -> Alarm:
    """The end of it."""
    return Alarm(signal="phrase", level="critical", over=True)


def scripted(plan: dict[int, Alarm]) -> type[Watch]:
    """A Watch that says what `plan` has for the batch of this number, from 1."""

    class Scripted(Watch):
        seen = 0

        def observe(self, samples: Sequence[Observation]) -> list[Alarm]:
            self.seen += 1
            return [plan[self.seen]] if self.seen in plan else []

        def observe_answers(self, answers: Sequence[AuditAnswer]) -> list[Alarm]:
            return []

        def finish(self) -> list[Alarm]:
            return []

    return Scripted
