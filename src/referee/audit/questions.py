"""The audit's own questions: what to ask about which live samples, and what an answer says. No threads, no I/O."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from referee.audit.judged import JudgedSample
from referee.audit.user_canaries import USER_PREFIX, UserCanary
from referee.config import JudgeConfig
from referee.judging import needs_groups
from referee.ledger import AuditLine
from referee.probes import REWRITES, Rewrite, rewritten
from referee.probes.canaries import LENIENT, Canary, canaries, fits, good_canaries
from referee.probes.trials import CREDIT
from referee.records import Reason, Sample, Settled, Text, Unscored, Verdict
from referee.rollouts import own_words, plain
from referee.signals import AuditAnswer

ROUND_PROMPTS = 2
"""Prompts of the run that a round of canaries is put under."""
ROUND_OWN = 4
"""The user's own canaries in a round; a longer file takes turns."""
_NEVER = (Reason.CANCELLED, Reason.BUDGET, Reason.ALONE)
"""Ends that are no answer: nothing was asked, or nothing could be."""
HIGH_TIMES = 3.0
"""How much more often an answer among the better quarter is shown to the shadow judge."""
CEILING = 0.95
"""A score from here on has no room to rise, so its answer is not rewritten."""

_names = itertools.count(1)


class Question(Struct, frozen=True, kw_only=True):
    """One thing to ask one judge: about one sample, or of a probe about an answer as it was and as it was changed."""

    what: str
    name: str
    judge: str
    cases: tuple[tuple[Sample, ...], ...]
    """The first sample of each is what is asked about; the others are its siblings, for a judge of groups."""
    live: JudgedSample | None = None
    wrong: bool | None = None
    before: float | None = None
    chance: float = 1.0
    text: str = ""


def case_of(
    judge: JudgeConfig, sample: Sample, siblings: Sequence[Sample], response: Text | None = None
) -> tuple[Sample, ...]:
    """A sample as it is asked about again, with another answer if one is given; judges of groups get siblings too."""
    group = f"audit {next(_names)}" if needs_groups((judge,)) else ""
    shown = (sample if response is None else replace(sample, response=response), *(siblings if group else ()))
    return tuple(
        [replace(one, group=group, id="", length=None, truncated=False, rule_score=0.0, step=None) for one in shown]
    )


def canary_question(judge: JudgeConfig, live: JudgedSample, canary: Canary) -> Question:
    """A canary under a live sample's prompt."""
    return Question(
        what="canary",
        name=canary.name,
        judge=judge.name,
        cases=(case_of(judge, live.sample, live.siblings, canary.response),),
        live=live,
        wrong=canary.wrong,
        before=live.value,
        text=canary.response,
    )


def canary_round(
    judge: JudgeConfig,
    judged: Sequence[JudgedSample],
    good: JudgedSample | None,
    users: Sequence[UserCanary],
    turn: int,
    lenient: bool,
) -> list[Question]:
    """A round of canaries for one judge. `judged`: live samples of different prompts. `good`: one whose answer is known
    to be good. `lenient`: it credits what is worthless (see `probes.canaries`), so only good ones tell anything."""
    if not fits(judge):
        return []
    found = []
    references = [live.sample.reference or "" for live in judged]
    for place, live in enumerate(judged[:ROUND_PROMPTS]):
        other = next((one for one in references[place + 1 :] + references[:place] if one != references[place]), "")
        shipped = canaries(judge, live.prompt, turn, reference=references[place], other=other)
        if turn == 0:
            shipped.append(LENIENT)
        found += [canary_question(judge, live, canary) for canary in shipped]
    if good is not None:
        found += [canary_question(judge, good, canary) for canary in good_canaries(plain(good.sample.response))]
    for number in range(min(ROUND_OWN, len(users))):
        mine = users[(turn * ROUND_OWN + number) % len(users)]
        if not mine.prompt and judged:
            canary = Canary(mine.name, mine.response, mine.wrong)
            found.append(canary_question(judge, judged[number % len(judged)], canary))
        elif mine.prompt and not needs_groups((judge,)):
            sample = Sample(prompt=mine.prompt, response=mine.response, reference=mine.reference)
            found.append(
                Question(
                    what="canary",
                    name=mine.name,
                    judge=judge.name,
                    cases=((sample,),),
                    wrong=mine.wrong,
                    text=mine.response,
                )
            )
    return [one for one in found if not (lenient and one.wrong and not one.name.startswith(USER_PREFIX))]


def shadow_questions(
    judge: JudgeConfig, pool: Sequence[JudgedSample], count: int, rng: random.Random
) -> list[Question]:
    """`count` live answers for the shadow judge, those with high scores more often."""
    found = drawn(pool, _weights(pool), count, rng)
    return [
        Question(
            what="shadow",
            name=judge.name,
            judge=judge.name,
            cases=(case_of(judge, live.sample, live.siblings),),
            live=live,
            before=live.value,
            chance=chance * len(pool) / len(found),
        )
        for live, chance in found
    ]


def probe_questions(
    judge: JudgeConfig, number: int, pool: Sequence[JudgedSample], count: int, turn: int, rng: random.Random
) -> list[Question]:
    """`count` live answers, each as it is and changed in a way that must not raise its score. Both are asked now: a
    judge that says something else each time must not look like one that is bribed. `number`: of the judge, among
    those of the run."""
    if not fits(judge):
        return []
    found: list[Question] = []
    fit = [live for live in pool if (value := live.values[number]) is not None and value < CEILING]
    for live, _ in drawn(fit, [1.0] * len(fit), count, rng):
        rewrite, changed = _rewritten(live.sample, turn + len(found))
        if rewrite is None or changed is None:
            continue
        found.append(
            Question(
                what="probe",
                name=rewrite.name,
                judge=judge.name,
                cases=(case_of(judge, live.sample, live.siblings), case_of(judge, changed, live.siblings)),
                live=live,
                text=plain(changed.response),
            )
        )
    return found


def fixed_questions(judge: JudgeConfig, number: int, judged: Sequence[JudgedSample]) -> list[Question]:
    """The run's first answers once more: what changes is the judge."""
    return [
        Question(
            what="fixed",
            name=f"fixed {place}",
            judge=judge.name,
            cases=(case_of(judge, live.sample, live.siblings),),
            live=live,
            before=live.values[number],
        )
        for place, live in enumerate(judged, 1)
        if live.values[number] is not None
    ]


def _rewritten(sample: Sample, turn: int) -> tuple[Rewrite | None, Sample | None]:
    """The next rewrite that changes anything."""
    for number in range(len(REWRITES)):
        rewrite = REWRITES[(turn + number) % len(REWRITES)]
        changed = rewritten(sample, rewrite)
        if changed is not None:
            return rewrite, changed
    return None, None


def _weights(pool: Sequence[JudgedSample]) -> list[float]:
    values = sorted(live.value for live in pool)
    high = values[3 * len(values) // 4] if values else 0.0
    return [HIGH_TIMES if live.value >= high else 1.0 for live in pool]


def drawn(
    pool: Sequence[JudgedSample], weights: Sequence[float], count: int, rng: random.Random
) -> list[tuple[JudgedSample, float]]:
    """`count` of them, and with which probability each was drawn: in proportion to its weight, at most 1."""
    count = min(count, len(pool))
    if count <= 0:
        return []
    chances = [0.0] * len(pool)
    left, places = float(count), list(range(len(pool)))
    while True:
        whole = sum(weights[place] for place in places)
        sure = [place for place in places if weights[place] * left >= whole]
        for place in sure:
            chances[place] = 1.0
        left -= len(sure)
        places = [place for place in places if chances[place] < 1.0]
        if not sure or left <= 0 or not places:
            break
    whole = sum(weights[place] for place in places)
    for place in places:
        chances[place] = weights[place] * left / whole if left > 0 else 0.0
    # Systematic sampling: as many as asked for, each with exactly its own probability.
    order = list(range(len(pool)))
    rng.shuffle(order)
    found, sum_, mark = [], 0.0, rng.random()
    for place in order:
        sum_ += chances[place]
        if sum_ > mark:
            found.append((pool[place], chances[place]))
            mark += 1.0
    return found[:count]


def answer_of(question: Question, ends: Sequence[Settled], content: bool, step: int | None) -> AuditLine | None:
    """What the answers say; None where a gate answered, or nothing was asked in the end. `step`: the run's now."""
    last = ends[-1]
    values = [end.verdict.value if isinstance(end.verdict, Verdict) else None for end in ends]
    missing = next((end.verdict for end in ends if isinstance(end.verdict, Unscored)), None)
    if any(end.origin == "gate" for end in ends) or (missing is not None and missing.reason in _NEVER):
        return None
    live, reply = question.live, last.reply
    shown = question.text or (own_words(live.sample.response) if live else "")
    return AuditLine(
        what=question.what,
        name=question.name,
        judge=question.judge,
        step=step,
        batch=live.batch if live else "",
        index=live.index if live else -1,
        id=live.sample.id if live else "",
        wrong=question.wrong,
        before=values[0] if question.what == "probe" else question.before,
        value=None if missing is not None else values[-1],
        chance=question.chance,
        model=last.model,
        fingerprint=reply.fingerprint if reply else "",
        unscored=missing.reason.value if missing is not None else "",
        cost=sum(end.cost for end in ends),
        answer=shown if content else "",
        why=last.verdict.reason if content and isinstance(last.verdict, Verdict) else "",
    )


def credits_worthless(answers: Iterable[AuditAnswer]) -> bool:
    """Whether a judge, by its first round, credits an answer that is worthless and tries nothing."""
    controls = [one.value for one in answers if one.name == LENIENT.name and one.value is not None]
    return bool(controls) and sum(controls) / len(controls) > CREDIT


def counts(one: AuditAnswer, lenient: bool) -> bool:
    """Whether a signal may count it: not a wrong canary where the judge credits what is worthless."""
    return one.name != LENIENT.name and (not one.wrong or not lenient or one.name.startswith(USER_PREFIX))
