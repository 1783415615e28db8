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
from referee.judging import Form, Judge, first_round
from referee.records import Sample
from referee.report.plan import Workload
from referee.report.workload import limits_in
from referee.rollouts import BadLine, first_rows, read_rollouts
from referee.scoring.build import build_judge, columns_shown, rubric_polarity

NO_DEADLINE = 1e9
"""Seconds. `referee score` judges a file to its end, however long that takes."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Counts of a file."""

    samples: int
    questions: int
    """All there are. Of a judge that asks in several rounds, those of the first."""
    asked: int
    """Requests that have to be sent: each equal one once."""
    repeated: int
    """Questions whose request is equal to an earlier one's."""
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
                "samples": float(self.questions),
                "asked": self.asked / self.questions,
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
    judges = [
        _Planned(build_judge(judge, secret), "text" if judge.reply == "text" else "schema") for judge in config.judge
    ]
    known: set[int] = set()
    samples = 0
    bad = Problems()
    shown = columns_shown(config)
    warn_unread(str(path), first_rows(path), shown, rubric_polarity(config))
    for _, sample in read_rollouts(path, shown, text_only(config), rubric_polarity(config)):
        if isinstance(sample, BadLine):
            bad.add(sample)
            continue
        samples += 1
        for judge in judges:
            judge.take(sample, known)
    for judge in judges:
        judge.finish(known)
    if not samples:
        refuse_text(str(path), path)
        raise InputError(bad.complaint(str(path), "It is neither a ledger nor a file of rollouts."))
    if bad.count:
        typer.echo(f"warning: {path}: {counted(bad.count, 'line')} cannot be used and not counted", err=True)
    asked, planned = len(known), sum(judge.planned for judge in judges)
    settled = sum(judge.settled for judge in judges)
    return Estimate(
        samples=samples,
        questions=planned + settled,
        asked=asked,
        repeated=planned - asked,
        settled=settled,
        by_judge=tuple((judge.asked, judge.tokens) for judge in judges),
    )


class _Planned:
    """What one judge would ask first about the samples of a file."""

    def __init__(self, judge: Judge, form: Form) -> None:
        self._judge = judge
        self._form = form
        self._groups: dict[str, list[Sample]] = {}
        self.planned = self.settled = self.asked = self.tokens = 0

    def take(self, sample: Sample, known: set[int]) -> None:
        """One more sample. `known`: the requests of all judges."""
        if self._judge.unit == "group" and sample.group:
            self._groups.setdefault(sample.group, []).append(sample)
        else:
            self._plan([sample], known)

    def finish(self, known: set[int]) -> None:
        """There are no more samples: groups are whole."""
        for samples in self._groups.values():
            self._plan(samples, known)

    def _plan(self, samples: list[Sample], known: set[int]) -> None:
        asks = first_round(self._judge, samples, self._form)
        self.planned += len(asks)
        self.settled += 0 if asks else len(samples)
        for ask in asks:
            name = hash((ask.facets, ask.pool))
            if name not in known:
                known.add(name)
                self.asked += 1
                self.tokens += ask.prompt_tokens
