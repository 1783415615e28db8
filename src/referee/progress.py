"""Progress while judging: a live bar in a terminal or notebook, a plain line every ten seconds elsewhere, silence when
asked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from referee import clock
from referee.html import progress_html

LINE_EVERY = 10.0
BATCH_LINE_EVERY = 60.0
REFRESH = 0.25
WIDE = 110
"""Columns from which there is room for a bar beside the figures."""


class Meter:
    """Shows how a run of `total` samples goes. `metrics` is asked now and then, from a thread of its own."""

    def __init__(
        self,
        total: int,
        metrics: Callable[[], dict[str, float]],
        quiet: bool = False,
        priced: bool = True,
        batches: Callable[[], str] | None = None,
    ) -> None:
        """`batches` says how those do: shown instead of a rate, which would tell nothing."""
        self._total = total
        self._priced = priced
        self._batches = batches
        self._metrics = metrics
        self._quiet = quiet
        self._done = 0
        self._kept = 0
        self._started = clock.monotonic()
        self._stop = threading.Event()
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal and not quiet
        self._notebook: Any = None
        """What notebook cells are drawn with, and where this is shown."""
        self._shown: Any = None
        self._thread = threading.Thread(target=self._run, name="referee-progress", daemon=True)

    def advance(self, count: int, kept: int = 0) -> None:
        """`count` more samples are done, of which `kept` came from an earlier run."""
        self._done += count
        self._kept += kept

    def __enter__(self) -> Meter:
        if not self._quiet:
            self._notebook = notebook()
            if self._notebook is not None:
                self._shown = self._notebook.display(self._html(), display_id=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        if self._shown is not None:
            self._shown.update(self._html())

    def _html(self) -> Any:
        return self._notebook.HTML(progress_html(self._settled(), self._total, self.line()))

    def _run(self) -> None:
        if self._shown is not None:
            while not self._stop.wait(REFRESH):
                self._shown.update(self._html())
            return
        if not self._live:
            while not self._stop.wait(LINE_EVERY if self._batches is None else BATCH_LINE_EVERY):
                print(self.line(), file=sys.stderr, flush=True)  # noqa: T201
            return
        columns: list[ProgressColumn] = [MofNCompleteColumn(), TextColumn("{task.fields[say]}")]
        if self._console.width >= WIDE:
            columns = [BarColumn(bar_width=24), *columns, TimeElapsedColumn()]
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task("", total=self._total, say="")
            while not self._stop.wait(REFRESH):
                bar.update(task, completed=self._settled(), say=self._say())

    def line(self) -> str:
        """The state in one line."""
        share = 100 * self._settled() / self._total if self._total else 100.0
        return f"{share:.0f} % complete ({self._settled()}/{self._total}) {self._say()}"

    def _settled(self) -> int:
        """Judged so far; a little ahead of what is written, because rows are written in order."""
        return min(self._total, max(self._done, int(self._metrics().get("samples", 0)) + self._kept))

    def _say(self) -> str:
        now = self._metrics()
        judged = now.get("samples", 0.0)
        spent = clock.monotonic() - self._started
        rate = judged / spent if spent > 0 else 0.0
        left = (self._total - self._settled()) / rate if rate > 0 else None
        pace = [f"{rate:.1f}/s", f"{now.get('in_flight', 0):.0f}/{now.get('limit', 0):.0f} in flight"]
        parts = [
            *(pace if self._batches is None else [self._batches()]),
            f"{now.get('cache_hits', 0) + now.get('shared', 0):.0f} reused",
            f"{now.get('unscored', 0):.0f} unscored",
            f"${now.get('cost_usd', 0):.4f}" if self._priced else "cost unknown",
        ]
        if left is not None and self._batches is None:
            parts.append(f"ETA {_duration(left)}")
        return "  ".join(parts)


def notebook() -> Any:
    """IPython's module of displays if this runs in a notebook, else None. It is not imported elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython import display

    return display


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
