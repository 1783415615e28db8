"""The Referee's numbers in Prometheus' text form. The names are a public surface; `referee docs serve` lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from referee.ledger.histograms import Buckets
from referee.ledger.metrics import Tally
from referee.server.service import Service
from referee.server.team_metrics import OF_TEAM, team_families
from referee.version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTERS = {
    "samples": "samples: samples whose judging has ended",
    "scored": "scored: samples with a verdict, from a judge or a gate",
    "calls": "calls: samples whose end came from a call made for them",
    "cache_hits": "cache_hits: samples whose verdict was in the cache",
    "shared": "shared: samples that joined an identical request in flight",
    "gated": "gated: samples settled by a gate, without a judge",
    "attempts": "attempts: attempts made for samples, retries included",
    "requests": "judge_requests: requests sent to judges",
    "throttled": "throttled: answers that said: too many requests",
    "identity_changes": "identity_changes: times another model, provider or fingerprint answered at an endpoint",
    "hedged": "hedged: second requests sent because the first one was late",
    "tokens_in": "tokens_in: prompt tokens, as the provider reports them",
    "tokens_out": "tokens_out: reply tokens, as the provider reports them",
    "tokens_cached": "tokens_cached: prompt tokens the provider took from its own cache",
    "tokens_cache_write": "tokens_cache_write: prompt tokens the provider put into its own cache, where it says",
    "cost_usd": "cost_usd: US dollars spent",
    "reward_missing": "reward_missing: samples handed back without a reward",
    "reward_filled": "reward_filled: rewards supplied by the missing policy",
    "batches": "batches: batches collected",
    "ledger_lost_lines": "ledger_lost_lines: lines that the ledger could not write",
    "cache_lost_verdicts": "cache_lost_verdicts: verdicts that the cache file did not take",
    "audit/alarms": "audit_alarms: alarms of the audit that have begun",
    "audit/asked": "audit_requests: requests of the audit, beside those for rewards",
    "audit/cost_usd": "audit_cost_usd: US dollars the audit has spent, beside cost_usd",
    "audit/dropped": "audit_dropped: finished batches that the audit had no time to look at",
    "wait_s": "wait_seconds: seconds callers stood still for rewards, added up",
}
"""Metrics that only ever grow: our name, then the exported one without prefix and ending, then what it counts."""

GAUGES = {
    "unscored_share": "unscored_share: unscored samples over all samples",
    "saved_usd": "saved_usd: US dollars that cached and shared verdicts did not cost, where unknown by the mean call",
    "latency_p50_s": "latency_p50_seconds: seconds on the wire of a call, median of the run",
    "latency_p95_s": "latency_p95_seconds: seconds on the wire of a call, 95 % of the run are below",
    "queue_p50_s": "queue_p50_seconds: seconds a request waited before its first attempt, median of the run",
    "queue_p95_s": "queue_p95_seconds: seconds a request waited before its first attempt, 95 % of the run are below",
    "score_mean": "score_mean: mean verdict in [0, 1]",
    "score_std": "score_std: standard deviation of the verdicts",
    "score_low_share": "score_low_share: share of verdicts at exactly 0",
    "score_high_share": "score_high_share: share of verdicts at exactly 1",
    "flat_group_share": "flat_group_share: share of groups whose verdicts are all equal",
    "reward_mean": "reward_mean: mean reward handed out",
    "penalty_mean": "penalty_mean: mean length penalty",
    "elapsed_s": "elapsed_seconds: seconds from the first to the last record",
    "wait_fraction": "wait_fraction: callers' waiting over elapsed time",
    "limit": "limit: calls allowed in flight now, all endpoints",
    "in_flight": "in_flight: calls in flight now",
    "queued": "queued: requests waiting for a place now",
    "audit/open": "audit_open: alarms of the audit that are not over",
    "audit/weight": "audit_weight: the audit's factor on the judges' part of the reward",
    "budget_spent_usd": "budget_spent_usd: US dollars counted against the budget",
}
"""Metrics of this moment: our name, the exported one without prefix, what it says."""

JUDGES = {
    "scored": "judge_scored: samples with a verdict of this judge",
    "unscored": "judge_unscored: samples without one",
    "cost_usd": "judge_cost_usd: US dollars spent for this judge",
    "unscored_share": "judge_unscored_share: samples without a verdict of this judge over all samples",
    "score_mean": "judge_score_mean: mean verdict of this judge in [0, 1]",
    "score_std": "judge_score_std: standard deviation of this judge's verdicts",
}
"""Of several judges, under `judge/<name>/`: a family each, with the judge as its label."""
JUDGE_COUNTERS = ("scored", "unscored", "cost_usd", "comparisons", "comparisons_missing")

COMPARED = {
    "comparisons": "comparisons: comparisons with a sibling or an anchor that have an answer, by each sample",
    "comparisons_missing": "comparisons_missing: comparisons without an answer",
    "tie_share": "tie_share: share of the comparisons that are ties",
    "first_shown_share": "first_shown_share: share of the others that the response shown first won",
    "order_changed_share": "order_changed_share: share of the pairs whose answer changed with the order",
    "order_spread": "order_spread: mean standard deviation of a response's values over the orders of a list",
    "chunked_share": "chunked_share: share of the responses whose group did not fit one request",
}
"""Of judges of groups: a family each, with the judge as its label, empty where it is the only one."""
HISTOGRAMS = {
    "latency_s": "latency_seconds: seconds on the wire of a call",
    "queue_s": "queue_seconds: seconds a request waited before its first attempt",
    "score": "score: verdicts in [0, 1], by judge; its label is empty where there is one",
}
OF_NOW = ("limit", "in_flight", "queued")
"""Gauges that add up where several Referees have work."""
REASONS = "unscored/"
AUDIT = "audit/"
OF_JUDGE = "judge/"
CRITERION, PASS_RATE = "criterion/", "/pass_rate"


class _Page:
    """Families, as a registry takes them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """All of them, once."""
        return self._families


def exposition(service: Service, team: str = "") -> bytes:
    """Everything /metrics shows; to a team its own numbers."""
    found = numbers_of(service)
    registry = CollectorRegistry(auto_describe=False)
    if team:
        registry.register(_Page(team_families(service, found, team)))
    else:
        histograms = histogram_families(service.referees.histograms())
        own = (_alarm_families(service), _service_families(service), team_families(service, found))
        registry.register(_Page(chain(referee_families(found), histograms, *own)))
        ProcessCollector(registry=registry)
    return generate_latest(registry)


def _alarm_families(service: Service) -> Iterator[Metric]:
    if (auditor := service.referee.auditor) is not None:
        text = "1 while the audit's alarm is open, 0 after."
        alarms = GaugeMetricFamily("referee_audit_alarm", text, labels=["signal", "level"])
        for (signal, level), is_open in sorted(auditor.alarms().items()):
            alarms.add_metric([signal, level], float(is_open))
        yield alarms


def _service_families(service: Service) -> Iterator[Metric]:
    info = GaugeMetricFamily("referee_build_info", "The version that runs; always 1.", labels=["version"])
    info.add_metric([VERSION], 1)
    yield info
    for name in ("referee_up", "referee_ready"):
        text = "1 while work is taken and a judge can answer, as /readyz says."
        yield GaugeMetricFamily(name, text, value=float(service.ready))
    text = "1 while no new work is taken because the process is about to end."
    yield GaugeMetricFamily("referee_draining", text, value=float(service.draining))
    yield GaugeMetricFamily("referee_pending_samples", "Samples accepted and not final.", value=service.pending)
    yield GaugeMetricFamily("referee_tickets", "Tickets kept, finished ones included.", value=len(service.tickets))
    answers = CounterMetricFamily("referee_http_answers", "Answers by route and status.", labels=["route", "status"])
    for (route, status), count in sorted(service.answers.items()):
        answers.add_metric([route, str(status)], count)
    yield answers


def numbers_of(service: Service) -> dict[str, float]:
    """The numbers of the Referee in use, with the counts of older ones."""
    referee = service.referee
    names = [judge.name for judge in referee.config.judge]
    nothing_yet = Tally(names if len(names) > 1 else ()).metrics()
    always = [name for name in (*COUNTERS, *GAUGES) if referee.auditor is not None or not name.startswith(AUDIT)]
    found = {**dict.fromkeys(always, 0.0), **nothing_yet, **referee.metrics()}
    living = [older.metrics() for older in service.referees.older]
    for numbers, of_now in ((service.referees.past, ()), *((numbers, OF_NOW) for numbers in living)):
        for name, number in numbers.items():
            if adds_up(name) or name in of_now:
                found[name] = found.get(name, 0.0) + number
    return found


def adds_up(name: str) -> bool:
    """Whether a number only grows, so that those of several Referees add up to the service's."""
    if name.startswith(OF_TEAM):
        return True
    if name.startswith(OF_JUDGE):
        return name.rpartition("/")[2] in JUDGE_COUNTERS
    return name in COUNTERS or name in JUDGE_COUNTERS or name == "saved_usd" or name.startswith(REASONS)


def histogram_families(found: dict[str, Buckets]) -> Iterator[Metric]:
    """Latency, queue and score, so that `rate()` gives them over any window."""
    families: dict[str, Any] = {}
    for name, buckets in found.items():
        judge, _, what = name.rpartition("/")
        labels = {"labels": ["judge"]} if what == "score" else {}
        if what not in families:
            families[what] = _family(HistogramMetricFamily, HISTOGRAMS[what], None, **labels)
        bounds = (*map(str, buckets.bounds), "+Inf")
        pairs = list(zip(bounds, map(float, buckets.counts), strict=True))
        families[what].add_metric([judge.removeprefix(OF_JUDGE)] if labels else [], pairs, buckets.total)
    yield from families.values()


def referee_families(found: dict[str, float]) -> Iterator[Metric]:
    """The Referee's own numbers. A name without a place in the tables is a gauge under its own name."""
    unscored = CounterMetricFamily("referee_unscored", "Samples without a verdict, by reason.", labels=["reason"])
    criteria = GaugeMetricFamily(
        "referee_criterion_pass_rate",
        "Share of the verdicts on this criterion of a rubric that speak for the response.",
        labels=["judge", "criterion"],
    )
    measures = GaugeMetricFamily("referee_audit_measure", "What the audit's signals measure now.", labels=["name"])
    judges: dict[str, Any] = {}
    for name, number in found.items():
        judge, _, what = name.rpartition("/")
        if name.startswith(REASONS):
            unscored.add_metric([name.removeprefix(REASONS)], number)
        elif name.startswith(CRITERION) and name.endswith(PASS_RATE):
            criteria.add_metric(["", name.removeprefix(CRITERION).removesuffix(PASS_RATE)], number)
        elif name.startswith(OF_JUDGE) and f"/{CRITERION}" in name and name.endswith(PASS_RATE):
            of, _, criterion = name.removeprefix(OF_JUDGE).partition(f"/{CRITERION}")
            criteria.add_metric([of, criterion.removesuffix(PASS_RATE)], number)
        elif (judge.startswith(OF_JUDGE) and what in JUDGES) or what in COMPARED:
            if what not in judges:
                kind = CounterMetricFamily if what in JUDGE_COUNTERS else GaugeMetricFamily
                judges[what] = _family(kind, {**JUDGES, **COMPARED}[what], None, labels=["judge"])
            judges[what].add_metric([judge.removeprefix(OF_JUDGE)], number)
        elif name in COUNTERS:
            yield _family(CounterMetricFamily, COUNTERS[name], number)
        elif name in GAUGES:
            yield _family(GaugeMetricFamily, GAUGES[name], number)
        elif name.startswith(AUDIT):
            measures.add_metric([name.removeprefix(AUDIT)], number)
        elif name != "unscored" and not name.startswith(OF_TEAM):  # unscored: Prometheus adds up the reasons itself
            plain = "".join(char if char.isascii() and char.isalnum() else "_" for char in name)
            yield _family(GaugeMetricFamily, f"{plain}: {name}", number)
    yield unscored
    if measures.samples:
        yield measures
    if criteria.samples:
        yield criteria
    yield from judges.values()


def _family(kind: Any, text: str, number: float | None, **labels: list[str]) -> Metric:
    name, _, says = text.partition(": ")
    value = {} if number is None else {"value": number}
    family: Metric = kind(f"referee_{name}", f"{says[0].upper()}{says[1:]}.", **value, **labels)
    return family
