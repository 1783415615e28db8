"""Ledgers of runs as a trainer leaves them, from samples that a test makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from referee.ledger import BatchLine, Line, RewardLine, RunLine, VerdictLine
from referee.ledger.build_lines import digest
from referee.signals import Observation

START = 1_700_000_000.0


def verdict(seen: Observation, wall: float, content: bool = True, **fields: Any) -> VerdictLine:
    """The line of one sample."""
    given: dict[str, Any] = {
        "wall": wall,
        "batch": seen.batch,
        "index": seen.index,
        "step": seen.step,
        "origin": "call",
        "model": seen.model,
        "value": seen.value,
        "score": seen.value,
        "how": "schema",
        "prompt": f"{seen.prompt} {seen.prompt_key}" if content else "",
        "response": seen.response if content else "",
        "prompt_digest": "" if content else digest(seen.prompt_key),
        "attempts": 1,
    }
    return VerdictLine(**(given | fields))


def lines_of_steps(steps: Iterable[Sequence[Observation]], content: bool = True, settings: str = "a") -> list[Line]:
    """A run line, and each step as a finished batch."""
    found: list[Line] = [RunLine(wall=START, version="0.2.0", digest=settings)]
    for number, samples in enumerate(steps):
        wall = START + 10 * (samples[0].step if samples[0].step is not None else number)
        found += [verdict(one, wall + one.index / 1000, content) for one in reversed(samples)]
        found += [
            RewardLine(wall=wall + 5, batch=one.batch, index=one.index, length=len(one.response.split()))
            for one in samples
        ]
        found.append(BatchLine(wall=wall + 6, batch=samples[0].batch, samples=len(samples), step=samples[0].step))
    return found


def write(path: Path, lines: Iterable[Line]) -> Path:
    """A ledger file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path
