"""A judge driven by hand: what it asks, what it makes of given answers, and what every judge must keep to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from referee.config import JudgeConfig
from referee.judging import Form, Judge, JudgeFactory, make_with
from referee.judging.prompt_builder import RESPONSES
from referee.records import Ask, Part, Reason, Reply, Sample, Unscored, Verdict
from referee.scoring.case import MAX_ASKS, MAX_ROUNDS

RESPONSE = "\n<<<response "
"""Where a request shows one."""
SECRET = b"the same nonces in every test"
NO_ANSWER = Unscored(reason=Reason.DEADLINE, detail="no answer in this test")
ODD_REPLIES = (
    *("", " ", "no idea", "7", "-1", "99999", "yes", "no", "NaN", "null", "[]", "{}", '{"score": null}'),
    *('{"reason": "", "score": "7"}', '{"reason": 1, "score": 1e99}', '{"reason": "", "verdict": "perhaps"}'),
    *("<verdict>7</verdict>", "<think>7", "{" * 5000, "\ud800", "7" * 5000),
)

Answer = Verdict | Unscored | str
"""A reading, or the text of a reply, which the question's own reader reads. A verdict without parts is, of a question
about several responses, that on each of them."""
Answers = Callable[[Ask], Answer] | Sequence[Answer]
"""One for each question: a function of it, or all of them in order."""


class Deliberated(Struct, frozen=True):
    """One deliberation from its first question to its verdicts."""

    rounds: tuple[tuple[Ask, ...], ...]
    verdicts: tuple[Verdict | Unscored, ...]
    """One for each sample."""

    @property
    def asks(self) -> tuple[Ask, ...]:
        """All questions, in order."""
        return tuple(ask for asks in self.rounds for ask in asks)


def build_judge(factory: JudgeFactory, template: str | None = None, **settings: Any) -> Judge:
    """The judge a factory makes of these settings of [judge]. It need not be installed. `template`: the text of
    judge.prompt_file."""
    return make_with(factory, JudgeConfig(**{"kind": "tested", **settings}), SECRET, template)


def deliberate(judge: Judge, samples: Sequence[Sample], answers: Answers, form: Form = "schema") -> Deliberated:
    """Let a judge deliberate, and answer what it asks. AssertionError if it asks without end, or does not return one
    verdict for each sample."""
    find = answers if callable(answers) else _in_turn(answers)
    deliberation = judge.deliberate(samples, form)
    rounds: list[tuple[Ask, ...]] = []
    try:
        asks = next(deliberation)
        while True:
            rounds.append(tuple(asks))
            assert len(rounds) <= MAX_ROUNDS, f"the judge asks for more than {MAX_ROUNDS} rounds"
            assert sum(map(len, rounds)) <= MAX_ASKS, f"the judge asks more than {MAX_ASKS} questions"
            asks = deliberation.send([_reading(ask, find(ask)) for ask in asks])
    except StopIteration as stop:
        verdicts = stop.value
    assert isinstance(verdicts, list | tuple), f"the judge returned {verdicts!r:.100}, not a list of verdicts"
    assert len(verdicts) == len(samples), f"the judge returned {len(verdicts)} verdicts for {len(samples)} samples"
    for verdict in verdicts:
        _check_verdict(verdict)
    return Deliberated(tuple(rounds), tuple(verdicts))


def check_judge(judge: Judge, samples: Sequence[Sample], *answers: Answers) -> None:
    """What every judge must keep to, as AssertionErrors: the same samples and answers give the same questions;
    different questions have different facets; rounds end; no answer at all is survived; readers never raise.

    Tried with no answers, and with low, middle and high ones; `answers` are tried too.
    """
    verdicts = [Verdict(score=value, value=value) for value in (0.0, 0.5, 1.0)]
    every: list[Answers] = [lambda ask: NO_ANSWER, *(lambda ask, given=given: given for given in verdicts)]
    every.append([verdicts[number % 3] for number in range(MAX_ASKS)])
    forms: tuple[Form, ...] = ("schema", "text")
    for form in forms:
        for tried in (*every, *answers):
            once, again = (deliberate(judge, samples, tried, form) for _ in range(2))
            same = [*map(_known_by, once.asks)] == [*map(_known_by, again.asks)]
            assert same, "the same samples and answers gave other questions: is there chance or state in the judge?"
            assert once.verdicts == again.verdicts, "the same samples and answers gave other verdicts"
            _check_facets(once.asks)
            for ask in once.rounds[0] if once.rounds else ():
                _check_reader(ask)


def _in_turn(answers: Sequence[Answer]) -> Callable[[Ask], Answer]:
    left: Iterator[Answer] = iter(answers)

    def find(ask: Ask) -> Answer:
        found = next(left, None)
        assert found is not None, f"the judge asks more than the {len(answers)} questions there are answers for"
        return found

    return find


def _reading(ask: Ask, answer: Answer) -> Verdict | Unscored:
    if isinstance(answer, str):
        return ask.read(ask, _reply(ask, answer))
    if isinstance(answer, Unscored) or answer.parts or RESPONSES not in dict(ask.facets):
        return answer
    shown = ask.messages[-1].content.count(RESPONSE)
    return replace(answer, parts=tuple([Part(name=str(place + 1), verdict=answer) for place in range(shown)]))


def _reply(ask: Ask, text: str) -> Reply:
    return Reply(text=text, finish="stop", tokens_in=ask.prompt_tokens, tokens_out=1)


def _known_by(ask: Ask) -> tuple[object, ...]:
    return ask.messages, ask.sampling, ask.facets, ask.nonce, ask.pool


def _check_facets(asks: Sequence[Ask]) -> None:
    """The cache knows a question by its facets: two that share them would share one verdict."""
    known: dict[tuple[object, ...], object] = {}
    for ask in asks:
        facets = (ask.facets, str(ask.sampling), ask.pool)
        assert known.setdefault(facets, ask.messages) == ask.messages, (
            f"two questions differ and have the same facets, so the cache would give one the other's verdict: "
            f"{ask.facets!r:.300}"
        )


def _check_reader(ask: Ask) -> None:
    for text in ODD_REPLIES:
        _check_verdict(ask.read(ask, _reply(ask, text)))
    if ask.in_text is not None:
        other = ask.in_text()
        if isinstance(other, Ask):
            assert other.in_text is None, "the text form of a question has no text form of its own"
            _check_reader(other)


def _check_verdict(verdict: object) -> None:
    assert isinstance(verdict, Verdict | Unscored), f"{verdict!r:.100} is neither a Verdict nor an Unscored"
    if isinstance(verdict, Verdict):
        sound = math.isfinite(verdict.score) and 0.0 <= verdict.value <= 1.0
        assert sound, f"score must be finite and value from 0 to 1: {verdict!r:.200}"
