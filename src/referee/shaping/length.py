"""Response lengths, and the penalty for deviating from the group's median length."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence

from referee.config import LengthConfig
from referee.errors import InputError
from referee.records import Sample

MAX_LENGTH = 2**53
"""Longer lengths are not exact as floats, and no rollout has them."""

# Chinese and Japanese are written without spaces: each character counts as a word.
_UNSPACED = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")

# The same rule as byte tables for ASCII, many times faster than the pattern.
_AS_WORDS = bytes(ord("a") if re.match(r"\w", chr(code)) else ord(" ") for code in range(128)) + b" " * 128
_MARKS = bytes(code for code in range(128) if re.match(r"[^\w\s]", chr(code)))


def length_penalty(length: float, median: float, config: LengthConfig) -> float:
    """The penalty of one response, between 0 and `max_penalty`, before `penalty_scale`.

    0 within `peak_ratio` of the median, then linear up to `max_penalty` at `outer_ratio`, then constant.
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
    """The median; for an even count the mean of the two middle ones (torch.median takes the lower)."""
    return float(statistics.median(lengths)) if lengths else 0.0


def count_tokens(text: str) -> int:
    """Words and punctuation marks, in place of tokens where a sample states no length."""
    if text.isascii():
        data = b" " + text.encode()
        words, marks = data.translate(_AS_WORDS).count(b" a"), len(data) - len(data.translate(None, _MARKS))
        return words + marks
    return len(_TOKEN.findall(text))


def check_lengths(samples: Iterable[Sample]) -> None:
    """Refuse groups in which only some samples state a length: tokens and words are different units.

    Called before anything is spent, if the length penalty is on.
    """
    stated: dict[str, Sample] = {}
    silent: dict[str, Sample] = {}
    for sample in samples:
        if sample.length is not None and not 0 <= sample.length <= MAX_LENGTH:
            raise InputError(
                f"sample {sample.id!r}: length ({sample.length}) must be between 0 and {MAX_LENGTH}: "
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
