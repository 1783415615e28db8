"""What looks like our schemas' verdict in untrusted text: `"score": 10`, `"verdict": "yes"`. It is broken by one space.

A judge that copies such JSON gives that verdict, and so does one that quotes it inside its own JSON without escaping.
So it is found in any quotes and escapes. With a value that no schema of ours offers it is ordinary JSON and stays. A
search begins with the key, and what stands before it is looked at after: a fixed beginning is searched for fast.
"""

from __future__ import annotations

import re

KEYS = ("score", "verdict")
LABELS = ("yes", "no", "correct", "incorrect", "na", "tie")

_QUOTES = "\"'`“”„‟‘’‚‛«»‹›「」『』＂＇"
_CODES = ("u0022", "u0027", "x22", "x27", "&quot;", "&apos;", "&#34;", "&#39;", "&#x22;", "&#x27;", "%22", "%27")
# Backslashes are counted to 8: without a bound a text of nothing but backslashes would take its length squared.
_QUOTE = rf"\\{{0,8}}(?:[{_QUOTES}]|{'|'.join(_CODES)})"
_COLON = r"\s*(?:[:：﹕︓]|=>|\\{1,8}(?:u00|x)3a|&#58;|&#x3a;|&colon;|%3a)\s*"
_DIGIT = r"[\d\u00b2\u00b3\u00b9\u2070-\u2089\u2460-\u249b\u2776-\u2793]"
_VALUE = rf"(?:{_QUOTE})?\s*(?:[-+−－＋﹣﹢⁻⁺₋₊]?{_DIGIT}|\w{{0,9}}\\{{1,8}}[ux]|(?:{'|'.join(LABELS)})(?! ?\w))"
_BEFORE = 2000
"""Characters looked back for the brace that opens an object."""


def _quoted(key: str) -> str:
    before = "|".join(f"(?<={quote}{key})" for quote in (f"[{_QUOTES}]", *_CODES))
    return f"{key}(?:{before})(?={_QUOTE}{_COLON}{_VALUE})"


def _unquoted(key: str) -> str:
    """With white space after the colon: {score:10} is a format of Python's."""
    return rf"{key}(?=\s*[:：]\s+{_VALUE}[^\s,{{}}]*\s*(?:}}|,\s*(?:{_QUOTE})?reason\b))"


def _escaped(key: str) -> str:
    """Any of its letters may be written as \\u0073 or \\x73."""
    return "".join(rf"(?:{c}|\\{{1,8}}(?:u00|x)(?:{ord(c):x}|{ord(c.upper()):x}))" for c in key)


# For lower-cased text, and for any: ignoring case, a fixed beginning is not searched for fast.
_PLAIN = tuple(
    (key, [(re.compile(pattern), re.compile(pattern, re.IGNORECASE)) for pattern in (_quoted(key), _unquoted(key))])
    for key in KEYS
)
_ESCAPED = re.compile(f"{_QUOTE}(?=(?:{'|'.join(map(_escaped, KEYS))}){_QUOTE}{_COLON}{_VALUE})", re.IGNORECASE)


def break_verdicts(text: str) -> str:
    """The text, its verdicts broken: `" score": 10`, and `{s core: 10}` where the key has no quotes."""
    # Lower-casing is slow beyond ASCII, and the keys are ASCII: those characters alone say if there is anything to do.
    plain = (text if text.isascii() else text.encode("ascii", "ignore").decode()).lower()
    for key, patterns in _PLAIN:
        if key in plain:
            lowered = text.lower()
            for quick, exact in patterns:
                if quick.search(lowered):
                    text = exact.sub(_broken, text)
    if "\\" in plain and ("\\u00" in plain or "\\x" in plain):
        text = _ESCAPED.sub(lambda match: f"{match[0]} ", text)
    return text


def _broken(match: re.Match[str]) -> str:
    key, before = match[0], match.string[max(0, match.start() - _BEFORE) : match.start()]
    if before[-6:].lower().endswith((*_QUOTES, *_CODES)):
        return f" {key}"
    # Only in an object with nothing else before it but a reason: { lives: 3, score: 0 } is somebody's program.
    _, brace, inside = before.rpartition("{")
    inside = inside.strip()
    first = not inside or (inside.endswith(",") and inside.lstrip(_QUOTES).lower().startswith("reason"))
    return f"{key[0]} {key[1:]}" if brace and first else key
