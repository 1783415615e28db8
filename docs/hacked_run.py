"""A run whose judge is gamed, with the audit on: the policy of `bench.audit_policy`, trained through a real Referee.

The judge gives half of its scale more to answers that end with a polite phrase; the policy finds that out. The shadow
judge knows the worth of an answer, with noise. Both are simulated, in this process.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from bench.audit_policy import CASES, GROUP, GROUPS, NEUTRAL, Answer, Case, Policy

from referee import Referee, Sample
from referee.config import load
from referee.records import Verdict
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport
from referee.sim.chat import Question
from referee.sim.judge import Answer as Said
from referee.sim.judge import write

STEPS, RATE = 40, 0.15
PATIENCE = 60.0
"""Seconds to wait for the audit's last questions."""


class Judge:
    """Knows what sentences are worth, by the answers they were written for, also where these were changed since."""

    def __init__(self, bonus: float) -> None:
        self.bonus = bonus
        self.worth: dict[str, float] = {}

    def learn(self, answer: Answer) -> None:
        """An answer that will be asked about."""
        self.worth.update(dict.fromkeys(_sentences(answer.text), answer.true))

    def answer(self, question: Question) -> Said:
        """A score on its scale."""
        text = question.candidate
        true = next((self.worth[one] for one in _sentences(text) if one in self.worth), 0.05)
        value = true + random.Random(text).gauss(0.0, 0.1) + self.bonus * ("I hope this helps" in text)
        span = question.high - question.low
        score = max(question.low, min(question.high, round(question.low + value * span)))
        return Said(
            write(question, score, "To the point and clear." if value > 0.6 else "Little that answers it."), score
        )


def _sentences(text: str) -> list[str]:
    """Those that are about something, in plain words."""
    found = [re.sub(r"[^a-z ]", "", one.lower()).strip() for one in re.split(r"[.!\n]", text)]
    return [one for one in found if len(one.split()) > 5 and one not in NEUTRAL]


def hacked_run(folder: Path, case: Case = next(case for case in CASES if case.name == "tone")) -> None:  # noqa: B008
    """Train for some steps, and leave a ledger in `folder`."""
    policy = Policy(case, RATE, 3)
    judges = {"main.test": Judge(case.bonus), "other.test": Judge(0.0)}
    config = load(
        {
            "endpoint": [
                {"url": "http://main.test/v1", "model": "judge-sim", "key_env": "", "name": "main"},
                {"url": "http://other.test/v1", "model": "other-sim", "key_env": "", "name": "other"},
            ],
            "judge": [{"name": "quality", "endpoint": "main"}, {"name": "check", "endpoint": "other", "weight": 0}],
            "cache": {"path": ""},
            "audit": {"enable": True, "shadow": "check"},
            "ledger": {"dir": str(folder)},
        }
    )

    def transport() -> SimTransport:
        return SimTransport({host: Provider(ProviderSpec(), judge=judge) for host, judge in judges.items()})

    with Referee(config, worker_with(transport, random.Random(0), b"nonces")) as referee:
        for step in range(STEPS):
            prompts = policy.rng.sample(range(len(policy.prompts)), GROUPS)
            groups = [[policy._answer(prompt) for _ in range(GROUP)] for prompt in prompts]
            answers = [answer for group in groups for answer in group]
            for judge in judges.values():
                for answer in answers:
                    judge.learn(answer)
            samples = [
                Sample(
                    prompt=policy.prompts[answer.prompt][0],
                    response=answer.text,
                    id=f"{step}-{place}",
                    group=f"{step}-{answer.prompt}",
                    step=step,
                )
                for place, answer in enumerate(answers)
            ]
            for answer, reward in zip(answers, referee.score(samples), strict=True):
                assert isinstance(reward.verdict, Verdict)
                answer.value = reward.verdict.value
            policy._learn(groups)
        assert referee.auditor is not None
        referee.auditor.settle(PATIENCE)
