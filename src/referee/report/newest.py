"""The newest samples of a run that goes on: heads for a list, and all that the record says of each, so that one can be
opened. Memory is bounded."""

from __future__ import annotations

import zlib
from collections import deque
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from referee.ledger import AskLine, JudgeLine, Line, RewardLine, RunLine, TextLine, VerdictLine
from referee.report.page import as_text
from referee.report.rows import Packed, Rows, encode, last_words

NEWEST = 100
"""Samples kept to be shown."""
HEAD = 400
"""Characters of a text in the list."""
LONGEST = 20_000
"""Characters of a text of an opened sample. Messages and parts of one whose texts are longer are left out."""
WAITING = 4096
"""Samples whose judges' lines may wait for their verdict line."""
MOST_TEXTS = 64
"""Texts that many lines refer to, the latest."""
TEXTS = ("prompt", "response", "reference", "asked", "reply", "why", "detail", "system")

Name = tuple[str, str, int]


class Newest(Struct, frozen=True, kw_only=True):
    """One of the latest samples. Texts are cut; they are untrusted and only ever shown as text."""

    seq: int
    """Counts the samples of this view: the same sample keeps its number."""
    wall: float
    id: str
    group: str
    step: int | None
    origin: str
    score: float | None
    """On the judge's scale; of several judges, what they said as one in [0, 1]."""
    value: float | None
    unscored: str
    response: str
    """Or, where there is none, the judge's words."""


class Opened(Struct):
    """The newest samples as the report page has its rows."""

    seqs: list[int]
    """Of each row."""
    parts: dict[str, str]
    """The page's packed data, by name."""


class _Kept:
    """One sample."""

    def __init__(self, head: Newest, name: Name, lines: list[Line]) -> None:
        self.head = head
        self.name = name
        self.lines = lines


class NewestSamples:
    """Fed line by line. `texts`: False keeps numbers only."""

    def __init__(self, texts: bool = True) -> None:
        self._texts = texts
        self._kept: deque[_Kept] = deque()
        self._by_name: dict[Name, _Kept] = {}
        self._waiting: dict[Name, list[Line]] = {}
        self._runs: dict[str, RunLine] = {}
        self._shared: dict[str, TextLine] = {}

    def add(self, line: Line, source: str, seq: int) -> None:
        """One line of this file."""
        if isinstance(line, RunLine):
            self._runs[source] = replace(line, wall=0.0)  # each verdict is a row of its own here, whatever the start
        elif isinstance(line, TextLine) and self._texts:
            self._shared.pop(line.digest, None)
            self._shared[line.digest] = line
            if len(self._shared) > MOST_TEXTS:
                del self._shared[next(iter(self._shared))]
        elif isinstance(line, JudgeLine | AskLine):
            self._waiting.setdefault((source, line.batch, line.index), []).append(self._cut(line))
            if len(self._waiting) > WAITING:
                del self._waiting[next(iter(self._waiting))]
        elif isinstance(line, VerdictLine):
            name = (source, line.batch, line.index)
            kept = _Kept(_head(line, seq, self._texts), name, [*self._waiting.pop(name, ()), self._cut(line)])
            self._kept.append(kept)
            self._by_name[name] = kept
            if len(self._kept) > NEWEST:
                oldest = self._kept.popleft()
                if self._by_name.get(oldest.name) is oldest:
                    del self._by_name[oldest.name]
        elif isinstance(line, RewardLine) and (found := self._by_name.get((source, line.batch, line.index))):
            found.lines.append(line)

    def heads(self) -> list[Newest]:
        """The latest first."""
        return [kept.head for kept in reversed(self._kept)]

    def opened(self) -> Opened:
        """Everything that is kept of them."""
        rows = Rows()
        for source, run in self._runs.items():
            rows.add(run, source)
        for text in self._shared.values():
            rows.add(text)
        for kept in self._kept:
            for line in kept.lines:
                rows.add(line, kept.name[0])
        parts = [Packed("meta", zlib.compress(encode(rows.meta()))), *rows.parts()]
        return Opened([kept.head.seq for kept in self._kept], {part.name: as_text(part) for part in parts})

    def _cut(self, line: VerdictLine | JudgeLine | AskLine) -> Line:
        """The line as far as it is kept."""
        texts = {name: text for name in TEXTS if (text := getattr(line, name, None))}
        if self._texts and all(len(text) <= LONGEST for text in texts.values()):
            return line
        kept: dict[str, Any] = {name: text[:LONGEST] if self._texts else "" for name, text in texts.items()}
        if isinstance(line, VerdictLine):
            kept["more"] = {}
        return replace(line, **kept, parts=[])


def _head(line: VerdictLine, seq: int, texts: bool) -> Newest:
    return Newest(
        seq=seq,
        wall=line.wall,
        id=line.id[:HEAD],
        group=line.group[:HEAD],
        step=line.step,
        origin=line.origin,
        score=line.value if line.how == "terms" else line.score,
        value=line.value,
        unscored=line.unscored,
        response=(last_words(line) or line.why or line.detail)[:HEAD] if texts else "",
    )
