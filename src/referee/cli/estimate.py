"""What judging a file of rollouts will take: its requests are planned as judging plans them, and none is sent."""

from __future__ import annotations

import secrets
from pathlib import Path

import typer
from msgspec import Struct

from referee.cli.problems import Problems, refuse_binary, refuse_text
from referee.cli.words import counted
from referee.config import Config
from referee.errors import InputError
from referee.judging import make_judge
from referee.records import Ask
from referee.report.plan import Workload
from referee.report.workload import limits_in
from referee.rollouts import BadLine, read_rollouts
from referee.scoring.build import read_template

NO_DEADLINE = 1e9
"""Seconds. `referee score` judges a file to its end, however long that takes."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Counts of a file."""

    samples: int
    asked: int
    """Requests that have to be sent: each equal one once."""
    repeated: int
    """Samples whose request is equal to an earlier one's."""
    settled: int
    """Samples that a gate settles, or that this judge cannot be asked about."""
    tokens_in: float
    """Per request, estimated from the text."""

    def workload(self, config: Config) -> Workload:
        """The file as one step. Replies are taken as long as judge.max_tokens allows."""
        return Workload(
            **{
                **limits_in(config.public()),
                "samples": float(self.samples),
                "asked": self.asked / self.samples,
                "tokens_in": self.tokens_in,
                "tokens_out": float(max(judge.max_tokens for judge in config.judge)),
                "steps": 1.0,
                "deadline": NO_DEADLINE,
            }
        )

    def words(self) -> str:
        """What becomes of the samples."""
        return (
            f"{counted(self.samples, 'rollout')}: {counted(self.asked, 'request')}, {self.repeated} equal to another, "
            f"{self.settled} without a call. What the cache holds already is not looked up."
        )


def estimate(path: Path, config: Config) -> Estimate:
    """Read all of it and plan every request."""
    refuse_binary(str(path), path)
    secret = secrets.token_bytes(32)
    judges = [(make_judge(judge, secret, read_template(judge)), judge.reply) for judge in config.judge]
    known: set[int] = set()
    samples = settled = tokens = 0
    bad = Problems()
    for _, sample in read_rollouts(path):
        if isinstance(sample, BadLine):
            bad.add(sample)
            continue
        samples += 1
        for judge, reply in judges:
            planned = judge.plan(sample, "text" if reply == "text" else "schema")
            if not isinstance(planned, Ask):
                settled += 1
                continue
            name = hash((planned.facets, planned.pool))
            if name not in known:
                known.add(name)
                tokens += planned.prompt_tokens
    if not samples:
        refuse_text(str(path), path)
        raise InputError(bad.complaint(str(path), "It is neither a ledger nor a file of rollouts."))
    if bad.count:
        typer.echo(f"warning: {path}: {counted(bad.count, 'line')} cannot be used and not counted", err=True)
    asked = len(known)
    return Estimate(
        samples=samples,
        asked=asked,
        repeated=samples * len(judges) - settled - asked,
        settled=settled,
        tokens_in=tokens / asked if asked else 0.0,
    )
