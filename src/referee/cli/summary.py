"""The few lines at the end of a run: what came out, what did not and why, what it cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from referee.cli.words import counted
from referee.config import Config
from referee.ledger.comparisons import Compared, compared
from referee.ledger.criteria import FEW_VERDICTS, MOST_COUNTED, Criteria, CriterionTally, results_in
from referee.ledger.metrics import JudgeTally
from referee.records import COMPARED
from referee.report.plain import plain
from referee.report.reward_rows import Row

MOST_NAMED = 5
"""Criteria that a line names."""


class _Judge:
    """One of several judges."""

    def __init__(self, name: str, weight: float) -> None:
        self._name, self._weight = name, weight
        self._tally = JudgeTally()
        self._by: dict[str, None] = {}

    def add(self, said: Mapping[str, Any], kept: bool) -> None:
        self._tally.add(said.get("value"))
        self._tally.cost += 0.0 if kept else said.get("cost") or 0.0
        if said.get("model"):
            self._by[f"{said['model']} at {said.get('endpoint', '')}"] = None

    def line(self, priced: bool) -> str:
        found = self._tally.metrics()
        mean = f", mean {found['score_mean']:.3f} of 1" if found["scored"] else ""
        by = f", by {'; '.join(self._by)}" if self._by else ""
        cost = f", ${found['cost_usd']:.4f}" if priced else ""
        counts = f"{found['scored']:.0f} scored, {found['unscored']:.0f} unscored"
        return f"  judge {self._name} (weight {self._weight:g}): {counts}{mean}{cost}{by}"


class Summary:
    """Counts rows as they are written. Memory does not grow with them."""

    def __init__(self, config: Config) -> None:
        self._priced = [endpoint.price_in is not None for endpoint in config.endpoint]
        self.rows = 0
        self.kept = 0
        self._scored = 0
        self._sum = 0.0
        self._squares = 0.0
        self._rewarded = 0
        self._origins: Counter[str] = Counter()
        self._unscored: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        several = config.judge if len(config.judge) > 1 else ()
        self._judges = {judge.name: _Judge(judge.name, judge.weight) for judge in several}
        self._criteria: dict[str, Criteria] = {}
        self._compared: dict[str, Compared] = {}
        self._decided: dict[str, Counter[str]] = {}

    def add(self, row: Row, kept: bool) -> None:
        """One more row. `kept`: it came from an earlier run."""
        self.rows += 1
        self.kept += kept
        if not kept:
            self._origins[row.origin] += 1
        for name, said in row.judges.items():
            if name in self._judges:
                self._judges[name].add(said, kept)
                self._parts(name, said.get("how", ""), said.get("parts") or ())
        self._parts("", row.how, row.parts)
        if row.unscored:
            self._unscored[row.unscored] += 1
            self._examples.setdefault(row.unscored, row.detail)
        else:
            self._scored += 1
        if row.reward is not None:
            self._rewarded += 1
            self._sum += row.reward
            self._squares += row.reward * row.reward

    def _parts(self, judge: str, how: str, parts: Sequence[Mapping[str, Any]]) -> None:
        if how in COMPARED:
            counts = compared(how, parts, None)
            self._compared[judge] = self._compared.get(judge, Compared()).plus(counts)
        elif how == "cascade":
            names = (part["name"] for part in parts if part.get("verdict") == "decided")
            self._decided.setdefault(judge, Counter()).update(names)
        elif how == "rubric":
            self._criteria.setdefault(judge, Criteria()).add(results_in(parts))

    @property
    def unscored(self) -> int:
        """Rows without a verdict."""
        return self.rows - self._scored

    def text(self, metrics: Mapping[str, float]) -> str:
        """The summary in plain lines."""
        calls = counted(metrics.get("requests", 0), "request")
        lines = [
            f"{counted(self.rows, 'rollout')}: {self._scored} scored, {self.unscored} unscored"
            + (f", {self.kept} kept from an earlier run" if self.kept else ""),
            f"{calls}, {self._origins['cache']} from cache, {self._origins['shared']} shared, "
            f"{self._origins['gate']} settled without a call, {metrics.get('throttled', 0):.0f} throttled, "
            f"{counted(metrics.get('tokens_in', 0), 'token')} in{_cached(metrics)}, "
            f"{metrics.get('tokens_out', 0):.0f} out, " + self._cost(metrics.get("cost_usd", 0)),
        ]
        if self._rewarded:
            mean = self._sum / self._rewarded
            spread = math.sqrt(max(0.0, self._squares / self._rewarded - mean * mean))
            lines.append(f"reward mean {mean:.3f}, standard deviation {spread:.3f}")
        lines += [judge.line(any(self._priced)) for judge in self._judges.values()]
        for name, criteria in self._criteria.items():
            lines += _criteria_lines(f" of {name}" if name else "", criteria)
        for name, counts in self._compared.items():
            lines += _compared_lines(f" of {name}" if name else "", counts)
        for name, members in self._decided.items():
            of = f" of {name}" if name else ""
            lines.append(
                f"  cascade{of}, decided by: {', '.join(f'{plain(one, 60)} {n}' for one, n in members.items())}"
            )
        for reason, count in self._unscored.most_common():
            detail = self._examples[reason]
            lines.append(f"  unscored, {reason}: {count}" + (f" (for example: {plain(detail)})" if detail else ""))
        return "\n".join(lines)

    def _cost(self, spent: float) -> str:
        """Dollars, as far as they are known: without a price the cost is unknown, not 0."""
        if not any(self._priced):
            return "cost unknown (no price_in, price_out)"
        return f"${spent:.4f}" + ("" if all(self._priced) else " and what endpoints without a price cost")


def _cached(metrics: Mapping[str, float]) -> str:
    """How much of the prompts providers took from their prompt caches, if any."""
    cached = metrics.get("tokens_cached", 0)
    return f" ({cached / metrics['tokens_in']:.0%} from the provider's prompt cache)" if cached else ""


def _compared_lines(of: str, counts: Compared) -> list[str]:
    """What came of comparisons, and which groups did not fit one request."""
    found = counts.metrics()
    if counts.chunked:
        return [f"  lists{of}: {counts.chunked} of {counted(counts.lists, 'response')} judged in chunks of their group"]
    if "comparisons" not in found:
        return []
    missing = f", {counts.missing} without an answer" if counts.missing else ""
    both = f", {found['order_changed_share']:.1%} changed with the order" if counts.both else ""
    return [
        f"  comparisons{of}, of each response: {counts.comparisons}{missing}, {found['tie_share']:.1%} tied, "
        f"{found['first_shown_share']:.1%} of the rest won by the one shown first{both}"
    ]


def _criteria_lines(of: str, criteria: Criteria) -> list[str]:
    """What a rubric's criteria came to; those that do not tell answers apart by name."""
    judged, missing = criteria.all.judged, criteria.all.missing
    if not judged + missing:
        return []
    names = f"more than {MOST_COUNTED // 2}" if criteria.dropped else f"{len(criteria)}"
    lines = [f"  criteria{of}: {names}, {counted(judged, 'verdict')}, {missing / (judged + missing):.1%} without one"]
    frequent = [(name, one) for name, one in criteria.most_frequent(MOST_COUNTED) if one.judged >= FEW_VERDICTS]
    for word, found in (
        ("always true", [(name, one) for name, one in frequent if one.true == one.judged]),
        ("never true", [(name, one) for name, one in frequent if not one.true]),
    ):
        if found:
            more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
            lines.append(f"    {word}: {', '.join(_named(*item) for item in found[:MOST_NAMED])}{more}")
    return lines


def _named(name: str, one: CriterionTally) -> str:
    """The name of a criterion that is always or never true; a fault is said to be one."""
    fault = (one.true > 0) != (one.passed > 0)
    return plain(name, 60) + (" (a fault)" if fault else "")
