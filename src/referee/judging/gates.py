"""Gates: answers that need no judge. They cost nothing, and a judge can be talked into crediting them.

Order: truncated, empty, no_alphanumerics, echo; the first that holds and is not "off" settles the sample. Gates look
at the answer as the judge would see it, reasoning stripped and invisible characters gone, whatever `judge.view` says.
"""

from __future__ import annotations

import re
import unicodedata

from referee.config import Gates
from referee.records import Reason, Sample, Unscored, Verdict

_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_BLANK_SYMBOL = "\u2800"

_REASONS = {
    "truncated": (Reason.TRUNCATED, "the response was cut at its token limit"),
    "empty": (Reason.EMPTY, "the response holds no text"),
    "no_alphanumerics": (Reason.NO_VERDICT, "the response is only punctuation"),
    "echo": (Reason.NO_VERDICT, "the response repeats the prompt"),
}


def settle(sample: Sample, answer: str, prompt: str, gates: Gates, lowest: float) -> Verdict | Unscored | None:
    """A verdict or its absence without a call, or None: ask the judge."""
    name = _closed_gate(sample, answer, prompt, gates)
    if not name:
        return None
    reason, words = _REASONS[name]
    if getattr(gates, name) == "unscored":
        return Unscored(reason=reason, detail=f"gate {name}: {words}")
    return Verdict(score=lowest, value=0.0, how="gate", reason=f"gate {name}: {words}")


def _closed_gate(sample: Sample, answer: str, prompt: str, gates: Gates) -> str:
    if sample.truncated and gates.truncated != "off":
        return "truncated"
    if gates.empty != "off" and (not answer or answer.isspace()):
        return "empty"
    if gates.no_alphanumerics != "off" and not says_something(answer) and not _is_punctuation(sample.reference):
        return "no_alphanumerics"
    if gates.echo != "off" and _same(answer, prompt) and not _same(sample.reference or "", prompt):
        return "echo"
    return ""


def says_something(text: str) -> bool:
    """True if there is a letter, a digit, or a symbol beyond ASCII: ∞ and ✓ are answers, "..." and "$$" are not."""
    if _LETTER_OR_DIGIT.search(text):
        return True
    return any(unicodedata.category(char)[0] == "S" and char != _BLANK_SYMBOL for char in text if not char.isascii())


def _is_punctuation(reference: str | None) -> bool:
    return reference is not None and bool(reference.strip()) and not says_something(reference)


def _same(text: str, prompt: str) -> bool:
    """Equal but for case and white space. The first word tells most pairs apart without reading on."""
    if not text or not prompt or _first_word(text) != _first_word(prompt):
        return False
    return " ".join(text.split()).casefold() == " ".join(prompt.split()).casefold()


def _first_word(text: str) -> list[str]:
    """At most 16 characters of it: where words are not set apart by spaces, the first one is the whole text."""
    return text.lstrip()[:16].casefold().split(None, 1)[:1]
