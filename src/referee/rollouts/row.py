"""One line of JSON as a Sample. Nothing is guessed: what does not fit is a BadLine that names the field.

Names are those of `records.Sample`, or the trainers' own: completion, output (response); question (prompt); uid
(group); ground_truth (reference). A prompt or response may be chat messages; a row may also be one conversation
(`messages`), whose last answer is the response. Names and references may be numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from referee.records import Sample, Text
from referee.rollouts.criteria import Polarity
from referee.rollouts.messages import read_text, read_tools
from referee.rollouts.reading import ReadError
from referee.rollouts.rubric import find_rubric, read_rubric

NEEDED = ("prompt", "response")
CONVERSATIONS = ("messages", "conversations", "conversation")
"""Columns that hold prompt and response in one: what follows the last user message is the response."""
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


_Text = str | dict[str, Any] | list[Any] | UnsetType
_Name = str | int | UnsetType
_Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Row(Struct):
    prompt: _Text = UNSET
    question: _Text = UNSET
    response: _Text = UNSET
    completion: _Text = UNSET
    output: _Text = UNSET
    messages: list[Any] | UnsetType = UNSET
    conversations: list[Any] | UnsetType = UNSET
    conversation: list[Any] | UnsetType = UNSET
    tools: str | list[Any] | None = None
    id: _Name = UNSET
    group: _Name = UNSET
    uid: _Name = UNSET
    reference: _Name | float | None = UNSET
    ground_truth: _Name | float | None = UNSET
    rule_score: float = 0.0
    length: _Count | None = None
    truncated: bool = False
    step: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = None


class _Rubrics(Struct):
    """Columns in which a rubric is looked for."""

    rubric: Any = None
    rubrics: Any = None
    Rubric: Any = None
    Rubrics: Any = None
    criteria: Any = None
    rubric_items: Any = None
    rubric_list: Any = None
    requirements: Any = None
    reward_model: Any = None
    extra_info: Any = None
    ground_truth: Any = None


KNOWN = _Row.__struct_fields__
"""Columns that are read."""
_decode = msgspec.json.Decoder(_Row).decode
_decode_rubric = msgspec.json.Decoder(_Rubrics).decode
_decode_columns = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


class _Refused(Exception):
    """Field and problem."""


class Missing(_Refused):
    """A field that every row needs is not there."""


def read_row(data: bytes, number: int, columns: Collection[str] = (), rubric: Polarity | None = None) -> Sample:
    """The sample in a line, with these of its own columns, and its rubric if one is wanted. Raises what `problem_with`
    explains."""
    row = _decode(data)
    found = find_rubric(msgspec.structs.asdict(_decode_rubric(data))) if rubric else None
    if found is not None and found[0] == "ground_truth":
        row.ground_truth = UNSET  # a rubric, and no answer to compare with
    prompt, response = _pick(row, "prompt"), _pick(row, "response")
    if prompt is UNSET and response is UNSET:
        prompt, response = _conversation(row)
    group, reference = _pick(row, "group"), _pick(row, "reference")
    for name, value in (("prompt", prompt), ("response", response)):
        if value is UNSET:
            raise Missing(name, f"missing (also accepted: {', '.join(ALIASES[name])}).")
    return Sample(
        prompt=prompt,
        response=response,
        id=str(number if row.id is UNSET else row.id),
        group="" if group is UNSET else group,
        reference=None if reference is UNSET else reference,
        tools=read_tools(row.tools) if row.tools else (),
        rubric=read_rubric(found[1], found[0], rubric) if found and rubric else (),
        columns=_own_columns(data, columns) if columns else {},
        rule_score=row.rule_score,
        length=row.length,
        truncated=row.truncated,
        step=row.step,
    )


def problem_with(data: bytes, error: Exception) -> tuple[str, str]:
    """Field and problem of a line that `read_row` could not read; any other error is raised again."""
    if isinstance(error, _Refused):
        return error.args[0], error.args[1]
    if isinstance(error, ReadError):
        return error.where, f"{error.problem}."
    if isinstance(error, msgspec.ValidationError):
        return _complaint(str(error))
    if isinstance(error, RecursionError):
        return "", "nested too deeply."
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return _culprit(data) or ("", f"not valid JSON: {error}.")
    raise error


def columns_of(data: bytes) -> dict[str, msgspec.Raw]:
    """What stands in a row, by column; nothing if it is no row."""
    try:
        return _decode_columns(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _conversation(row: _Row) -> tuple[Text | UnsetType, Text | UnsetType]:
    """Prompt and response of a row that is one conversation."""
    name = next((name for name in CONVERSATIONS if getattr(row, name) is not UNSET), "")
    if not name:
        return UNSET, UNSET
    talk = read_text(getattr(row, name), name)
    users = [] if isinstance(talk, str) else [number for number, turn in enumerate(talk) if turn.role == "user"]
    cut = users[-1] + 1 if users else 0
    if isinstance(talk, str) or not cut or not any(turn.role == "assistant" for turn in talk[cut:]):
        raise _Refused(name, "there is no assistant message after the last user message, so nothing to judge.")
    return read_text(talk[:cut]), read_text(talk[cut:])


def _own_columns(data: bytes, names: Collection[str]) -> dict[str, str]:
    """Columns as text: text as it is, anything else as JSON."""
    row, found = columns_of(data), dict[str, str]()
    for name in names:
        value = msgspec.json.decode(row[name]) if name in row else None
        if value is not None:
            found[name] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return found


def _pick(row: _Row, name: str) -> Any:
    """The field's value under its own name or an alias; all that are given must agree."""
    found, under = UNSET, ""
    for alias in (name, *ALIASES[name]):
        value = getattr(row, alias)
        if value is UNSET:
            continue
        if isinstance(value, list | dict):
            value = read_text(value, alias)
        elif isinstance(value, int | float):
            value = str(value)
        if under and value != found:
            raise _Refused(name, f"`{under}` and `{alias}` are both given and differ.")
        if not under:
            found, under = value, alias
    return found


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
