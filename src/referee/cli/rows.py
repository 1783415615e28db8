"""The output of `referee score`: one JSON row per rollout, in input order, and what an earlier run left of it.

While a run goes on, rows go to OUTPUT.partial; OUTPUT itself is only ever replaced whole. So a kill at any moment
leaves one of the two complete up to some line, and `--resume` joins what both hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from referee.config import Config, EndpointConfig, change_judges
from referee.records import Reward, Sample
from referee.report.reward_rows import Row
from referee.scoring.build import read_template
from referee.wire import find_dialect

LONGEST_ROW = 1 << 24
"""Bytes read to see whether a file begins with a row."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Row).decode


def row_of(line: int, digest: str, reward: Reward) -> Row:
    """The row for one reward."""
    return Row(line=line, digest=digest, **reward.to_dict())


class Digests:
    """Short names for (sample, settings) pairs. Limits, cache and ledger settings do not change a reward."""

    def __init__(self, config: Config) -> None:
        # The template counts by its text: a file can change under its name, or move and stay the same.
        judges = change_judges(config.judge, lambda judge: replace(judge, prompt_file=read_template(judge) or ""))
        public = replace(config, judge=judges).public()
        shaped = {name: public[name] for name in ("judge", "endpoint", "shaping", "missing")}
        shaped["endpoint"] = [
            _without_address(endpoint, given)
            for endpoint, given in zip(shaped["endpoint"], config.endpoint, strict=True)
        ]
        self._settings = msgspec.json.encode(shaped, order="sorted")

    def of(self, sample: Sample) -> str:
        """The digest of one sample under these settings."""
        return hashlib.sha256(self._settings + _encode(sample)).hexdigest()[:20]


def _without_address(endpoint: dict[str, Any], given: EndpointConfig) -> dict[str, Any]:
    """An endpoint that is known by a name of its own may be at another address in the next run."""
    if not given.known_as:
        return endpoint
    return {**endpoint, "url": urlsplit(find_dialect(given.api).url(given)).path}


class RowWriter:
    """Appends rows to OUTPUT.partial; `finish` makes it the output. `-` is standard output and has no partial.

    `fresh`: an output of an earlier run is not joined with this one's; it stays until this one is complete.
    """

    def __init__(self, output: str, stdout: BinaryIO | None, fresh: bool = False) -> None:
        self._path = None if output == "-" else Path(output)
        self._fresh = fresh
        stream = stdout if self._path is None else create(partial(self._path))
        assert stream is not None, "standard output is closed"
        self._stream = stream

    def write(self, rows: Iterable[Row]) -> None:
        """Add rows and flush them: a kill then loses none."""
        data = b"".join(_encode(row) + b"\n" for row in rows)
        try:
            self._stream.write(data)
            self._stream.flush()
        except OSError as error:
            error.filename = error.filename or ("standard output" if self._path is None else str(self._path))
            raise

    def finish(self) -> None:
        """The output is complete."""
        if self._path is not None:
            self._stream.close()
            os.replace(partial(self._path), self._path)

    def abandon(self) -> Path | None:
        """The run stopped early: keep what it and the runs before it have. Returns where this run's rows are.

        Never fails, because something has failed already: on a full disk the rows stay in the partial file, which
        `--resume` joins.
        """
        if self._path is None:
            return None
        source = partial(self._path)
        with contextlib.suppress(OSError):
            self._stream.close()
        if not source.exists():
            return self._path  # it was complete
        with contextlib.suppress(OSError):
            if not source.stat().st_size:
                source.unlink()
                return None
            if not (self._fresh and self._path.exists()):
                consolidate(self._path)
                return self._path
        return source


def partial(output: Path) -> Path:
    """Where a run in progress writes."""
    return output.with_name(output.name + ".partial")


def joining(output: Path) -> Path:
    """Where the rows of two runs are put together."""
    return output.with_name(output.name + ".joining")


def holds_rows(path: Path) -> bool:
    """Whether this may be an output of ours: it begins with a row, or with nothing, or is not there."""
    if not path.exists():
        return True
    with path.open("rb") as stream:
        first = stream.readline(LONGEST_ROW)
    if not first.endswith(b"\n"):
        return first.startswith(b'{"line":') or not first  # torn
    return _row(first) is not None


def read_rows(path: Path) -> Iterator[Row]:
    """Whole, valid rows in order, up to the first line that is not one (a torn tail)."""
    if not path.exists():
        return
    last = 0
    with path.open("rb") as stream:
        for raw in stream:
            row = _row(raw) if raw.endswith(b"\n") else None
            if row is None or row.line <= last:
                return
            last = row.line
            yield row


def _row(raw: bytes) -> Row | None:
    try:
        return _decode(raw)
    except msgspec.MsgspecError:
        return None


def consolidate(output: Path) -> None:
    """Join what an interrupted run wrote with what was there before, into the output itself. The newer row counts."""
    source = partial(output)
    if source.exists():
        join(output, read_rows(source), read_rows(output))
        source.unlink()


def join(output: Path, newer: Iterator[Row], older: Iterator[Row]) -> None:
    """Replace the output by the rows of both."""
    joined = joining(output)
    try:
        with create(joined) as stream:
            for row in _merged(newer, older):
                stream.write(_encode(row) + b"\n")
        os.replace(joined, output)
    except OSError as error:
        error.filename = error.filename or str(joined)
        with contextlib.suppress(OSError):
            joined.unlink(missing_ok=True)
        raise


def _merged(newer: Iterator[Row], older: Iterator[Row]) -> Iterator[Row]:
    """Both in the order of their lines; a line that both have is the newer one's."""
    last = 0
    for row in heapq.merge(newer, older, key=lambda row: row.line):
        if row.line > last:
            yield row
        last = row.line


def create(path: Path) -> BinaryIO:
    """A new file that only its owner can read: rollouts and verdicts may be private."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    return os.fdopen(descriptor, "wb")
