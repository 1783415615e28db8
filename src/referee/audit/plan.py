"""When the audit asks what: rounds of canaries first, then the fixed set, the shadow judge and probes, as far as its
share of the run's requests allows. No threads, no I/O.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from referee.audit.judged import JudgedSample
from referee.audit.questions import (
    Question,
    canary_round,
    counts,
    credits_worthless,
    fixed_questions,
    probe_questions,
    shadow_questions,
)
from referee.audit.share import Share
from referee.audit.user_canaries import UserCanary
from referee.config import Config, JudgeConfig
from referee.ledger import AuditLine
from referee.records import Reward

PROMPTS = 32
"""Latest prompts that canaries may be put under."""
POOL = 256
"""Latest answers of which some are shown to the shadow judge, or rewritten."""
FIXED = 16
"""Answers of the fixed set: one each of the first prompts."""
FIXED_EVERY = 5
"""Rounds of canaries between two of the fixed set."""
GOODS = 16
EARLY = 20
"""Batches at the start among whose answers good ones are found, to be canaries later."""
GOOD = 0.8
"""Score of a good answer, by the judge and by the shadow judge or the best rule score of its group."""
SHADOW_TIMES = 2.0
"""Requests for the shadow judge for each one for a probe."""
MOST = 32
"""Answers shown, or rewritten, at a time."""


class Plan:
    """What to ask next. One for each Auditor."""

    def __init__(self, config: Config, canaries: Sequence[UserCanary]) -> None:
        self.share = Share(config.audit.share)
        self._every = config.audit.every
        self._judges = [(number, judge) for number, judge in enumerate(config.judge) if judge.weight > 0]
        self._names = [judge.name for judge in config.judge]
        self._shadow = next(iter(config.audit.judge), None)
        self._user_canaries = canaries
        self._rng = random.Random(config.digest())
        self._away: dict[str, float] = {}
        """Requests that are under way, about, by judge."""
        self._round_cost = 0.0
        """Requests of a round of canaries, by the last one."""
        self._begin()
        self._spent = {"shadow": 0.0, "probe": 0.0}

    def _begin(self) -> None:
        self._turn = self._probes = 0
        self._batches = self._since = self._since_fixed = 0.0
        self._prompts: dict[str, JudgedSample] = {}
        self._pool: dict[str, list[JudgedSample]] = {"shadow": [], "probe": []}
        self._fixed: dict[str, JudgedSample] = {}
        self._goods: dict[str, JudgedSample] = {}
        self.lenient: set[str] = set()
        """Judges that credit what is worthless."""

    def announce(self) -> None:
        """The judge or the data are others from now on."""
        self._begin()

    def record_batch(self, judged: Sequence[JudgedSample], rewards: Sequence[Reward], batches: float = 1.0) -> None:
        """A batch that is done. `batches`: how much of one, where rollouts come one by one."""
        for number, name in enumerate(self._names):
            self.share.count_run(name, [reward.terms[number].settled for reward in rewards])
        self._batches += batches
        self._since += batches
        self._since_fixed += batches
        for live in judged:
            prompt = live.prompt
            self._prompts.pop(prompt, None)
            self._prompts[prompt] = live
            if live.fresh and len(self._fixed) < FIXED:
                self._fixed.setdefault(prompt, live)
            for pool in self._pool.values():
                pool.append(live)
        while len(self._prompts) > PROMPTS:
            del self._prompts[next(iter(self._prompts))]
        for pool in self._pool.values():
            del pool[:-POOL]
        if self._batches <= EARLY:
            self._find_good(judged)

    def _find_good(self, judged: Sequence[JudgedSample]) -> None:
        """Answers that judge and rule both hold to be the best of theirs."""
        rules: dict[str, list[float]] = {}
        for live in judged:
            rules.setdefault(live.prompt, []).append(live.sample.rule_score)
        for live in judged:
            scores = rules[live.prompt]
            if live.value >= GOOD and live.sample.rule_score == max(scores) > min(scores):
                self._good(live)

    def _good(self, live: JudgedSample) -> None:
        if len(self._goods) < GOODS and live.sample.reference is None:
            self._goods.setdefault(live.prompt, live)

    def next_questions(self) -> list[Question]:
        """What to ask now; every judge has at most one set of questions under way."""
        if not self._prompts:
            return []
        room, free = self.share.room(sum(self._away.values())), not self.share.first
        if self._turn == 0 or self._since >= self._every:
            if self._round_cost > room or any(judge.name in self._away for _, judge in self._judges):
                return []
            rounds = self._canaries()
            self._round_cost = self._cost(rounds)
            if free:
                self.share.first = self._round_cost
            elif self._round_cost > room:
                return []
            self._turn += 1
            self._since = 0.0
            return self._sent(rounds)
        fixed = len(self._fixed) * sum(self.share.cost(judge.name) for _, judge in self._judges)
        if self._since_fixed >= FIXED_EVERY * self._every and fixed <= room:
            if any(judge.name in self._away for _, judge in self._judges):
                return []
            self._since_fixed = 0.0
            judged = list(self._fixed.values())
            return self._sent([one for place, judge in self._judges for one in fixed_questions(judge, place, judged)])
        reserved = self._round_cost * min(1.0, self._since / self._every)
        reserved += fixed * min(1.0, self._since_fixed / (FIXED_EVERY * self._every))
        return self._about_live(room - reserved)

    def _canaries(self) -> list[Question]:
        judged = list(self._prompts.values())
        random.Random(self._turn).shuffle(judged)
        goods = list(self._goods.values())
        good = goods[self._turn % len(goods)] if goods else None
        return [
            one
            for _, judge in self._judges
            for one in canary_round(judge, judged, good, self._user_canaries, self._turn, judge.name in self.lenient)
        ]

    def _about_live(self, room: float) -> list[Question]:
        """What is not needed for canaries goes to the shadow judge and to probes, in turn."""
        found: list[Question] = []
        ways: list[tuple[float, str, int, JudgeConfig]] = []
        if self._shadow is not None:
            ways.append((self._spent["shadow"] / SHADOW_TIMES, "shadow", 0, self._shadow))
        if self._judges:
            ways.append((self._spent["probe"], "probe", *self._judges[self._probes % len(self._judges)]))
        for _, what, number, judge in sorted(ways, key=lambda way: way[0]):
            count = min(MOST, int(room / (self.share.cost(judge.name) * (2 if what == "probe" else 1))))
            pool = self._pool[what]
            if judge.name in self._away or not pool:
                continue
            if count < 1:
                break  # it is its turn: what room there is waits for it
            if what == "shadow":
                new = shadow_questions(judge, pool, count, self._rng)
            else:
                new = probe_questions(judge, number, pool, count, self._probes, self._rng)
                self._probes += max(1, len(new))
            pool.clear()
            self._spent[what] += self._cost(new)
            room -= self._cost(new)
            found += self._sent(new)
        return found

    def drop(self, judge: str) -> None:
        """It cannot be asked any more."""
        self._away.pop(judge, None)
        self._judges = [one for one in self._judges if one[1].name != judge]
        if self._shadow is not None and self._shadow.name == judge:
            self._shadow = None

    def record_answers(self, judge: str, answers: Sequence[tuple[Question, AuditLine | None]]) -> list[AuditLine]:
        """A judge has answered all that it was asked. Returns what the signals are to observe."""
        self._away.pop(judge, None)
        if credits_worthless([one for _, one in answers if one]):
            self.lenient.add(judge)
        found = []
        for question, one in answers:
            if one is None or not counts(one, judge in self.lenient):
                continue
            agreed = one.what == "shadow" and min(one.value or 0.0, one.before or 0.0) >= GOOD
            if agreed and question.live is not None and self._batches <= 2 * EARLY:
                self._good(question.live)
            found.append(one)
        return found

    def _sent(self, questions: list[Question]) -> list[Question]:
        for one in questions:
            self._away[one.judge] = self._away.get(one.judge, 0.0) + len(one.cases) * self.share.cost(one.judge)
        return questions

    def _cost(self, questions: Sequence[Question]) -> float:
        return sum(len(one.cases) * self.share.cost(one.judge) for one in questions)
