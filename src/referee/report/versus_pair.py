"""One comparison: two answers to a prompt, and what the judge said of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from referee.judging.pairwise import FIRST, LOST, WON
from referee.records import Part, Reward, Sample, Unscored, Verdict
from referee.rollouts import own_words, plain
from referee.rollouts.pairs import AnswerPair
from referee.shaping import count_tokens

Name = Literal["a", "b"]


class Order(Struct, frozen=True, kw_only=True):
    """What the judge said when it was shown the two in one order."""

    first: Name
    winner: Literal["a", "b", ""]
    """Empty: neither."""
    why: str
    """Its reason, with the sets' names for places."""


class Answer(Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    id: str
    line: int
    text: str
    length: int
    value: float | None = None
    """In [0, 1]: its own score, or of a comparison 1, 0.5 or 0."""
    score: float | None = None
    """On the judge's own scale."""
    why: str = ""
    """What the judge said of it alone, or which gate settled it."""
    gated: bool = False
    """A gate settled it: the judge was not asked about it."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Two answers to one prompt."""

    prompt_number: int
    """Comparisons of one prompt share it."""
    ordinal: int
    prompt: str
    a: Answer
    b: Answer
    outcome: float | None
    """1 if b won, 0 if a did, 0.5 for a tie. None: no verdict."""
    equal: bool = False
    """The answers are the same text."""
    unscored: str = ""
    detail: str = ""
    """Why there is no verdict."""
    orders: tuple[Order, ...] = ()
    columns: dict[str, str] = {}

    @property
    def margin(self) -> float:
        """How far a is ahead, from -1 to 1."""
        return (self.a.value or 0.0) - (self.b.value or 0.0)


def compared(
    pair: AnswerPair,
    rewards: tuple[Reward, Reward],
    names: tuple[str, str],
    columns: Mapping[str, str],
    stated_lengths: bool,
) -> Comparison:
    """What the rewards of the two answers say. `stated_lengths`: every row has a `length`, so that they compare."""
    a, b = (
        _answer(row.line, row.sample, reward, stated_lengths)
        for row, reward in zip((pair.a, pair.b), rewards, strict=True)
    )
    missing = next((reward.verdict for reward in rewards if isinstance(reward.verdict, Unscored)), None)
    return Comparison(
        prompt_number=pair.prompt,
        ordinal=pair.ordinal,
        prompt=plain(pair.a.sample.prompt),
        a=a,
        b=b,
        outcome=_outcome(a, b),
        equal=a.text == b.text,
        unscored="" if missing is None else missing.reason.value,
        detail="" if missing is None else missing.detail,
        orders=_orders(rewards[1].verdict, names),
        columns=dict(columns),
    )


def _outcome(a: Answer, b: Answer) -> float | None:
    """1: the second is better. What a gate has settled loses against any other, also one of the lowest score."""
    if a.value is None or b.value is None:
        return None
    mine, other = (not b.gated, b.value), (not a.gated, a.value)
    return (1 + (mine > other) - (mine < other)) / 2


def _answer(line: int, sample: Sample, reward: Reward, stated: bool) -> Answer:
    length = sample.length if stated and sample.length is not None else count_tokens(own_words(sample.response))
    given = reward.verdict
    answer = Answer(id=sample.id, line=line, text=plain(sample.response), length=length)
    if isinstance(given, Unscored):
        return answer
    why = "" if given.how == "pairwise" else given.reason  # how often it won, which the outcome says
    return replace(answer, value=given.value, score=given.score, why=why, gated=given.how == "gate")


def _orders(given: Verdict | Unscored, names: tuple[str, str]) -> tuple[Order, ...]:
    """What b's verdict is made of."""
    if isinstance(given, Unscored) or given.how != "pairwise":
        return ()
    return tuple(_order(part, names) for part in given.parts if isinstance(part.verdict, Verdict))


def _order(part: Part, names: tuple[str, str]) -> Order:
    first: Name = "b" if part.text == FIRST else "a"
    winner: Literal["a", "b", ""] = "b" if part.label == WON else "a" if part.label == LOST else ""
    why = part.verdict.reason if isinstance(part.verdict, Verdict) else ""
    shown = names if first == "a" else names[::-1]
    for number, name in enumerate(shown, 1):
        why = why.replace(f"[place {number}]", name)
    return Order(first=first, winner=winner, why=why)
