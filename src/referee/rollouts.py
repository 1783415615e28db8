"""Reads rollouts from JSON Lines, one sample a line, as a stream. Nothing is guessed: what does not fit is a BadLine.

Names are those of `records.Sample`, or the trainers' own: completion, output (response); question (prompt); uid
(group); ground_truth (reference). A prompt or response may be a list of chat messages, and names and references may
be numbers. Other columns are ignored. A file that is packed with gzip is read as what is in it.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator
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
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


class _Refused(Exception):
    """Field and problem."""


def read_rollouts(source: BinaryIO | str | Path) -> Iterator[tuple[int, Sample | BadLine]]:
    """Every line with its number (from 1), as a Sample or a BadLine. Blank lines are passed over."""
    if not isinstance(source, str | Path):
        yield from _read(source)
        return
    try:
        with _open(source) as stream:
            yield from _read(stream)
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(f"{source}: cannot read rollouts ({problem}).") from None


def _open(path: str | Path) -> io.BufferedIOBase:
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


def _read(stream: BinaryIO | io.BufferedIOBase) -> Iterator[tuple[int, Sample | BadLine]]:
    number = found = 0
    while data := stream.readline(LONGEST_LINE + 1):
        number += 1
        if number == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
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
            raise _Refused(name, f"missing (also accepted: {', '.join(ALIASES[name])}).")
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
