"""Which samples of a ledger are siblings. One rule for the metrics, the report, its page and diff; no files.

Siblings have the same group name, step and prompt, whichever batch or process they were judged in. In the record of a
judged file without steps the prompt may differ: there the name is the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from referee.ledger.lines import RunLine, VerdictLine

OPEN_GROUPS = 65_536
"""Groups that may still grow, by default; the one that has been idle longest is closed first."""


class Groups:
    """Numbers groups from 1 on, as the verdict lines of their members come. `source` tells files apart."""

    def __init__(self, most: int | None = OPEN_GROUPS) -> None:
        self._most = most
        self._count = 0
        self._starts: dict[str, tuple[float, bool]] = {}
        self._open: dict[int, tuple[int, float]] = {}
        """By a hash of what its members share: the group's number, and when its latest member was settled."""

    def start(self, line: RunLine, source: str = "") -> None:
        """A run line: what follows in this source was written by a new start."""
        self._starts[source] = (line.wall, of_a_file(line.config))

    def number(self, line: VerdictLine, source: str = "") -> int:
        """The number of this sample's group; 0 if it names none."""
        if not line.group:
            return 0
        began, file = self._starts.get(source, (0.0, False))
        # A trainer may keep its record in such a folder too, and its ranks may use the same names in a step.
        prompt = "" if file and line.step is None else line.prompt or line.prompt_digest
        name = hash((line.step, line.group, prompt))
        number, latest = self._open.pop(name, (0, 0.0))
        # A trainer that starts again from a checkpoint repeats its steps with new answers; a file is only continued.
        if not number or (latest < began and line.step is not None and not file):
            self._count += 1
            number = self._count
        self._open[name] = (number, max(latest, began, line.wall))
        if self._most is not None and len(self._open) > self._most:
            del self._open[next(iter(self._open))]
        return number


def of_a_file(config: Mapping[str, Any]) -> bool:
    """Whether a run with this configuration judges a file: `referee score` keeps the record of OUT.jsonl in OUT.run."""
    ledger = config.get("ledger")
    return isinstance(ledger, dict) and PurePath(str(ledger.get("dir", ""))).suffix == ".run"
