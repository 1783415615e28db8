"""Judges that replace a model: deterministic, no I/O. The question is parsed in `chat`.

A candidate with [[quality=7]] (or [[quality=yes]]) gets exactly that verdict, on the scale or not; any other gets one
from a checksum of its text, spread over the scale.
"""

from __future__ import annotations

import json
import math
import random
import re
import zlib
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee.sim.chat import Question
from referee.sim.comparisons import Perception, write_list
from referee.sim.statements import decided

Value = int | float | str


class Answer(Struct, frozen=True):
    """A judge's reply."""

    text: str
    value: Value
    confidence: float = 0.9
    """Probability of `value` against the other offered ones, for log-probabilities."""


class Judge(Protocol):
    """Answers a question."""

    def answer(self, question: Question) -> Answer: ...


QUALITY = re.compile(r"\[\[quality=([^\]\s]{1,24})\]\]")
PLAIN = "Judged on its own merits."


def write(question: Question, value: Value, reason: str = PLAIN) -> str:
    """The reply that gives `value` in the form the question asks for."""
    if question.form == "schema":
        filled: dict[str, Value] = dict.fromkeys(question.properties, reason)
        filled[question.key] = value
        # msgspec would write NaN as null and hide it from the reader under test.
        return json.dumps(filled) if isinstance(value, float) else msgspec.json.encode(filled).decode()
    if question.form == "tag":
        return f"{reason}\n<{question.tag}>{value}</{question.tag}>"
    return str(value)


class HonestJudge:
    """Judges only the candidate: by its marker, else by its checksum. Of a group, each candidate by itself, as
    `compares` lets it see them."""

    compares = Perception()

    def answer(self, question: Question) -> Answer:
        """The verdict, with a short reason."""
        if question.shown:
            return self._compared(question)
        if question.statements:
            text = decided(question.statements, question.candidate, self.reason(question), question.tag)
            return Answer(text, "yes" if '"yes"' in text else "no")
        value, confidence = self.verdict(question)
        return Answer(write(question, value, self.reason(question)), value, confidence)

    def _compared(self, question: Question) -> Answer:
        low, width = question.low, question.high - question.low
        labels = [each.label for each in question.shown]
        given = [self.verdict(replace(question, texts={"response": each.text}))[0] for each in question.shown]
        # Of the texts alone: labels and fences are others in every run.
        chance = random.Random("\0".join(each.text for each in question.shown))
        strengths = [0.0 if isinstance(value, str) else (value - low) / width for value in given]
        seen = self.compares.seen(strengths, chance)
        if question.listed:
            if self.compares != Perception():
                given = [low + round(min(max(value, 0.0), 1.0) * width) for value in seen]
            listed = list(zip(labels, given, strict=True))
            return Answer(write_list(listed, self.reason(question), question.tag), given[0])
        better = self.compares.better(*seen)
        word = "tie" if better is None else labels[better]
        return Answer(write(question, word, self.reason(question)), word)

    def reason(self, question: Question) -> str:
        """The text before the verdict."""
        return PLAIN

    def verdict(self, question: Question) -> tuple[Value, float]:
        """The value and its probability."""
        candidate = question.candidate
        if "[[quality=" in candidate and (marks := QUALITY.findall(candidate)):
            return _marked(question, marks[-1])
        draw = zlib.crc32(candidate.encode())
        if not question.labels:
            return question.low + draw % (question.high - question.low + 1), 0.9
        return question.labels[draw % len(question.labels)], 0.55 + (draw >> 16) % 1000 * 0.0004


def _marked(question: Question, mark: str) -> tuple[Value, float]:
    """The verdict a marker dictates. With labels, a number from 0 to 10 is the probability of the first in tenths."""
    number = number_in(mark)
    if number is None:
        return mark, 0.95
    if not question.labels:
        return number, 0.9
    share = min(max(number / 10, 0.02), 0.98)
    return (question.labels[0], share) if share >= 0.5 else (question.labels[-1], 1 - share)


def number_in(text: str) -> int | float | None:
    """The number that a text is."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None
