"""The output of `referee score`: one JSON row per rollout, in input order, and what an earlier run left of it.

While a run goes on, rows go to OUTPUT.partial; OUTPUT itself is only ever replaced whole. So a kill at any moment
leaves one of the two complete up to some line, and `--resume` joins what both hold.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from referee.config import Config
from referee.records import Reward, Sample, Unscored, Verdict


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of output."""

    line: int
    """Line of the input it answers."""
    id: str
    reward: float | None
    """None (null): no reward."""
    group: str = ""
    score: float | None = None
    """On the judge's own scale."""
    value: float | None = None
    """The same in [0, 1]."""
    why: str = ""
    """The judge's words, or which gate settled it."""
    unscored: str = ""
    """Why there is no score."""
    detail: str = ""
    rule: float = 0.0
    judge: float | None = None
    penalty: float = 0.0
    length: int = 0
    median_length: float = 0.0
    filled: str = ""
    """The missing policy that supplied the reward, if one did."""
    origin: str = ""
    """call, cache, shared, gate or none."""
    how: str = ""
    cost: float = 0.0
    key: str = ""
    """Cache key of the request; `referee cache explain` takes it."""
    digest: str = ""
    """Names the sample and the settings that made this row: a resumed run keeps the row only if both are the same."""

    @property
    def scored(self) -> bool:
        """True if the row holds a verdict."""
        return not self.unscored


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Row).decode


def row_of(line: int, digest: str, reward: Reward) -> Row:
    """The row for one reward."""
    given, settled = reward.verdict, reward.settled
    verdict = given if isinstance(given, Verdict) else None
    missing = given if isinstance(given, Unscored) else None
    return Row(
        line=line,
        id=reward.id,
        reward=reward.value,
        group=reward.group,
        score=verdict.score if verdict else None,
        value=verdict.value if verdict else None,
        why=verdict.reason if verdict else "",
        unscored=missing.reason.value if missing else "",
        detail=missing.detail if missing else "",
        rule=reward.rule,
        judge=reward.judge,
        penalty=reward.penalty,
        length=reward.length,
        median_length=reward.median_length,
        filled=reward.filled,
        origin=settled.origin,
        how=verdict.how if verdict else "",
        cost=settled.cost,
        key=settled.key,
        digest=digest,
    )


class Digests:
    """Short names for (sample, settings) pairs. Limits, cache and ledger settings do not change a reward."""

    def __init__(self, config: Config) -> None:
        public = config.public()
        shaped = {name: public[name] for name in ("judge", "endpoint", "shaping", "missing")}
        self._settings = msgspec.json.encode(shaped, order="sorted")

    def of(self, sample: Sample) -> str:
        """The digest of one sample under these settings."""
        return hashlib.sha256(self._settings + _encode(sample)).hexdigest()[:20]


class RowWriter:
    """Appends rows to OUTPUT.partial; `finish` makes it the output. `-` is standard output and has no partial."""

    def __init__(self, output: str, stdout: BinaryIO) -> None:
        self._path = None if output == "-" else Path(output)
        self._stream = stdout if self._path is None else _create(partial(self._path))

    def write(self, rows: Iterable[Row]) -> None:
        """Add rows, and let them reach the system at once: a kill then loses none of them."""
        data = b"".join(_encode(row) + b"\n" for row in rows)
        if data:
            self._stream.write(data)
            self._stream.flush()

    def finish(self) -> None:
        """The output is complete."""
        if self._path is not None:
            self._stream.close()
            os.replace(partial(self._path), self._path)

    def abandon(self) -> None:
        """The run stopped early: keep what it and the runs before it have."""
        if self._path is not None:
            self._stream.close()
            consolidate(self._path)


def partial(output: Path) -> Path:
    """Where a run in progress writes."""
    return output.with_name(output.name + ".partial")


def read_rows(path: Path) -> Iterator[Row]:
    """Whole, valid rows in order, up to the first line that is not one (a torn tail)."""
    if not path.exists():
        return
    last = 0
    with path.open("rb") as stream:
        for raw in stream:
            if not raw.endswith(b"\n"):
                return
            try:
                row = _decode(raw)
            except msgspec.MsgspecError:
                return
            if row.line <= last:
                return
            last = row.line
            yield row


def consolidate(output: Path) -> None:
    """Join what an interrupted run wrote with what was there before, into the output itself."""
    source = partial(output)
    if not source.exists():
        return
    joined = output.with_name(output.name + ".joining")
    last = 0
    with _create(joined) as stream:
        for row in read_rows(source):
            stream.write(_encode(row) + b"\n")
            last = row.line
        for row in read_rows(output):
            if row.line > last:
                stream.write(_encode(row) + b"\n")
    os.replace(joined, output)
    source.unlink()


def _create(path: Path) -> BinaryIO:
    """A new file only its owner can read: rollouts and verdicts are the user's own business."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    return os.fdopen(descriptor, "wb")
