"""The lines of docs/metrics.md for other loggers run as written, against fakes with those loggers' signatures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from referee.ledger import Tally, VerdictLine

PAGE = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
LINES = re.findall(r"^```python no-run\n(.+)\n```$", PAGE, re.M)
ALLOWED = re.compile(r"[\w\-. :/]+")
"""Characters that all three take in a metric's name."""


class Referee:
    """Has metrics, as the real one."""

    def metrics(self) -> dict[str, float]:
        tally = Tally()
        tally.add(VerdictLine(wall=1.0, value=0.5, origin="call"))
        return tally.metrics()


class Logger:
    """Takes what wandb, a SummaryWriter and mlflow take, and refuses what they refuse."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """As wandb.log."""
        self._take(data, step)

    def add_scalar(
        self,
        tag: str,
        scalar_value: float,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """As torch.utils.tensorboard.SummaryWriter.add_scalar."""
        self._take({tag: scalar_value}, global_step)

    def log_metrics(
        self,
        metrics: dict[str, float],
        step: int | None = None,
        synchronous: bool | None = None,
        run_id: str | None = None,
        timestamp: int | None = None,
    ) -> None:
        """As mlflow.log_metrics."""
        self._take(metrics, step)

    def _take(self, numbers: dict[str, float], step: int | None) -> None:
        assert step == 7
        for name, value in numbers.items():
            assert ALLOWED.fullmatch(name)
            assert type(value) is float
        self.seen |= numbers


def test_there_is_one_for_each() -> None:
    """W&B, TensorBoard and MLflow."""
    assert [re.match(r"\[?(\w+)\.", line)[1] for line in LINES] == ["wandb", "writer", "mlflow"]  # type: ignore[index]


@pytest.mark.parametrize("line", LINES)
def test_the_line_logs_every_metric(line: str) -> None:
    """Each name once, as a plain number, with the trainer's step."""
    logger = Logger()
    names = {"wandb": logger, "writer": logger, "mlflow": logger, "referee": Referee(), "step": 7}
    exec(line, names)
    assert set(logger.seen) == {f"referee/{name}" for name in Referee().metrics()}
    assert logger.seen["referee/samples"] == 1.0
