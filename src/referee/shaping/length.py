"""How long an answer is, and what straying from its group's median length costs. Numbers only, no verdicts."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence

from referee.config import LengthConfig
from referee.errors import InputError
from referee.records import Sample

LONGEST = 2**53
"""Lengths above this lose exactness as floats, and no rollout has them."""

# Chinese and Japanese are written without spaces: there, each character counts as a word.
_UNSPACED = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")

# The same rule as byte tables, many times faster than the pattern, for text that is plain ASCII.
_AS_WORDS = bytes(ord("a") if re.match(r"\w", chr(code)) else ord(" ") for code in range(128)) + b" " * 128
_MARKS = bytes(code for code in range(128) if re.match(r"[^\w\s]", chr(code)))


def length_penalty(length: float, median: float, config: LengthConfig) -> float:
    """The penalty of one answer, between 0 and `max_penalty`; `penalty_scale` is not applied here.

    Free within `peak_ratio` of the median, then a straight line up to `max_penalty` at `outer_ratio`, then flat.
    """
    if not median > 0:
        return 0.0
    excess = max(median * (1 - config.peak_ratio) - length, length - median * (1 + config.peak_ratio))
    if excess <= 0:
        return 0.0
    width = median * (config.outer_ratio - config.peak_ratio)
    if excess >= width:
        return config.max_penalty
    return config.max_penalty * (excess / width)


def median(lengths: Sequence[int]) -> float:
    """The middle length; for an even count the mean of the two middle ones (torch.median would take the lower)."""
    return float(statistics.median(lengths)) if lengths else 0.0


def count_tokens(text: str) -> int:
    """Words and punctuation marks: what stands in for tokens when a sample does not say its length."""
    if text.isascii():
        data = b" " + text.encode()
        words, marks = data.translate(_AS_WORDS).count(b" a"), len(data) - len(data.translate(None, _MARKS))
        return words + marks
    return len(_TOKEN.findall(text))


def check_lengths(samples: Iterable[Sample]) -> None:
    """Refuse groups where some samples state a length and others do not: the two are not in one unit.

    For use before anything is spent, when the length penalty is on.
    """
    stated: dict[str, Sample] = {}
    silent: dict[str, Sample] = {}
    for sample in samples:
        if sample.length is not None and not 0 <= sample.length <= LONGEST:
            raise InputError(
                f"sample {sample.id!r}: length ({sample.length}) must be between 0 and {LONGEST}: "
                "the number of tokens in the response, or None to count words instead.",
                field="length",
            )
        if not sample.group:
            continue
        (silent if sample.length is None else stated).setdefault(sample.group, sample)
        if sample.group in silent and sample.group in stated:
            raise InputError(
                f"group {sample.group!r}: sample {stated[sample.group].id!r} states its length and sample "
                f"{silent[sample.group].id!r} does not. Give `length` for all samples of a group or for none: "
                "tokens and counted words do not share a median.",
                field="length",
            )
