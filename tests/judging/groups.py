"""Groups and the judges that compare them, for tests: what a request shows, and replies of simulated judges."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from referee.config import load
from referee.judging import Judge
from referee.records import Ask, Reason, Sample, Text, Unscored, Verdict
from referee.scoring.build import build_judge

SECRET = b"0123456789abcdef"
ENDPOINT = {"model": "m", "key_env": ""}
DEADLINE = Unscored(reason=Reason.DEADLINE, detail="the time was up")
TOO_LONG = Unscored(reason=Reason.TOO_LONG, detail="it does not fit")
_SHOWN = re.compile(
    r"^Response ([A-Z]{6}):\n<<<response ([0-9a-f]{16})\n(.*?)\n\2 response>>>$", re.DOTALL | re.MULTILINE
)

Answer = Callable[[Ask], str | Verdict | Unscored]


def judge_of(kind: str, *used: dict[str, Any], secret: bytes = SECRET, **settings: Any) -> Judge:
    """A judge with these settings, and the judges that it names."""
    config = load({"judge": [{"name": "group", "kind": kind, **settings}, *used], "endpoint": ENDPOINT})
    return build_judge(config.judge[0], secret)


def group(*responses: Text, prompt: Text = "How high is it?", **more: Any) -> list[Sample]:
    """Samples of one group, by their number."""
    return [
        Sample(prompt=prompt, response=response, id=f"s{number}", group="g", **more)
        for number, response in enumerate(responses)
    ]


def worth(*numbers: float) -> list[Sample]:
    """A group of responses that `quality` reads."""
    return group(*(f"It is {number:g} metres." for number in numbers))


def shown(ask: Ask) -> list[tuple[str, str]]:
    """Labels and texts of a request, in its order."""
    return [(label, text) for label, _, text in _SHOWN.findall(ask.messages[-1].content)]


def texts(ask: Ask) -> list[str]:
    """The responses that it shows."""
    return [text for _, text in shown(ask)]


def quality(text: str) -> float:
    """What a response is worth: the first number in it."""
    found = re.search(r"-?\d+(?:\.\d+)?", text)
    return float(found[0]) if found else 0.0


def reply(ask: Ask, scores: list[tuple[str, int]], reason: str = "so it is") -> str:
    """The reply of a listwise judge, in the form it was asked for."""
    if ask.sampling.schema is not None:
        return json.dumps({"responses": [{"label": n, "reason": f"{n}: {reason}", "score": s} for n, s in scores]})
    lines = "\n".join(f"{name}: {reason}" for name, _ in scores)
    pairs = "; ".join(f"{name}={score}" for name, score in scores)
    return f"{lines}\n<verdict-{ask.nonce}>{pairs}</verdict-{ask.nonce}>"


def choice(ask: Ask, word: str, reason: str = "so it is") -> str:
    """The reply of a pairwise judge, in the form it was asked for."""
    if ask.sampling.schema is not None:
        return json.dumps({"reason": reason, "verdict": word})
    return f"{reason}\n<verdict-{ask.nonce}>{word}</verdict-{ask.nonce}>"


def scoring(bias: Callable[[int, int], int] = lambda place, count: 0) -> Answer:
    """A judge that scores by quality, and adds what `bias` says of a place among so many."""

    def answer(ask: Ask) -> str:
        found = shown(ask)
        return reply(ask, [(n, int(quality(t)) + bias(place, len(found))) for place, (n, t) in enumerate(found)])

    return answer


def preferring(by: Callable[[str], float] = quality) -> Answer:
    """A judge that finds the better of two."""

    def answer(ask: Ask) -> str:
        (one, first), (two, second) = shown(ask)
        return choice(ask, "tie" if by(first) == by(second) else one if by(first) > by(second) else two)

    return answer


def values(verdicts: tuple[Verdict | Unscored, ...]) -> list[float]:
    """Their values; all of them must be verdicts."""
    assert all(isinstance(verdict, Verdict) for verdict in verdicts), verdicts
    return [verdict.value for verdict in verdicts if isinstance(verdict, Verdict)]


def known_by(ask: Ask) -> tuple[object, ...]:
    """What the cache knows a question by."""
    return ask.facets, ask.sampling, ask.pool
