"""What a reader of the report should see first, in sentences: rules over report data, and nothing else.

Each says how much it rests on, needs enough of it, and is not made by one odd sample. Shares of scores are of the
judge's own verdicts: a gate's are no opinion.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from referee.report.plain import plain
from referee.report.resumed_runs import CANCELLED, unscored_share
from referee.report.shape import Finding, Report, Scale, StepRow

UNSCORED_WARN, UNSCORED_BAD = 0.02, 0.2
EXTREME_WARN, EXTREME_BAD = 0.4, 0.7
ONE_SIDED_WARN, ONE_SIDED_BAD = 0.9, 0.98
"""The same for a judge that only ever says one of two things, so that every verdict is an extreme."""
FLAT_WARN, FLAT_BAD = 0.3, 0.6
LENGTH_WARN, LENGTH_BAD = 0.25, 0.5
"""Rank correlation of score with length."""
PLACE_WARN, PLACE_BAD = 0.1, 0.25
"""How far from one half the share is that the response shown first wins."""
CHANGED_WARN, CHANGED_BAD = 0.3, 0.6
"""Share of the pairs whose answer changed with the order."""
SURE = 3.0
"""Standard errors that a correlation must be away from zero, or a share from one half."""
WAIT_WARN, WAIT_BAD = 0.1, 0.3
FEW_BATCHES = 3
"""Fewer batches than this say nothing about waiting: there was no other work yet to wait beside."""
THROTTLED_WARN = 0.05
FEW = 20
"""Fewer samples than this support no sentence about shares."""


def findings(report: Report) -> list[Finding]:
    """What stands out, the worst first; one good sentence when nothing does."""
    metrics = report.metrics
    if not metrics.get("samples"):
        return [Finding("warn", "This ledger holds no verdict yet.")]
    found = [
        *_unscored(report),
        *(Finding("warn", text) for text in report.changes),
        *_alarms(report),
        *_scores(report),
        *_judges(report),
        *_criteria(report),
        *_comparisons(report),
        *_length(report),
        *_speed(report),
        *_money(report),
    ]
    found.sort(key=lambda finding: finding.level != "bad")
    waits = ", the trainer hardly waits" if report.trainer else ""
    return found or [Finding("good", f"Nothing stands out: scores vary, little is unscored{waits}.")]


def _alarms(report: Report) -> Iterator[Finding]:
    """Those of the audit that are not over."""
    for alarm in report.audit.alarms if report.audit else ():
        if not alarm.over:
            text = plain(alarm.sentence, 400) or f"The audit's signal {plain(alarm.signal, 40)} gave an alarm."
            yield Finding("bad" if alarm.level == "critical" else "warn", text, "audit")


def _unscored(report: Report) -> Iterator[Finding]:
    metrics = report.metrics
    share = unscored_share(metrics)
    if share > UNSCORED_WARN:
        reasons = {name.partition("/")[2]: n for name, n in metrics.items() if name.startswith("unscored/") and n}
        reasons.pop(CANCELLED, None)
        top = max(reasons, key=lambda name: reasons[name])
        failed = metrics["unscored"] - metrics[f"unscored/{CANCELLED}"]
        ended = metrics["scored"] + failed
        level = "bad" if share > UNSCORED_BAD and (ended >= FEW or not metrics["scored"]) else "warn"
        text = f"{_percent(share)} of the samples ({failed:,.0f} of {ended:,.0f}) were not scored, mostly {top}."
        yield Finding(level, text, "unscored")
    if metrics[f"unscored/{CANCELLED}"]:
        given_up = _count(metrics[f"unscored/{CANCELLED}"], "sample was", "samples were")
        yield Finding("warn", f"{given_up} given up by the caller (cancelled).")
    if metrics["reward_filled"]:
        filled = _count(metrics["reward_filled"], "reward was", "rewards were")
        yield Finding("warn", f"{filled} supplied by the missing policy, not by the judge.", "unscored")


def _scores(report: Report) -> Iterator[Finding]:
    if not report.judges:
        yield from _extremes(report.steps, report.scale, "the judge's", "scores")
    groups = sum(row.groups for row in report.steps)
    flat = sum(row.flat_groups for row in report.steps) / groups if groups else 0.0
    if groups >= FEW and flat > FLAT_WARN:
        level = "bad" if flat > FLAT_BAD else "warn"
        text = f"In {_percent(flat)} of the {groups:,} groups all verdicts are equal: they teach nothing."
        yield Finding(level, text, "extremes")


def _judges(report: Report) -> Iterator[Finding]:
    """Of several judges each by itself: one that is optional, or outweighed, does not show in the sums."""
    for place, judge in enumerate(report.judges):
        name, panel = plain(judge.name, 60), f"judge-{place}"
        reasons = Counter[str]()
        for row in judge.steps:
            reasons.update(row.unscored)
        del reasons[CANCELLED]
        scored, failed = sum(row.scored for row in judge.steps), reasons.total()
        ended = scored + failed
        if failed > UNSCORED_WARN * ended:
            level = "bad" if failed > UNSCORED_BAD * ended and (ended >= FEW or not scored) else "warn"
            many = f"{_percent(failed / ended)} of the samples ({failed:,} of {ended:,})"
            yield Finding(level, f"Judge {name} did not score {many}, mostly {reasons.most_common(1)[0][0]}.", panel)
        yield from _extremes(judge.steps, judge.scale, f"judge {name}'s", panel)


def _criteria(report: Report) -> Iterator[Finding]:
    """Criteria that never differ cost a question each and teach nothing."""
    enough = [one for one in report.criteria if one.judged >= FEW]
    for word, stuck in (
        ("never", [one for one in enough if not one.passed]),
        ("always", [one for one in enough if one.passed == one.judged]),
    ):
        if stuck:
            names = ", ".join(plain(one.name, 40) for one in stuck[:3]) + (", …" if len(stuck) > 3 else "")
            text = f"{len(stuck)} of {_count(len(enough), 'criterion', 'criteria')} {word} passed: {names}."
            yield Finding("warn", text, "criteria")


def _comparisons(report: Report) -> Iterator[Finding]:
    """Judges that go by the place of a response, or answer otherwise when the order is turned round."""
    for name in [judge.name for judge in report.judges] or [""]:
        of, judge = (f"judge/{name}/", f"Judge {plain(name, 60)}") if name else ("", "The judge")
        count = report.metrics.get(f"{of}comparisons", 0.0) / 2  # both of a pair count it
        if count < FEW:
            continue
        decided = count * (1.0 - report.metrics[f"{of}tie_share"])
        first = report.metrics[f"{of}first_shown_share"]
        if decided and abs(first - 0.5) > max(PLACE_WARN, SURE / math.sqrt(4 * decided)):
            place, won = ("first", first) if first > 0.5 else ("second", 1.0 - first)
            text = f"{judge} prefers what is shown {place}: it won {_percent(won)} of {decided:,.0f} comparisons."
            yield Finding("bad" if abs(first - 0.5) > PLACE_BAD else "warn", text, "groups")
        changed = report.metrics[f"{of}order_changed_share"]
        if changed > CHANGED_WARN:
            share = _percent(changed)
            text = f"{judge} answered otherwise in the other order in {share} of the pairs: those count as ties."
            yield Finding("bad" if changed > CHANGED_BAD else "warn", text, "groups")


def _extremes(steps: Sequence[StepRow], scale: Scale, whose: str, panel: str) -> Iterator[Finding]:
    judged = sum(row.judged for row in steps)
    high = sum(round((row.high_share or 0.0) * row.judged) for row in steps)
    low = sum(round((row.low_share or 0.0) * row.judged) for row in steps)
    binary = scale.levels in (0, 2) and low + high == judged
    warn, bad = (ONE_SIDED_WARN, ONE_SIDED_BAD) if binary else (EXTREME_WARN, EXTREME_BAD)
    for count, word in ((high, "highest"), (low, "lowest")):
        if judged >= FEW and count > warn * judged:
            text = f"{_percent(count / judged)} of {whose} {judged:,} verdicts are the {word} score there is."
            yield Finding("bad" if count > bad * judged else "warn", text, panel)


def _length(report: Report) -> Iterator[Finding]:
    lengths = report.lengths
    if lengths.within_samples >= FEW:
        strength, samples = lengths.within_correlation, lengths.within_samples
        free, among, where = (
            samples - lengths.within_groups,
            " among siblings",
            f" in {_count(lengths.within_groups, 'group', 'groups')}",
        )
    else:
        strength, samples, free, among, where = lengths.correlation, lengths.samples, lengths.samples - 1, "", ""
    if strength is None or samples < FEW or abs(strength) <= max(LENGTH_WARN, SURE / math.sqrt(free)):
        return
    word = "Longer" if strength > 0 else "Shorter"
    text = f"{word} answers score higher{among}: rank correlation {strength:+.2f} over {samples:,} samples{where}."
    yield Finding("bad" if abs(strength) > LENGTH_BAD else "warn", text, "length")


def _speed(report: Report) -> Iterator[Finding]:
    metrics = report.metrics
    share = metrics["wait_fraction"]
    if report.trainer and share > WAIT_WARN and metrics["batches"] >= FEW_BATCHES:
        level = "bad" if share > WAIT_BAD else "warn"
        text = f"The trainer stood still for {_percent(share)} of the time, in {metrics['batches']:,.0f} batches."
        yield Finding(level, text, "wait")
    requests, throttled = metrics["requests"], metrics["throttled"]
    share = min(1.0, throttled / requests) if requests >= FEW else 0.0
    if share > THROTTLED_WARN:
        text = f"{_percent(share)} of the {requests:,.0f} requests were throttled by the provider."
        yield Finding("warn", text, "limits")


def _money(report: Report) -> Iterator[Finding]:
    if report.runs and report.metrics["calls"] and not report.cost.priced:
        yield Finding("warn", "Cost is unknown: no endpoint has price_in and price_out.", "cost")


def _count(number: float, one: str, many: str) -> str:
    return f"{number:,.0f} {one if number == 1 else many}"


def _percent(share: float) -> str:
    percent = share * 100 + 1e-9  # a half is rounded up, as on the page
    return f"{percent:.0f} %" if share >= 0.0995 else f"{percent:.1f} %"
