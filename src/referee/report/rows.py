"""The rows of the sample browser: numbers in columns, texts in compressed blocks. Fed line by line, no files.

Texts are compressed as they come, in sixteen streams by group, so that memory holds only what the page will. When
they pass the limit, whole streams are dropped: what remains are whole groups, chosen by chance and not by score.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from referee.ledger.criteria import part_rows
from referee.ledger.groups import Groups
from referee.ledger.lines import AskLine, JudgeLine, Line, RewardLine, RunLine, TextLine, VerdictLine
from referee.records import COMPARED
from referee.report.columns import OwnColumns, link_of
from referee.report.criteria import combine_of, shown_parts
from referee.report.data import sane
from referee.report.resumed_runs import Samples

STREAMS = 16
BLOCK = 256 * 1024
"""Bytes of text per block before compression: what the page unpacks to show one row."""
TEXTS_MB = 64.0
"""How much the texts may add to the page, by default."""
HEAD = 140
"""Characters of a response that the list shows."""
NOTHING = float("nan")
NO_BLOCK = 2**32 - 1
WORDS = {
    "group": "group",
    "origin": "origin",
    "reason": "unscored",
    "endpoint": "endpoint",
    "model": "model",
    "how": "how",
}
"""Columns of words by the field of a verdict line that each holds: a number per row, and the list of words once. And
`filled`, which its reward says."""
NUMBERS: dict[str, Callable[[VerdictLine], float | None]] = {
    "value": lambda line: line.value,
    "score": lambda line: line.value if line.how == "terms" else line.score,
    "latency": lambda line: line.latency_s if line.attempts else None,
    "queued": lambda line: line.queued_s if line.attempts else None,
    "cost": lambda line: line.cost,
    "uncertainty": lambda line: line.uncertainty,
    "attempts": lambda line: line.attempts,
    "tokens_in": lambda line: line.tokens_in,
    "tokens_out": lambda line: line.tokens_out,
    "truncated": lambda line: line.truncated,
    "step": lambda line: line.step,
    "wall": lambda line: line.wall,
    "index": lambda line: line.index,
    "link": link_of,
}
"""Columns of numbers out of a verdict line. Not a number: nothing there."""
OF_REWARD: dict[str, Callable[[RewardLine], float | None]] = {
    "reward": lambda line: line.value,
    "rule": lambda line: line.rule,
    "judge": lambda line: line.judge,
    "penalty": lambda line: line.penalty,
    "length": lambda line: line.length,
    "median": lambda line: line.median_length or None,
}
"""Columns out of its reward line."""
WIDE = ("step", "wall", "index", "link")
"""Columns in 64 bits; the others are in 32."""
TEXTS = (
    "id",
    "prompt",
    "response",
    "reference",
    "system",
    "asked",
    "reply",
    "why",
    "detail",
    "key",
    "request_id",
    "prompt_digest",
    "response_digest",
)
"""What a text block holds of each row, in this order; then, up to the last there is: the lines of several judges or
questions, the criteria, comparisons or orders of a lone judge's verdict, and messages, tools and own columns."""
OF_JUDGE = ("value", "score", "adds")
"""Columns of each of several judges, named value-0, value-1…: its verdict, and what it adds to the reward."""
MORE = ("prompt", "response", "tools", "columns")
"""What a row shows of a sample beside plain texts: messages, tools, own columns. Its rubric is in its parts."""
ELSEWHERE = frozenset({"wall", "batch", "index", "indexes"})
"""Fields of a judge's or question's line that its row has, or the page does not need."""


class Packed(Struct, frozen=True):
    """One part of the page's data: zlib-compressed bytes under a name."""

    name: str
    data: bytes


class Meta(Struct):
    """What the page must know to read the other parts."""

    rows: int
    with_texts: int
    """Rows whose texts are in the page."""
    columns: dict[str, str]
    """Kind by name: f4, f8 or u4."""
    words: dict[str, list[str]]
    judges: list[str]
    """Names of several judges, in the order of their columns; empty where there is one."""
    own: list[str]
    """Names of the caller's own columns that can be filtered by: own-0, own-1…"""
    texts: tuple[str, ...] = (*TEXTS, "said", "parts", "more")


class Rows:
    """Collects verdict lines and their rewards. A row is a sample: one that comes again keeps its row, from 0."""

    def __init__(self, texts_mb: float = TEXTS_MB) -> None:
        self._samples = Samples()
        self._room = int(texts_mb * 1e6)
        self._numbers: dict[str, array[float]] = {
            name: array("d" if name in WIDE else "f") for name in (*NUMBERS, *OF_REWARD)
        }
        words = (*WORDS, "filled")
        self._words: dict[str, dict[str, int]] = {name: {} for name in words}
        self._codes: dict[str, array[int]] = {name: array("I") for name in (*words, "siblings", "block", "slot")}
        self._own = OwnColumns()
        self._groups = Groups(most=None)
        self._judges: dict[str, int] = {}
        self._combine: dict[str, dict[str, str]] = {}
        """By source and judge: how a rubric combines its criteria."""
        self._said: dict[tuple[str, str, int], list[JudgeLine | AskLine]] = {}
        """Lines of judges and questions whose sample's verdict line is to come."""
        self._open: dict[tuple[str, str, int], int] = {}
        self._kept_in = array("b")
        """The stream that holds a row's texts; -1 where none does."""
        self._heads: list[tuple[str, str]] = []
        self._systems: dict[str, str] = {}
        self._streams = {number: _Stream() for number in range(STREAMS)} if self._room > 0 else {}
        self._blocks = 0

    @property
    def count(self) -> int:
        """Rows so far."""
        return self._samples.count

    def add(self, line: Line, source: str = "") -> None:
        """Take one line; `source` tells files apart that are read side by side."""
        line = sane(line)
        if isinstance(line, VerdictLine):
            self._verdict(line, source)
        elif isinstance(line, RewardLine):
            self._reward(line, source)
        elif isinstance(line, JudgeLine | AskLine):
            self._said.setdefault((source, line.batch, line.index), []).append(line)
        elif isinstance(line, TextLine):
            self._systems[line.digest] = line.text
        elif isinstance(line, RunLine):
            self._samples.start(line, source)
            self._groups.start(line, source)
            self._combine[source] = combine_of(line.config)

    def meta(self) -> Meta:
        """How to read the parts."""
        columns = {name: "f8" if numbers.typecode == "d" else "f4" for name, numbers in self._numbers.items()}
        return Meta(
            rows=self.count,
            with_texts=sum(stream.rows for stream in self._streams.values()),
            columns=columns | dict.fromkeys([*self._codes, *self._own.codes()], "u4"),
            words={name: list(words) for name, words in self._words.items()} | self._own.words(),
            judges=list(self._judges),
            own=self._own.names(),
        )

    def parts(self) -> Iterator[Packed]:
        """Everything but `meta`, what is needed first first. To be asked once, when all lines are in."""
        columns: dict[str, array[Any]] = {**self._numbers, **self._codes, **self._own.codes()}
        for name, numbers in columns.items():
            yield Packed(f"column-{name}", zlib.compress(_little(numbers), 6))
        yield Packed("heads", zlib.compress(encode(self._heads), 6))
        yield Packed("systems", zlib.compress(encode(self._systems), 6))
        for stream in self._streams.values():
            stream.close()
            for number, data in stream.blocks:
                yield Packed(f"texts-{number}", data)

    def _verdict(self, line: VerdictLine, source: str) -> None:
        ended, before = self._samples.end(line, source)
        said = self._said.pop((source, line.batch, line.index), ())
        if ended is None:
            self._open.pop((source, line.batch, line.index), None)
            return
        row = self._open[source, line.batch, line.index] = ended.row
        if before is None:
            self._room_for_one()
        numbers = self._numbers
        for name, number_of in NUMBERS.items():
            numbers[name][row] = _number(number_of(line))
        for name in OF_REWARD:
            numbers[name][row] = NOTHING
        numbers["rule"][row], numbers["length"][row] = _number(line.rule_score), _number(line.length)
        for number in self._judges.values():
            for name in OF_JUDGE:
                numbers[f"{name}-{number}"][row] = NOTHING
        for one in said:
            if isinstance(one, JudgeLine):
                number = self._judge(one.judge)
                numbers[f"value-{number}"][row] = _number(one.value)
                numbers[f"score-{number}"][row] = _number(one.score)
        for name, field in WORDS.items():
            self._codes[name][row] = self._code(name, getattr(line, field))
        self._codes["filled"][row] = self._code("filled", "")
        self._codes["siblings"][row] = self._groups.number(line, source)
        self._own.add(row, line.more.get("columns"))
        self._heads[row] = (line.id, " ".join(last_words(line)[: 4 * HEAD].split())[:HEAD] or line.response_digest)
        self._keep(line, said, row, self._combine.get(source, {}))

    def _judge(self, name: str) -> int:
        """The number of one of several judges. Its columns begin with the first row it is in."""
        number = self._judges.get(name)
        if number is None:
            number = self._judges[name] = len(self._judges)
            for column in OF_JUDGE:
                self._numbers[f"{column}-{number}"] = array("f", [NOTHING]) * len(self._heads)
        return number

    def _room_for_one(self) -> None:
        """One more row, with nothing in it yet."""
        for numbers in self._numbers.values():
            numbers.append(NOTHING)
        for codes in self._codes.values():
            codes.append(0)
        self._heads.append(("", ""))
        self._kept_in.append(-1)

    def _reward(self, line: RewardLine, source: str) -> None:
        row = self._open.pop((source, line.batch, line.index), None)
        if row is None:
            return
        for name, number_of in OF_REWARD.items():
            self._numbers[name][row] = _number(number_of(line))
        for judge, adds in line.terms.items():
            self._numbers[f"adds-{self._judge(judge)}"][row] = _number(adds)
        self._codes["filled"][row] = self._code("filled", line.filled)

    def _code(self, name: str, word: str) -> int:
        words = self._words[name]
        return words.setdefault(word, len(words))

    def _keep(
        self, line: VerdictLine, said: Sequence[JudgeLine | AskLine], row: int, combine: Mapping[str, str]
    ) -> None:
        """Put the texts into their stream, and let streams go while they are too much together."""
        earlier = self._streams.get(self._kept_in[row])
        if earlier is not None:
            earlier.rows -= 1
        number = zlib.crc32((line.group or line.id or str(line.index)).encode("utf-8", "replace")) % STREAMS
        stream = self._streams.get(number)
        self._kept_in[row] = number
        if stream is None:
            self._place(row, NO_BLOCK, 0)
            return
        if stream.number < 0:
            stream.number, self._blocks = self._blocks, self._blocks + 1
        texts = [getattr(line, name) for name in TEXTS]
        more = {name: line.more[name] for name in MORE if line.more.get(name)}
        if said or line.parts or more:
            texts.append([_shown(one, combine) for one in said])
        if line.parts or more:
            alone = next(iter(combine.values())) if len(combine) == 1 else ""
            texts.append(_parts(line, alone) if line.parts else [])
        if more:
            texts.append(more)
        self._place(row, stream.number, stream.add(texts))
        while len(self._streams) > 1 and sum(held.weight for held in self._streams.values()) > self._room:
            del self._streams[max(self._streams)]

    def _place(self, row: int, block: int, slot: int) -> None:
        self._codes["block"][row] = block
        self._codes["slot"][row] = slot


class _Stream:
    """Texts on their way into blocks."""

    def __init__(self) -> None:
        self.number = -1
        """Of the block being filled; -1 when none is."""
        self.blocks: list[tuple[int, bytes]] = []
        self.rows = 0
        self.weight = 0
        """Bytes in the page, as base64; what is still open is counted as if it shrank to a quarter."""
        self._open: list[bytes] = []
        self._size = 0

    def add(self, texts: list[Any]) -> int:
        """One row's texts; its place in the block."""
        data = encode(texts)
        self._open.append(data)
        self._size += len(data)
        self.rows += 1
        slot = len(self._open) - 1
        self.weight += len(data) // 3
        if self._size >= BLOCK:
            self.close()
        return slot

    def close(self) -> None:
        """Compress what is open."""
        if not self._open:
            return
        packed = zlib.compress(b"[" + b",".join(self._open) + b"]", 6)
        self.blocks.append((self.number, packed))
        self.weight += len(packed) * 4 // 3 - sum(len(data) // 3 for data in self._open)
        self._open, self._size, self.number = [], 0, -1


def last_words(line: VerdictLine) -> str:
    """The response for a list: of a conversation what was said last, without the calls and thoughts before it."""
    messages = line.more.get("response")
    texts = [each.get("content") for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    return next((text for text in reversed(texts) if isinstance(text, str) and text), line.response)


def _shown(line: JudgeLine | AskLine, combine: Mapping[str, str]) -> dict[str, Any]:
    """What the page shows of a judge's or a question's line. Fields at their default are left out."""
    fields: dict[str, Any] = msgspec.to_builtins(line)
    if line.parts:
        fields["parts"] = _parts(line, combine.get(line.judge, ""))
    return {name: value for name, value in fields.items() if name not in ELSEWHERE}


def _parts(line: VerdictLine | JudgeLine | AskLine, combine: str) -> list[dict[str, Any]]:
    if line.how not in COMPARED:
        return shown_parts(line.parts, line.score, combine)
    names = ("name", "text", "verdict", "value", "why", "unscored")
    return [{name: getattr(row, name) for name in names} for row in part_rows(line.parts)]


def encode(value: Any) -> bytes:
    """JSON. Halves of characters, which UTF-8 cannot say, are written as escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def _number(value: float | None) -> float:
    # A crafted ledger may hold what a 32-bit float cannot.
    return float(value) if value is not None and abs(value) < 3e38 and math.isfinite(value) else NOTHING


def _little(numbers: array[Any]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
