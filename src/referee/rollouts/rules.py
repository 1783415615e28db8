"""Rules that a criterion may name instead of asking a judge: which there are, and what they are given.

Everything is read into one form, so that whatever runs a rule (`judging.checks`) meets no other. A rule that is not
known, or is given something else than it takes, is a ReadError that names the place.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from referee.rollouts.reading import ReadError, as_json, named

OTHER_NAMES = {
    "math_verify": "equals",
    "word_count_range": "words",
    "KeywordChecker": "contains",
    "keywords:existence": "contains",
    "ForbiddenWords": "not_contains",
    "keywords:forbidden_words": "not_contains",
    "NumberOfWords": "words",
    "length_constraints:number_words": "words",
    "CommaChecker": "not_contains",
    "punctuation:no_comma": "not_contains",
    "JsonFormat": "valid_json",
    "detectable_format:json_format": "valid_json",
}
"""What RubricHub and RuscaRL (whose names are partly IFEval's) call the rules that are clearly one of ours."""
IMPLIED: dict[str, dict[str, Any]] = {
    "ForbiddenWords": {"words": True},
    "keywords:forbidden_words": {"words": True},
    "CommaChecker": {"text": ","},
    "punctuation:no_comma": {"text": ","},
}
"""What those names say beyond their parameters."""
FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "a": re.ASCII}
LONGEST_PATTERN = 2000
MOST_WORDS = 10**9
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")


def read_rule(name: str, given: Any, where: str, own: Collection[str] | None = None) -> tuple[str, str]:
    """A rule's name and its parameters as JSON. `own`: the functions that may be named beside the shipped rules; None:
    any `package.module:function`, because the judge that runs it checks which may be."""
    given = _decoded(given)
    rule = OTHER_NAMES.get(name, name)
    if own is not None and name in own:
        rule = name
    elif rule in RULES:
        implied = IMPLIED.get(name, {})
        return rule, as_json(RULES[rule]({**_as_mapping(given, implied), **implied} if implied else given, where))
    elif own is not None or not _FUNCTION.fullmatch(name):
        raise ReadError(where, _unknown(name, own))
    try:
        return rule, "" if given is None else msgspec.json.encode(given, order="sorted", enc_hook=_listed).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ReadError(where, f"cannot be written as JSON ({error})") from None


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)  # numpy's


def _unknown(name: str, own: Collection[str] | None) -> str:
    known = f"shipped are {', '.join(RULES)}"
    if own:
        known += f", and this judge has {', '.join(sorted(own))}"
    how = "name a function of your own that does it: package.module:function"
    return f"there is no rule {name[:80]!r} ({known}); {how}"


def _decoded(given: Any) -> Any:
    """Parameters as data: people also keep them as JSON text. What is null was not given."""
    if isinstance(given, str) and given[:1] in ('"', "{", "["):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            return given
    if isinstance(given, Mapping):
        given = {key: value for key, value in given.items() if value is not None}
    if hasattr(given, "tolist"):
        given = given.tolist()  # numpy's
    return None if given is None or given in ("", [], {}) else given


def _as_mapping(given: Any, implied: Mapping[str, Any]) -> dict[str, Any]:
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    return {} if "text" in implied else {"texts": given}


def _fields(given: Any, where: str, only: str, *known: str) -> dict[str, Any]:
    """Parameters by name; a bare value is the one named `only`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {only: given}
    for name in given:
        if name not in (only, *known):
            raise ReadError(f"{where}.{name}", f"is not read; this rule takes {', '.join((only, *known))}")
    return dict(given)


def _contains(given: Any, where: str) -> dict[str, Any]:
    fields = _fields(given, where, "texts", "text", "keywords", "forbidden_words", "case", "words")
    found: dict[str, Any] = {"texts": []}
    for name in ("texts", "text", "keywords", "forbidden_words"):
        value = fields.pop(name, [])
        single = isinstance(value, str | int | float)
        if not single and not isinstance(value, Iterable):
            raise ReadError(f"{where}.{name}", f"must be text or a list of texts, not {named(value)}")
        found["texts"] += [_text(item, f"{where}.{name}") for item in ([value] if single else value)]
    if not found["texts"]:
        raise ReadError(where, "this rule needs a text to look for")
    for name, value in fields.items():
        if not isinstance(value, bool):
            raise ReadError(f"{where}.{name}", f"must be true or false, not {named(value)}")
        if value:
            found[name] = True
    return found


def _regex(given: Any, where: str) -> dict[str, Any]:
    fields = _fields(given, where, "pattern", "flags")
    pattern, flags = fields.get("pattern"), fields.get("flags", "")
    if not isinstance(pattern, str) or not 0 < len(pattern) <= LONGEST_PATTERN:
        raise ReadError(f"{where}.pattern", f"must be a regular expression of 1 to {LONGEST_PATTERN} characters")
    if not isinstance(flags, str) or not set(flags) <= set(FLAGS):
        raise ReadError(f"{where}.flags", f"must be letters of {''.join(FLAGS)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern, regex_flags(flags))
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        raise ReadError(f"{where}.pattern", f"is not a regular expression: {error}") from None
    return {"pattern": str.__str__(pattern), **({"flags": "".join(sorted(set(flags)))} if flags else {})}


def regex_flags(letters: str) -> re.RegexFlag:
    """Flags of `re` by their letters."""
    found = re.NOFLAG
    for letter in letters:
        found |= FLAGS[letter]
    return found


def _words(given: Any, where: str) -> dict[str, Any]:
    fields = _fields(given, where, "words", "min", "max", "min_count", "max_count", "num_words", "relation")
    least, most = (_count(fields, names, where) for names in (("min", "min_count"), ("max", "max_count")))
    wanted = _count(fields, ("words", "num_words"), where)
    if wanted is not None:
        relation = fields.get("relation", "exactly")
        if not isinstance(relation, str) or relation not in RELATIONS:
            raise ReadError(f"{where}.relation", f"must be one of {', '.join(RELATIONS)}, not {str(relation)[:40]!r}")
        least, most = RELATIONS[relation](wanted)
    if least is None and most is None:
        raise ReadError(where, "this rule needs a number of words")
    if least is not None and most is not None and least > most:
        raise ReadError(where, f"at least {least} and at most {most} words cannot both be")
    return {name: value for name, value in (("min", least), ("max", most)) if value is not None}


RELATIONS: dict[str, Callable[[int], tuple[int | None, int | None]]] = {
    "exactly": lambda count: (count, count),
    "at least": lambda count: (count, None),
    "at most": lambda count: (None, count),
    "more than": lambda count: (count + 1, None),
    "less than": lambda count: (None, count - 1),
}


def _bound(name: str) -> Callable[[Any, str], dict[str, Any]]:
    def read(given: Any, where: str) -> dict[str, Any]:
        fields = _fields(given, where, name, "words")
        count = _count(fields, (name, "words"), where)
        if count is None:
            raise ReadError(where, "this rule needs a number of words")
        return {name: count}

    return read


def _equals(given: Any, where: str) -> dict[str, Any]:
    fields = _fields(given, where, "answers", "answer")
    value = fields.get("answers", fields.get("answer"))
    if value is None:
        return {}
    single = isinstance(value, str | int | float)
    if not single and not isinstance(value, Iterable):
        raise ReadError(f"{where}.answer", f"must be a text or a number, not {named(value)}")
    return {"answers": [_text(item, f"{where}.answer") for item in ([value] if single else value)]}


def _nothing(given: Any, where: str) -> dict[str, Any]:
    if given is not None:
        raise ReadError(where, "this rule takes no parameters")
    return {}


RULES: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "contains": _contains,
    "not_contains": _contains,
    "regex": _regex,
    "max_words": _bound("max"),
    "min_words": _bound("min"),
    "words": _words,
    "valid_json": _nothing,
    "equals": _equals,
}
"""The shipped rules, each with the reader of its parameters."""


def _text(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise ReadError(where, f"must be a text that is not empty, not {'empty' if value == '' else named(value)}")
    return str.__str__(value) if isinstance(value, str) else str(value)


def _count(fields: Mapping[str, Any], names: tuple[str, ...], where: str) -> int | None:
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 12:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_WORDS or value % 1:
            raise ReadError(f"{where}.{name}", f"must be a whole number of words, not {str(value)[:40]!r}")
        return int(value)
    return None
