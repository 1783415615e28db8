"""One criterion of a rubric, in whichever of the common formats, as a `Criterion`. `rubric` finds them and puts them
together.

Fields of different formats that mean the same stand side by side here: `criterion` and `points` (HealthBench,
RubricHub, RuscaRL), `title`, `description` and `weight` (RaR, open-instruct), `requirement` and `options` (autorubric,
rubric), `text` and `choices` (verifiers), `description`, `type` and `negate` (Harbor), `requirements` (PaperBench),
`rubric_str` (tinker), and our own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import Any, Literal, NamedTuple

from referee.records import Criterion
from referee.rollouts.phrasing import true_is as true_is_by_phrase
from referee.rollouts.reading import ReadError, as_json, field, held, named
from referee.rollouts.rules import read_rule

Polarity = Literal["by_phrase", "by_sign", "as_written"]
"""What says whether it is good that a pitfall is true: its phrasing, its sign, or nothing but `true_is`."""

TEXTS = ("text", "description", "criterion", "requirement", "rubric_item", "Ingredient", "requirements", "rubric_str")
"""Fields that hold the sentence, the first that is given counts."""
NAMES = ("name", "title", "Handle")
READ = frozenset(
    {
        *TEXTS,
        *NAMES,
        "weight",
        "points",
        "true_is",
        "choices",
        "values",
        "options",
        "may_not_apply",
        "check",
        "parameters",
    }
    | {"tags", "category", "type", "levels", "min", "max", "negate", "polarity", "annotations", "sub_tasks"}
)
"""Fields of a criterion that are read."""
UNIMPORTANT = frozenset(
    {"id", "idx", "index", "optional", "scale_type", "aggregation", "task_category", "finegrained_task_category"}
    | {"Specifics", "extraction_regex", "grader_output_format_instruction", "source", "rubrics_types"}
)
"""Fields that say nothing a judge or the sum would need."""
TYPES = ("binary", "likert", "numeric", "rubric")
"""Harbor's types of criteria. With one of them `points` are steps of a scale."""
DEFAULT_WEIGHT = 1.0
AUTORUBRIC_WEIGHT = 10.0
"""Of a `requirement` without a weight, as autorubric and rubric have it."""
LARGEST_WEIGHT = 1e9
LONGEST_NAME = 120
LIKERT_POINTS = 5
MOST_CHOICES = 101
TENTHS = 10
"""Steps of a numeric criterion whose ends are at most 1 apart."""
_CATEGORY = re.compile(r"\s*(essential|important|optional|pitfall)s?\s+criteri(?:a|on)\s*[:：]\s*", re.IGNORECASE)
_NUMBERED = re.compile(r"\s*(?:\d{1,4}[.)]|[-*•])\s+")
_IMPORTANCE = re.compile(r"\s*\(importance:\s*(\d{1,3}(?:\.\d{1,9})?)\s*/\s*100\)\s*\.?\s*$", re.IGNORECASE)


class RubricError(ReadError):
    """A rubric of an unknown shape."""


class Manner(NamedTuple):
    """How criteria are read."""

    polarity: Polarity
    checks: Collection[str] | None = None
    """Functions that may be named beside the shipped rules. None: any."""
    phrased: list[Criterion] | None = None
    """Where criteria go, too, whose polarity was decided by phrasing."""
    rar: bool = False
    """Another criterion of the rubric names its category as RaR's do: one with a negative weight is a pitfall."""


def at(where: str, name: str) -> str:
    """The place of a field."""
    return f"{where}.{name}" if where else name


def has_category(item: Any) -> bool:
    """True if a criterion begins with its category, as RaR's do."""
    text = item if isinstance(item, str) else _text(item)[1]
    return bool(_CATEGORY.match(text))


def is_numbered(line: str) -> bool:
    """True if a line of text begins with a number or a bullet."""
    return bool(_NUMBERED.match(line))


def read_line(line: str, where: str, manner: Manner) -> Criterion:
    """A criterion that is nothing but text, with an importance at its end or without."""
    text = _NUMBERED.sub("", line, count=1)
    importance = _IMPORTANCE.search(text)
    return read_item(
        {"text": _IMPORTANCE.sub("", text), "weight": float(importance[1]) if importance else None}, where, manner
    )


def read_item(item: Any, where: str, manner: Manner) -> Criterion:
    """A criterion. Its name is empty if it has none."""
    text_field, text = _text(item)
    check, parameters = _rule(item, where, manner)
    category = _CATEGORY.match(text)
    text = text[category.end() if category else 0 :].strip()
    if not text and not check:
        raise _without_text(item, where, text_field)
    choices, values, may_not_apply, explained = _choices(item, where)
    may_not_apply = may_not_apply or _flag(item, "may_not_apply", where)
    if may_not_apply and "not applicable" in choices:
        raise RubricError(
            at(where, "choices"), '"not applicable" is what `may_not_apply` offers; leave one of them out'
        )
    weight = _weight(item, where, text_field)
    kind = (category[1] if category else _word(item, "category")).lower()
    pitfall = kind.startswith("pitfall") or (manner.rar and weight < 0 and not kind)
    way, by_phrase = _true_is(item, where, weight, text, pitfall, manner.polarity)
    criterion = Criterion(
        text=(text or f"{check} {parameters}".strip()) + explained,
        weight=abs(weight),
        name=_name(item, where, text_field),
        true_is=way,
        choices=choices,
        values=values,
        may_not_apply=may_not_apply,
        check=check,
        parameters=parameters,
    )
    if by_phrase and manner.phrased is not None:
        manner.phrased.append(criterion)
    return criterion


def unread_fields(item: Any) -> set[str]:
    """Names of fields of a criterion that are not read and hold something."""
    if not isinstance(item, Mapping):
        return set()
    return {str(name) for name, value in item.items() if held(value)} - READ - UNIMPORTANT


def _word(item: Any, name: str) -> str:
    """A field that is a word; empty if it is something else."""
    value = field(item, name)
    return str.__str__(value) if isinstance(value, str) else ""


def _without_text(item: Any, where: str, text_field: str) -> RubricError:
    for name in TEXTS:
        value = field(item, name)
        if value is not None and not isinstance(value, str):
            return RubricError(at(where, name), f"must be text, not {named(value)}")
    place = at(where, text_field) if text_field else where
    return RubricError(place, f"a criterion without a text (one of {', '.join(TEXTS)})")


def _text(item: Any) -> tuple[str, str]:
    """The field that holds the sentence, and the sentence. Both are empty if there is none."""
    for name in TEXTS:
        value = field(item, name)
        if isinstance(value, str) and value.strip():
            return name, str.__str__(value)
    return "", ""


def _name(item: Any, where: str, text_field: str) -> str:
    names = (*NAMES, "criterion") if text_field == "description" else NAMES  # then `criterion` is a short name
    for name in names:
        value = field(item, name)
        if not held(value):
            continue
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise RubricError(at(where, name), f"must be text, not {named(value)}")
        return " ".join(str(value).split())[:LONGEST_NAME].strip()
    return ""


def _weight(item: Any, where: str, text_field: str) -> float:
    fields = ("weight",) if _word(item, "type") in TYPES else ("weight", "points")
    found = {name: real(value, at(where, name)) for name in fields if (value := field(item, name)) is not None}
    if len(set(found.values())) > 1:
        raise RubricError(at(where, "weight"), f"`weight` ({found['weight']:g}) and `points` differ")
    default = AUTORUBRIC_WEIGHT if text_field == "requirement" else DEFAULT_WEIGHT
    return next(iter(found.values()), default)


def _true_is(
    item: Any, where: str, weight: float, text: str, pitfall: bool, polarity: Polarity
) -> tuple[Literal["good", "bad"], bool]:
    """What it means that the sentence is true, and whether that was decided by its phrasing."""
    stated = field(item, "true_is")
    if stated is not None:
        if not isinstance(stated, str) or stated not in ("good", "bad"):
            raise RubricError(at(where, "true_is"), f'must be "good" or "bad", not {str(stated)[:40]!r}')
        if weight < 0 and isinstance(item, Criterion):
            raise RubricError(at(where, "weight"), 'must be at least 0; true_is = "bad" says that it counts against')
        return ("good" if stated == "good" else "bad"), False
    kind = (_word(field(item, "annotations"), "type") or _word(item, "polarity")).lower()
    if _flag(item, "negate", where) or kind.startswith("negative"):
        if weight < 0:
            raise RubricError(
                at(where, "weight"), "is negative, and the criterion is negated as well; give one of them"
            )
        return "bad", False
    if polarity == "by_phrase" and pitfall:
        return true_is_by_phrase(text), True
    if polarity == "as_written" and weight < 0:
        problem = (
            'is negative, and with judge.polarity = "as_written" only true_is ("good" or "bad") says what that means'
        )
        raise RubricError(at(where, "weight"), problem)
    return ("bad" if weight < 0 else "good"), False


def _rule(item: Any, where: str, manner: Manner) -> tuple[str, str]:
    """The rule that decides instead of a judge, and what it is given; empty if there is none."""
    check, given, place = field(item, "check"), field(item, "parameters"), "check"
    if not held(check):
        tags = _tags(field(item, "tags"))
        check = tags.get("function") if tags.get("verifier") == "rule" else None
        given, place = tags.get("parameters"), "tags.function"
    if not held(check) or (isinstance(check, str) and check in ("null", "None")):
        return "", ""
    if not isinstance(check, str):
        raise RubricError(at(where, place), f"must be the name of a rule, not {named(check)}")
    try:
        return read_rule(check, given, at(where, place), manner.checks)
    except ReadError as error:
        raise RubricError(error.where, error.problem) from None


def _tags(tags: Any) -> dict[str, Any]:
    """Tags by name: a mapping, or a list of "name:value"."""
    if isinstance(tags, Mapping):
        return {str(name): value for name, value in tags.items() if value is not None}
    if tags is None or isinstance(tags, str) or not isinstance(tags, Iterable):
        return {}
    pairs = (tag.partition(":") for tag in tags if isinstance(tag, str))
    return {name.strip(): value.strip() for name, _, value in pairs}


class _Choice(NamedTuple):
    label: str
    value: float | None = None
    not_applicable: bool = False
    described: str = ""


def _choices(item: Any, where: str) -> tuple[tuple[str, ...], tuple[float, ...], bool, str]:
    """Labels from worst to best, what each is worth, whether it may not apply, and what the labels stand for."""
    kind = _word(item, "type")
    source = next((name for name in ("choices", "options", "levels") if held(field(item, name))), "")
    if source:
        place = at(where, source)
        listed = _listed(field(item, source), place)
        listed = _with_values(listed, field(item, "values"), at(where, "values"))
    elif kind == "likert":
        points = field(item, "points")
        steps = LIKERT_POINTS if points is None else _whole(points, at(where, "points"), 2)
        place, listed = at(where, "points"), [_Choice(str(step + 1)) for step in range(steps)]
    elif kind == "numeric":
        place, listed = at(where, "max"), _numbers(item, where)
    else:
        return (), (), False, ""
    offered = [choice for choice in listed if not choice.not_applicable]
    labels = {choice.label.casefold() for choice in offered}
    if not 2 <= len(offered) <= MOST_CHOICES or len(labels) != len(offered):
        raise RubricError(place, f"must be 2 to {MOST_CHOICES} different labels, from worst to best")
    offered, values = _ordered(offered, place)
    explained = "".join([f"\n- {choice.label}: {choice.described}" for choice in offered if choice.described])
    not_applicable = len(offered) < len(listed)
    if not values and [choice.label.casefold() for choice in offered] == ["no", "yes"]:
        return (), (), not_applicable, explained
    return tuple([choice.label for choice in offered]), values, not_applicable, explained


def _listed(given: Any, where: str) -> list[_Choice]:
    if isinstance(given, Mapping):
        given = [{"label": label, "value": value} for label, value in given.items()]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise RubricError(where, f"must be a list of labels from worst to best, not {named(given)}")
    return [_choice(choice, f"{where}[{number}]") for number, choice in enumerate(given)]


def _choice(given: Any, where: str) -> _Choice:
    if isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool)):
        return _Choice(_label(given, where))
    found = [(name, field(given, name)) for name in ("label", "name", "description", "text")]
    texts = [(name, value) for name, value in found if value is not None]
    if not texts:
        raise RubricError(where, f"must be a label, or an object with label and value, not {named(given)}")
    value = next((value for name in ("value", "score", "points") if (value := field(given, name)) is not None), None)
    label = _label(texts[0][1], at(where, texts[0][0]))
    if isinstance(value, str):  # a mapping of numbers to what they stand for
        label, value, texts = _label(value, where), _number(label, where), []
    described = as_json(texts[1][1]).strip() if len(texts) > 1 else ""
    worth = None if value is None else real(value, at(where, "value"))
    return _Choice(label, worth, _flag(given, "na", where), described)


def _label(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise RubricError(where, f"must be a label that is not empty, not {named(value)}")
    return " ".join(str(value).split())


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RubricError(where, "must have a number as its value") from None


def _with_values(listed: list[_Choice], given: Any, where: str) -> list[_Choice]:
    if not held(given):
        return listed
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise RubricError(where, f"must be a list of numbers, not {named(given)}")
    values = [real(value, f"{where}[{number}]") for number, value in enumerate(given)]
    if len(values) != len(listed) or not all(0 <= value <= 1 for value in values):
        raise RubricError(where, f"must be {len(listed)} numbers from 0 to 1, one for each choice")
    return [choice._replace(value=value) for choice, value in zip(listed, values, strict=True)]


def _ordered(offered: list[_Choice], where: str) -> tuple[list[_Choice], tuple[float, ...]]:
    """Worst first, and what each is worth in [0, 1]; nothing if they are only ordered."""
    given = [choice.value for choice in offered if choice.value is not None]
    if not given:
        return offered, ()
    low, high = min(given), max(given)
    if len(given) < len(offered) or low == high:
        raise RubricError(where, "must have different values, one for each label, or none at all")
    offered = sorted(offered, key=lambda choice: choice.value or 0.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return offered, tuple([((choice.value or 0.0) - low) / (high - low) for choice in offered])


def _numbers(item: Any, where: str) -> list[_Choice]:
    """Harbor's numeric scale, as labels: every whole number, or tenths where the ends are at most 1 apart."""
    low = real(value, at(where, "min")) if (value := field(item, "min")) is not None else 0.0
    high = real(value, at(where, "max")) if (value := field(item, "max")) is not None else 1.0
    span = high - low
    if 0 < span <= 1:
        return [_Choice(f"{low + span * step / TENTHS:g}") for step in range(TENTHS + 1)]
    if low % 1 or high % 1 or not 1 < span < MOST_CHOICES:
        raise RubricError(at(where, "max"), f"`min` and `max` must be whole numbers, at most {MOST_CHOICES - 1} apart")
    return [_Choice(str(int(low) + step)) for step in range(int(span) + 1)]


def real(value: Any, where: str) -> float:
    """A finite number of usable size."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= LARGEST_WEIGHT:
        shown = repr(value) if isinstance(value, int | float) and len(repr(value)) < 40 else named(value)
        raise RubricError(where, f"must be a number, not {shown}")
    return number


def _whole(value: Any, where: str, least: int) -> int:
    number = real(value, where)
    if number % 1 or not least <= number <= MOST_CHOICES:
        raise RubricError(where, f"must be a whole number from {least} to {MOST_CHOICES}")
    return int(number)


def _flag(item: Any, name: str, where: str) -> bool:
    value = field(item, name)
    if value is not None and not isinstance(value, bool):
        raise RubricError(at(where, name), f"must be true or false, not {named(value)}")
    return bool(value)
