"""Rubrics before a simulated judge: which statements a request asks about, and the reply that decides them.

A statement that holds a mark such as #kind is true of a candidate that holds the same mark; any other is decided by a
checksum of both texts.
"""

from __future__ import annotations

import re
import zlib

import msgspec
from msgspec import Struct

_STATEMENT = re.compile(r"^(c\d+)\. (.*?)\n   Verdict: ([^\n]*)\.$", re.MULTILINE | re.DOTALL)
_LEVEL = re.compile(r"(\d+) \(")
_MARK = re.compile(r"#\w+")


class Statement(Struct, frozen=True):
    """One statement to decide."""

    name: str
    text: str
    levels: int = 0
    """How many numbered levels it has; 0: yes or no."""

    def verdict(self, candidate: str) -> str | int:
        """Whether it is true of the candidate, or how far."""
        marks = _MARK.findall(self.text)
        if marks:
            true = all(mark in candidate for mark in marks)
            return (self.levels - 1) * true if self.levels else "yes" if true else "no"
        draw = zlib.crc32(f"{self.text}\0{candidate}".encode())
        return draw % self.levels if self.levels else ("yes", "no")[draw % 2]


def statements_in(text: str) -> tuple[Statement, ...]:
    """The statements that a prompt lists."""
    found = _STATEMENT.findall(text)
    return tuple(Statement(name, said, len(_LEVEL.findall(offered))) for name, said, offered in found)


def decided(statements: tuple[Statement, ...], candidate: str, reason: str, tag: str) -> str:
    """The reply that decides all of them: JSON, or lines and a tag."""
    verdicts = {statement.name: statement.verdict(candidate) for statement in statements}
    if not tag:
        filled = {name: {"reason": reason, "verdict": verdict} for name, verdict in verdicts.items()}
        return msgspec.json.encode(filled).decode()
    lines = [f"{name}: {reason}" for name in verdicts]
    pairs = "; ".join(f"{name}={verdict}" for name, verdict in verdicts.items())
    return "\n".join([*lines, f"<{tag}>{pairs}</{tag}>"])
