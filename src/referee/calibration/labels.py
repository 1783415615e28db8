"""Files with what people said: rollouts with a label, preferences among responses to one prompt, JSON Lines or a table.

A label is yes or no, a number or a word; against which judge it means what is in `truth`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from referee.judging.digest import digest
from referee.records import Criterion, Sample
from referee.rollouts import BOM, BadLine, Polarity, open_rollouts, plain, read_line, unreadable
from referee.rollouts.file import FIRST
from referee.rollouts.row import columns_of
from referee.rollouts.tables import is_table, table_lines

Label = bool | float | str
WORDS = {
    **dict.fromkeys(("yes", "y", "true", "t", "pass", "passed", "correct", "right", "good"), True),
    **dict.fromkeys(("no", "n", "false", "f", "fail", "failed", "incorrect", "wrong", "bad"), False),
}
"""Words that say yes or no."""
NO_LABEL = frozenset({"", "na", "n/a", "none", "null", "nan", "not applicable"})
TIE = frozenset({"tie", "equal", "both", "neither"})
"""What `preferred` may say of several responses: none is better, so that no pair of them is compared."""
NO_VALUE = "(none)"
"""What a column is worth in a row that has none of it."""
REASONS = ("why", "reason", "comment")
"""Columns in which people say why."""
PAIRS = (("response_a", "response_b"), ("answer_a", "answer_b"), ("output_a", "output_b"))
_SEVERAL = frozenset({"chosen", "rejected", "preferred", "responses", *(name for pair in PAIRS for name in pair)})


class Row(Struct, frozen=True, kw_only=True):
    """One response, and what people said of it."""

    line: int
    sample: Sample
    label: Label | None = None
    labels: dict[str, Label] = {}
    """Of single criteria of a rubric, by name or text."""
    preferred: bool | None = None
    """True: people prefer it to the responses of the same contest that are not."""
    contest: str = ""
    """Responses that are compared share it: those of a row with several, else those to one prompt."""
    prompt: str = ""
    """A short name of the prompt: rows that share it are not independent."""
    why: str = ""
    by: dict[str, str] = {}
    """Columns by whose value agreement is broken down."""

    @property
    def labelled(self) -> bool:
        """Whether people said something of it."""
        return self.label is not None or self.preferred is not None or bool(self.labels)


class Format(Struct, frozen=True, kw_only=True):
    """How a file is to be read: what its judges are shown, and where its labels are."""

    columns: tuple[str, ...] = ()
    """Columns that templates show."""
    text_only: bool = False
    rubric: Polarity | None = None
    label: str = "label"
    by: tuple[str, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    """Of the judges; rows may bring their own."""


def read_labels(path: Path, form: Format) -> Iterator[Row | BadLine]:
    """Every row of a file, in order; of a line with several responses, a row each. What cannot be read is a BadLine."""
    try:
        for number, data in _lines(path):
            yield from _rows(data, number, form)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def unjudged_columns(path: Path, form: Format) -> list[dict[str, msgspec.Raw]]:
    """What stands in the first rows, by column, without what is read here: labels, and what they are broken down by."""
    own = {form.label, "labels", *_SEVERAL, *REASONS, *form.by, "num_correct", "total_completions"}
    rows = [columns_of(data) for _, data in islice(_lines(path), FIRST)]
    return [{name: raw for name, raw in row.items() if name not in own} for row in rows]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if is_table(path):
        number = 0
        for lines in table_lines(path, {}):
            number += lines.count(b"\n")
            if not lines.isspace():
                yield number, lines
        return
    with open_rollouts(path) as stream:
        for number, data in enumerate(stream, 1):
            data = data.removeprefix(BOM) if number == 1 else data
            if data.strip():
                yield number, data


def _rows(data: bytes, number: int, form: Format) -> list[Row] | list[BadLine]:
    try:
        row: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        responses = _responses(row)
        if responses is None:
            return [_rollout(row, data, number, form)]
        found = []
        for name, response, preferred in responses:
            one = _with_response(row, response)
            one["id"] = f"{row.get('id', number)}/{name}"
            sample = _sample(msgspec.json.encode(one), number, form)
            found.append(
                Row(
                    line=number,
                    sample=sample,
                    preferred=preferred,
                    contest=f"line {number}",
                    prompt=_prompt(sample),
                    why=_why(row),
                    by=_by(row, form.by),
                )
            )
        return found
    except _Bad as error:
        return [BadLine(number, error.field, error.problem, data.rstrip())]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found_bad = read_line(data, number)  # its reader says where the JSON is wrong
        return [found_bad if isinstance(found_bad, BadLine) else BadLine(number, "", "not a JSON object.")]


class _Bad(Exception):
    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem


def _rollout(row: Mapping[str, Any], data: bytes, number: int, form: Format) -> Row:
    sample = _sample(data, number, form)
    preferred = row.get("preferred")
    if preferred is not None:
        preferred = label_of(preferred)
        if not isinstance(preferred, bool):
            raise _Bad(
                "preferred",
                "is yes or no for a single response; with several it names one of `responses` (text or place, from 0), "
                "or a or b of `response_a` and `response_b`.",
            )
    labels = row.get("labels") or {}
    if not isinstance(labels, Mapping):
        raise _Bad("labels", 'must name criteria: {"criterion": "yes", …}. The label of a row is `label`.')
    try:
        label = label_of(row.get(form.label))
        known = (*sample.rubric, *form.criteria)
        named = {str(name): given for name, raw in labels.items() if (given := _named(name, raw, known)) is not None}
    except ValueError as error:
        raise _Bad(form.label, f"{error}.") from None
    return Row(
        line=number,
        sample=sample,
        label=label,
        labels=named,
        preferred=preferred,
        contest=_prompt(sample),
        prompt=_prompt(sample),
        why=_why(row),
        by=_by(row, form.by),
    )


def label_of(given: Any) -> Label | None:
    """What a label says; None: nothing. Numbers and words in text are understood."""
    if given is None or isinstance(given, bool):
        return given
    if isinstance(given, int | float):
        if not math.isfinite(given):
            raise ValueError(f"{given} is no finite number")
        return float(given)
    if not isinstance(given, str):
        raise ValueError("a label is yes or no, a number or a word, not a list or an object")
    text = given.strip()
    if text.lower() in NO_LABEL:
        return None
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _named(name: str, raw: Any, criteria: Sequence[Criterion]) -> Label | None:
    """The label of one criterion. One of its choices may be called good, or none: such a word stays as it is."""
    offered = [word for one in criteria_named(name, criteria) for word in one.choices]
    if not isinstance(raw, str) or not offered:
        return label_of(raw)
    text = raw.strip()
    return None if text.lower() in NO_LABEL and text.lower() not in map(folded, offered) else text


def criteria_named(name: str, criteria: Sequence[Criterion]) -> list[Criterion]:
    """Criteria of this name, else of this sentence."""
    wanted = folded(name)
    return [one for one in criteria if folded(one.name) == wanted] or [
        one for one in criteria if folded(one.text) == wanted
    ]


def folded(text: str) -> str:
    """As names are compared."""
    return " ".join(text.split()).casefold()


def _sample(data: bytes, number: int, form: Format) -> Sample:
    found = read_line(data, number, form.columns, form.text_only, form.rubric)
    if isinstance(found, BadLine):
        raise _Bad(found.field, found.problem)
    return found


def _responses(row: Mapping[str, Any]) -> list[tuple[str, Any, bool | None]] | None:
    """The responses of a row with several: a name, the response, whether people prefer it, None if they said nothing.
    None: it has one response."""
    if "chosen" in row or "rejected" in row:
        sides = {name: _several(row.get(name)) for name in ("chosen", "rejected")}
        for name, side in sides.items():
            if not side:
                raise _Bad(name, "missing or empty; a preference needs `chosen` and `rejected`.")
        return [
            (name if len(side) == 1 else f"{name} {place}", response, name == "chosen")
            for name, side in sides.items()
            for place, response in enumerate(side, 1)
        ]
    pair = next((pair for pair in PAIRS if all(name in row for name in pair)), None)
    responses = [row[name] for name in pair] if pair else _several(row.get("responses"))
    if len(responses) < 2:
        return None
    names = ["a", "b"] if pair else [str(place) for place in range(len(responses))]
    given = row.get("preferred")
    if given is None or (isinstance(given, str) and given.strip().lower() in NO_LABEL):
        alone = "response" in row
        return None if alone else [(name, response, None) for name, response in zip(names, responses, strict=True)]
    tied = isinstance(given, str) and given.strip().lower() in TIE
    best = set[int]() if tied else _preferred(given, names, responses)
    return [(names[place], response, place in best) for place, response in enumerate(responses)]


def _preferred(given: Any, names: list[str], responses: list[Any]) -> set[int]:
    wanted = given if isinstance(given, list) else [given]
    found = set()
    for one in wanted:
        name = str(one).strip().lower().removeprefix("response_").removeprefix("response ")
        places = [place for place, response in enumerate(responses) if name == names[place] or one == response]
        if len(places) != 1:
            raise _Bad("preferred", f"{str(one)[:60]!r} names none of its {len(responses)} responses.")
        found.add(places[0])
    if len(found) == len(responses):
        raise _Bad("preferred", "names all responses, so none is preferred to another.")
    return found


def _several(given: Any) -> list[Any]:
    """A response, or a list of them. A list of messages is one response."""
    if isinstance(given, list):
        return [given] if given and all(isinstance(one, dict) for one in given) else given
    return [] if given in (None, "") else [given]


def _with_response(row: Mapping[str, Any], response: Any) -> dict[str, Any]:
    one = {name: value for name, value in row.items() if name not in _SEVERAL}
    talk = isinstance(response, list) and response and isinstance(response[0], dict)
    if talk and response[0].get("role", response[0].get("from")) not in ("assistant", "gpt", "model"):
        # A whole conversation, as in many preference datasets: it holds its prompt itself.
        return {**{name: one[name] for name in one if name not in ("prompt", "question")}, "messages": response}
    return {**one, "response": response}


def _prompt(sample: Sample) -> str:
    return digest(plain(sample.prompt))[:16]


def _why(row: Mapping[str, Any]) -> str:
    return next((text for name in REASONS if isinstance(text := row.get(name), str) and text.strip()), "")


def _by(row: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    return {name: _value(row.get(name)) for name in names}


def _value(given: Any) -> str:
    if given in (None, ""):
        return NO_VALUE
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()
