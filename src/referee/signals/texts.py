"""What of an answer's text is looked at: its words, its phrases, the marks of its format. Pure and deterministic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_LINE = re.compile(r"^[ \t]*(?:(\d{1,2})[.)]|([-*\u2022])(?=\s)|(#{1,6})(?=\s)|(\*\*))", re.MULTILINE)
_NUMBER = re.compile(r"^[ \t]*\d{1,2}[.)](?=\s)", re.MULTILINE)
HEAD, TAIL = 240, 80
"""Words of an answer's beginning and end in which phrases are looked for: longer answers cost no more."""
VARIETY_WORDS = 80
"""Distinct words are counted among this many, so that the share does not fall with length."""
WHOLE = 3
"""Words up to which an answer is a phrase as a whole."""
MOST_CHARACTERS = 20_000
"""Of an answer that is longer, the beginning is looked at."""
NO_MARKS: tuple[frozenset[str], int] = frozenset(), 0
MARK = "<"
"""Begins the name of a mark of format: no word holds it."""


def words_of(text: str) -> list[str]:
    """Lower-case words, without the numbers of a list's points."""
    text = text[:MOST_CHARACTERS].lower()
    return _WORD.findall(_NUMBER.sub("", text) if _NUMBER.search(text) else text)


def lined(words: Sequence[str]) -> str:
    """Words in one line between spaces, so that a phrase is found as ` phrase `."""
    return f" {' '.join(words)} "


def ends(words: list[str]) -> list[str]:
    """Beginning and end of a long answer."""
    return words if len(words) <= HEAD + TAIL else [*words[:HEAD], *words[-TAIL:]]


def phrases(words: Sequence[str]) -> set[str]:
    """All runs of one to four words."""
    join = "%s %s".__mod__
    pairs = list(map(join, pairwise(words)))
    threes = map(join, zip(pairs, words[2:], strict=False))
    fours = map(join, zip(pairs, pairs[2:], strict=False))
    return {*words, *pairs, *threes, *fours}


def marks(text: str, words: Sequence[str]) -> tuple[frozenset[str], int]:
    """The marks of format in an answer, by name, and how many marked lines there are. An answer of next to no words
    is a mark as a whole."""
    text = text[:MOST_CHARACTERS]
    found: set[str] = set()
    if len(words) <= WHOLE:
        found.add(f"{MARK}the whole answer {text.strip()[:40]!r}>")
    elif not _LINE.search(text):
        return NO_MARKS
    numbered = count = 0
    if text:
        kinds = [0, 0, 0]
        for number, bullet, heading, _ in _LINE.findall(text):
            count += 1
            if number:
                numbered += 1
            else:
                kinds[0 if bullet else 1 if heading else 2] += 1
        names = ("bullets", "headings", "bold lines")
        found.update(f"{MARK}{name}>" for name, many in zip(names, kinds, strict=True) if many)
    if numbered > 1:
        found.add(f"{MARK}numbered points>")
        found.add(f"{MARK}{min(numbered, 9)} numbered points>")
    return frozenset(found), count


def variety(words: Sequence[str]) -> float:
    """Distinct words over words (type-token ratio), of the first 80."""
    head = words[:VARIETY_WORDS]
    return len(set(head)) / len(head) if head else 1.0


def excerpt(text: str, phrase: str = "", width: int = 160) -> str:
    """A line of the text, about where the phrase is."""
    line = " ".join(text.split())
    place = line.lower().find(phrase) if phrase and not phrase.startswith(MARK) else 0
    start = max(0, min(place - width // 2, len(line) - width))
    end = start + width
    return ("… " if start else "") + line[start:end] + (" …" if end < len(line) else "")
