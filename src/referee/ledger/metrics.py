"""Numbers about a run, counted line by line: the same code live and from a file. Memory stays bounded.

The names are part of the public surface; `referee docs metrics` explains each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from referee.ledger.comparisons import Compared, compared, compared_in, share
from referee.ledger.criteria import Criteria, CriterionResult, results_in, results_of
from referee.ledger.groups import Groups
from referee.ledger.histograms import Buckets, Histogram, Scores
from referee.ledger.lines import (
    BatchLine,
    ChangeLine,
    JudgeLine,
    LimitsLine,
    Line,
    RewardLine,
    RunLine,
    VerdictLine,
    judges_in,
)
from referee.records import COMPARED, Reason, Settled, Verdict

OPEN_GROUPS = 8192
"""Groups whose spread is tracked. Beyond that the least recently used ones keep the spread they have."""


class JudgeTally:
    """What one of several judges said and cost."""

    __slots__ = ("cost", "scored", "scores", "squares", "total", "unscored")

    def __init__(self) -> None:
        self.scored = self.unscored = 0
        self.total = self.squares = self.cost = 0.0
        self.scores = Scores()

    def add(self, value: float | None, times: int = 1) -> None:
        """Count one verdict, or its absence; `times` = -1 subtracts it."""
        if value is None:
            self.unscored += times
            return
        self.scored += times
        self.total += times * value
        self.squares += times * value * value
        self.scores.add(value, times)

    def metrics(self) -> dict[str, float]:
        """Its numbers by name."""
        mean = share(self.total, self.scored)
        return {
            "scored": self.scored,
            "unscored": self.unscored,
            "unscored_share": share(self.unscored, self.scored + self.unscored),
            "score_mean": mean,
            "score_std": math.sqrt(max(0.0, share(self.squares, self.scored) - mean * mean)),
            "cost_usd": self.cost,
        }


class Tally:
    """Counts lines as they come. Feed it every line once, in order."""

    def __init__(self, judges: Iterable[str] = ()) -> None:
        """`judges`: their names, where there are several; a run line names them too."""
        self._judges = {name: JudgeTally() for name in judges}
        self._origins = dict.fromkeys(("call", "cache", "shared", "gate", "none"), 0)
        self._unscored = dict.fromkeys((reason.value for reason in Reason), 0)
        self._scored = self._at_low = self._at_high = 0
        self._sum = self._squares = 0.0
        self._attempts = self._tokens_in = self._tokens_out = self._tokens_cached = self._tokens_cache_write = 0
        self._cost = self._call_cost = self._saved = 0.0
        self._unpriced = 0
        self._latency, self._queue, self._scores = Histogram(), Histogram(), Scores()
        self._groups = Groups(OPEN_GROUPS)
        self._spreads: dict[int, tuple[int, float, float]] = {}
        self._compared = self._flat = 0
        self._rewards = self._filled = self._no_reward = 0
        self._reward_sum = self._penalty_sum = 0.0
        self._batches = self._changes = 0
        self._waited = self._elapsed = 0.0
        self._began = self._latest = 0.0
        self._limits: dict[str, LimitsLine] = {}
        self._throttled = self._requests = 0
        self._criteria: dict[str, Criteria] = {}
        """Of rubrics, by the name of the judge where there are several."""
        self._siblings: dict[str, Compared] = {}
        """Of judges of groups, the same."""
        self._teams: dict[str, list[float]] = {}
        """Of teams: samples, those without a verdict, US dollars."""

    def add(self, line: Line) -> None:
        """Count one line."""
        if isinstance(line, VerdictLine):
            self._verdict(line)
        elif isinstance(line, RewardLine):
            self._reward(line)
        elif isinstance(line, BatchLine):
            self._batches += 1
            self._waited += line.waited_s
        elif isinstance(line, LimitsLine):
            self._limits[line.endpoint] = line
        elif isinstance(line, ChangeLine):
            self._changes += 1
        elif isinstance(line, JudgeLine):
            self._judge(line.judge, line.value, line.cost)
            self._parts(line.judge, line)
        elif isinstance(line, RunLine):
            self._new_run(line)
        if line.wall > self._latest:
            self._latest = line.wall
            self._began = self._began or line.wall

    def _new_run(self, line: RunLine) -> None:
        """Another file, or the same after a restart: totals begin again."""
        self._throttled, self._requests = self._sent()
        self._limits.clear()
        self._groups.start(line)
        names = [str(judge.get("name", "")) for judge in judges_in(line.config)]
        for name in names if len(names) > 1 else ():
            self._judges.setdefault(name, JudgeTally())
        self._elapsed += self._latest - self._began
        self._began = self._latest = line.wall

    def _sent(self) -> tuple[int, int]:
        last = self._limits.values()
        return self._throttled + sum(x.throttled for x in last), self._requests + sum(x.requests for x in last)

    def _verdict(self, line: VerdictLine) -> None:
        self._parts("", line)
        origin = line.origin
        self._origins[origin] = self._origins.get(origin, 0) + 1
        self._attempts += line.attempts
        self._cost += line.cost
        if line.team:
            team = self._teams.setdefault(line.team, [0.0, 0.0, 0.0])
            team[0] += 1
            team[1] += line.value is None
            team[2] += line.cost
        if origin == "call" or origin == "none":
            self._tokens_in += line.tokens_in
            self._tokens_out += line.tokens_out
            self._tokens_cached += line.tokens_cached
            self._tokens_cache_write += line.tokens_cache_write
            if line.attempts:
                self._queue.add(line.queued_s)
                self._latency.add(line.latency_s)
            if origin == "call":
                self._call_cost += line.cost
        elif origin == "cache" or origin == "shared":
            self._unpriced += not line.saved
        self._saved += line.saved  # on calls too: another judge or question of the sample may be a hit
        if line.value is None:
            self._unscored[line.unscored] = self._unscored.get(line.unscored, 0) + 1
            return
        self._scored += 1
        self._sum += line.value
        self._squares += line.value * line.value
        self._at_low += line.value <= 0.0
        self._at_high += line.value >= 1.0
        self._scores.add(line.value)
        if line.group:
            self._spread(self._groups.number(line), line.value)

    def judged(self, name: str, settled: Settled) -> None:
        """Count what one of several judges said of a sample."""
        verdict = settled.verdict
        self._judge(name, verdict.value if isinstance(verdict, Verdict) else None, settled.cost)
        self.made_of(name, settled)

    def made_of(self, judge: str, settled: Settled) -> None:
        """Count what a verdict is made of: criteria, comparisons. `judge`: its name, empty if it is the only one."""
        verdict = settled.verdict
        if not isinstance(verdict, Verdict):
            return
        if verdict.how == "rubric":
            self._count(judge, results_of(verdict.parts))
        elif verdict.how in COMPARED:
            self._compare(judge, compared_in(verdict))

    def _parts(self, judge: str, line: VerdictLine | JudgeLine) -> None:
        """The same from a line."""
        if line.how == "rubric":
            self._count(judge, results_in(line.parts))
        elif line.how in COMPARED:
            self._compare(judge, compared(line.how, line.parts, line.uncertainty))

    def _count(self, judge: str, criteria: Iterable[CriterionResult]) -> None:
        self._criteria.setdefault(judge, Criteria()).add(criteria)

    def _compare(self, judge: str, counts: Compared, times: int = 1) -> None:
        self._siblings[judge] = self._siblings.get(judge, Compared()).plus(counts, times)

    def _judge(self, name: str, value: float | None, cost: float) -> None:
        found = self._judges.get(name)
        if found is None:
            found = self._judges[name] = JudgeTally()
        found.add(value)
        found.cost += cost

    def take_back(
        self,
        value: float | None,
        unscored: str,
        reward: RewardLine | None,
        judges: Iterable[tuple[str, float | None]] = (),
        criteria: Iterable[tuple[str, Iterable[CriterionResult]]] = (),
        compared: Iterable[tuple[str, Compared]] = (),
    ) -> None:
        """Subtract the end of a sample that was judged again since; what it cost was spent. `judges`: what each of
        several said, by name; `criteria`: those of a rubric, `compared`: with its siblings, by judge."""
        for name, counts in compared:
            self._compare(name, counts, -1)
        for name, held in criteria:
            self._criteria[name].add(held, -1)
        for name, said in judges:
            self._judges[name].add(said, -1)
        if reward is not None:
            self._reward(reward, -1)
        if value is None:
            self._unscored[unscored] -= 1
            return
        self._scored -= 1
        self._sum -= value
        self._squares -= value * value
        self._at_low -= value <= 0.0
        self._at_high -= value >= 1.0
        self._scores.add(value, -1)

    def _spread(self, group: int, value: float) -> None:
        count, low, high = self._spreads.get(group, (0, value, value))
        if count >= 2:
            self._flat -= low == high
        low, high = min(low, value), max(high, value)
        self._spreads[group] = (count + 1, low, high)
        if count >= 1:
            self._flat += low == high
            self._compared += count == 1
        elif len(self._spreads) > OPEN_GROUPS:
            del self._spreads[next(iter(self._spreads))]

    def _reward(self, line: RewardLine, times: int = 1) -> None:
        self._penalty_sum += times * line.penalty
        self._filled += times * bool(line.filled)
        if line.value is None:
            self._no_reward += times
        else:
            self._rewards += times
            self._reward_sum += times * line.value

    def metrics(self) -> dict[str, float]:
        """All numbers by name. Always the same names for the same judges and criteria; what has no data is 0."""
        scored, unscored, free = self._scored, sum(self._unscored.values()), self._origins
        mean = share(self._sum, scored)
        rows = self._rewards + self._no_reward
        throttled, requests = self._sent()
        elapsed = self._elapsed + self._latest - self._began
        found: dict[str, float] = {
            "samples": scored + unscored,
            "scored": scored,
            "unscored": unscored,
            "unscored_share": share(unscored, scored + unscored),
            **{f"unscored/{reason}": count for reason, count in self._unscored.items()},
            "calls": free["call"],
            "cache_hits": free["cache"],
            "shared": free["shared"],
            "gated": free["gate"],
            "attempts": self._attempts,
            "requests": requests,
            "throttled": throttled,
            "identity_changes": self._changes,
            "tokens_in": self._tokens_in,
            "tokens_out": self._tokens_out,
            "tokens_cached": self._tokens_cached,
            "tokens_cache_write": self._tokens_cache_write,
            "cost_usd": self._cost,
            "saved_usd": self._saved + self._unpriced * share(self._call_cost, free["call"]),
            "latency_p50_s": self._latency.quantile(0.5),
            "latency_p95_s": self._latency.quantile(0.95),
            "queue_p50_s": self._queue.quantile(0.5),
            "queue_p95_s": self._queue.quantile(0.95),
            "score_mean": mean,
            "score_std": math.sqrt(max(0.0, share(self._squares, scored) - mean * mean)),
            "score_low_share": share(self._at_low, scored),
            "score_high_share": share(self._at_high, scored),
            "flat_group_share": share(self._flat, self._compared),
            "reward_mean": share(self._reward_sum, self._rewards),
            "reward_missing": self._no_reward,
            "reward_filled": self._filled,
            "penalty_mean": share(self._penalty_sum, rows),
            "batches": self._batches,
            "wait_s": self._waited,
            "elapsed_s": elapsed,
            "wait_fraction": min(1.0, share(self._waited, elapsed)),
            "limit": sum(line.limit for line in self._limits.values()),
            "in_flight": sum(line.in_flight for line in self._limits.values()),
            "queued": max((line.queued for line in self._limits.values()), default=0),
        }
        for name, judge in self._judges.items():
            found |= {f"judge/{name}/{what}": number for what, number in judge.metrics().items()}
        made_of: list[tuple[str, Criteria | Compared]] = [*self._criteria.items(), *self._siblings.items()]
        for name, parts in made_of:
            of = f"judge/{name}/" if name else ""
            found |= {f"{of}{what}": number for what, number in parts.metrics().items()}
        for name, (samples, missing, cost) in self._teams.items():
            found |= {f"team/{name}/samples": samples, f"team/{name}/unscored": missing, f"team/{name}/cost_usd": cost}
        return {name: float(number) for name, number in found.items()}

    def histograms(self) -> dict[str, Buckets]:
        """Durations and verdicts by size: `latency_s`, `queue_s`, `score`, and with several judges `judge/<name>/score`
        instead."""
        scores = {f"judge/{name}/score": judge.scores for name, judge in self._judges.items()}
        counted: dict[str, Histogram | Scores] = {
            "latency_s": self._latency,
            "queue_s": self._queue,
            **(scores or {"score": self._scores}),
        }
        return {name: found.buckets() for name, found in counted.items()}


def metrics(lines: Iterable[Line]) -> dict[str, float]:
    """The numbers of a whole ledger."""
    tally = Tally()
    for line in lines:
        tally.add(line)
    return tally.metrics()
