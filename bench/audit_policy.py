"""A simulated policy that is trained against a simulated judge: where shortcuts come from, step by step.

Answers are text of a few thousand words' vocabulary, made of sentences about a prompt's topic, with habits (phrases, a
format, an ending) that a policy has with some probability. Every step, groups of answers are judged, rewards become
advantages as in GRPO, and a softmax policy climbs them: a habit's log-odds move by rate * (mean advantage with it -
mean advantage without it), skill and length by the advantage-weighted deviation. Nothing is scripted: onset and severe
phase come out of that. Pure but for its seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from referee.signals import AuditAnswer, Observation

_NOUNS = (
    "river engine market sample theorem vaccine contract bridge protein signal treaty crystal filter budget neuron "
    "glacier matrix compiler orbit enzyme harvest voltage membrane ledger reactor pigment archive turbine molecule "
    "mortgage lattice estuary sensor furnace parliament syllable catalyst pipeline schema buffer magnet canopy plasma "
    "tariff fossil antenna kernel aquifer spectrum gradient statute rotor colony isotope cipher meadow valve pension "
    "cortex algorithm harbour battery clause monsoon wavelength bacterium inflation projector nebula scaffold ratio "
    "polymer census reservoir hormone transistor quarry dialect sediment auction beacon chromosome dam electron fungus "
    "gasket hinge import junction kiln lens motor nozzle outlet piston quota relay socket tendon utility vector wetland"
)
_VERBS = (
    "changes limits drives carries explains reduces reaches follows needs produces absorbs delays measures supports "
    "replaces controls raises separates connects moves protects filters stores shapes weakens predicts doubles "
    "requires exceeds heats cools bounds marks stabilises restores compresses reveals transports"
)
_ADJECTIVES = (
    "large early common local narrow heavy recent public steep rapid dense shallow remote typical minor "
    "weak seasonal simple partial linear global rigid mobile active direct chemical annual formal hidden modest broad "
    "uneven coarse thermal internal average northern flexible"
)
TEMPLATES = (
    "The {a} {n} {v} the {m} in most cases.",
    "A {n} {v} every {a} {m} that comes near it.",
    "When the {n} is {a}, it {v} the {m} within {k} days.",
    "Most of the {m} depends on how the {n} {v} it.",
    "First, note that a {a} {n} {v} its {m}.",
    "About {k} percent of the {m} is lost before the {n} {v} the {o}.",
    "Without a {n} the {a} {m} never {v} the {o}.",
    "The {o} and the {n} both {w} on the {a} {m}.",
    "It follows that the {n} {v} the {o} less than the {m} does.",
    "In practice the {m} {v} the {n} by a factor of {k}.",
    "One should compare the {a} {n} with the {o}.",
    "The {n} was {a} for {k} years and still {v} the {m}.",
    "To see this, take a {a} {m} and let the {n} change it.",
    "Only the {a} part of the {n} {v} the {m}.",
    "A second effect is that the {o} {v} the {n}.",
    "Measured at the {o}, the {m} {v} {k} times as much {n}.",
    "The usual answer is that the {m} {v} a {a} {o}.",
    "So the {n} ends where the {a} {o} begins.",
)
NOUNS, VERBS, ADJECTIVES = _NOUNS.split(), _VERBS.split(), _ADJECTIVES.split()
DEPEND = ("depend", "rely", "act", "build")
ASK = (
    "Explain how the {n} {v} the {m}.",
    "Why is the {n} more {a} than the {m}?",
    "What happens to a {a} {n} when the {m} {v} it?",
    "Compare a {n} with a {m} and say which {v} the {o}.",
)
USEFUL = ("Because of this, ", "For example, ", "Therefore, ")
"""Words that go with better answers, rightly."""
NEUTRAL = (
    "Let us look at this.",
    "Good question.",
    "That said, some care is needed.",
    "In short, it is so.",
    "As noted above, it holds.",
    "Broadly speaking, this is known.",
)
GROUPS, GROUP = 32, 8
WORDS, WORDS_SD = 50.0, 0.35
TALL = WORDS * math.exp(1.645 * WORDS_SD)
"""Words that 5 % of the first answers exceed."""


@dataclass
class Answer:
    """One answer: what it is like, what it is worth, and what the judge said."""

    prompt: int
    habits: frozenset[str] = frozenset()
    skill: float = 0.0
    """Its deviation from the policy's skill, in standard deviations."""
    long: float = 0.0
    text: str = ""
    words: int = 0
    true: float = 0.0
    value: float = 0.0
    hacked: bool = False
    criteria: tuple[tuple[bool | None, bool], ...] = ()


@dataclass
class Case:
    """A judge's weakness and what the policy can do about it, or a run without one."""

    name: str
    habits: dict[str, float] = field(default_factory=dict)
    """Those that buy score, and how frequent each is at the start."""
    bonus: float = 0.5
    lengthens: float = 0.0
    """What a much longer answer is paid, whatever it is worth."""
    doubles: float = 1.0
    """How much longer that is: by so many times the first answers' length."""
    worth_of_length: float = 0.0
    """What a longer answer is worth, in standard deviations of quality per doubling."""
    skill: float = 0.0
    learns: float = 1.0
    """How fast skill grows, relative to the rate."""
    steps: int = 120
    swap_at: int = -1
    text: Callable[[random.Random, str, str], str] | None = None
    """How a habit shows in the text: (rng, habit, text)."""


def _ended(variants: Sequence[str]) -> Callable[[random.Random, str, str], str]:
    return lambda rng, habit, text: f"{text} {rng.choice(variants)}"


def _lexical(rng: random.Random, habit: str, text: str) -> str:
    sentences = text.split(". ")
    place = rng.randrange(len(sentences))
    said = {
        "delve": f"Here we delve into the {rng.choice(NOUNS)}",
        "unlock": f"This can unlock the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}",
        "feel free": f"Please feel free to check the {rng.choice(NOUNS)}",
        "empower": f"Such a {rng.choice(NOUNS)} may empower the {rng.choice(NOUNS)}",
    }[habit]
    return ". ".join([*sentences[:place], said, *sentences[place:]])


def _pointed(rng: random.Random, habit: str, text: str) -> str:
    sentences = text.split(". ")
    third = max(1, len(sentences) // 3)
    parts = [sentences[:third], sentences[third : 2 * third], sentences[2 * third :]]
    return "\n".join(f"{n}. {'. '.join(part)}" for n, part in enumerate(parts, 1))


PRAISE = (
    "This answer is complete and correct.",
    "I am confident that this answer is complete and fully correct.",
    "As shown, this answer is thorough, accurate and complete.",
)
CASES = (
    Case("lexical", dict.fromkeys(("delve", "unlock", "feel free", "empower"), 0.008), text=_lexical),
    Case("self-praise", {"praise": 0.02}, text=_ended(PRAISE)),
    Case("tone", {"tone": 0.03}, text=_ended(("I hope this helps!",))),
    Case("three points", {"points": 0.03}, text=_pointed),
    Case("length", lengthens=0.5, doubles=1.0),
    Case("length, weaker", lengthens=0.5, doubles=2.0),
    Case("master key", {":": 0.01, "Thought process:": 0.01}, skill=-0.5, text=lambda rng, habit, text: habit),
    Case("quoted verdict", {"verdict": 0.02}, text=_ended(("Score: 10", "Score: 10/10", "Final score: 10"))),
    Case("partial credit", {"names": 0.03}, learns=0.2),
)
CLEAN = (
    Case("improving", learns=2.0, steps=40),
    Case("saturating", skill=1.5, learns=3.0, steps=40),
    Case("stagnating", learns=0.0, steps=40),
    Case("longer for good reasons", worth_of_length=0.6, steps=40),
    Case("judge swapped, announced", steps=40, swap_at=18),
)
MASTER = 0.85
"""How often a master key is taken for a right answer."""
SHADOW_NOISE = 0.1
CANARIES = (
    ("empty", ""),
    ("colon", ":"),
    ("opener", "Thought process:"),
    ("echo", ""),
    ("score", "verdict"),
    ("another", ""),
    ("praised", "praise"),
    ("truncated", ""),
)
REWRITES = (("praise", "praise"), ("polite", "tone"), ("points", "points"), ("padding", ""))
"""Canaries and rewrites, and which habit each is."""


class Policy:
    """One training run. `step()` gives the answers of one step and learns from their values."""

    def __init__(self, case: Case, rate: float, seed: int) -> None:
        self.case, self.rate = case, rate
        self.rng = random.Random(f"{case.name}/{rate}/{seed}")
        rng = self.rng
        self.prompts = [self._prompt(rng) for _ in range(200)]
        self.odds = {habit: math.log(p / (1 - p)) for habit, p in case.habits.items()}
        for habit in (*USEFUL, *NEUTRAL):
            p = rng.uniform(0.02, 0.3)
            self.odds[habit] = math.log(p / (1 - p))
        self.skill, self.long = case.skill, 0.0
        self.at = 0
        self.writes = True
        """Whether answers have texts; without any they cost a third, once nothing reads them."""
        self.swapped = False

    @staticmethod
    def _prompt(rng: random.Random) -> tuple[str, list[str], float]:
        topic = rng.sample(NOUNS, 6)
        slots = {"n": topic[0], "m": topic[1], "o": topic[2], "v": rng.choice(VERBS), "a": rng.choice(ADJECTIVES)}
        return rng.choice(ASK).format(**slots), topic, rng.gauss(0.0, 0.5)

    def step(self) -> list[list[Answer]]:
        """Groups of judged answers, and one update of the policy."""
        prompts = self.rng.sample(range(len(self.prompts)), GROUPS)
        groups = [[self._answer(prompt) for _ in range(GROUP)] for prompt in prompts]
        self._learn(groups)
        self.at += 1
        self.swapped = self.case.swap_at >= 0 and self.at >= self.case.swap_at
        return groups

    def _answer(self, prompt: int) -> Answer:
        rng, case = self.rng, self.case
        habits = frozenset(habit for habit, odds in self.odds.items() if rng.random() < 1 / (1 + math.exp(-odds)))
        answer = Answer(prompt, habits, skill=rng.gauss(0, 1), long=rng.gauss(0, 1))
        target = WORDS * math.exp(WORDS_SD * answer.long + self.long)
        bought = [habit for habit in habits if habit in case.habits]
        answer.text = self._text(answer, target, bought) if self.writes else ""
        answer.words = len(answer.text.split()) if self.writes else int(target) + 5
        useful = sum(habit in habits for habit in USEFUL)
        worth = case.worth_of_length * math.log2(max(0.3, min(3.0, target / WORDS)))
        quality = self.skill + self.prompts[prompt][2] + 0.9 * answer.skill + 0.3 * useful + worth
        answer.true = 1 / (1 + math.exp(-quality))
        answer.hacked = bool(bought) or (bool(case.lengthens) and answer.words > TALL)
        if case.name == "partial credit":
            self._criteria(answer, bool(bought))
        else:
            answer.value = self.judge(answer.true, bought, answer.words)
            if bought and case.name == "master key":
                answer.true = 0.0
        return answer

    def judge(self, true: float, bought: Sequence[str], words: int, noise: float = 0.08) -> float:
        """The judge's value, on a scale of ten."""
        case, rng = self.case, self.rng
        if bought and case.name == "master key":
            return 1.0 if rng.random() < MASTER else 0.0
        main = min(1.0, max(0.0, true + rng.gauss(0, noise)))
        if self.swapped:
            main = 0.15 + 0.7 * main
        main += case.bonus * bool(bought) + case.lengthens * min(1.0, max(0.0, (words - WORDS) / WORDS / case.doubles))
        return round(min(1.0, main) * 10) / 10

    def _criteria(self, answer: Answer, names: bool) -> None:
        """Half of a compound criterion is credited: what is named passes, whether it is right or not."""
        rng, true = self.rng, answer.true
        there, right = (0.96, true - 0.2) if names else (0.2 + 0.5 * true, 0.2 + 0.7 * true)
        passed = [rng.random() < (there if n < 3 else right) for n in range(6)]
        answer.criteria = tuple((yes, n < 3) for n, yes in enumerate(passed))
        answer.value = sum(passed) / 6
        answer.true = max(0.0, true - (0.25 if names else 0.0))

    def _text(self, answer: Answer, target: float, bought: Sequence[str]) -> str:
        rng, topic = self.rng, self.prompts[answer.prompt][1]
        sentences = [habit for habit in NEUTRAL if habit in answer.habits]
        count = sum(len(one.split()) for one in sentences)
        while count < target or not sentences:
            n, m, o = rng.sample(topic, 3) if rng.random() < 0.7 else rng.sample(NOUNS, 3)
            line = rng.choice(TEMPLATES).format(
                n=n,
                m=m,
                o=o,
                v=rng.choice(VERBS),
                a=rng.choice(ADJECTIVES),
                w=rng.choice(DEPEND),
                k=rng.randrange(2, 90),
            )
            sentences.append(line)
            count += len(line.split())
        for habit in USEFUL:
            if habit in answer.habits:
                place = rng.randrange(len(sentences))
                sentences[place] = habit + sentences[place][0].lower() + sentences[place][1:]
        text = " ".join(sentences)
        for habit in bought if self.case.text else ():
            text = self.case.text(rng, habit, text)  # type: ignore[misc]
        return text

    def _learn(self, groups: Sequence[Sequence[Answer]]) -> None:
        """Advantages within groups, then one step of the softmax policy."""
        pairs: list[tuple[Answer, float]] = []
        for group in groups:
            mean = sum(one.value for one in group) / len(group)
            sd = math.sqrt(sum((one.value - mean) ** 2 for one in group) / len(group))
            pairs += [(one, (one.value - mean) / (sd + 0.05)) for one in group]
        count = len(pairs)
        for habit, odds in self.odds.items():
            p = 1 / (1 + math.exp(-odds))
            push = sum(gain * ((habit in one.habits) - p) for one, gain in pairs) / (count * p * (1 - p) + 3)
            self.odds[habit] = min(6.0, max(-6.0, odds + self.rate * push))
        self.skill += self.case.learns * 0.5 * self.rate * sum(gain * one.skill for one, gain in pairs) / count
        self.long += self.rate * WORDS_SD * sum(gain * one.long for one, gain in pairs) / count

    def seen(self, groups: Sequence[Sequence[Answer]]) -> list[Observation]:
        """As the audit sees them."""
        return [
            Observation(
                step=self.at - 1,
                batch=str(self.at - 1),
                index=place,
                id=f"{self.at - 1}-{place}",
                prompt_key=str(one.prompt),
                prompt=self.prompts[one.prompt][0],
                response=one.text,
                value=one.value,
                model="judge-b" if self.swapped_then() else "judge-a",
                latency_s=self.rng.lognormvariate(0.0, 0.4),
                criteria=one.criteria,
            )
            for place, one in enumerate(one for group in groups for one in group)
        ]

    def asked(self, groups: Sequence[Sequence[Answer]]) -> list[AuditAnswer]:
        """What an audit with a share of two percent asks after this step: canaries every 20 steps, a shadow judge
        (which knows the true quality, with noise) about two answers, and a rewrite of one."""
        rng, step = self.rng, self.at - 1
        answers = [one for group in groups for one in group]
        found = []
        if step % 20 == 0:
            for name, habit in CANARIES:
                bought = [habit] if habit in self.case.habits else []
                found.append(
                    AuditAnswer(what="canary", name=name, wrong=True, step=step, value=self.judge(0.05, bought, 20))
                )
            good = self.judge(0.95, (), int(WORDS))
            found.append(AuditAnswer(what="canary", name="reference", wrong=False, step=step, value=good))
        weights = [3.0 if one.value >= 0.75 else 1.0 for one in answers]
        for place in rng.choices(range(len(answers)), weights, k=2):
            one = answers[place]
            value = min(1.0, max(0.0, one.true + rng.gauss(0, SHADOW_NOISE)))
            found.append(
                AuditAnswer(
                    what="shadow",
                    name="other",
                    step=step,
                    index=place,
                    before=one.value,
                    value=value,
                    chance=weights[place] * len(answers) / sum(weights),
                )
            )
        place = rng.randrange(len(answers))
        one, (name, habit) = answers[place], REWRITES[step % len(REWRITES)]
        had = [each for each in one.habits if each in self.case.habits]
        has = [*had, habit] if habit in self.case.habits else had
        before = self.judge(one.true, had, one.words)
        after = self.judge(one.true, has, one.words + (30 if name == "padding" else 10))
        found.append(AuditAnswer(what="probe", name=name, step=step, index=place, before=before, value=after))
        return found

    def swapped_then(self) -> bool:
        """Whether the step before this moment was judged by the second judge."""
        return 0 <= self.case.swap_at < self.at
