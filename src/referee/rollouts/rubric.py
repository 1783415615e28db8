"""Rubrics as people have them, as criteria: where a row keeps its rubric, and every common shape of one.

Nothing is guessed: a shape that is not known is a RubricError that names the place (`rubric[3].points`), and what a
judge would not see is named too. Criteria keep their order; equal ones count as often as they are given.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from referee.records import Criterion
from referee.rollouts.criteria import (
    NAMES,
    READ,
    TEXTS,
    Manner,
    Polarity,
    RubricError,
    at,
    has_category,
    is_numbered,
    read_item,
    read_line,
    real,
    unread_fields,
)
from referee.rollouts.reading import field, named
from referee.rollouts.reading import held as _held

LISTS = ("rubric", "rubrics", "criteria", "criterion", "rubric_items", "sections", "Answer Critical")
"""Fields of an object that hold its criteria."""
BESIDE = ("guidelines", "Valuable", "Context")
"""Fields of such an object that no judge sees, beside its list."""
COLUMNS = ("rubric", "rubrics", "Rubric", "Rubrics", "criteria", "rubric_items", "rubric_list")
"""Columns of a row that hold its rubric, the first that is given counts. The same names count under `reward_model`,
`extra_info` and `extra_info.reward_model`, in this order."""
REQUIREMENTS = "requirements"
"""RLCF's column: lines with an importance. Other columns of this name are something else."""
ANSWERS = ("ground_truth", "reward_model.ground_truth", "extra_info.reward_model.ground_truth")
"""Where open-instruct keeps a rubric as JSON text."""
SOURCES = frozenset({*COLUMNS, REQUIREMENTS, "reward_model", "extra_info", "ground_truth"})
"""Columns in which a rubric is looked for."""
MOST_CRITERIA = 5000
REMEMBERED = 256
"""Rubrics that are read already and are not read again: those of a group are the same."""


def read_rubric(
    value: Any,
    where: str = "rubric",
    polarity: Polarity = "by_phrase",
    *,
    phrased: list[Criterion] | None = None,
    checks: Collection[str] | None = None,
) -> tuple[Criterion, ...]:
    """A rubric in any of the known shapes; nothing is an empty one. `where`: its name, for errors.

    `phrased` gets the criteria whose polarity was decided by their phrasing. `checks`: functions that may be named
    beside the shipped rules; None: any.
    """
    try:
        if checks is None and type(value) is tuple and all(type(item) is Criterion for item in value):
            try:
                return _read_again(value, where)
            except TypeError:  # unhashable: a list where a tuple should be
                return _read_again.__wrapped__(value, where)
        found = list(_read(value, where, Manner(polarity, checks, phrased)))
    except RecursionError:
        raise RubricError(where, "nested too deeply") from None
    if len(found) > MOST_CRITERIA:
        raise RubricError(where, f"{len(found)} criteria; {MOST_CRITERIA} is the most")
    return named_apart(found)


def read_rubric_file(
    text: str, name: str, polarity: Polarity = "by_phrase", *, checks: Collection[str] | None = None
) -> tuple[Criterion, ...]:
    """The rubric in a file, by the file's name and text: TOML, JSON, or lines (.txt, .md)."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("yaml", "yml"):
        raise RubricError(name, "YAML is not read; give the rubric as TOML or JSON")
    value: Any = text
    try:
        if ending == "json" or (ending != "toml" and text.lstrip()[:1] in ("{", "[")):
            value = msgspec.json.decode(text)
        elif ending not in ("txt", "md"):
            import tomllib  # few runs have such a file

            value = tomllib.loads(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RubricError(name, f"cannot be read as {'JSON' if ending == 'json' else 'TOML'}: {error}") from None
    try:
        found = read_rubric(value, "", polarity, checks=checks)
    except RubricError as error:
        raise RubricError(f"{name}: {error.where}" if error.where else name, error.problem) from None
    if not found:
        raise RubricError(name, "there are no criteria in it")
    return found


def find_rubric(row: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Where the rubric of a row is, and the rubric; None if there is none."""
    return next(rubric_places(row), None)


def rubric_of(
    columns: Mapping[str, Any],
    polarity: Polarity = "by_phrase",
    *,
    phrased: list[Criterion] | None = None,
    checks: Collection[str] | None = None,
) -> tuple[Criterion, ...]:
    """The rubric of a row, read; empty if it has none."""
    found = find_rubric(columns)
    return () if found is None else read_rubric(found[1], found[0], polarity, phrased=phrased, checks=checks)


def rubric_places(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every place of a row that holds a rubric, the one that counts first."""
    extra = field(row.get("extra_info"), "reward_model")
    for base, held in (("", row), ("reward_model.", row.get("reward_model")), ("extra_info.", row.get("extra_info"))):
        yield from _columns(base, held)
        lines = row.get(REQUIREMENTS)
        if not base and isinstance(lines, str) and "(importance:" in lines:
            yield REQUIREMENTS, lines
    yield from _columns("extra_info.reward_model.", extra)
    for path, held in zip(ANSWERS, (row, row.get("reward_model"), extra), strict=True):
        answer = in_answer(field(held, "ground_truth"))
        if answer is not None:
            yield path, answer


def unread_rubric(row: Mapping[str, Any]) -> tuple[set[str], list[str]]:
    """Columns of a row that its rubric uses, and the places of what it does not: other rubrics that differ from it, and
    fields of criteria that are not read."""
    places = list(rubric_places(row))
    if not places:
        return set(), []
    first = _sentences(places[0][1])
    used, left = set[str](), list[str]()
    for number, (path, value) in enumerate(places):
        if number and _sentences(value) != first:
            left.append(path)
            continue
        used.add(path.partition(".")[0])
        found = set[str]().union(*(unread_fields(item) for item in _items(value))) if not number else ()
        left += [f"{path}[].{name}" for name in sorted(found)]
        beside = BESIDE if isinstance(value, Mapping) and not number else ()
        left += [f"{path}.{name}" for name in beside if _held(value.get(name))]
    return used, left


def named_apart(criteria: Iterable[Criterion]) -> tuple[Criterion, ...]:
    """The same criteria, each with a name of its own: what it is called, or its place."""
    taken: set[str] = set()
    times: Counter[str] = Counter()
    found = []
    for number, criterion in enumerate(criteria, 1):
        given = criterion.name or f"criterion {number}"
        name = given
        while name in taken:
            times[given] += 1
            name = f"{given} ({times[given] + 1})"
        taken.add(name)
        found.append(criterion if name == criterion.name else replace(criterion, name=name))
    return tuple(found)


@functools.lru_cache(maxsize=REMEMBERED)
def _read_again(criteria: tuple[Criterion, ...], where: str) -> tuple[Criterion, ...]:
    """Criteria that are records already: checked, and named apart."""
    manner = Manner("as_written")
    return named_apart([read_item(item, f"{where}[{number}]", manner) for number, item in enumerate(criteria)])


def _read(value: Any, where: str, manner: Manner) -> Iterator[Criterion]:
    if value is None:
        return
    if isinstance(value, str):
        yield from _read_text(value, where, manner)
    elif _is_object(value):
        yield from _read_object(value, where, manner)
    elif isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        yield from _read_list(list(value), where, manner)
    else:
        what = "an empty object" if isinstance(value, Mapping) and not value else _shape(value)
        raise RubricError(where, f"is no rubric that is known: {what}")


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = ", ".join([str(name)[:40] for name in list(value)[:6]])
        return f"an object with {fields}, and none of {', '.join((*LISTS, *TEXTS))}"
    return f"must be a list of criteria, an object that holds one, or text, not {named(value)}"


def _is_object(value: Any) -> bool:
    """True of mappings and objects that have a field we know. pydantic's models can be iterated over, too."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return False
    return any(_held(field(value, name)) for name in (*LISTS, *TEXTS, "sub_tasks", "check"))


def _read_object(value: Any, where: str, manner: Manner) -> Iterator[Criterion]:
    if _held(field(value, "sub_tasks")):
        yield from _leaves(value, where, 1.0, manner)
        return
    columns = _by_column(value, where)
    if columns:
        yield from _read_list(columns, where, manner)
        return
    lists = [name for name in LISTS if _is_list(value, name)]
    if len(lists) > 1:
        raise RubricError(where, f"holds {' and '.join(lists)}; which of them is the rubric?")
    if lists:
        yield from _read(field(value, lists[0]), at(where, lists[0]), manner)
        return
    yield read_item(value, where, manner)


def _is_list(value: Any, name: str) -> bool:
    """True if this field holds the criteria of an object: a list or an object; text, if there is no other text."""
    held = field(value, name)
    if isinstance(held, str):
        return name not in TEXTS and bool(held.strip()) and not any(_held(field(value, text)) for text in TEXTS)
    return _held(held) and (isinstance(held, Iterable) or _is_object(held))


def _by_column(value: Any, where: str) -> list[dict[str, Any]]:
    """Criteria kept as columns (as `datasets` does it): {"criterion": [...], "points": [...]}."""
    if not isinstance(value, Mapping):
        return []
    lists = {name: list(held) for name, held in value.items() if _is_plain_list(held)}
    texts = [name for name in TEXTS if lists.get(name) and all(isinstance(text, str) for text in lists[name])]
    if not texts:
        return []
    count = len(lists[texts[0]])
    for name, held in value.items():
        title = name in NAMES and isinstance(held, str)  # of the whole rubric
        if name in READ and _held(held) and not title and len(lists.get(name, ())) != count:
            raise RubricError(at(where, name), f"must be a list of {count}, as `{texts[0]}` is: one for each criterion")
    return [{name: held[row] for name, held in lists.items() if len(held) == count} for row in range(count)]


def _read_list(items: list[Any], where: str, manner: Manner) -> Iterator[Criterion]:
    if any(_held(field(item, "sub_tasks")) for item in items if not isinstance(item, str)):
        yield from _leaves({"sub_tasks": items}, where, 1.0, manner)
        return
    if any(has_category(item) for item in items):
        manner = manner._replace(rar=True)
    for number, item in enumerate(items):
        place = f"{where}[{number}]"
        if isinstance(item, str):
            yield read_line(item, place, manner)
        elif not _is_object(item):
            what = f"an object with one of {', '.join(TEXTS)}"
            raise RubricError(place, f"must be a criterion (a text, or {what}), not {_what(item)}")
        elif any(_is_list(item, name) for name in LISTS):
            if field(item, "weight") is not None:
                raise RubricError(
                    at(place, "weight"), "the weight of a section is not read; give weights to its criteria"
                )
            yield from _read_object(item, place, manner)
        else:
            yield read_item(item, place, manner)


def _what(item: Any) -> str:
    if not isinstance(item, Mapping):
        return named(item)
    return f"one with {', '.join([str(name)[:40] for name in list(item)[:6]]) or 'nothing'}"


def _leaves(node: Any, where: str, share: float, manner: Manner) -> Iterator[Criterion]:
    """The leaves of a tree such as PaperBench's. Each counts with the product of the shares on its path, so that their
    weighted mean is what the tree's would be."""
    children = field(node, "sub_tasks")
    if not _held(children):
        yield replace(read_item(node, where, manner), weight=share)
        return
    if not _is_plain_list(children):
        raise RubricError(at(where, "sub_tasks"), f"must be a list, not {named(children)}")
    children, weights = list(children), list[float]()
    for number, child in enumerate(children):
        place = f"{at(where, 'sub_tasks')}[{number}]"
        if not _is_object(child):
            raise RubricError(place, f"must be a node with requirements and weight, not {_what(child)}")
        given = field(child, "weight")
        weights.append(1.0 if given is None else real(given, at(place, "weight")))
        if weights[-1] < 0:
            raise RubricError(at(place, "weight"), "must be at least 0 in a tree")
    total = sum(weights)
    if not total and share:
        raise RubricError(at(where, "sub_tasks"), "have no weight together, so their mean is not defined")
    for number, (child, weight) in enumerate(zip(children, weights, strict=True)):
        part = share * (weight / total) if total else 0.0
        yield from _leaves(child, f"{at(where, 'sub_tasks')}[{number}]", part, manner)


def _read_text(text: str, where: str, manner: Manner) -> Iterator[Criterion]:
    """JSON of any shape; else a criterion a line, or a numbered one over several lines."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        try:
            value = msgspec.json.decode(stripped)
        except (msgspec.DecodeError, UnicodeEncodeError):
            if stripped[1:].lstrip()[:1] in ('"', "{", "}", "]"):
                raise RubricError(where, "text that begins like JSON and is none") from None
        else:
            yield from _read(value, where, manner)
            return
    lines = [(number, line) for number, line in enumerate(stripped.splitlines(), 1) if line.strip()]
    if any(is_numbered(line) for _, line in lines):
        lines = _numbered(lines, where)
    if any(has_category(line) for _, line in lines):
        manner = manner._replace(rar=True)
    weighed = ["(importance:" in line.lower() for _, line in lines]
    for (number, line), has_weight in zip(lines, weighed, strict=True):
        place = f"{where}, line {number}" if where else f"line {number}"
        if any(weighed) and not has_weight:
            raise RubricError(place, "has no (importance: …/100), and others have")
        yield read_line(line, place, manner)


def _numbered(lines: list[tuple[int, str]], where: str) -> list[tuple[int, str]]:
    """Numbered lines with what follows each. A heading (it ends with a colon) may stand before them."""
    found: list[tuple[int, str]] = []
    for number, line in lines:
        if is_numbered(line):
            found.append((number, line))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line.strip()}")
        elif not line.rstrip().endswith(":"):
            raise RubricError(f"{where}, line {number}", "stands before the numbered criteria; number it, too")
    return found


def _columns(base: str, held: Any) -> Iterator[tuple[str, Any]]:
    for name in COLUMNS if isinstance(held, Mapping) else ():
        if _held(held.get(name)):
            yield base + name, held[name]


def in_answer(value: Any) -> Mapping[str, Any] | None:
    """The rubric that is kept as JSON text where the right answer would be."""
    if _is_plain_list(value) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or value.lstrip()[:1] != "{":
        return None
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    names = ("rubrics", "rubric", "Answer Critical")
    return found if any(_is_plain_list(found.get(name)) for name in names) else None


def _sentences(value: Any) -> list[str] | None:
    """What a rubric says, weights aside; None if it cannot be read."""
    try:
        return [criterion.text for criterion in read_rubric(value, polarity="by_sign")]
    except RubricError:
        return None


def _items(value: Any) -> list[Any]:
    """What the criteria of a rubric are made of, one level down."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in LISTS if _is_plain_list(value.get(name))), [])
    return list(value) if _is_plain_list(value) else []


def _is_plain_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (hasattr(value, "tolist") and hasattr(value, "__len__"))
