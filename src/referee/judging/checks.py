"""Criteria that a rule decides: no question, no cost. A rule that cannot be run is Unscored, never a zero.

The shipped rules take time in proportion to the response and run here. `regex` does not, and what a user's own function
does is not known: those are among the `functions` that whoever builds the judge hands in, and must come back in time
(`scoring.check_process`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from referee.records import Criterion, Reason, Sample, Unscored, Verdict
from referee.rollouts.rules import RULES, regex_flags

CheckFunction = Callable[[str, Any, Sample], object]
"""Called with the response's text, the criterion's parameters and the sample. True, False or a number in [0, 1]."""
LONGEST_ANSWER = 200
"""Characters of an answer that is read as a number."""
LONGEST_DETAIL = 300
FENCE = "```"


class CheckFailed(Exception):
    """A check that gave no result, and why."""


def run_check(
    criterion: Criterion, response: str, sample: Sample, functions: Mapping[str, CheckFunction]
) -> Verdict | Unscored:
    """Whether a criterion with a check is true of a response: 1 if it is, 0 if not, or between. Never raises.

    `functions`: `regex`, and the functions of the user's own that the configuration allows, by the names criteria use.
    """
    try:
        parameters = msgspec.json.decode(criterion.parameters) if criterion.parameters else {}
        rule = _RULES.get(criterion.check)
        if rule is not None:
            return rule(response, parameters, sample)
        function = functions.get(criterion.check)
        if function is None:
            raise CheckFailed("it is not among the functions that this judge may call")
        value = as_share(function(response, parameters, sample))
    except Exception as error:
        what = str(error) if isinstance(error, CheckFailed) else f"{type(error).__name__}: {error}"
        detail = f"check {criterion.check}: {what}"[:LONGEST_DETAIL]
        return Unscored(reason=Reason.CONFIG, detail=detail)
    return _verdict(value, f"{criterion.check}: {value:g}")


def unknown_checks(criteria: tuple[Criterion, ...], functions: Mapping[str, CheckFunction]) -> list[str]:
    """Checks that these criteria name and nothing here knows, each once: to be refused before anything is spent."""
    named = dict.fromkeys([criterion.check for criterion in criteria if criterion.check])
    return [name for name in named if name not in RULES and name not in functions]


def as_share(value: object) -> float:
    """What a function returned, as a number in [0, 1]."""
    if hasattr(value, "item") and not isinstance(value, int | float):
        value = value.item()  # numpy's
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise CheckFailed(f"it returned {str(value)[:40]!r}; True, False or a number from 0 to 1 is wanted")


def regex(response: str, parameters: Any) -> bool:
    """Whether a pattern is found. It may take for ever: not to be called where others wait."""
    return re.search(parameters["pattern"], response, regex_flags(parameters.get("flags", ""))) is not None


def _contains(response: str, parameters: Any, sample: Sample) -> Verdict:
    missing = [text for text in parameters["texts"] if not _is_in(text, response, parameters)]
    return _verdict(not missing, f"missing: {missing[0][:60]!r}" if missing else "all of it is there")


def _not_contains(response: str, parameters: Any, sample: Sample) -> Verdict:
    found = [text for text in parameters["texts"] if _is_in(text, response, parameters)]
    return _verdict(not found, f"found: {found[0][:60]!r}" if found else "none of it is there")


def _is_in(text: str, response: str, parameters: Any) -> bool:
    if not parameters.get("case"):
        text, response = text.casefold(), response.casefold()
    if not parameters.get("words"):
        return text in response
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", response) is not None


def _words(response: str, parameters: Any, sample: Sample) -> Verdict:
    count = len(response.split())
    least, most = parameters.get("min", 0), parameters.get("max", count)
    return _verdict(least <= count <= most, f"{count} words")


def _valid_json(response: str, parameters: Any, sample: Sample) -> Verdict:
    text = response.strip()
    first, _, rest = text.partition("\n")
    # No pattern: one with white space on both sides of the fence takes quadratic time.
    if rest.endswith(FENCE) and first.rstrip().lower() in (FENCE, f"{FENCE}json"):
        text = rest.removesuffix(FENCE).strip()
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return _verdict(False, f"no JSON: {error}"[:LONGEST_DETAIL])
    except RecursionError:
        return _verdict(False, "no JSON: nested too deeply")
    return _verdict(True, "JSON")


def _equals(response: str, parameters: Any, sample: Sample) -> Verdict | Unscored:
    answers = parameters.get("answers") or ([sample.reference] if (sample.reference or "").strip() else [])
    if not answers:
        raise CheckFailed("it has no `answer`, and the sample has no `reference` to compare with")
    given = _plain(_final(response))
    return _verdict(any(_same(given, _plain(_final(answer))) for answer in answers), f"answer: {given[:60]!r}")


_RULES: Mapping[str, Callable[[str, Any, Sample], Verdict | Unscored]] = {
    "contains": _contains,
    "not_contains": _not_contains,
    "max_words": _words,
    "min_words": _words,
    "words": _words,
    "valid_json": _valid_json,
    "equals": _equals,
}


def _verdict(value: float, words: str) -> Verdict:
    return Verdict(score=float(value), value=float(value), reason=words, how="check")


_STATED = re.compile(r"(?:final\s+answer|answer)\s*(?:is|:|=)\s*:?[ \t]*(\S[^\n]*)", re.IGNORECASE)
_HASHES = re.compile(r"^####[ \t]*(\S[^\n]*)$", re.MULTILINE)


def _final(response: str) -> str:
    """The answer that a text ends with: in its last \\boxed{}, after ####, after "answer is"; else the whole text."""
    start = response.rfind("\\boxed{")
    if start >= 0:
        depth, begin = 1, start + len("\\boxed{")
        for place in range(begin, len(response)):
            depth += {"{": 1, "}": -1}.get(response[place], 0)
            if not depth:
                return response[begin:place]
    for pattern in (_HASHES, _STATED):
        found = pattern.findall(response)
        if found:
            return str(found[-1])
    return response


_MARKUP = (
    (re.compile(r"\\(?:text|mathrm|mathbf|mathit|operatorname)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"(\1)/(\2)"),
    (re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)"), r"\1/\2"),
    (re.compile(r"\\(?:left|right|displaystyle|,|;|!|:|\(|\)|\[|\]|\s)"), " "),
    (re.compile(r"\*\*|\$|`"), " "),
    (re.compile(r"\\([%#&_$])"), r"\1"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?:\D|$))"), ""),
    (re.compile(r"\((-?[\d.]+)\)"), r"\1"),
)
_NUMBER = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))(?:/(-?(?:\d+\.?\d*|\.\d+)))?")


def _plain(answer: str) -> str:
    """An answer without what people write differently: markup, case, spaces, thousands separators, a name before it."""
    text = answer.strip()
    for pattern, instead in _MARKUP:
        text = pattern.sub(instead, text)
    text = " ".join(text.casefold().split()).strip().rstrip(".!").lstrip("+").strip()
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)  # a space between digits stays: 1 1/2 is not 11/2
    return re.sub(r"^[a-z]=", "", text)


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    numbers = _number(one), _number(other)
    return None not in numbers and numbers[0] == numbers[1]


def _number(text: str) -> Fraction | None:
    found = _NUMBER.fullmatch(text) if len(text) <= LONGEST_ANSWER else None
    if found is None:
        return None
    divisor = Fraction(found[2]) if found[2] else Fraction(1)
    return Fraction(found[1]) / divisor if divisor else None
