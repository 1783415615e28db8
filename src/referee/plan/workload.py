"""The load of a training step: samples, tokens, latency, price, limits; and what a ledger says of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from msgspec import Struct

from referee.config import EndpointConfig
from referee.ledger import AskLine, BatchLine, JudgeLine, LimitsLine, Line, RunLine, VerdictLine
from referee.ledger.groups import of_a_file
from referee.limits.price import tier_share
from referee.report.resumed_runs import CANCELLED, Samples, asked


class Workload(Struct, frozen=True, kw_only=True):
    """One training step seen from the judge, and the limits it meets. None: not known, or no limit."""

    samples: float
    """Per step."""
    asked: float = 1.0
    """Share of the samples that need a call; the rest is cached, shared or settled by a gate."""
    attempts: float = 1.0
    """Calls per sample asked, retries included."""
    tokens_in: float | None = None
    tokens_out: float | None = None
    """Per call."""
    latency: float = 2.0
    """Seconds, median."""
    sigma: float = 0.5
    """Spread of the lognormal answer times."""
    concurrency: float | None = None
    rpm: float | None = None
    tpm: float | None = None
    """Limits of all endpoints together."""
    adaptive: bool = False
    """Whether `concurrency` is only the ceiling of an adaptive limit."""
    capacity: float | None = None
    """Calls the provider takes at once; it refuses more. None: not known, or no bound."""
    budget_usd: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    """US dollars per million tokens."""
    cost_per_call: float | None = None
    """US dollars, as measured; prices come first where both are given."""
    work_s: float | None = None
    """Seconds of the step in which the trainer has other work between submitting and collecting."""
    steps: float = 100.0
    """Steps of an epoch."""
    deadline: float = 300.0
    attempt_timeout: float = 60.0

    @property
    def calls(self) -> float:
        """Per step, retries included."""
        return self.samples * self.asked * self.attempts


class Observed:
    """Counts lines, each sample once. Memory grows with the number of steps and batches, not with samples."""

    def __init__(self) -> None:
        self.config: Mapping[str, Any] = {}
        self._known = Samples()
        self._samples = self._needed = self._asked = self._attempts = 0
        self._tokens_in = self._tokens_out = self._answered = 0
        self._cost = 0.0
        self._logs = self._log_squares = 0.0
        self._timed = 0
        self._parts: dict[tuple[str, int], set[str]] = {}
        """Samples whose questions were counted one by one, and by which judges they were asked."""
        self._steps: dict[int, int] = {}
        self._batches: list[tuple[int | None, int, float, float, float]] = []
        self._pressed: dict[str, list[float]] = {}

    def add(self, line: Line) -> None:
        """One more line."""
        if isinstance(line, VerdictLine):
            self._verdict(line)
        elif isinstance(line, JudgeLine | AskLine):
            self._part(line)
        elif isinstance(line, BatchLine):
            self._batches.append((line.step, line.samples, line.submitted, line.wall, line.waited_s))
        elif isinstance(line, LimitsLine):
            if line.queued:
                self._pressed.setdefault(line.endpoint, []).append(line.limit)
        elif isinstance(line, RunLine):
            self.config = line.config
            self._known.start(line)

    def _part(self, line: JudgeLine | AskLine) -> None:
        """A question, or a judge that asked one: they come before the verdict line of their sample."""
        judges = self._parts.setdefault((line.batch, line.index), set())
        if line.judge not in judges or isinstance(line, AskLine):
            self._call(line)
        judges.add(line.judge)

    def _call(self, line: VerdictLine | JudgeLine | AskLine) -> None:
        """What one question took."""
        if not asked(line):
            return
        self._answered += line.tokens_in > 0 or line.tokens_out > 0
        if line.latency_s > 0:
            log = math.log(line.latency_s)
            self._timed += 1
            self._logs += log
            self._log_squares += log * log

    def _verdict(self, line: VerdictLine) -> None:
        parts = self._parts.pop((line.batch, line.index), None)
        ended, before = self._known.end(line)
        if ended is None:
            return
        paid, counted = before is not None and before.asked, before is not None and before.unscored != CANCELLED
        # What an earlier start paid for and this one found in the cache needed its call.
        ended.asked = ended.asked or paid
        if line.unscored == CANCELLED:
            return  # what the caller gave up says nothing about a step
        self._needed += ended.asked - (paid and counted)
        if not counted:
            self._samples += 1
            if line.step is not None:
                self._steps[line.step] = self._steps.get(line.step, 0) + 1
        self._asked += asked(line)
        self._attempts += line.attempts
        self._cost += line.cost  # also of a sample that others of its group were asked with
        self._tokens_in += line.tokens_in
        self._tokens_out += line.tokens_out
        if parts is None:
            self._call(line)

    @property
    def samples(self) -> int:
        """Samples seen, without those that the caller gave up."""
        return self._samples

    def workload(self) -> Workload:
        """The load of a usual step, with the limits of the last run's configuration."""
        load: dict[str, Any] = dict(limits_in(self.config))
        pressed = [median(limits) for limits in self._pressed.values()]
        if pressed and load.get("adaptive", True):
            load["capacity"] = sum(pressed)
        if self._asked:
            load["attempts"] = self._attempts / self._asked
        if self._answered:
            load["tokens_in"] = self._tokens_in / self._answered
            load["tokens_out"] = self._tokens_out / self._answered
        if self._timed:
            middle = self._logs / self._timed
            load["latency"] = math.exp(middle)
            load["sigma"] = math.sqrt(max(0.0, self._log_squares / self._timed - middle * middle))
        if self._cost:
            load["cost_per_call"] = self._cost / max(1, self._attempts)
            # What was paid is surer than a price times tokens: some of them were the provider's cached ones.
            load["price_in"] = load["price_out"] = None
        return Workload(
            samples=self._per_step(),
            asked=self._needed / self._samples if self._samples else 1.0,
            work_s=self._work(),
            **load,
        )

    def _per_step(self) -> float:
        if self._steps:
            return float(median(self._steps.values()))
        sizes = [] if of_a_file(self.config) else [size for _, size, *_ in self._batches]
        return float(median(sizes)) if sizes else float(self._samples)

    def _work(self) -> float | None:
        """Seconds between the first submit and the last collect of a step in which the caller did something else."""
        if of_a_file(self.config):
            return None
        spans: dict[object, tuple[float, float, float]] = {}
        for number, (step, _, submitted, collected, waited) in enumerate(self._batches):
            name: object = ("batch", number) if step is None else step
            begin, end, stood = spans.get(name, (submitted, collected, 0.0))
            spans[name] = (min(begin, submitted), max(end, collected), stood + waited)
        free = [max(0.0, end - begin - stood) for begin, end, stood in spans.values()]
        return float(median(free)) if free else None


def observe(lines: Iterable[Line]) -> Observed:
    """All lines of a ledger, counted."""
    found = Observed()
    for line in lines:
        found.add(line)
    return found


def limits_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Limits and prices out of a configuration as plain data, all endpoints together. A backup adds nothing."""
    found: dict[str, Any] = {}
    limits = dict(config.get("limits") or {})
    endpoints = [dict(item) for item in config.get("endpoint") or () if not item.get("backup")]
    count = max(1, len(endpoints))
    places = limits.get("concurrency", "auto")
    ceiling = limits.get("max_concurrency") if places == "auto" else places
    for name, value in (("concurrency", ceiling), ("rpm", limits.get("rpm")), ("tpm", limits.get("tpm"))):
        if isinstance(value, int | float):
            found[name] = float(value) * count
    if limits:
        found["adaptive"] = places == "auto"
    for name in ("budget_usd", "deadline", "attempt_timeout"):
        if isinstance(limits.get(name), int | float):
            found[name] = float(limits[name])
    for name in ("price_in", "price_out"):
        prices = [item.get(name) for item in endpoints]
        known = [
            float(price) * _share(item)
            for price, item in zip(prices, endpoints, strict=True)
            if isinstance(price, int | float)
        ]
        if known and len(known) == len(prices):
            found[name] = sum(known) / len(known)
    return found


def _share(endpoint: Mapping[str, Any]) -> float:
    """What its tier costs, as a share of its prices."""
    named = {name: endpoint[name] for name in ("provider", "url", "tier") if isinstance(endpoint.get(name), str)}
    return tier_share(EndpointConfig(**named))
