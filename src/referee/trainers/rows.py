"""Trainers' rows to samples: prompts and completions as text or messages, groups, references. No framework."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from referee.records import Sample

REFERENCES = ("reference", "ground_truth", "answer", "solution", "label", "target")
"""Columns that hold the known right answer, in the order they are looked for."""


def text_of(value: Any) -> str:
    """A prompt or completion as text: text stays, one message is its content, several get their roles."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    messages = _messages(value)
    if messages is None:
        return str(value)
    turns = [(_field(message, "role"), _content(message)) for message in messages]
    if len(turns) == 1:
        return turns[0][1]
    return "\n\n".join(f"{role}: {content}" for role, content in turns)


def last_user(prompt: Any) -> str:
    """The last thing the user said; the whole text where there are no roles."""
    if isinstance(prompt, str):
        return prompt
    said = [message for message in _messages(prompt) or () if _field(message, "role") == "user"]
    return _content(said[-1]) if said else text_of(prompt)


def reference_of(columns: Mapping[str, Any]) -> str | None:
    """The known answer among a row's columns, if there is one."""
    for name in REFERENCES:
        found = columns.get(name)
        if found is not None:
            return found if isinstance(found, str) else text_of(found)
    return None


def to_sample(
    prompt: Any,
    completion: Any,
    *,
    ids: Sequence[int] | None = None,
    length: int | None = None,
    group: Any = "",
    reference: Any = None,
    id: Any = "",
    step: int | None = None,
    truncated: bool = False,
    rule_score: float = 0.0,
) -> Sample:
    """One rollout as a Sample. Its length in tokens: `length`, or counted from the completion's `ids`."""
    return Sample(
        prompt=text_of(prompt),
        response=text_of(completion),
        id=str(id),
        group=str(group),
        reference=None if reference is None else text_of(reference),
        rule_score=rule_score,
        length=length if ids is None else len(ids),
        truncated=truncated,
        step=step,
    )


def to_samples(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    ids: Sequence[Sequence[int] | None] | None = None,
    columns: Mapping[str, Any] | None = None,
    step: int | None = None,
    *,
    size: int | None = None,
    offset: int = 0,
    truncated: Sequence[bool] | None = None,
) -> list[Sample]:
    """A trainer's batch as samples; columns are lists, one entry a row.

    `size`: the trainer takes this many consecutive rows for a group, and `offset` rows of the whole batch stand before
    these, on other ranks. Without it, rows with the same prompt are a group.
    """
    columns = {name: rows for name, rows in (columns or {}).items() if name in REFERENCES and _is_column(rows, prompts)}
    texts, answers = [text_of(prompt) for prompt in prompts], [text_of(completion) for completion in completions]
    name = group_name(step, texts, answers)
    return [
        to_sample(
            text,
            answer,
            ids=None if ids is None else ids[row],
            group=f"{name}.{number}",
            reference=reference_of({column: rows[row] for column, rows in columns.items()}),
            id=row,
            step=step,
            truncated=truncated is not None and truncated[row],
        )
        for row, (text, answer, number) in enumerate(zip(texts, answers, _numbers(texts, size, offset), strict=True))
    ]


def has_reference(columns: Mapping[str, Any]) -> bool:
    """Whether there is a column for the known answer, whatever it holds."""
    return any(name in columns for name in REFERENCES)


def group_name(*parts: Any) -> str:
    """A name that other groups of the run do not have: of what was asked and answered, the step and the rank.

    Positions in a batch would be the same in every batch and on every rank. A step that is trained again after a
    resume gets its names again, so that the report knows its samples.
    """
    known = repr((os.environ.get("RANK", ""), *parts))
    return hashlib.blake2b(known.encode(), digest_size=8).hexdigest()


def _numbers(texts: Sequence[str], size: int | None, offset: int) -> list[int]:
    """The number of each row's group in the batch."""
    if size:
        return [(offset + row) // size for row in range(len(texts))]
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return [known[text] for text in texts]


def _is_column(rows: Any, prompts: Sequence[Any]) -> bool:
    return isinstance(rows, Sequence) and not isinstance(rows, str) and len(rows) == len(prompts)


def _messages(value: Any) -> list[Any] | None:
    """The chat messages in a value: a list of them or a single one; None if it is something else."""
    if isinstance(value, Mapping) or hasattr(value, "content"):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        found = list(value)
        if all(isinstance(item, Mapping) or hasattr(item, "content") for item in found):
            return found
    return None


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _content(message: Any) -> str:
    content = _field(message, "content")
    if content is None or isinstance(content, str):
        calls = "" if content else _calls(_field(message, "tool_calls"))
        return content or calls
    parts = [content] if isinstance(content, Mapping) else list(content)
    return "\n".join(part if isinstance(part, str) else _part(part) for part in parts)


def _part(part: Any) -> str:
    """A part's text; what is not text (an image) keeps its place by name."""
    text = _field(part, "text")
    return text if isinstance(text, str) else f"[{_field(part, 'type') or 'part'}]"


def _calls(calls: Any) -> str:
    """Tool calls in words, for messages that are nothing else."""
    found = []
    for call in calls or ():
        function = _field(call, "function") or call
        found.append(f"[calls {_field(function, 'name')}({_field(function, 'arguments')})]")
    return "\n".join(found)
