"""Groups before a simulated judge: which responses a request shows under which labels, and how it sees them.

A judge sees the true strength of a response, plus noise, plus something for its place. Strengths are on the judge's
scale, which is 1 to 10 where only the better of two is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

from referee.errors import ConfigError

LabelFault = Literal["label_missing", "label_twice", "label_unknown"]
_LABEL = re.compile(r"Response ([A-Z]{6}):\n$")
_LISTED = ">LABEL=SCORE;"
"""In the tag of a request for a list."""
_UNKNOWN = "ZZZZZZ"


class Shown(Struct, frozen=True):
    """A response and the label it stands under."""

    label: str
    text: str


class Perception(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a judge sees responses side by side. All as shares of the scale. The default sees them as they are."""

    noise: float = 0.0
    """Standard deviation of the strength it sees, drawn anew for every response of every different request."""
    position_bias: float = 0.0
    """What it adds to the response shown first. It falls evenly with the place, to nothing for the last."""
    tie_within: float = 0.0
    """Two responses that it sees at most this far apart are a tie."""

    def __post_init__(self) -> None:
        if not (self.noise >= 0 and self.tie_within >= 0):
            raise ConfigError("simulated provider: noise and tie_within need numbers of at least 0", setting="compares")

    def seen(self, strengths: Sequence[float], chance: Random) -> list[float]:
        """The strengths of responses in the order in which they are shown, as this judge sees them."""
        last = max(len(strengths) - 1, 1)
        return [
            strength + self.noise * chance.gauss(0.0, 1.0) + self.position_bias * (1 - place / last)
            for place, strength in enumerate(strengths)
        ]

    def better(self, first: float, second: float) -> int | None:
        """Which of two it finds better, 0 or 1; None: neither."""
        return None if abs(first - second) <= self.tie_within else int(second > first)


def shown_in(told: Sequence[str], fenced: Sequence[tuple[str, str]]) -> tuple[Shown, ...]:
    """The fenced texts that a label stands before."""
    found = [(_LABEL.search(before), text) for before, (_, text) in zip(told, fenced, strict=False)]
    return tuple(Shown(label[1], text) for label, text in found if label is not None)


def wants_list(tail: str, properties: Sequence[str]) -> bool:
    """Whether a score is wanted for each response, and not the better of two."""
    return "responses" in properties or _LISTED in tail


def mislabelled(shown: Sequence[Shown], listed: bool, fault: LabelFault) -> tuple[Shown, ...]:
    """The same responses as a judge that confuses their labels would answer about them."""
    labels = [each.label for each in shown]
    if not listed:
        wrong = {"label_missing": "", "label_twice": " ".join(labels), "label_unknown": _UNKNOWN}[fault]
        return tuple(Shown(wrong, each.text) for each in shown)
    if fault == "label_missing":
        return tuple(shown[1:])
    return (Shown(labels[-1] if fault == "label_twice" else _UNKNOWN, shown[0].text), *shown[1:])


def write_list(given: Sequence[tuple[str, int | float | str]], reason: str, tag: str) -> str:
    """The reply with a score for each label: JSON, or lines and a tag."""
    if not tag:
        filled = [{"label": label, "reason": reason, "score": score} for label, score in given]
        return msgspec.json.encode({"responses": filled}).decode()
    pairs = "; ".join(f"{label}={score}" for label, score in given)
    return "\n".join([*(f"{label}: {reason}" for label, _ in given), f"<{tag}>{pairs}</{tag}>"])
