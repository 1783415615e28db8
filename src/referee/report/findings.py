"""What a reader of the report should see first, in sentences: rules over report data, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from referee.report.again import CANCELLED, unscored_share
from referee.report.shape import Finding, Report

UNSCORED_WARN, UNSCORED_BAD = 0.02, 0.2
EXTREME_WARN, EXTREME_BAD = 0.4, 0.7
FLAT_WARN, FLAT_BAD = 0.3, 0.6
LENGTH_WARN, LENGTH_BAD = 0.25, 0.5
"""Correlation of score with length."""
WAIT_WARN, WAIT_BAD = 0.1, 0.3
THROTTLED_WARN = 0.05
FEW = 20
"""Fewer samples than this support no sentence about shares."""


def findings(report: Report) -> list[Finding]:
    """What stands out, the worst first; one good sentence when nothing does."""
    metrics = report.metrics
    if not metrics.get("samples"):
        return [Finding("warn", "This ledger holds no verdict yet.")]
    found = [*_unscored(report), *_scores(report), *_length(report), *_speed(report), *_money(report)]
    found.sort(key=lambda finding: finding.level != "bad")
    waits = ", the trainer hardly waits" if report.trainer else ""
    return found or [Finding("good", f"Nothing stands out: scores vary, little is unscored{waits}.")]


def _unscored(report: Report) -> Iterator[Finding]:
    metrics = report.metrics
    share = unscored_share(metrics)
    if share > UNSCORED_WARN:
        reasons = {name.partition("/")[2]: n for name, n in metrics.items() if name.startswith("unscored/") and n}
        reasons.pop(CANCELLED, None)
        top = max(reasons, key=lambda name: reasons[name])
        level = "bad" if share > UNSCORED_BAD else "warn"
        yield Finding(level, f"{_percent(share)} of the samples were not scored, mostly {top}.", "unscored")
    if metrics[f"unscored/{CANCELLED}"]:
        count = metrics[f"unscored/{CANCELLED}"]
        yield Finding("warn", f"{count:,.0f} samples were given up by the caller (cancelled).")
    if metrics["reward_filled"]:
        yield Finding(
            "warn",
            f"{metrics['reward_filled']:.0f} rewards were supplied by the missing policy, not by the judge.",
            "unscored",
        )


def _scores(report: Report) -> Iterator[Finding]:
    metrics = report.metrics
    if metrics["scored"] >= FEW:
        for name, word in (("score_high_share", "highest"), ("score_low_share", "lowest")):
            share = metrics[name]
            if share > EXTREME_WARN:
                level = "bad" if share > EXTREME_BAD else "warn"
                yield Finding(level, f"{_percent(share)} of the verdicts are the {word} score there is.", "scores")
    groups = sum(row.groups for row in report.steps)
    flat = sum(row.flat_groups for row in report.steps) / groups if groups else 0.0
    if groups >= FEW and flat > FLAT_WARN:
        level = "bad" if flat > FLAT_BAD else "warn"
        yield Finding(
            level, f"In {_percent(flat)} of the groups all verdicts are equal: they teach nothing.", "extremes"
        )


def _length(report: Report) -> Iterator[Finding]:
    lengths = report.lengths
    among = lengths.within_correlation is not None
    strength = lengths.within_correlation if among else lengths.correlation
    rise = lengths.within_slope if among else lengths.slope
    if lengths.samples >= FEW and strength is not None and rise is not None and abs(strength) > LENGTH_WARN:
        level = "bad" if abs(strength) > LENGTH_BAD else "warn"
        word = "Longer" if rise > 0 else "Shorter"
        where = " among siblings" if among else ""
        points = rise * (report.scale.high - report.scale.low)
        text = f"{word} answers score higher{where}: {points:+.2f} points per 100 tokens (correlation {strength:+.2f})."
        yield Finding(level, text, "length")


def _speed(report: Report) -> Iterator[Finding]:
    metrics = report.metrics
    share = metrics["wait_fraction"]
    if report.trainer and share > WAIT_WARN:
        level = "bad" if share > WAIT_BAD else "warn"
        yield Finding(level, f"The trainer stood still for {_percent(share)} of the time.", "wait")
    requests, throttled = metrics["requests"], metrics["throttled"]
    share = min(1.0, throttled / requests) if requests >= FEW else 0.0
    if share > THROTTLED_WARN:
        yield Finding("warn", f"{_percent(share)} of the requests were throttled by the provider.", "limits")


def _money(report: Report) -> Iterator[Finding]:
    if report.metrics["calls"] and not report.cost.priced:
        yield Finding("warn", "Cost is unknown: no endpoint has price_in and price_out.", "cost")


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.0995 else f"{share * 100:.1f} %"
