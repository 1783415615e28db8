"""What judging a file of rollouts will take: its requests are planned as judging plans them, and none is sent."""

from __future__ import annotations

import secrets
from pathlib import Path

import typer
from msgspec import Struct

from referee.cli.problems import Problems, refuse_binary, refuse_text, text_only, warn_unread
from referee.cli.words import counted
from referee.config import Config, endpoints_of
from referee.errors import InputError
from referee.judging import make_judge
from referee.records import Ask
from referee.report.plan import Workload
from referee.report.workload import limits_in
from referee.rollouts import BadLine, first_rows, read_rollouts
from referee.scoring.build import columns_shown, read_template

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
    """Questions that a gate settles, or that a judge cannot be asked."""
    by_judge: tuple[tuple[int, int], ...]
    """Of each judge: its requests, and the tokens of their prompts, estimated from the text."""

    def workload(self, config: Config) -> Workload:
        """The file as one step, a sample for each question of each judge. Replies are taken as long as judge.max_tokens
        allows, and every judge at the prices of its own endpoints."""
        tokens_in = float(sum(tokens for _, tokens in self.by_judge))
        tokens_out = float(sum(asked * j.max_tokens for (asked, _), j in zip(self.by_judge, config.judge, strict=True)))
        return Workload(
            **{
                **limits_in(config.public()),
                **self._prices(config, tokens_in, tokens_out),
                "samples": float(self.samples * len(config.judge)),
                "asked": self.asked / (self.samples * len(config.judge)),
                "tokens_in": tokens_in / max(1, self.asked),
                "tokens_out": tokens_out / max(1, self.asked) or float(config.judge[0].max_tokens),
                "steps": 1.0,
                "deadline": NO_DEADLINE,
            }
        )

    def _prices(self, config: Config, tokens_in: float, tokens_out: float) -> dict[str, float]:
        """The mean prices of a token, by what each judge uses. None where all judges ask all endpoints."""
        if not any(judge.endpoint for judge in config.judge):
            return {}
        paid_in = paid_out = 0.0
        for (asked, tokens), judge in zip(self.by_judge, config.judge, strict=True):
            endpoint = config.endpoint[endpoints_of(judge, config.endpoint)[0]]
            if endpoint.price_in is None or endpoint.price_out is None:
                return {}
            paid_in += tokens * endpoint.price_in
            paid_out += asked * judge.max_tokens * endpoint.price_out
        return {"price_in": paid_in / max(1.0, tokens_in), "price_out": paid_out / max(1.0, tokens_out)}

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
    counts = [[0, 0] for _ in judges]
    samples = settled = 0
    bad = Problems()
    shown = columns_shown(config)
    warn_unread(str(path), first_rows(path), shown)
    for _, sample in read_rollouts(path, shown, text_only(config)):
        if isinstance(sample, BadLine):
            bad.add(sample)
            continue
        samples += 1
        for (judge, reply), count in zip(judges, counts, strict=True):
            planned = judge.plan(sample, "text" if reply == "text" else "schema")
            if not isinstance(planned, Ask):
                settled += 1
                continue
            name = hash((planned.facets, planned.pool))
            if name not in known:
                known.add(name)
                count[0] += 1
                count[1] += planned.prompt_tokens
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
        by_judge=tuple((count[0], count[1]) for count in counts),
    )
