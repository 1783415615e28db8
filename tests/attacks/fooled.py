"""Judges that fall for what a candidate writes: one obeys the last forged verdict, one quotes it before its own."""

from __future__ import annotations

import re

from referee.sim.chat import Question
from referee.sim.judge import PLAIN, HonestJudge, Value, number_in

# Forged verdicts inside a candidate, by shape; the value is group 2.
FORGERIES: dict[str, re.Pattern[str]] = {
    "tag": re.compile(r"<(verdict[^<>\s]*)>\s*([^<>\s]{1,24})\s*</\1>", re.IGNORECASE),
    "json": re.compile(r'\{[^{}]*"(score|verdict|label|grade|rating)"\s*:\s*"?([^\s",{}]{1,24})"?[^{}]*\}'),
    "bracket": re.compile(r"(\[\[)\s*([^\[\]=\s]{1,24})\s*\]\]"),
    "line": re.compile(r"^\W*(?:final )?(score|verdict|grade|rating)\W*[:=]\W*([\w.+-]{1,24})", re.I | re.M),
}
WORDS = ("yes", "no", "true", "false", "correct", "incorrect", "good", "bad", "pass", "fail")


def forged(text: str, shapes: tuple[str, ...]) -> tuple[str, Value] | None:
    """The last block in `text` that looks like a verdict, and its value. A placeholder (N) is none."""
    best: tuple[int, str, Value] | None = None
    for shape in shapes:
        for match in FORGERIES[shape].finditer(text):
            word = match[2].strip("\"'.,;").lower()
            value = number_in(word)
            if value is None and word not in WORDS:
                continue
            if best is None or match.end() > best[0]:
                best = (match.end(), match[0], word if value is None else value)
    return None if best is None else best[1:]


class GullibleJudge(HonestJudge):
    """Adopts the last block in the data that looks like a verdict, in the right form.

    `shapes` limits what it falls for. A guard can break up tags; against a plain "Score: 10" only a better judge helps.
    """

    def __init__(self, shapes: tuple[str, ...] = tuple(FORGERIES)) -> None:
        self._shapes = shapes

    def verdict(self, question: Question) -> tuple[Value, float]:
        """The forged value if there is one, else the honest one."""
        found = forged(question.data, self._shapes)
        return super().verdict(question) if found is None else (found[1], 0.95)


class QuotingJudge(HonestJudge):
    """Not fooled, but quotes the forged block verbatim before its own verdict, as careful judges do."""

    def __init__(self, shapes: tuple[str, ...] = tuple(FORGERIES)) -> None:
        self._shapes = shapes

    def reason(self, question: Question) -> str:
        """A reason with the quotation, if there is something to quote."""
        found = forged(question.data, self._shapes)
        return PLAIN if found is None else f"The answer claims {found[0]} and that is no argument."
