"""Reads rollouts from JSON Lines, one sample a line, as a stream. Nothing is guessed: what does not fit is a BadLine.

Names are those of `records.Sample`, or the trainers' own: completion, output (response); question (prompt); uid
(group); ground_truth (reference). A prompt or response may be a list of chat messages, and names and references may
be numbers. Other columns are ignored; `doubtful_columns` finds those whose name is nearly one of ours. A file that is
packed with gzip is read as what is in it.
"""

from __future__ import annotations

import difflib
import functools
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, KeysView
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from referee.errors import InputError
from referee.records import Sample

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes. A longer line is refused without being held in memory."""
KEPT_OF_LONG_LINE = 1024
GZIP = b"\x1f\x8b"
"""How a file packed with gzip begins."""
BOM = b"\xef\xbb\xbf"

FIRST = 100
"""Rows that are looked at for columns with a doubtful name. A file's columns are the same on nearly every line."""
NEAR = 0.8
"""How like a known name another one must be to be taken for it (difflib's ratio): lenght and gruop are, stop is not."""
SHORTEST, LONGEST_NAME = 4, 64
"""Letters of a name that may be a misspelt one: nearly every short word is like `id`."""

NEEDED = ("prompt", "response")
CONVERSATIONS = ("messages", "conversations", "conversation")
"""Columns that hold prompt and answer in one. Which turns are the answer to be judged is not guessed."""
ALIASES: dict[str, tuple[str, ...]] = {
    "prompt": ("question",),
    "response": ("completion", "output"),
    "group": ("uid",),
    "reference": ("ground_truth",),
}


class BadLine(Struct, frozen=True):
    """A line that is no sample, and why."""

    line: int
    field: str
    """The field at fault, empty when it is the line itself."""
    problem: str
    raw: bytes = b""
    """The line as it was; of an over-long one, only its beginning."""

    @property
    def message(self) -> str:
        """One line for people: where and what."""
        return f"line {self.line}: {self.field}: {self.problem}" if self.field else f"line {self.line}: {self.problem}"


class Doubt(Struct, frozen=True):
    """A column that is not read, though its name is nearly one that is."""

    column: str
    meant: str
    rows: int
    """How many of the rows looked at have it, and nothing under the name that is meant."""
    seen: int
    """Rows looked at, from the first."""

    @property
    def message(self) -> str:
        """One line for people."""
        return (
            f"column `{self.column}` is not read. Did you mean `{self.meant}`? {self.rows} of the first {self.seen} "
            f"{'row' if self.seen == 1 else 'rows'} {'has' if self.rows == 1 else 'have'} `{self.column}` and no "
            f"`{self.meant}`."
        )


class _Part(Struct):
    type: str = ""
    text: str | None = None


class _ChatMessage(Struct):
    role: str
    content: str | list[_Part | str] | None = None


_Text = str | list[_ChatMessage] | UnsetType
_Name = str | int | UnsetType
_Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Row(Struct):
    prompt: _Text = UNSET
    question: _Text = UNSET
    response: _Text = UNSET
    completion: _Text = UNSET
    output: _Text = UNSET
    id: _Name = UNSET
    group: _Name = UNSET
    uid: _Name = UNSET
    reference: _Name | float | None = UNSET
    ground_truth: _Name | float | None = UNSET
    rule_score: float = 0.0
    length: _Count | None = None
    truncated: bool = False
    step: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = None


_decode = msgspec.json.Decoder(_Row).decode
_columns = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_KNOWN = _Row.__struct_fields__
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


class _Refused(Exception):
    """Field and problem."""


class _Missing(_Refused):
    """A field that every row needs is not there."""


def read_rollouts(source: BinaryIO | str | Path) -> Iterator[tuple[int, Sample | BadLine]]:
    """Every line with its number (from 1), as a Sample or a BadLine. Blank lines are passed over."""
    if not isinstance(source, str | Path):
        yield from _read(source)
        return
    try:
        with open_rollouts(source) as stream:
            yield from _read(stream)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(source, error) from None


def unreadable(source: str | Path, error: Exception) -> InputError:
    """The error for a file that the system, or gzip, cannot read."""
    return InputError(f"{source}: cannot read rollouts ({getattr(error, 'strerror', None) or error}).")


def open_rollouts(path: str | Path) -> io.BufferedIOBase:
    """The file, unpacked if it is packed with gzip."""
    try:
        with open(path, "rb") as stream:
            packed = stream.read(2) == GZIP
        return gzip.open(path, "rb") if packed else open(path, "rb")
    except ValueError as error:
        raise InputError(f"{str(path)!r}: not a file name ({error}).") from None


def check_file(path: str | Path) -> tuple[int, list[BadLine]]:
    """Read it all once: how many samples there are, and every problem (without the raw lines)."""
    count, problems = 0, []
    for _, item in read_rollouts(path):
        if isinstance(item, BadLine):
            problems.append(replace(item, raw=b""))
        else:
            count += 1
    return count, problems


def doubtful_columns(path: str | Path, first: int = FIRST) -> list[Doubt]:
    """Columns of the first rows that are not read and seem to be misspelt, each once, in order of appearance.

    A name counts only in rows that lack the field it is like: who has both `length` and `lengths` means it.
    """
    found: Counter[tuple[str, str]] = Counter()
    seen = 0
    with open_rollouts(path) as stream:
        lines = iter(lambda: stream.readline(LONGEST_LINE + 1), b"")
        for number, data in enumerate(itertools.islice(lines, first)):
            row = _columns_of(data if number else data.removeprefix(BOM))
            seen += bool(row)
            meanings = ((column, _meant(column)) for column in row)
            there = {*row, *NEEDED}  # what every row needs is missed where the row is read
            found.update((column, meant) for column, meant in meanings if meant and not _names(meant) & there)
    return [Doubt(column, meant, rows, seen) for (column, meant), rows in found.items()]


@functools.lru_cache(maxsize=1024)
def _meant(column: str) -> str:
    """The known name that this one is nearly; empty if there is none, or if it is one itself."""
    if column in _KNOWN or len(column) > LONGEST_NAME or not column.isprintable():
        return ""
    plain = {_letters(name): name for name in _KNOWN}
    given = _letters(column)
    if given in plain:
        return plain[given]
    near = difflib.get_close_matches(given, [name for name in plain if len(name) >= SHORTEST], n=1, cutoff=NEAR)
    return plain[near[0]] if near and len(given) >= SHORTEST else ""


def _letters(name: str) -> str:
    """A name without what people spell differently: groundTruth and ground-truth are ground_truth."""
    return re.sub(r"[\W_]+", "", name).lower()


def _names(name: str) -> set[str]:
    """All names of the field that has this one."""
    return next(({field, *others} for field, others in ALIASES.items() if name in (field, *others)), {name})


def _read(stream: BinaryIO | io.BufferedIOBase) -> Iterator[tuple[int, Sample | BadLine]]:
    number = found = 0
    while data := stream.readline(LONGEST_LINE + 1):
        number += 1
        if number == 1:
            data = data.removeprefix(BOM)
        if len(data) > LONGEST_LINE and not data.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            problem = f"longer than {LONGEST_LINE} bytes; a rollout does not need that much."
            item: Sample | BadLine = BadLine(number, "", problem, data[:KEPT_OF_LONG_LINE])
        elif not data or data.isspace():
            continue
        else:
            item = read_line(data, number)
        found += 1
        yield number, item
    if not found:
        yield max(number, 1), BadLine(max(number, 1), "", "there are no rollouts in this file.")


def read_line(data: bytes, number: int) -> Sample | BadLine:
    """One line of JSON as a sample. Its id, if it has none, is the line's number."""
    try:
        return _sample(_decode(data), number)
    except _Missing as missing:
        field, problem = missing.args
        problem += _instead(data, field)
    except _Refused as refused:
        field, problem = refused.args
    except msgspec.ValidationError as error:
        field, problem = _complaint(str(error))
    except RecursionError:
        field, problem = "", "nested too deeply."
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        field, problem = _culprit(data) or ("", f"not valid JSON: {error}.")
    return BadLine(number, field, problem, data.rstrip(b"\r\n"))


def _sample(row: _Row, number: int) -> Sample:
    prompt = _pick(row, "prompt")
    response = _pick(row, "response")
    group = _pick(row, "group")
    reference = _pick(row, "reference")
    for name, value in (("prompt", prompt), ("response", response)):
        if value is UNSET:
            raise _Missing(name, f"missing (also accepted: {', '.join(ALIASES[name])}).")
    return Sample(
        prompt=prompt,
        response=response,
        id=str(number if row.id is UNSET else row.id),
        group="" if group is UNSET else group,
        reference=None if reference is UNSET else reference,
        rule_score=row.rule_score,
        length=row.length,
        truncated=row.truncated,
        step=row.step,
    )


def _instead(data: bytes, field: str) -> str:
    """What a row without this field may have instead of it."""
    columns = _columns_of(data)
    near = [column for column in columns if _meant(column) in _names(field)]
    if near:
        return f" Is `{near[0]}` meant to be it?"
    chat = next((column for column in CONVERSATIONS if column in columns), None)
    if chat is None:
        return ""
    return (
        f" `{chat}` is not read: give all turns before the answer as `prompt` (a list of messages will do), and the "
        "answer as `response`."
    )


def _columns_of(data: bytes) -> KeysView[str]:
    """The names in a row; none if it is no row."""
    try:
        return _columns(data).keys()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}.keys()


def _pick(row: _Row, name: str) -> Any:
    """The field's value under its own name or an alias, rendered; all that are given must agree."""
    found, under = UNSET, ""
    for alias in (name, *ALIASES[name]):
        value = getattr(row, alias)
        if value is UNSET:
            continue
        if isinstance(value, list):
            if not value:
                raise _Refused(alias, "a list of no messages.")
            value = render(value)
        elif isinstance(value, int | float):
            value = str(value)
        if under and value != found:
            raise _Refused(name, f"`{under}` and `{alias}` are both given and differ.")
        if not under:
            found, under = value, alias
    return found


def render(messages: Iterable[_ChatMessage]) -> str:
    """Chat messages as text: a single one as its content, several each with its role."""
    turns = [(message.role, _content(message.content)) for message in messages]
    if len(turns) == 1:
        return turns[0][1]
    return "\n\n".join(f"{role}: {content}" for role, content in turns)


def _content(content: str | list[_Part | str] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else _part(part) for part in content)
    return content or ""


def _part(part: _Part) -> str:
    """A part's text; what is not text (an image) keeps its place by name."""
    return f"[{part.type or 'part'}]" if part.text is None else part.text


def _complaint(text: str) -> tuple[str, str]:
    """msgspec's message as field and problem."""
    match = _WHERE.match(text)
    what, field = (match["what"], match["path"] or "") if match else (text, "")
    if not field and what.startswith("Expected `object`"):
        return "", f"not a JSON object ({what[0].lower()}{what[1:]})."
    return field, f"{what[0].lower()}{what[1:]}."


def _culprit(data: bytes) -> tuple[str, str] | None:
    """The field that makes a line no JSON, where Python's more lenient reader can still tell."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "", "this is UTF-16; save the file as UTF-8."
    try:
        row = json.loads(data.decode("utf-8", "surrogateescape"))
        flaws = ((field, _flaw(value)) for field, value in row.items()) if isinstance(row, dict) else ()
        return next(((field, flaw) for field, flaw in flaws if flaw), None)
    except (ValueError, RecursionError):
        return None


def _flaw(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number (and not JSON)."
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            escaped = "\udc80" <= value[error.start] <= "\udcff"
            return "not UTF-8." if escaped else "half a character (a lone surrogate)."
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return next(filter(None, map(_flaw, value)), "")
    return ""
