"""Judges whose errors are known: responses carry what the simulated judge will say, labels what is true."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from referee.calibration import Calibrated, Format, Row, calibrate, calibration_config, read_labels, yes_rule
from referee.calibration.ratings import Rater
from referee.config import load
from referee.referee import Referee
from referee.rollouts import BadLine
from referee.testing import Question, fake_referee


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def yes_and_no(
    count: int, sensitivity: float = 0.9, specificity: float = 0.8, share: float = 0.5, seed: int = 1, **more: Any
) -> list[dict[str, Any]]:
    """Answers, two to a prompt, to which a yes_no judge says yes with these chances."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        true = chance.random() < share
        says = chance.random() < (sensitivity if true else 1 - specificity)
        found.append(
            {
                "id": f"r{number}",
                "prompt": f"question {number // 2}?",
                "response": f"[[quality={chance.choice([7, 8, 9]) if says else chance.choice([1, 2, 3])}]] n{number}",
                "label": "yes" if true else "no",
                **more,
            }
        )
    return found


def rows_of(path: Path, **form: Any) -> list[Row]:
    """The rows of a file without a bad line."""
    found = []
    for row in read_labels(path, Format(**form)):
        assert not isinstance(row, BadLine), row.message
        found.append(row)
    return found


def referee_with(answer: Callable[[Question], str] | None = None, **judge: Any) -> Referee:
    """One judge, simulated; `answer`: its replies."""
    endpoint = {"url": "http://127.0.0.1:9/v1", "model": "sim", "price_in": 1.0, "price_out": 1.0}
    return fake_referee(calibration_config(load({"judge": judge, "endpoint": endpoint})), answer)


def calibrated(rows: Sequence[Row], yes: str = "", seed: int = 0, **judge: Any) -> tuple[Calibrated, Rater]:
    """The one judge of this configuration on these rows."""
    with referee_with(**judge) as referee:
        (found,) = calibrate(referee, rows, yes=yes_rule(yes), seed=seed)
    return found
