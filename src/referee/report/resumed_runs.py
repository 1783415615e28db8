"""Samples that a later start of the same run judged again: resumed after an interruption, or begun anew. No files.

Such a sample counts once, as it ended last. What every start spent on it was spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from referee.ledger.comparisons import Compared
from referee.ledger.lines import AskLine, JudgeLine, RewardLine, RunLine, VerdictLine

KNOWN = 131_072
"""Different samples that are recognised when they come again, the latest. An interrupted run leaves fewer open."""
CANCELLED = "cancelled"
"""The reason of samples that the caller gave up: they say nothing about the judge."""


class Ended:
    """How a sample ended, as far as it has to be taken back when a later start judges it again."""

    __slots__ = (
        "asked",
        "compared",
        "criteria",
        "gated",
        "group",
        "judges",
        "made_of",
        "number",
        "point",
        "reward",
        "row",
        "step",
        "unscored",
        "value",
        "wall",
    )

    def __init__(self, line: VerdictLine, row: int) -> None:
        self.row = row
        """The sample's number in the report. It keeps it."""
        self.wall = line.wall
        self.step = line.step
        self.value = line.value
        self.unscored = line.unscored
        self.asked = asked(line)
        self.gated = line.origin == "gate"
        self.reward: RewardLine | None = None
        self.judges: tuple[JudgeLine, ...] = ()
        """Of several judges: what each said."""
        self.number = 0
        """Of its group, where several judges or members are compared."""
        self.made_of: Sequence[Any] = ()
        """Of juries and cascades: what each member said."""
        self.compared: tuple[tuple[str, Compared], ...] = ()
        """What judges of groups did, by name."""
        self.criteria: Any = None
        self.group: Any = None
        self.point: Any = None
        """Set by the caller: where else it was counted."""


class Samples:
    """Numbers samples as their verdict lines come, and says which of them an earlier start has ended already."""

    def __init__(self) -> None:
        self.count = 0
        """Samples so far, each once."""
        self.repeated = 0
        """Lines about a sample that an earlier start had ended."""
        self._began: dict[str, float] = {}
        self._known: dict[int, list[Ended]] = {}

    def start(self, line: RunLine, source: str = "") -> None:
        """A run line: what follows in this file was written by a new start."""
        self._began[source] = line.wall

    def end(self, line: VerdictLine, source: str = "") -> tuple[Ended | None, Ended | None]:
        """The sample of this line, and its end in an earlier start, which is to be subtracted.

        Nothing where this start gave up a sample that an earlier one has ended: then that end stands.
        """
        name = _name(line)
        known = self._known.get(name) if name is not None else None
        # Another end of this start, or of one beside it, is another sample with the same text.
        before = known[0] if known and known[0].wall < self._began.get(source, 0.0) else None
        self.repeated += before is not None
        if before is not None and line.unscored == CANCELLED:
            return None, None
        if before is None:
            ended = Ended(line, self.count)
            self.count += 1
        else:
            ended = Ended(line, before.row)
        if name is not None:
            if known is None:
                known = self._known[name] = []
                if len(self._known) > KNOWN:
                    del self._known[next(iter(self._known))]
            elif before is not None:
                del known[0]
            known.append(ended)
        return ended, before


def unscored_share(metrics: Mapping[str, float]) -> float:
    """Of the samples that the caller did not give up, how many have no score."""
    failed = metrics["unscored"] - metrics[f"unscored/{CANCELLED}"]
    return failed / (metrics["scored"] + failed) if failed else 0.0


def asked(line: VerdictLine | JudgeLine | AskLine) -> bool:
    """Whether a judge was asked for this line."""
    return line.origin in ("call", "none") and line.attempts > 0


def _name(line: VerdictLine) -> int | None:
    """What makes two lines the same sample: step, id and texts. None where neither id nor text is known."""
    prompt, response = line.prompt or line.prompt_digest, line.response or line.response_digest
    return hash((line.step, line.id, line.group, prompt, response)) if line.id or prompt or response else None
