"""What a hook tells its user at the start, and the record it keeps where the configuration names no folder for one.

It was not asked for, so it is bounded, kept out of git, and one folder for all processes of a run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from referee import clock
from referee.config import Config
from referee.referee import Referee

log = logging.getLogger("referee.trainers")

RUNS = Path(".referee", "runs")
"""Relative to the directory the run is started in."""
MAX_MB = 512
"""Of one process's file."""
KEEP_MB = 4096
"""Of all runs together: beyond it the oldest go when a new one begins."""
IDLE_S = 86_400.0
"""Seconds since the last line after which a run may go."""
_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def with_record(config: Config) -> tuple[Config, bool]:
    """The same with a folder for its record, and whether it is this process that tells the user about the run."""
    first = os.environ.get("RANK", "0") in ("", "0")
    if config.ledger.dir is not None:
        return config, first
    try:
        folder, created = _folder(config)
    except OSError as error:
        if first:
            log.warning(
                'no record of this run is kept: %s cannot be written (%s). Set [ledger] dir to a folder, or to "" for '
                "no record",
                error.filename or RUNS,  # not its absolute path: the current directory may be gone
                error.strerror or error,
            )
        return without_record(config), first
    bound = MAX_MB if config.ledger.max_mb is None else config.ledger.max_mb
    return replace(config, ledger=replace(config.ledger, dir=str(folder), max_mb=bound)), created


def without_record(config: Config) -> Config:
    """The same, with nothing written."""
    return replace(config, ledger=replace(config.ledger, dir=""))


def announce(config: Config) -> None:
    """One line about what judges and where its record goes: by the log, or where that would not show it, to stderr."""
    if any(logging.getLogger(name).level > logging.INFO for name in ("referee", "referee.trainers")):
        return
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        log.info("%s", summary(config))
    else:
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or a file on a full disk
            sys.stderr.write(f"referee: {summary(config)}\n")
            sys.stderr.flush()


def expect_steps(referee: Referee, columns: Mapping[str, Any]) -> None:
    """Say for the record how many steps the trainer will make, where the state that it hands on knows."""
    steps = getattr(columns.get("trainer_state"), "max_steps", None)
    if isinstance(steps, int) and steps > 0:
        referee.expect(steps=steps)


def summary(config: Config) -> str:
    """Judges, models, runtime, limits and record, as the line says them."""
    judges = ", ".join(f"{judge.name} ({judge.kind})" for judge in config.judge)
    models = ", ".join(dict.fromkeys(f"{endpoint.model} at {endpoint.label}" for endpoint in config.endpoint))
    limits = config.limits
    auto = limits.concurrency == "auto"
    calls = f"auto up to {limits.max_concurrency}" if auto else str(limits.concurrency)
    rates = [f"{name} {value:g}" for name in ("rpm", "tpm") if (value := getattr(limits, name)) is not None]
    money = [] if limits.budget_usd is None else [f"budget ${limits.budget_usd:g}"]
    ranks = os.environ.get("WORLD_SIZE") or "1"
    apart = [f"for each of {ranks} ranks"] if ranks != "1" and config.runtime != "ray" else []
    limit = ", ".join([f"calls at once: {calls}", *rates, *money, *apart])
    return f"{judges} by {models}; runtime {config.runtime}; {limit}; {_record(config)}"


def _record(config: Config) -> str:
    if not config.ledger.dir:
        return "no record"
    folder = Path(config.ledger.dir).expanduser().absolute()
    texts = "with" if config.ledger.content else "without"
    bound = "" if config.ledger.max_mb is None else f", up to {config.ledger.max_mb} MB a process"
    return f"record ({texts} texts{bound}): {folder}; to read it: referee report {shlex.quote(str(folder))}"


def _folder(config: Config) -> tuple[Path, bool]:
    """The folder of this run and configuration, and whether it was made just now."""
    runs = RUNS.absolute()
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(f"{_job()} {config.digest()}".encode()).hexdigest()[:8]
    with _locked(runs / ".lock"):
        ignore = runs / ".gitignore"  # of this folder alone: what else is in .referee is not ours to hide
        if not ignore.exists():
            ignore.write_text("*\n")
        found = sorted(runs.glob(f"*-{name}"))
        if found and os.access(found[-1], os.W_OK):
            return found[-1], False
        _make_room(runs)
        stamp = datetime.fromtimestamp(clock.wall(), UTC).strftime("%Y%m%dT%H%M%SZ")
        folder = runs / f"{stamp}-{name}"
        folder.mkdir(mode=0o700)
        return folder, True


@functools.cache
def _job() -> str:
    """Equal in all processes of a run on a machine (on a Ray cluster, in all of a job), and in none of another run."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        context = ray.get_runtime_context()
        session = getattr(context, "get_session_name", lambda: context.gcs_address)()
        return f"{session} {context.get_job_id()}"
    if os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        with contextlib.suppress(OSError, IndexError):  # ranks have one launcher; elsewhere than on Linux each is alone
            launcher = os.getppid()
            started = Path(f"/proc/{launcher}/stat").read_text().rpartition(")")[2].split()[19]
            return f"{Path('/proc/sys/kernel/random/boot_id').read_text()} {launcher} {started}"
    return secrets.token_hex(8)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time, where the file system can lock."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file open too
        os.close(file)


def _make_room(runs: Path) -> None:
    """Remove the oldest records beyond the bound; never one that may still be written, nor other files beside them."""
    folders = [one for one in sorted(runs.iterdir()) if _NAME.fullmatch(one.name) and not one.is_symlink()]
    files = {folder: [(file, file.stat()) for file in folder.glob("ledger-*.jsonl")] for folder in folders}
    total = sum(stat.st_size for one in files.values() for _, stat in one) / 1e6
    gone = 0
    for found in files.values():
        if total <= KEEP_MB:
            break
        if any(stat.st_mtime > clock.wall() - IDLE_S for _, stat in found):
            continue
        for file, stat in found:
            file.unlink(missing_ok=True)
            total -= stat.st_size / 1e6
            gone += 1
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()  # only an empty one goes
    if gone:
        log.warning("%s held more than %d MB: the records of the oldest runs were removed", runs, KEEP_MB)
