"""Samples in the pieces that signals look at: rounds of at least 64 answers, and the groups of siblings in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from referee.signals.observations import Observation
from referee.signals.texts import MARK, ends, lined, marks, words_of

LEAST, MOST = 64, 512
"""Answers in a round: fewer are kept until more come, more are several rounds."""
BASELINE = 256
"""Answers at the start of a run that later ones are compared with."""
WINDOW = 256
"""The latest answers: about these is said how it is now."""


Text = tuple[str, frozenset[str]]
"""What phrases are looked for in: the words of an answer's beginning and end in one line, and its marks of format."""


def having(phrase: str, texts: Iterable[Text]) -> list[bool]:
    """Which of the texts hold a phrase or mark."""
    if phrase[0] == MARK:
        return [phrase in marks for _, marks in texts]
    inside = f" {phrase} "
    return [inside in line for line, _ in texts]


class Item:
    """One scored sample."""

    __slots__ = ("marked_lines", "observed", "text", "value", "words")

    def __init__(self, observed: Observation) -> None:
        self.observed = observed
        self.value = observed.value if observed.value is not None else 0.0
        self.words = words_of(observed.response)
        found, self.marked_lines = marks(observed.response, self.words)
        self.text: Text = lined(ends(self.words)), found


class Round:
    """A piece of a run: groups of scored siblings (of at least two), and all samples."""

    def __init__(self, samples: Sequence[Observation]) -> None:
        self.samples = samples
        steps = [one.step for one in samples if one.step is not None]
        self.step = max(steps) if steps else None
        self.items = [Item(one) for one in samples if one.value is not None]
        together: dict[str, list[Item]] = {}
        for item in self.items:
            together.setdefault(item.observed.prompt_key, []).append(item)
        self.groups = [members for key, members in together.items() if key and len(members) > 1]
        self.texts = any(one.response for one in samples)
        """Whether texts are kept. An answer may be empty, all of them hardly."""


def pieces(samples: Sequence[Observation]) -> list[Sequence[Observation]]:
    """Samples in steps' order as rounds' worth; siblings that come one after the other stay together."""
    found: list[Sequence[Observation]] = []
    start = 0
    while len(samples) - start > MOST + LEAST:
        end = start + MOST
        key = samples[end - 1].prompt_key
        while end < start + MOST + LEAST and samples[end].prompt_key == key:
            end += 1
        found.append(samples[start:end])
        start = end
    return [*found, samples[start:]]


def concordance(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kendall's tau of a group: of the pairs that differ in `a`, those in the same order in `b` less those in the
    opposite one. None where none differs."""
    agree = pairs = 0
    for place, x in enumerate(a):
        y = b[place]
        for other in range(place):
            d = x - a[other]
            if d:
                pairs += 1
                e = y - b[other]
                if e:
                    agree += 1 if (d > 0) == (e > 0) else -1
    return agree / pairs if pairs else None
