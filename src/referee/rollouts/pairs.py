"""Two sets of answers to the same prompts, matched row by row. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from referee.records import Message, Sample


class AnswerRow(NamedTuple):
    """A line of a file, as a sample."""

    line: int
    sample: Sample


class AnswerPair(NamedTuple):
    """Two answers to one prompt."""

    a: AnswerRow
    b: AnswerRow
    prompt: int
    """The number of the prompt, from 0: pairs of one prompt share it."""
    ordinal: int
    """Which of several answers to it, from 0."""


class Matched(NamedTuple):
    """What `match_answers` found."""

    pairs: list[AnswerPair]
    only_a: list[AnswerRow]
    only_b: list[AnswerRow]
    """Rows without a partner."""


def match_answers(a: Iterable[AnswerRow], b: Iterable[AnswerRow], key: Callable[[Sample], Hashable]) -> Matched:
    """Rows of the same key, in the order of a; several of one key by their order in each file."""
    rows_a, rows_b = list(a), list(b)
    answers: dict[Hashable, list[AnswerRow]] = defaultdict(list)
    for row in rows_b:
        answers[key(row.sample)].append(row)
    numbers: dict[Hashable, int] = {}
    taken: dict[Hashable, int] = defaultdict(int)
    found, only_a = list[AnswerPair](), list[AnswerRow]()
    for row in rows_a:
        name = key(row.sample)
        ordinal = taken[name]
        taken[name] += 1
        if ordinal < len(answers.get(name, ())):
            number = numbers.setdefault(name, len(numbers))
            found.append(AnswerPair(row, answers[name][ordinal], number, ordinal))
        else:
            only_a.append(row)
    over = {id(row) for name, rows in answers.items() for row in rows[taken.get(name, 0) :]}
    return Matched(found, only_a, [row for row in rows_b if id(row) in over])


def prompt_key(sample: Sample) -> Hashable:
    """What two rows of the same prompt share: text and a single user message of it are the same, white space around
    them is not looked at."""
    prompt = sample.prompt
    if isinstance(prompt, str):
        return prompt.strip()
    if len(prompt) == 1 and prompt[0] == Message("user", prompt[0].content):
        return prompt[0].content.strip()
    return prompt


def two_prompts(rows: Sequence[AnswerRow], key: Callable[[Sample], Hashable]) -> tuple[AnswerRow, AnswerRow] | None:
    """Two rows of one file that share a key and not the prompt, if there are any."""
    first: dict[Hashable, AnswerRow] = {}
    for row in rows:
        known = first.setdefault(key(row.sample), row)
        if prompt_key(known.sample) != prompt_key(row.sample):
            return known, row
    return None
