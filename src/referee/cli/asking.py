"""How `referee score` asks: live, or in batches, of which an interrupted run leaves some at the provider."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from referee.batch import BatchRun, Journal, Listed, batch_config, check_batch
from referee.batch.journal import FILE, STOPPED
from referee.batch.open import endpoint_name
from referee.cli.output import claimed
from referee.cli.stream import WINDOW
from referee.config import Config
from referee.errors import ConfigError
from referee.report.reward_rows import Row
from referee.scoring.build import build_worker
from referee.scoring.local import BuildWorker


class Asking:
    """Questions are asked one by one, now."""

    def __init__(self, config: Config) -> None:
        self.config = config
        """What the Referee is made of."""
        self.build: BuildWorker = build_worker
        self.window = WINDOW
        """Samples open at once."""
        self.say: Callable[[], str] | None = None
        """What to show of batches."""
        self.complete = False
        """Set when the output is."""

    def kept(self, row: Row) -> None:
        """A row of an earlier run stays as it is."""

    def left(self) -> str:
        """What an interrupted run leaves at the provider."""
        return ""


class AskingInBatches(Asking):
    """Questions are collected and asked in batches."""

    def __init__(self, config: Config, run: BatchRun, output: str) -> None:
        super().__init__(batch_config(config))
        self._run = run
        self._output = output
        self.build = functools.partial(
            build_worker, secret=run.journal.secret, transports_of=run.transports, cache_over=run.cache_over
        )
        self.window = config.batch.max_open
        self.say = run.board.text

    def kept(self, row: Row) -> None:
        """Its verdict is paid for: another row with the same question shares it."""
        if row.cost and row.key:
            self._run.kept.add(row.key)

    def left(self) -> str:
        """How to go on with batches, and how to stop them."""
        count = self._run.board.count
        if not count:
            return ""
        what = "1 batch goes" if count == 1 else f"{count} batches go"
        return (
            f"{what} on at the provider and will be billed. The same command with --resume collects the answers; "
            f"`referee batches cancel {self._output}` stops the work."
        )


@contextlib.contextmanager
def asking(config: Config, output: str, folder: Path | None, batch: bool, overwrite: bool) -> Iterator[Asking]:
    """How this run asks. Enter it before the Referee is made."""
    if not batch:
        yield Asking(config)
        return
    assert folder is not None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with claimed(str(folder / FILE)):  # outputs with the same name and another ending have the same folder
        _check_open(output, folder, batch, overwrite)  # another run may have ended meanwhile
        if overwrite:
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (folder / name).unlink(missing_ok=True)
        run = BatchRun(config, folder)
        try:
            found = AskingInBatches(config, run, output)
            yield found
            if found.complete:
                run.journal.finish()
        finally:
            run.journal.close()


def check_asking(config: Config, output: str, folder: Path | None, batch: bool, overwrite: bool) -> None:
    """Refuse what would be paid twice, or cannot be done in batches. Nothing was sent."""
    if batch and folder is None:
        raise ConfigError("--batch needs a file beside which it keeps what is paid for: give -o a path.")
    if batch:
        check_batch(config)
        if config.redis.url:
            typer.echo("--batch does not use [redis]: neither its cache nor its limits.", err=True)
        if config.audit.enable:
            typer.echo("--batch does not audit; afterwards, `referee audit` looks at the record.", err=True)
    if batch and folder is not None and not overwrite:
        _check_endpoints(config, output, folder)
    if folder is not None and _check_open(output, folder, batch, overwrite):
        typer.echo("warning: what cancelled batches had answered by then is paid for, and not used.", err=True)


def _check_endpoints(config: Config, output: str, folder: Path) -> None:
    """Refuse a resumed run that would not look after all open batches, and ask what they answer at other endpoints."""
    names = set(map(endpoint_name, config.endpoint))
    found = open_batches(folder) if (folder / FILE).exists() else []
    strange = [batch.endpoint for batch in found if batch.state != STOPPED and batch.endpoint not in names]
    if strange:
        raise ConfigError(
            f"{output}: {len(strange)} open batch{'es' if len(strange) > 1 else ''} of an earlier run went to an "
            f"endpoint that is not configured now ({strange[0]}): this would ask again, and pay twice for, what will "
            "be answered. Configure it as it was (endpoint.name, model, url), or give them up: "
            f"referee batches cancel --forget {output}",
            setting="endpoint",
        )


def _check_open(output: str, folder: Path, batch: bool, overwrite: bool) -> int:
    """Refuse to forget batches of an earlier run. Returns how many will be that the user has cancelled."""
    found = open_batches(folder) if (folder / FILE).exists() and (overwrite or not batch) else []
    running = [batch for batch in found if batch.state != STOPPED]
    if running:
        what = "--overwrite would forget" if overwrite else "without --batch this would ask again, and pay twice for,"
        raise ConfigError(
            f"{output}: {what} what {len(running)} open batch{'es' if len(running) > 1 else ''} of an earlier run "
            f"will answer. Go on with --batch --resume, or stop them: referee batches cancel {output}"
        )
    return len(found)


def open_batches(folder: Path) -> list[Listed]:
    """Batches of an earlier run that are not over, as far as is known here."""
    journal = Journal(folder, readonly=True)
    try:
        return [batch for batch in journal.batches() if batch.open]
    finally:
        journal.close()
