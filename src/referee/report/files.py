"""What a path holds that `report` or `diff` is given: a ledger, rewards of `referee score`, or labels people gave.

Rewards are read as the ledger lines they stand for, without what their rows do not say: times, attempts, prompts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from referee.errors import InputError
from referee.ledger import MAX_LINE, JudgeLine, Line, Reading, RewardLine, VerdictLine, read
from referee.ledger.build_lines import digest
from referee.ledger.reader import UNREADABLE, decode_line
from referee.report.judges import MOST_LEVELS
from referee.report.reward_rows import holds_table, read_table
from referee.report.shape import Scale
from referee.report.sides import Row, Side, of_judge, side

LOOKED_AT = 100
"""Lines of a file that are looked at to see what it holds."""
NEITHER = "neither a ledger nor rewards of `referee score` (JSON lines with `line`, `id` and `reward`)"
LABELS = "labels (JSON lines with `score`, `label` or `value`)"
LABEL_NEEDS = "A label is a number: `score` on the judge's scale, `label` (true, false) or `value` between 0 and 1."

_Text = str | None | list[object]


class JudgeSaid(Struct, kw_only=True):
    """What a row of rewards says of one of several judges."""

    score: float | None = None
    value: float | None = None
    judge: float | None = None
    """What it adds to the reward."""
    why: str = ""
    unscored: str = ""
    detail: str = ""
    origin: str = ""
    how: str = ""
    cost: float = 0.0
    key: str = ""
    model: str = ""
    endpoint: str = ""
    parts: Any = None


class Given(JudgeSaid, kw_only=True):
    """One line of a file of rewards, or of labels: what either may hold."""

    line: int = 0
    id: str | int = ""
    reward: float | UnsetType | None = UNSET
    group: str | int = ""
    step: int | None = None
    label: float | bool | None = None
    rule: float = 0.0
    penalty: float = 0.0
    length: int = 0
    median_length: float = 0.0
    filled: str = ""
    judges: Any = None
    columns: Any = None
    """The caller's own."""
    prompt: _Text = None
    question: _Text = None
    response: _Text = None
    completion: _Text = None
    output: _Text = None

    def is_reward(self) -> bool:
        """Whether `referee score` may have written it."""
        return self.line > 0 and self.reward is not UNSET

    def is_label(self) -> bool:
        """Whether it holds a person's judgement of a sample."""
        return self.score is not None or self.label is not None or self.value is not None

    def each(self) -> dict[str, JudgeSaid]:
        """What each of several judges said, by name; empty where `judges` is a column of the user's own."""
        with suppress(msgspec.ValidationError):
            return msgspec.convert(self.judges or {}, dict[str, JudgeSaid])
        return {}

    def texts(self) -> tuple[str, str]:
        """Prompt and response, where the line, or what is kept of the caller's, holds them as text."""
        kept = self.own()
        prompts = (self.prompt, self.question, kept.get("prompt"), kept.get("question"))
        answers = (self.response, self.completion, self.output, *map(kept.get, ("response", "completion", "output")))
        prompt, answer = (next((text for text in texts if isinstance(text, str)), "") for texts in (prompts, answers))
        return prompt, answer

    def own_step(self) -> int | None:
        """The training step, where it was kept of the caller's columns."""
        if self.step is not None:
            return self.step
        try:
            return int(self.own().get("step", ""))  # of a CSV text
        except (TypeError, ValueError, OverflowError):
            return None

    def own(self) -> dict[str, Any]:
        """The caller's own columns."""
        return self.columns if isinstance(self.columns, dict) else {}


_decode = msgspec.json.Decoder(Given, strict=False).decode  # cells of a CSV are text


class Rewards:
    """Rows of `referee score` as ledger lines, in the order of the file. Can be gone through more than once."""

    unknown = torn = 0

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0
        """Lines that are no row."""
        known, judges = _Known(), dict[str, _Known]()
        for row in filter(None, given_rows(path)):
            for name, said in row.each().items():
                judges.setdefault(name, _Known()).add(said)
            if row.how != "terms":  # what several judges said as one is between 0 and 1
                known.add(row)
        self.scale = known.scale()
        self.scales = {name: judge.scale() for name, judge in judges.items()}

    def __iter__(self) -> Iterator[Line]:
        self.skipped = 0
        for index, row in enumerate(given_rows(self.path)):
            if row is None or not row.is_reward():
                self.skipped += 1
                continue
            yield from _lines(row, index)


def record_beside(output: Path) -> Path:
    """Where `referee score` keeps the record of an output, whichever of its files is named."""
    name = output.name
    for ending in (".partial", ".rows", ".jsonl"):
        name = name.removesuffix(ending) or name
    return output.with_name(f"{name}.run")  # other endings stay: a.csv and a.parquet are two runs


def lines_of(path: Path) -> Reading | Rewards:
    """The lines of a ledger, or those that a file of rewards stands for; an error where it is neither."""
    if not path.is_file() or holds_a_ledger(path):  # a pipe can be read only once: it is taken for a ledger
        return read(path)
    if is_rewards(path):
        return Rewards(path)
    raise InputError(f"{path}: {NEITHER}. {_what(path)}")


def is_rewards(path: Path) -> bool:
    """Whether one of the file's first lines is a row of rewards."""
    return _holds(path, Given.is_reward)


def sides(a: Path, b: Path, judge: str = "") -> tuple[Side, Side]:
    """Both sides of a comparison. At most one of them may be labels: they are read on the other's scale. `judge`: the
    one to compare of a side that has several; empty: all of them as one."""
    first, second = _judged(a, judge), _judged(b, judge)
    if first is None and second is None:
        raise InputError(f"{a}: {NEITHER}. Labels can be compared with one of these, not with each other.")
    if first is None:
        assert second is not None
        return _labelled(a, second), second
    return first, second if second is not None else _labelled(b, first)


def _judged(path: Path, judge: str) -> Side | None:
    """The side of a ledger or of rewards; None if the file may hold labels."""
    if path.is_file() and not holds_a_ledger(path):
        if is_rewards(path):
            rewards = Rewards(path)
            found = side(rewards)
            found.ordered = True
            if not found.judges:
                found.scale = (rewards.scale.low, rewards.scale.high)
            return of_judge(found, judge) if judge else found
        if _holds(path, Given.is_label):
            return None
        raise InputError(f"{path}: {NEITHER}, nor {LABELS}. {_what(path)} --map score=COLUMN names another column.")
    found = side(read(path))
    return of_judge(found, judge) if judge else found


def _labelled(path: Path, other: Side) -> Side:
    """Labels as a side: a `value` is in [0, 1], a `score` or `label` on the other side's scale, or true and false."""
    given = list(given_rows(path))
    rows = [row for row in given if row is not None]
    unreadable = len(given) - len(rows)
    if unreadable or not all(0.0 <= row.value <= 1.0 for row in rows if row.value is not None):
        wrong = f"{unreadable} of its lines cannot be read" if unreadable else "a `value` is not between 0 and 1"
        raise InputError(f"{path}: {wrong}. {LABEL_NEEDS}")
    numbers = [float(number) for row in rows if (number := _number(row)) is not None]
    low, high = other.scale if isinstance(other.scale, tuple) else (0.0, 1.0)
    binary = all(number in (0.0, 1.0) for number in numbers)
    fits = all(low <= number <= high for number in numbers)
    if binary and (not fits or any(row.label is not None for row in rows)):
        low, high = 0.0, 1.0
    elif not fits:
        raise InputError(
            f"{path}: scores from {min(numbers):g} to {max(numbers):g} do not fit the judge's scale from {low:g} to "
            f"{high:g}. Give them on that scale, or as `value` between 0 and 1."
        )
    found = [_label(row, low, high) for row in rows]
    scale = other.scale if (low, high) == other.scale and not any(row.value is not None for row in rows) else None
    return Side(rows=found, scale=scale, ordered=True)


def _number(row: Given) -> float | bool | None:
    return None if row.value is not None else row.score if row.score is not None else row.label


def _label(row: Given, low: float, high: float) -> Row:
    number, texts = _number(row), row.texts()
    value = row.value if number is None else (float(number) - low) / (high - low)
    return Row(
        id=str(row.id),
        text=f"{digest(texts[0])}{digest(texts[1])}" if any(texts) else "",
        score=value if number is None else float(number),
        value=value,
        unscored="" if value is not None else "no label",
        why=row.why,
        prompt=texts[0],
        response=texts[1],
    )


def _lines(row: Given, index: int) -> Iterator[Line]:
    """What the ledger would say of this row."""
    prompt, response = row.texts()
    name, group = str(row.id), str(row.group)
    step = row.own_step()
    judges = row.each()
    for judge, said in judges.items():
        yield JudgeLine(judge=judge, index=index, **_said(said))
    yield VerdictLine(
        index=index,
        id=name,
        group=group,
        step=step,
        rule_score=row.rule,
        length=row.length,
        prompt=prompt,
        response=response,
        more={"columns": row.own()} if row.own() else {},
        **_said(row),
    )
    yield RewardLine(
        index=index,
        id=name,
        group=group,
        step=step,
        value=None if row.reward is UNSET else row.reward,
        rule=row.rule,
        judge=row.judge,
        penalty=row.penalty,
        length=row.length,
        median_length=row.median_length,
        filled=row.filled,
        terms={judge: said.judge for judge, said in judges.items()},
    )


def _said(given: Given | JudgeSaid) -> dict[str, Any]:
    """The fields that say what a judge, or all of them as one, said."""
    return {
        "origin": given.origin or "none",
        "key": given.key,
        "endpoint": given.endpoint,
        "model": given.model,
        "score": given.score,
        "value": given.value,
        "why": given.why,
        "how": given.how,
        "unscored": "" if given.value is not None else given.unscored or "unknown",
        "detail": given.detail,
        "cost": given.cost,
        "parts": [part for part in given.parts if isinstance(part, dict)] if isinstance(given.parts, list) else [],
    }


class _Known:
    """What rows tell of a judge's scale: its scores and their values in [0, 1]."""

    def __init__(self) -> None:
        self._least = self._most = (0.0, 0.0)
        self._whole, self._count = True, 0

    def add(self, said: Given | JudgeSaid) -> None:
        """One more verdict, if it is one."""
        if said.score is None or said.value is None:
            return
        pair = (said.value, said.score)
        self._least, self._most = (min(self._least, pair), max(self._most, pair)) if self._count else (pair, pair)
        self._whole = self._whole and said.score.is_integer()
        self._count += 1

    def scale(self) -> Scale:
        """The scale, found from the line through the lowest and the highest."""
        (value, score), (most_value, most_score) = self._least, self._most
        if most_value - value < 1e-6:
            return Scale()
        unit = (most_score - score) / (most_value - value)
        low = round(score - value * unit, 6)
        high = round(low + unit, 6)
        if not (unit > 0 and math.isfinite(low) and math.isfinite(high)):
            return Scale()
        levels = int(high - low) + 1 if self._whole and low.is_integer() and high.is_integer() else 0
        return Scale(levels if 2 <= levels <= MOST_LEVELS else 0, low, high)


def holds_a_ledger(path: Path) -> bool:
    """Whether one of the file's first lines is a ledger's."""
    for data in islice(_read(path), LOOKED_AT):
        try:
            decode_line(data)
        except UNREADABLE:
            continue
        return True
    return False


def _holds(path: Path, kind: object) -> bool:
    return any(row is not None and kind(row) for row in islice(given_rows(path), LOOKED_AT))  # type: ignore[operator]


def _what(path: Path) -> str:
    """What the first line of a file is instead."""
    data = next(_read(path), b"")
    if not data:
        return "It is empty."
    try:
        found = msgspec.json.decode(data)
    except UNREADABLE:
        return "Its first line is not JSON."
    if not isinstance(found, dict):
        return "Its first line is no JSON object."
    if any(isinstance(found.get(name), str) for name in ("score", "label", "value")):
        return LABEL_NEEDS
    return f"Its first line has {', '.join(map(repr, islice(found, 8)))}."


def given_rows(path: Path) -> Iterator[Given | None]:
    """Every line that is not blank; None for one that is no row."""
    for data in _read(path):
        try:
            yield _decode(data)
        except UNREADABLE:
            yield None


def _read(path: Path) -> Iterator[bytes]:
    """Lines that are not blank; of a table, the lines of JSON that its rows stand for."""
    try:
        if holds_table(path):
            for row in read_table(path):
                yield row if isinstance(row, bytes) else msgspec.json.encode(row, enc_hook=str)
            return
        with path.open("rb") as stream:
            while data := stream.readline(MAX_LINE):
                if data.strip():
                    yield data.removeprefix(b"\xef\xbb\xbf")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None
