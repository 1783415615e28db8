"""The audit's questions about a run that is over: canaries, shadow judge, probes, fixed set, within a bound.

Answers of the run's beginning are compared with those of its end: what the shadow judge thinks of both.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from referee.audit.clients import Client, Ends, JudgeClients
from referee.audit.judged import JudgedSample
from referee.audit.questions import (
    ROUND_PROMPTS,
    Question,
    answer_of,
    canary_round,
    counts,
    credits_worthless,
    fixed_questions,
    probe_questions,
    shadow_questions,
)
from referee.audit.user_canaries import read_user_canaries
from referee.config import Config
from referee.ledger import AuditLine

ROUNDS = 12
"""Of canaries, at most: by then every judge is known."""
FIXED = 16


def questions_about(
    config: Config, early: Sequence[JudgedSample], late: Sequence[JudgedSample], requests: int, per_case: float
) -> list[Question]:
    """What to ask. `early` and `late`: answers of the run's beginning and end, in order. `per_case`: requests that the
    run made for a sample. A third each for canaries, the shadow judge and the rest."""
    rng, part = random.Random(0), requests / per_case / 3
    judges = [(number, judge) for number, judge in enumerate(config.judge) if judge.weight > 0]
    found: list[Question] = []
    judged, own = (
        list({live.prompt: live for live in (*early, *late)}.values()),
        read_user_canaries(config.audit.canaries),
    )
    for turn in range(min(ROUNDS, len(judged) // ROUND_PROMPTS or len(judged))):
        chosen = [*judged[ROUND_PROMPTS * turn :], *judged]
        new = [one for _, judge in judges for one in canary_round(judge, chosen, None, own, turn, False)]
        if turn and len(found) + len(new) > part:
            break
        found += new
    shadow = next(iter(config.audit.judge), None)
    rest = 2 * part if shadow is None else part
    for number, judge in judges:
        found += fixed_questions(judge, number, early[: min(FIXED, int(rest / 4 / len(judges)))])
        count = int(rest / 3 / len(judges))
        found += probe_questions(judge, number, [*early, *late], count, 0, rng)
    for pool in (early, late) if shadow is not None else ():
        assert shadow is not None
        found += shadow_questions(shadow, pool, int(part / 2), rng)
    return found


def ask_afterwards(
    config: Config, questions: Sequence[Question], open_client: Callable[[Config], Client]
) -> list[AuditLine]:
    """The answers in the order of the questions, as a live audit would have recorded them."""
    clients = JudgeClients(replace(config, audit=replace(config.audit, share=1.0, processes=0)), open_client)
    done: queue.SimpleQueue[tuple[list[Question], Ends]] = queue.SimpleQueue()
    by_judge: dict[str, list[Question]] = {}
    for one in questions:
        by_judge.setdefault(one.judge, []).append(one)
    found: list[AuditLine] = []
    try:
        for judge, mine in by_judge.items():
            clients.ask(judge, mine, lambda ends, mine=mine: done.put((mine, ends)))  # type: ignore[misc]
        for _ in by_judge:
            mine, ends = done.get()
            given = [
                answer_of(one, case, True, one.live.sample.step if one.live else None)
                for one, case in zip(mine, ends, strict=True)
            ]
            answers = [one for one in given if one is not None]
            lenient = credits_worthless(answers)
            found += [one if counts(one, lenient) else replace(one, wrong=None) for one in answers]
    finally:
        clients.close(10.0)
    return found
