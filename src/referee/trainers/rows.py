"""Trainers' rows to samples: prompts and responses as text or messages, tools, columns, groups, references.

No framework. Messages are read by `referee.rollouts`, as everywhere; what they cannot be read from is an InputError
that names the trainer's own argument and the row.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from numbers import Number
from typing import Any

import msgspec
from msgspec.structs import replace

from referee.errors import InputError
from referee.records import Criterion, Media, Message, Sample, Text, Tool
from referee.rollouts import MessageError, Polarity, ReadError, plain, read_text, read_tools, rubric_of
from referee.rollouts.rubric import SOURCES, in_answer

REFERENCES = ("expected_answer", "reference", "ground_truth", "answer", "solution", "label", "target")
"""Columns that hold the known right answer, in the order they are looked for."""
MEDIA = ("images", "image", "videos", "video", "audios", "audio")
"""Columns that hold what a prompt shows beside its text."""
TOOLS = "tools"
"""The column that holds what the policy could call."""
NAMES = ("prompt", "response")


def text_of(value: Any, where: str = "") -> Text:
    """A prompt or response: text or messages. Trainers also pass None, empty lists and numbers. `where`: its name."""
    if isinstance(value, str):
        return str.__str__(value)
    if type(value) is tuple and len(value) > 1 and type(value[0]) is Message:
        return value  # read before
    if value is None or (isinstance(value, Sized) and not isinstance(value, Mapping) and len(value) == 0):
        return ""
    if isinstance(value, Number):
        return str(value)
    try:
        return read_text(value, where)
    except MessageError as error:
        raise _refused(error) from None


def tools_of(value: Any, where: str = TOOLS) -> tuple[Tool, ...]:
    """What the policy could call. A list may also hold each tool as JSON text, or its name alone."""
    if not holds(value):
        return ()
    if type(value) is tuple and type(value[0]) is Tool:
        return value  # read before
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        value = [_tool(item) for item in value]
    try:
        return read_tools(value, where)
    except MessageError as error:
        raise _refused(error) from None


def reference_text(value: Any) -> str:
    """A known answer as text: messages as people read them, anything else as Python writes it."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return plain(read_text(value))
    except MessageError:
        return str(value)


def reference_of(row: Mapping[str, Any]) -> str | None:
    """The known answer among a row's columns, if there is one."""
    found = next((row[name] for name in REFERENCES if row.get(name) is not None), None)
    return None if found is None else reference_text(found)


def has_reference(row: Mapping[str, Any]) -> bool:
    """Whether there is a column for the known answer, whatever it holds."""
    return any(name in row for name in REFERENCES)


def with_reference(row: Mapping[str, Any] | None, reference: Any) -> dict[str, Any]:
    """A row's columns with a known answer that the framework keeps apart; it goes before one among the columns."""
    return {**(row or {}), **({} if reference is None else {REFERENCES[0]: reference})}


def column_text(value: Any) -> str:
    """A column for a template: text as it is, anything else as JSON, as in files of rollouts."""
    if isinstance(value, str):
        return str.__str__(value)
    return msgspec.json.encode(value, enc_hook=_in_json).decode()


def to_sample(
    prompt: Any,
    response: Any,
    *,
    row: Mapping[str, Any] | None = None,
    shown: Sequence[str] = (),
    polarity: Polarity | None = None,
    names: tuple[str, str] = NAMES,
    ids: Sequence[int] | None = None,
    length: int | None = None,
    group: Any = "",
    id: Any = "",
    step: int | None = None,
    truncated: bool = False,
    rule_score: float = 0.0,
) -> Sample:
    """One rollout as a Sample. Its length in tokens: `length`, or counted from the response's `ids`.

    `row`: the rollout's other columns; the known answer, the tools, what is not text, and the columns named in `shown`
    are taken from it, and with a `polarity` its rubric. `names`: what the framework calls prompt and response, for
    errors.
    """
    row = row or {}
    rubric = () if polarity is None else _rubric(row, polarity)
    if rubric:  # one that stands where the answer would is no answer to compare with
        row = {name: value for name, value in row.items() if name not in REFERENCES or in_answer(value) is None}
    return Sample(
        prompt=_with_media(text_of(prompt, names[0]), row),
        response=text_of(response, names[1]),
        id=str(id),
        group=str(group),
        reference=reference_of(row),
        tools=tools_of(row[TOOLS]) if TOOLS in row else (),
        rubric=rubric,
        columns={name: column_text(row[name]) for name in shown if row.get(name) is not None},
        rule_score=rule_score,
        length=length if ids is None else len(ids),
        truncated=truncated,
        step=step,
    )


def to_samples(
    prompts: Sequence[Any],
    responses: Sequence[Any],
    ids: Sequence[Sequence[int] | None] | None = None,
    columns: Mapping[str, Any] | None = None,
    step: int | None = None,
    *,
    shown: Sequence[str] = (),
    polarity: Polarity | None = None,
    names: tuple[str, str] = ("prompts", "completions"),
    size: int | None = None,
    offset: int = 0,
    truncated: Sequence[bool] | None = None,
) -> list[Sample]:
    """A trainer's batch as samples; columns are lists, one entry a row.

    `size`: the trainer takes this many consecutive rows for a group, and `offset` rows of the whole batch stand before
    these, on other ranks. Without it, rows with the same prompt are a group.
    """
    wanted = {*REFERENCES, TOOLS, *MEDIA, *shown, *(() if polarity is None else SOURCES)}
    columns = {name: rows for name, rows in row_columns(columns or {}, len(prompts)).items() if name in wanted}
    if TOOLS in columns:
        columns[TOOLS] = _tools_by_row(columns[TOOLS])
    asked = _each(prompts, names[0])
    answers = _each(responses, names[1])
    name = group_name(step, asked, answers)
    return [
        to_sample(
            prompt,
            answer,
            row={column: rows[row] for column, rows in columns.items()},
            shown=shown,
            polarity=polarity,
            ids=None if ids is None else ids[row],
            group=f"{name}.{number}",
            id=row,
            step=step,
            truncated=truncated is not None and truncated[row],
        )
        for row, (prompt, answer, number) in enumerate(zip(asked, answers, _numbers(asked, size, offset), strict=True))
    ]


def _rubric(row: Mapping[str, Any], polarity: Polarity) -> tuple[Criterion, ...]:
    try:
        return rubric_of(row, polarity)
    except ReadError as error:
        raise InputError(f"{error.where}: {error.problem}. Nothing was spent.", field=error.where) from None


def row_columns(columns: Mapping[str, Any], rows: int) -> dict[str, Sequence[Any]]:
    """Of a trainer's keyword arguments, those that are columns: a list with an entry for each row."""
    return {
        name: value
        for name, value in columns.items()
        if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == rows
    }


def group_name(*parts: Any) -> str:
    """A name that other groups of the run do not have: of what was asked and answered, the step and the rank.

    Positions in a batch would be the same in every batch and on every rank. A step that is trained again after a
    resume gets its names again, so that the report knows its samples.
    """
    known = repr((os.environ.get("RANK", ""), *parts))
    return hashlib.blake2b(known.encode(), digest_size=8).hexdigest()


def split(conversation: Any, prompt: Text, where: str) -> tuple[Text, Text]:
    """Prompt and response of a whole conversation. It begins with the prompt, with another one (then the response
    begins with the first assistant message), or with the response itself."""
    role = "assistant" if isinstance(conversation, str) else field(next(iter(conversation)), "role")
    messages = _messages(text_of(conversation, where), str(role))
    asked = _messages(prompt, "user")
    if messages[: len(asked)] == asked:
        return prompt, _as_text(messages[len(asked) :])
    first = first_of(messages, lambda message: message.role == "assistant")
    return (_as_text(messages[:first]) if first else prompt), _as_text(messages[first:])


def first_of(items: Sequence[Any], holds: Callable[[Any], bool]) -> int:
    """The place of the first item of which that is true; of the last one where there is none."""
    return next((place for place, item in enumerate(items) if holds(item)), max(len(items) - 1, 0))


def omitted(what: str) -> Message:
    """A turn that says what of a rollout is not among its messages."""
    return Message(f"not shown: {what}")


def holds(value: Any) -> bool:
    """False of None and of empty texts, lists and mappings."""
    return value is not None and not (isinstance(value, Sized) and len(value) == 0)


def field(item: Any, name: str) -> Any:
    """An entry of a mapping or an attribute of an object; None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _each(values: Sequence[Any], name: str) -> list[Text]:
    return [value if type(value) is str else text_of(value, f"{name}[{row}]") for row, value in enumerate(values)]


def _tools_by_row(column: Sequence[Any]) -> list[tuple[Tool, ...]]:
    """The tools of each row; rows that share a list share what is read of it."""
    known: dict[int, tuple[Tool, ...]] = {}
    column = list(column)  # a sequence that makes its rows would give one id to several
    for row, tools in enumerate(column):
        if id(tools) not in known:
            known[id(tools)] = tools_of(tools, f"{TOOLS}[{row}]")
    return [known[id(tools)] for tools in column]


def _tool(item: Any) -> Any:
    if not isinstance(item, str):
        return item
    try:
        return msgspec.json.decode(item)
    except msgspec.DecodeError:
        return {"name": item}


def _with_media(prompt: Text, row: Mapping[str, Any]) -> Text:
    """The prompt with what its row shows beside it, unless the prompt's messages hold that themselves."""
    kinds = [name for name in MEDIA if name in row and holds(row[name])]
    if not kinds:
        return prompt
    messages = _messages(prompt, "user")
    if any(message.media for message in messages):
        return prompt
    first = messages[0] if messages else Message("user")
    pieces = tuple([Media(kind, at=len(first.content)) for kind in kinds])
    return (replace(first, media=pieces), *messages[1:])


def _messages(text: Text, role: str) -> tuple[Message, ...]:
    return text if not isinstance(text, str) else (Message(role, text),)


def _as_text(messages: Sequence[Message]) -> Text:
    return read_text(messages) if messages else ""


def _numbers(prompts: Sequence[Text], size: int | None, offset: int) -> list[int]:
    """The number of each row's group in the batch."""
    if size:
        return [(offset + row) // size for row in range(len(prompts))]
    known = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    return [known[prompt] for prompt in prompts]


def _in_json(value: Any) -> Any:
    """numpy's numbers and arrays as Python's; what has no JSON, as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _refused(error: MessageError) -> InputError:
    return InputError(f"{error.where}: {error.problem}. Nothing was spent.", field=error.where)
