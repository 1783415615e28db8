"""Juries and cascades, which are made of other judges, and the settings that rest on how sure a judge is: what goes
together. Each message names the key, the value and what would be right."""

from __future__ import annotations

import math
from typing import get_args

from msgspec.structs import fields, replace

from referee.config.apis import DECISION
from referee.config.judge_schema import READ_BY, JudgeConfig, OfCriteria, OfJurors
from referee.errors import Refuse

MADE_OF_OTHERS = frozenset({"jury", "cascade"})
OWN = frozenset({"name", "weight", "optional", "kind", "options", "uses", "repeat", "abstain_above"})
"""Settings of every judge made of others. The rest belongs to its kind (`READ_BY`), or to the members."""
WORDS: dict[str, tuple[str, ...]] = {"rubric": get_args(OfCriteria), "jury": get_args(OfJurors)}
"""What `combine` may be, by kind."""
DIGITS = range(10)
"""Levels whose probability can be read: of 10 the first token may be that of 1."""
BESIDE = (
    *("name", "weight", "optional", "ask_again", "repeat", "abstain_above", "ranks", "strength", "min_comparisons"),
    *("partial", "gates", "alone", "uses"),
)
"""Settings that do not change what is asked."""
DEFAULT = JudgeConfig()
SURE = 'repeat = 3, expected = true (score, rubric), kind = "yes_no", or a jury gives one'


def quorum_of(jury: JudgeConfig) -> int:
    """How many of its members must have a verdict. Where one is drawn for each sample, none may be missing."""
    return len(jury.members) if jury.quorum is None else jury.quorum


def may_be_unsure(judge: JudgeConfig) -> bool:
    """False if it is known beforehand that no verdict of this judge says how certain it is."""
    if judge.repeat > 1 or judge.api == DECISION:
        return True
    match judge.kind:
        case "score":
            return judge.expected
        case "rubric":
            return judge.expected or (judge.criteria_per_call == 1 and judge.combined_by != "implicit")
        case "listwise":
            return judge.permutations > 1
        case "jury" if judge.ask == "all":
            return True
        case "jury" | "cascade":
            return any(may_be_unsure(member) for member in judge.uses)
        case kind:
            return kind not in ("reference", "integer", "monitor", "pairwise", "reward_model")


def check_kind(judge: JudgeConfig, where: str, refuse: Refuse) -> None:
    """How it combines verdicts, and settings that rest on how sure it is."""
    offered = WORDS.get(judge.kind, ())
    if judge.combine is not None and judge.combine not in offered:
        raise refuse(
            f"{where}.combine",
            f'"{judge.combine}" is not for kind = "{judge.kind}". It is one of: {", ".join(offered)}.',
        )
    if judge.expected:
        _check_expected(judge, where, refuse)
    bar = judge.abstain_above
    if bar is not None:
        _check_number(f"{where}.abstain_above", bar, refuse)
        if not may_be_unsure(judge):
            raise refuse(f"{where}.abstain_above", f"this judge never says how certain it is: {SURE}.")


def check_members(judge: JudgeConfig, where: str, refuse: Refuse) -> None:
    """Of a jury or a cascade, whose members are known."""
    members, kind = judge.members, judge.kind
    for setting in fields(JudgeConfig):
        own = setting.name in OWN or any(kind in reader.get("kind", ()) for reader in READ_BY.get(setting.name, ()))
        if not own and getattr(judge, setting.name) != getattr(DEFAULT, setting.name):
            raise refuse(
                f"{where}.{setting.name}",
                f'kind = "{kind}" asks nothing itself. Set it in its members: {", ".join(members)}.',
            )
    if len(members) < 2 or len(set(members)) < len(members):
        raise refuse(f"{where}.members", f"needs two or more judges, each once, not {list(members)}.")
    for number, member in enumerate(judge.uses):
        for other in judge.uses[:number]:
            if replace(member, **{name: getattr(other, name) for name in BESIDE}) == other:
                raise refuse(
                    f"{where}.members",
                    f"{other.name!r} and {member.name!r} ask the same question of the same endpoints, so they would be "
                    "one answer. To ask several times, write repeat = 2 into one judge.",
                )
    if kind == "cascade":
        _check_until(judge, where, refuse)
        return
    if judge.ask == "one" and (judge.combine is not None or judge.quorum is not None):
        name = "quorum" if judge.combine is None else "combine"
        raise refuse(f"{where}.{name}", 'with ask = "one" there is one verdict, and nothing to combine.')
    if not 1 <= quorum_of(judge) <= len(members):
        raise refuse(f"{where}.quorum", f"must be from 1 to {len(members)}, the number of members, not {judge.quorum}.")
    if judge.combine == "trimmed" and quorum_of(judge) < 3:
        raise refuse(
            f"{where}.combine",
            '"trimmed" leaves out two verdicts, so it needs three members or more, and a quorum of at least three.',
        )


def _check_until(judge: JudgeConfig, where: str, refuse: Refuse) -> None:
    most, band = judge.until.uncertainty, judge.until.outside
    if band is not None and not (math.isfinite(band[0]) and math.isfinite(band[1]) and band[0] <= band[1]):
        raise refuse(f"{where}.until.outside", f"must be two finite numbers, the smaller one first, not {list(band)}.")
    if most is None:
        return
    _check_number(f"{where}.until.uncertainty", most, refuse)
    for member in judge.uses[:-1]:
        if not may_be_unsure(member):
            raise refuse(
                f"{where}.until.uncertainty",
                f"{member.name!r} never says how certain it is, so the next would always be asked: {SURE}. Or write "
                "until = {outside = [0.3, 0.7]}, which goes by the value.",
            )


def _check_expected(judge: JudgeConfig, where: str, refuse: Refuse) -> None:
    implicit = judge.combined_by == "implicit"
    if judge.kind == "rubric" and not implicit and judge.criteria_per_call != 1:
        raise refuse(
            f"{where}.expected",
            "of several criteria in one reply the probabilities cannot be told apart. Write criteria_per_call = 1, or "
            'combine = "implicit".',
        )
    if (judge.kind == "score" or implicit) and not (judge.low in DIGITS and judge.high in DIGITS):
        raise refuse(
            f"{where}.expected",
            f"needs levels of one digit, and the scale is {judge.low} to {judge.high}: of 10 the first token may be "
            "that of 1. Write low = 0 and high = 9, or low = 1 and high = 5.",
        )


def _check_number(setting: str, number: float, refuse: Refuse) -> None:
    if not (number >= 0 and math.isfinite(number)):
        raise refuse(setting, f"must be a finite number of at least 0, not {number}.")
