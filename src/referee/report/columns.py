"""The caller's own columns, as words to filter the list of samples by; and the name of a sample in a link."""

from __future__ import annotations

import hashlib
from array import array
from typing import Any

from referee.ledger.lines import VerdictLine

MOST_COLUMNS = 12
MOST_WORDS = 200
"""Values of a column. One with more, or with long ones, names samples and does not sort them into kinds."""
LONGEST = 80
"""Characters of a value."""


class OwnColumns:
    """By column: the code of each row's value; 0 is none. Unfit columns are dropped for good."""

    def __init__(self) -> None:
        self._words: dict[str, dict[str, int]] = {}
        self._codes: dict[str, array[int]] = {}
        self._unfit: set[str] = set()
        self._rows = 0

    def add(self, row: int, columns: Any) -> None:
        """The columns of one row; rows come in order, and one may come again."""
        self._rows = max(self._rows, row + 1)
        for codes in self._codes.values():
            if row < len(codes):
                codes[row] = 0
        if not isinstance(columns, dict):
            return
        for name, value in columns.items():
            if name in self._unfit or value is None or value == "":
                continue
            word = _word(value)
            words = self._words.setdefault(name, {"": 0})
            if word is None or len(words) > MOST_WORDS or len(name) > LONGEST or len(self._words) > MOST_COLUMNS:
                self._unfit.add(name)
                self._words.pop(name)
                self._codes.pop(name, None)
                continue
            codes = self._codes.setdefault(name, array("I"))
            codes.extend([0] * (row + 1 - len(codes)))
            codes[row] = words.setdefault(word, len(words))

    def names(self) -> list[str]:
        """Columns that tell some rows from others."""
        return [name for name, words in self._words.items() if len(words) > 2 or self._partly(name)]

    def codes(self) -> dict[str, array[int]]:
        """By own-0, own-1…: a code for each row."""
        found = {}
        for place, name in enumerate(self.names()):
            codes = found[f"own-{place}"] = self._codes[name]
            codes.extend([0] * (self._rows - len(codes)))
        return found

    def words(self) -> dict[str, list[str]]:
        """By the same names: the words."""
        return {f"own-{place}": list(self._words[name]) for place, name in enumerate(self.names())}

    def _partly(self, name: str) -> bool:
        codes = self._codes[name]
        return len(codes) < self._rows or 0 in codes


def _word(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) and value and len(value) <= LONGEST else None


def link_of(line: VerdictLine) -> float:
    """The sample's name in a link, 52 bits: the same for the same sample in every page of this run."""
    prompt, response = line.prompt or line.prompt_digest, line.response or line.response_digest
    told = repr((line.step, line.id, line.group, prompt, response)).encode("utf-8", "backslashreplace")
    return float(int.from_bytes(hashlib.blake2b(told, digest_size=8).digest()) >> 12)
