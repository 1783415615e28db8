"""A run on a terminal: one frame of numbers with small histories beside them. Untrusted text cannot act on it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from referee.cli.words import counted
from referee.report.plain import plain
from referee.report.progress import Progress
from referee.report.resumed_runs import unscored_share
from referee.report.shape import AuditReport, JudgeReport, StepRow, TimeRow
from referee.report.watch import Snapshot

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 40
"""Columns of a small history."""
SAMPLES = 8
"""Newest samples shown, where the terminal is high enough."""


def spark(values: Sequence[float | None], width: int = HISTORY, low: float | None = 0.0) -> str:
    """Values as bars from `low` (None: from the smallest) to the largest; a gap where there is none.

    More values than columns are shown by the mean of neighbours.
    """
    columns = _columns(values, width)
    known = [value for value in columns if value is not None]
    if not known:
        return ""
    least = min(known) if low is None else min(low, *known)
    span = max(known) - least
    shown = []
    for value in columns:
        if value is None:
            shown.append(" ")
        else:
            part = (value - least) / span if span > 0 else 0.0
            shown.append(BARS[min(len(BARS) - 1, int(part * len(BARS)))])
    return "".join(shown)


def _columns(values: Sequence[float | None], width: int) -> list[float | None]:
    if len(values) <= width:
        return list(values)
    found: list[float | None] = []
    for place in range(width):
        part = values[place * len(values) // width : (place + 1) * len(values) // width]
        known = [value for value in part if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def over_time(times: Sequence[TimeRow], width: float) -> list[TimeRow | None]:
    """Slices one after the other, None where nothing was recorded."""
    if not times:
        return []
    by_place = {round(row.start / width): row for row in times}
    last = max(by_place)
    return [by_place.get(place) for place in range(max(min(by_place), last - 239), last + 1)]


def frame(shot: Snapshot, height: int = 40) -> RenderableType:
    """The whole view."""
    if not shot.files:
        return Text(f"{plain(shot.path)}: no ledger yet; waiting for [ledger] dir to be written")
    parts: list[RenderableType] = [_head(shot), Text(""), _numbers(shot)]
    concerns = [item for item in shot.report.findings if item.level in ("bad", "warn")]
    if concerns:
        parts.append(Text(""))
        parts += [Text(f"{item.level}: {plain(item.text, 300)}") for item in concerns[:5]]
    room = min(SAMPLES, height - 18 - len(concerns[:5]) - len(shot.report.judges) - bool(shot.report.audit))
    if room > 0 and shot.newest:
        parts += [Text(""), _samples(shot, room)]
    return Group(*parts)


def _head(shot: Snapshot) -> Text:
    said = [plain(shot.path), counted(shot.files, "file")]
    if shot.now.step is not None:
        said.append(f"step {shot.now.step}")
    if shot.now.last_s is not None:
        said.append(f"last record {ago(shot.now.last_s)} ago")
    if shot.behind:
        said.append("still reading")
    if shot.skipped or shot.unknown:
        said.append(f"{counted(shot.skipped + shot.unknown, 'line')} not readable")
    return Text("  ".join(said))


def _numbers(shot: Snapshot) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(no_wrap=True)
    for name, text, history in rows(shot):
        table.add_row(Text(name), Text(text), Text(history))
    return table


def rows(shot: Snapshot) -> list[tuple[str, str, str]]:
    """Each line of numbers: its name, its words, its history."""
    m, report, now = shot.report.metrics, shot.report, shot.now
    steps = [row for row in report.steps if row.first is not None]
    slices = over_time(report.times, report.slice_s)
    reasons = [(name.removeprefix("unscored/"), count) for name, count in m.items() if name.startswith("unscored/")]
    waiting = (
        "waiting",
        f"{m['wait_fraction']:.1%} of the run, {m['wait_s']:.1f} s in {counted(m['batches'], 'batch', 'batches')}",
        spark([row.wait_fraction for row in steps]),
    )
    told = ", ".join(f"{plain(name, 30)} {count:.0f}" for name, count in sorted(reasons, key=lambda r: -r[1]) if count)
    return [
        *_progress(now.progress),
        *_audit(report.audit),
        (
            "samples",
            f"{m['samples']:,.0f}: {m['calls']:,.0f} called, {m['cache_hits']:,.0f} cached, {m['shared']:,.0f} shared, "
            f"{m['gated']:,.0f} gated",
            spark([float(row.samples) if row else 0.0 for row in slices]),
        ),
        (
            "scores",
            f"mean {m['score_mean']:.3f}, deviation {m['score_std']:.3f}, lowest {m['score_low_share']:.0%}, highest "
            f"{m['score_high_share']:.0%}, flat groups {m['flat_group_share']:.0%}",
            spark([row.score_mean for row in steps], low=None),
        ),
        ("spread", "scores of the latest step, low to high" if steps else "scores, low to high", _bins(report.steps)),
        *[_judge(judge, m, report.cost.priced) for judge in report.judges],
        *_pairs([judge.name for judge in report.judges] or [""], m),
        (
            "rewards",
            f"mean {m['reward_mean']:.3f}, penalty {m['penalty_mean']:.3f}, {m['reward_missing']:,.0f} missing, "
            f"{m['reward_filled']:,.0f} filled",
            spark([row.reward_mean for row in steps], low=None),
        ),
        (
            "unscored",
            f"{m['unscored']:,.0f} ({unscored_share(m):.1%}) {told}",
            spark([float(sum(row.unscored.values())) if row else 0.0 for row in slices]) if m["unscored"] else "",
        ),
        (
            "speed",
            f"{now.samples_per_s:.1f} samples/s now, {_rate(m):.1f}/s overall",
            spark([float(row.calls) if row else 0.0 for row in slices]),
        ),
        (
            "latency",
            f"p50 {m['latency_p50_s']:.2f} s, p95 {m['latency_p95_s']:.2f} s, queue p95 {m['queue_p95_s']:.2f} s",
            spark([row.latency_p50 if row else None for row in slices]),
        ),
        (
            "limit",
            f"{now.in_flight:.0f} in flight of {now.limit or m['limit']:.0f}, {now.queued:.0f} queued"
            + (f", {m['throttled']:,.0f} of {m['requests']:,.0f} throttled" if m["requests"] else ""),
            spark([_limit(row) for row in slices]),
        ),
        ("cost", _cost(shot), spark([row.cost if row else 0.0 for row in slices]) if report.cost.spent else ""),
        *([waiting] if report.trainer else []),
    ]


def _progress(known: Progress) -> list[tuple[str, str, str]]:
    """What is done of what is known to come; nothing where that is not known."""
    done, total, what = (known.done, known.samples, "samples") if known.samples else (known.begun, known.steps, "steps")
    if not total:
        return []
    share = min(1.0, done / total)
    full = min(HISTORY, int(share * HISTORY))
    return [
        ("done", f"{share:.0%}, {done:,} of {total:,} {what}{left(known)}", BARS[-1] * full + "·" * (HISTORY - full))
    ]


def left(known: Progress) -> str:
    """How long the rest takes, as the end of a sentence; nothing where that is not known."""
    return f", about {ago(known.left_s)} left" if known.left_s else ""


def _audit(audit: AuditReport | None) -> list[tuple[str, str, str]]:
    if audit is None:
        return []
    cost = f", ${audit.cost:.4f}" if audit.cost else ""
    return [("audit", f"{alarms_open(audit) or 'no alarm open'}; {counted(audit.asked, 'question')}{cost}", "")]


def alarms_open(audit: AuditReport) -> str:
    """The signals whose alarms are not over, such as `2 alarms: phrase (critical), length`; empty where none is."""
    found = [alarm for alarm in audit.alarms if not alarm.over]
    names = [plain(one.signal, 20) + (" (critical)" if one.level == "critical" else "") for one in found]
    return f"{counted(len(found), 'alarm')}: {', '.join(names)}" if found else ""


def _judge(judge: JudgeReport, m: dict[str, float], priced: bool) -> tuple[str, str, str]:
    """One of several judges."""

    def of(what: str) -> float:
        return m.get(f"judge/{judge.name}/{what}", 0.0)

    weight = "" if judge.weight is None else f", weight {judge.weight:g}"
    said = f"mean {of('score_mean'):.3f}, deviation {of('score_std'):.3f}{weight}, "
    said += f"{of('unscored_share'):.1%} unscored" + (f", ${of('cost_usd'):.4f}" if priced else "")
    return f"  {plain(judge.name, 20)}", said, spark([row.score_mean for row in judge.steps], low=None)


def _pairs(judges: Sequence[str], m: dict[str, float]) -> list[tuple[str, str, str]]:
    """What judges of pairs came to."""
    found = []
    for name in judges:
        of = f"judge/{name}/" if name else ""
        if f"{of}comparisons" in m:
            said = f"{m[f'{of}comparisons']:,.0f} by each response, {m[f'{of}comparisons_missing']:,.0f} missing, "
            said += f"{m[f'{of}tie_share']:.0%} tied, shown first won {m[f'{of}first_shown_share']:.0%}, "
            said += f"{m[f'{of}order_changed_share']:.0%} changed with the order"
            found.append((f"  {plain(name, 20)}" if name else "pairs", said, ""))
    return found


def line(shot: Snapshot) -> str:
    """The state in one line, for where there is no terminal."""
    m, now = shot.report.metrics, shot.now
    if not shot.files:
        return f"{plain(shot.path)}: no ledger yet"
    step = "" if now.step is None else f"step {now.step}  "
    known = now.progress
    of = f" of {known.samples:,}" if known.samples else ""
    step += f"{known.begun:,} of {known.steps:,} steps  " if step and known.steps else ""
    samples = f"{m['samples']:.0f}{of} samples{left(known)}" if of else counted(m["samples"], "sample")
    waiting = f"  waiting {m['wait_fraction']:.1%}" if shot.report.trainer else ""
    means = [f"{plain(j.name, 20)} {m.get(f'judge/{j.name}/score_mean', 0.0):.3f}" for j in shot.report.judges]
    judges = f" ({', '.join(means)})" if means else ""
    alarms = alarms_open(shot.report.audit) if shot.report.audit else ""
    return (
        f"{step}{samples}  {now.samples_per_s:.1f}/s  {now.in_flight:.0f}/{now.limit:.0f} in flight  "
        f"score {m['score_mean']:.3f}{judges}  {m['unscored']:.0f} unscored  ${m['cost_usd']:.4f}"
        f"{waiting}{f'  {alarms}' if alarms else ''}"
    )


def ago(seconds: float) -> str:
    """Seconds in the unit a person would say."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _bins(steps: Sequence[StepRow]) -> str:
    latest = next((row for row in reversed(steps) if row.scored), None)
    return spark([float(count) for count in latest.bins], width=max(1, len(latest.bins))) if latest else ""


def _limit(row: TimeRow | None) -> float | None:
    return sum(point.limit for point in row.endpoints.values()) if row and row.endpoints else None


def _rate(m: dict[str, float]) -> float:
    return m["samples"] / m["elapsed_s"] if m["elapsed_s"] > 0 else 0.0


def _cost(shot: Snapshot) -> str:
    cost, m = shot.report.cost, shot.report.metrics
    if not cost.priced:
        return f"not known (no price); {m['tokens_in']:,.0f} tokens in, {m['tokens_out']:,.0f} out"
    per_step = "" if cost.per_step is None else f", ${cost.per_step:.4f} a step"
    return f"${cost.spent:.4f} spent, ${m['saved_usd']:.4f} saved{per_step}"


def _samples(shot: Snapshot, room: int) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    for justify, share in (("left", None), ("right", None), ("left", None), ("left", 1)):
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=share, justify=justify)  # type: ignore[arg-type]
    table.add_row(*[Text(name, style="dim") for name in ("sample", "score", "from", "response")])
    for item in shot.newest[:room]:
        score = "none" if item.score is None else f"{item.score:.3g}"
        by = plain(item.unscored, 16) or item.origin
        table.add_row(Text(plain(item.id, 16)), Text(score), Text(by), Text(plain(item.response, 100)))
    return table
