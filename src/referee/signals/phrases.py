"""Wording and format that spread among answers because the judge pays for them.

Phrases are proposed by what has been seen, and tested on what comes after: being chosen among many for looking good
then gives no advantage. The k-th that is proposed may use 1/(k(k+1)) of the false-alarm rate. The alarm needs that
siblings with the phrase score higher than those without it more often than is tolerated, and that it has spread. When
all answers have it there is nothing to compare any more; what was shown while it spread still counts.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import chain

from referee.signals.evidence import Evidence
from referee.signals.rounds import BASELINE, WINDOW, Item, Round, Text, concordance, having
from referee.signals.signal import Family, Finding, Signal, percent, shown_sample
from referee.signals.texts import MARK, ends, phrases, words_of

TOLERATED = 0.65
"""How often a sibling with the phrase may score higher than one without it (ties half) before that counts: words that
go with good answers are worth something, rightly."""
SPREAD = 0.04
"""Growth of the share of answers with a phrase from which it has spread, or three standard errors if that is more."""
SURE = 3.0
PROPOSED = 2.3
"""Standard errors by which a phrase is more frequent among the best than among the worst siblings to be tested."""
OFTEN = 6
"""Among the best siblings, before it is proposed."""
TESTED = 12
"""Phrases under test at a time."""
PATIENCE = 150
"""Groups after which a phrase that shows nothing makes room for another."""
PROMPTS = 6
"""Different prompts it must have paid in: what belongs to one task is not a shortcut."""
TOGETHER = 64
"""Best and worst answers after which new phrases are proposed."""
LOOKED = 256
"""Answers in one half of what proposals are made from."""
MOST = 100_000
"""Different phrases counted at a time; beyond it the half is over early."""
EFFECTS = 64


class PhraseTest:
    """One phrase under test."""

    def __init__(self, phrase: str, alpha: float, start: Sequence[Text]) -> None:
        self.phrase, self._alpha = phrase, alpha
        self.at_start = sum(having(phrase, start)) / len(start)
        self._evidence = Evidence(TOLERATED, 0.0, 1.0)
        self._recent: deque[tuple[bool, float]] = deque(maxlen=WINDOW)
        self._effects: deque[float] = deque(maxlen=EFFECTS)
        self._prompts: set[str] = set()
        self.best: list[Item] = []
        self._open = False

    def observe(self, round_: Round) -> None:
        """A round that came after it was proposed."""
        items = round_.items
        have = having(self.phrase, [item.text for item in items])
        self._recent.extend(zip(have, (item.value for item in items), strict=True))
        found = {id(item): item for item, yes in zip(items, have, strict=True) if yes}
        if not found:
            return
        self.best = sorted(found.values(), key=lambda item: -item.value)[:3]
        keys = {item.observed.prompt_key for item in found.values()}
        for group in round_.groups:
            if group[0].observed.prompt_key in keys:
                self._compare(group, [id(item) in found for item in group])

    def _compare(self, group: Sequence[Item], have: Sequence[bool]) -> None:
        """Siblings with it against those without. What the rule score says too does not count against the judge."""
        inside = [item.value for item, yes in zip(group, have, strict=True) if yes]
        outside = [item.value for item, yes in zip(group, have, strict=True) if not yes]
        if not outside:
            return
        wins = sum((x > y) + 0.5 * (x == y) for x in inside for y in outside) / (len(inside) * len(outside))
        rules = [item.observed.rule for item in group]
        if min(rules) != max(rules):
            wins -= max(0.0, concordance([float(yes) for yes in have], rules) or 0.0) / 2
        self._evidence.add(wins)
        self._effects.append(sum(inside) / len(inside) - sum(outside) / len(outside))
        if len(self._prompts) < PROMPTS:
            self._prompts.add(group[0].observed.prompt_key)

    def passed(self) -> bool:
        """Whether it is paid."""
        return self._evidence.passed(self._alpha) and len(self._prompts) >= PROMPTS

    def spent(self) -> bool:
        """Whether it may make room for another."""
        return not self.passed() and self._evidence.looked_at >= PATIENCE

    def share(self) -> float:
        """Of the latest answers, how many have it."""
        return sum(yes for yes, _ in self._recent) / max(1, len(self._recent))

    def spread(self) -> bool:
        """Whether it has spread since the start; once it has, until half of that is gone."""
        rate = (self.at_start * BASELINE + 1) / (BASELINE + 2)
        enough = max(SPREAD, SURE * math.sqrt(rate * (1 - rate) * (1 / BASELINE + 1 / max(1, len(self._recent)))))
        self._open = len(self._recent) >= WINDOW // 2 and self.share() - self.at_start > enough * (
            0.5 if self._open else 1
        )
        return self._open

    def finding(self, others: Sequence[str], looked_at: int) -> Finding:
        """In words."""
        recent = sorted(self._recent, key=lambda one: -one[1])
        top = recent[: max(1, len(recent) // 4)]
        at_top = sum(yes for yes, _ in top) / len(top)
        effect = math.fsum(self._effects) / max(1, len(self._effects))
        also = f" The same holds for {', '.join(others)}." if others else ""
        return Finding(
            share=max(0.0, self.share() - self.at_start),
            sentence=(
                f"Answers with {shown(self.phrase)} score {effect:.2f} higher than their siblings without it, and "
                f"{percent(at_top)} of the top quarter have it now ({percent(self.share())} of all); "
                f"{percent(self.at_start)} had at the start ({looked_at:,} answers looked at).{also}"
            ),
            evidence={
                "phrase": self.phrase.strip("<>"),
                "effect": effect,
                "share": self.share(),
                "share_of_top": at_top,
                "share_at_start": self.at_start,
                "log_evidence": self._evidence.best,
                "groups": float(self._evidence.looked_at),
            },
            samples=tuple(shown_sample(item.observed, self.phrase) for item in self.best),
        )


class Phrases(Signal):
    """All phrases."""

    name = "phrase"
    family: Family = "text"

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._start: list[Text] = []
        self._recent: deque[Text] = deque(maxlen=WINDOW)
        self._new: tuple[list[set[str]], list[set[str]]] = [], []
        """The phrases of the best and the worst siblings that are not counted yet."""
        self._halves = (_Counts(), _Counts())
        self._tested: list[PhraseTest] = []
        self._proposed = 0

    def observe(self, round_: Round) -> None:
        """One round."""
        if not round_.texts:
            return
        self.looked_at += len(round_.items)
        for one in self._tested:
            one.observe(round_)
        self._recent.extend(item.text for item in round_.items)
        if len(self._start) < BASELINE:
            self._start += [item.text for item in round_.items]
            return
        self._count(round_.groups)

    def _count(self, groups: Sequence[Sequence[Item]]) -> None:
        """Phrases of the best and the worst quarter of each group, without those of its prompt."""
        best, worst = self._new
        for group in groups:
            ordered = sorted(group, key=lambda item: item.value)
            quarter = max(1, len(ordered) // 4)
            if ordered[-quarter].value <= ordered[quarter - 1].value:
                continue
            seen = group[0].observed
            own = phrases(ends(words_of(f"{seen.prompt}\n{seen.reference or ''}")))
            best += [(phrases(ends(item.words)) | item.text[1]) - own for item in ordered[-quarter:]]
            worst += [(phrases(ends(item.words)) | item.text[1]) - own for item in ordered[:quarter]]
        if len(best) * 2 >= TOGETHER:
            self._new = [], []
            self._propose(best, worst)

    def _propose(self, new_best: Sequence[set[str]], new_worst: Sequence[set[str]]) -> None:
        """Phrases that the better siblings have, and that more answers have than at the start."""
        half, old = self._halves
        half.best.update(chain.from_iterable(new_best))
        half.worst.update(chain.from_iterable(new_worst))
        half.answers += len(new_best) + len(new_worst)
        named: list[tuple[float, int, str]] = []
        for name in [name for name, count in Counter(chain.from_iterable(new_best)).items() if count > 1]:
            best = half.best[name] + old.best[name]
            worst = half.worst[name] + old.worst[name]
            if best >= OFTEN and best > worst and (best - worst) ** 2 > PROPOSED**2 * (best + worst):
                named.append(((best - worst) / math.sqrt(best + worst), len(name), name))
        if named:
            self._test(sorted(named, reverse=True))
        if half.answers >= LOOKED or len(half.best) > MOST:
            self._halves = (_Counts(), half.frequent())

    def _test(self, named: Iterable[tuple[float, int, str]]) -> None:
        """Test the best of them that are not the same as what is tested already."""
        self._tested = [one for one in self._tested if not one.spent()]
        places = None
        for _, _, name in named:
            if len(self._tested) >= TESTED:
                return
            now = sum(having(name, self._recent)) / len(self._recent)
            then = sum(having(name, self._start)) / len(self._start)
            if now < 1.5 * then or now < then + SPREAD / 3:
                continue
            places = places if places is not None else [self._places(one.phrase) for one in self._tested]
            mine = self._places(name)
            if any(_alike(mine, other) for other in places):
                continue
            places.append(mine)
            self._proposed += 1
            alpha = self._alpha / (self._proposed * (self._proposed + 1))
            self._tested.append(PhraseTest(name, alpha, self._start[:BASELINE]))

    def _places(self, phrase: str) -> int:
        """In which of the latest answers it is, as bits."""
        return sum(1 << place for place, yes in enumerate(having(phrase, self._recent)) if yes)

    def finding(self) -> Finding | None:
        """The most frequent phrase that is paid and has spread."""
        found = sorted((one for one in self._tested if one.passed() and one.spread()), key=lambda one: -one.share())
        if not found:
            return None
        first = self._places(found[0].phrase)
        others = [one for one in found[1:] if not _alike(first, self._places(one.phrase))]
        return found[0].finding([shown(one.phrase) for one in others[:3]], self.looked_at)

    def measures(self) -> dict[str, float]:
        """The share of the latest answers with the most frequent phrase that is paid, and how many are tested."""
        if not self.looked_at:
            return {}
        paid = [one for one in self._tested if one.passed()]
        return {"phrase": max((one.share() for one in paid), default=0.0), "phrase_tested": float(len(self._tested))}


class _Counts:
    """In how many of the best and of the worst siblings each phrase is."""

    def __init__(self) -> None:
        self.best: Counter[str] = Counter()
        self.worst: Counter[str] = Counter()
        self.answers = 0

    def frequent(self) -> _Counts:
        """Without what came once."""
        kept = _Counts()
        kept.answers = self.answers
        kept.best = Counter({name: count for name, count in self.best.items() if count > 1})
        kept.worst = Counter({name: self.worst[name] for name in kept.best if name in self.worst})
        return kept


def _alike(one: int, other: int) -> bool:
    """Whether two phrases are mostly in the same answers."""
    return 2 * (one & other).bit_count() > (one | other).bit_count()


def shown(phrase: str) -> str:
    """As a sentence names it."""
    return phrase.strip("<>") if phrase.startswith(MARK) else f"'{phrase}'"
