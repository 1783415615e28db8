"""Groups of rollouts in words, before anything is spent: sizes, requests, single ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from referee.cli.words import counted
from referee.config import Config, JudgeConfig, all_judges
from referee.config.judges import NO_JUDGE
from referee.errors import InputError
from referee.judging import Judge, needs_groups
from referee.scoring.build import build_judge

MOST_SIZES = 4
"""Sizes that are named; of more, the most frequent, and the rest is counted."""

Sizes = Mapping[int, int]
"""Of each size, how many groups have it."""


def sizes_of(names: Mapping[str, int], total: int) -> Counter[int]:
    """The sizes of groups with these many members. Rollouts of none are groups of one."""
    sizes = Counter(names.values())
    sizes[1] += total - sum(names.values())
    return +sizes


def in_words(sizes: Sizes) -> str:
    """Such as: 32 groups of 8, 2 of 1."""
    frequent = sorted(sizes, key=lambda size: (-sizes[size], -size))[:MOST_SIZES]
    named = ", ".join(f"{sizes[size]} of {size}" for size in frequent)
    rest = sum(sizes.values()) - sum(sizes[size] for size in frequent)
    first, _, others = named.partition(" of ")
    noun = "group" if first == "1" else "groups"
    return f"{first} {noun} of {others}" + (f", {rest} of other sizes" if rest else "")


def calls_in_words(config: Config, sizes: Sizes) -> Iterator[str]:
    """A line for each judge of groups: at most how many requests."""
    for judge in filter(_compares, config.judge):
        made = build_judge(judge, b"")
        alone = f' (judge.alone = "{judge.alone}")' if sizes.get(1) else ""
        line = f'judge {judge.name} (kind = "{judge.kind}"): {in_words(sizes)}{alone}'
        calls = {size: most_calls(made, judge, size) for size in sizes}
        usual = max(sizes, key=lambda size: (size > 1, sizes[size], size))
        if None not in calls.values():
            total = sum(sizes[size] * (calls[size] or 0) for size in sizes)
            each = f", {calls[usual]} for a group of {usual}" if usual > 1 else ""
            line += f"; at most {counted(total, 'request')}{each}"
            if any(one.kind == "listwise" and one.max_view_tokens is not None for one in all_judges((judge,))):
                line += "; more where max_view_tokens splits a group"
        yield line


def most_calls(made: Judge, judge: JudgeConfig, size: int) -> int | None:
    """Requests for a group of `size` different responses, at most; None: a judge of another package does not say."""
    if size == 1:
        return 0 if judge.alone == NO_JUDGE else 1
    calls = getattr(made, "calls", None)
    return int(calls(size)) if callable(calls) else None


def check_alone(name: str, config: Config, sizes: Sizes) -> Iterator[str]:
    """Warnings about rollouts without siblings; InputError where nothing of the file could be rewarded."""
    single, total = sizes.get(1, 0), sum(size * many for size, many in sizes.items())
    if single <= total / 2:
        return
    what = "no two rollouts share a group" if single == total else f"{single} of {total} rollouts share no group"
    for judge in filter(_compares, config.judge):
        becomes = "are unscored" if judge.alone == NO_JUDGE else f'are judged by "{judge.alone}" instead'
        words = (
            f'{name}: judge {judge.name} (kind = "{judge.kind}") compares the responses to one prompt, and {what}, so '
            f"they {becomes}. Give rollouts of one prompt the same `group`"
        )
        counts = not judge.optional and (judge.weight != 0 or len(config.judge) == 1)
        if single == total and judge.alone == NO_JUDGE and counts:
            raise InputError(f"{words}, or name a judge for single ones in judge.alone. Nothing was spent.")
        yield f"warning: {words}." if judge.alone != NO_JUDGE else f"warning: {words}, or set judge.alone."


def _compares(judge: JudgeConfig) -> bool:
    return needs_groups((judge,))
