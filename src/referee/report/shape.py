"""The shape of a report's data: what the page, the live view and the tests agree on. Data only.

Everything is a plain number, a word or a list of them, so that it travels as JSON. Shares and scores are in [0, 1],
times in seconds, money in US dollars. None means: nothing to say, never 0.
"""

from __future__ import annotations

from msgspec import Struct, field


class RunInfo(Struct):
    """One start of a referee: a ledger file, or a part of one."""

    began: float = 0.0
    """Wall time."""
    version: str = ""
    digest: str = ""
    """Short name of its configuration."""
    kind: str = ""
    """What the judge was asked for: score, yes_no, reference…; of several judges, each with its name."""
    models: list[str] = field(default_factory=list)
    priced: bool = False
    """True if an endpoint has a price, so that cost is known."""
    file: bool = False
    """A file of rollouts was judged (`referee score`): no trainer is there to wait."""


class Scale(Struct):
    """How scores are binned: one bin per level of the judge's scale, or twenty bins from 0 to 1."""

    levels: int = 0
    """0: the scores are continuous."""
    low: float = 0.0
    high: float = 1.0
    """The judge's own ends of the scale."""


class StepRow(Struct):
    """One training step, or several neighbours where there are too many to draw. A sample without a step has None."""

    first: int | None = None
    last: int | None = None
    samples: int = 0
    scored: int = 0
    unscored: dict[str, int] = field(default_factory=dict)
    """Samples without a score, by reason."""
    bins: list[int] = field(default_factory=list)
    """Verdicts by score, from low to high, as the report's Scale says."""
    score_mean: float | None = None
    score_std: float | None = None
    judged: int = 0
    """Verdicts that a judge gave, now or before; the others are a gate's."""
    low_share: float | None = None
    high_share: float | None = None
    """Of the judge's verdicts, how many are exactly the lowest and the highest."""
    groups: int = 0
    """Groups with at least two verdicts of the judge."""
    flat_groups: int = 0
    """Of those, where all verdicts are equal."""
    rewards: int = 0
    """Rewards made of a verdict. The four means below are theirs: reward = rule + judge - penalty."""
    reward_mean: float | None = None
    rule_mean: float | None = None
    judge_mean: float | None = None
    terms: dict[str, float] = field(default_factory=dict)
    """Of several judges, the part of `judge_mean` that is each one's."""
    penalty_mean: float | None = None
    filled: int = 0
    """Rewards supplied by the missing policy."""
    cost: float = 0.0
    saved_cache: float = 0.0
    saved_shared: float = 0.0
    tokens: int = 0
    """In and out."""
    waited_s: float = 0.0
    """Seconds the trainer was blocked waiting for rewards."""
    wait_fraction: float | None = None
    """Of the time from this step's first submission to the next step's; None for the last, which has no end yet."""


class EndpointPoint(Struct):
    """One endpoint in one slice of time, all processes together."""

    limit: float = 0.0
    in_flight: float = 0.0
    """Means over the slice."""
    requests: int = 0
    throttled: int = 0


class TimeRow(Struct):
    """What happened in one slice of time. Slices without any record are left out."""

    start: float = 0.0
    """Wall time."""
    samples: int = 0
    scored: int = 0
    unscored: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    free: int = 0
    """Verdicts that needed no call: cache, shared, gate."""
    latency_p50: float | None = None
    latency_p95: float | None = None
    latency_p99: float | None = None
    queue_p50: float | None = None
    cost: float = 0.0
    queued: int = 0
    """The most requests that waited for a place."""
    endpoints: dict[str, EndpointPoint] = field(default_factory=dict)


class JudgeReport(Struct):
    """One of several judges. Its totals are in the report's metrics, under judge/<name>/."""

    name: str
    kind: str = ""
    weight: float | None = None
    """None: not known, as in a file of rewards."""
    scale: Scale = field(default_factory=Scale)
    models: list[str] = field(default_factory=list)
    """Those that answered."""
    steps: list[StepRow] = field(default_factory=list)
    """Of what it said and cost; rewards are not a judge's."""


class CriterionStep(Struct):
    """One criterion in a step, or in several neighbours."""

    first: int | None
    last: int | None
    judged: int
    pass_rate: float


class CriterionReport(Struct):
    """One criterion of a rubric, over all samples. It has passed if it is true and good, or untrue and bad."""

    name: str
    judge: str = ""
    """Of several judges, the one whose rubric it is in."""
    text: str | None = ""
    """Its sentence, where the ledger holds it. None: samples have different ones under this name."""
    weight: float | None = None
    """None: it differs from sample to sample."""
    true_is: str = ""
    """good or bad; empty: it differs."""
    judged: int = 0
    """Verdicts."""
    passed: int = 0
    unscored_share: float | None = None
    """Of the times it was asked for in a sample with a verdict."""
    constant: bool = False
    """All verdicts have the same value."""
    groups: int = 0
    """Groups with at least two verdicts on it."""
    flat_groups: int = 0
    """Of those, where all are equal: there it teaches nothing."""
    length_correlation: float | None = None
    """Spearman's rank correlation of passing with the length of the response."""
    steps: list[CriterionStep] = field(default_factory=list)
    """Of the criteria that are drawn."""


class Agreement(Struct):
    """Two judges on the same samples, as far as neither was spared by a gate."""

    a: str
    b: str
    samples: int = 0
    correlation: float | None = None
    """Spearman's, over all samples."""
    within_correlation: float | None = None
    """Kendall's tau-b among siblings: whether both would teach the policy the same."""
    within_groups: int = 0


class MemberReport(Struct):
    """One member of a jury or of a cascade. A gate's verdicts are left out."""

    name: str
    asked: int = 0
    """Samples that it was asked about."""
    scored: int = 0
    mean: float | None = None
    """Of its verdicts, in [0, 1]."""
    decided: int = 0
    """Of a cascade: samples whose verdict is this member's."""
    cost: float = 0.0
    """US dollars for the samples that it decided, earlier members included."""


class CompositeReport(Struct):
    """A judge that is made of others."""

    judge: str
    """Its name; empty where it is the only one."""
    kind: str
    """jury or cascade."""
    samples: int = 0
    members: list[MemberReport] = field(default_factory=list)
    agreement: list[Agreement] = field(default_factory=list)
    """Of a jury: members two by two, the first ones."""


class Point(Struct, array_like=True):
    """One sample in the scatter of score against length."""

    length: float
    value: float
    step: int | None
    row: int
    """Its verdict line's number in the report, from 0."""


class Lengths(Struct):
    """Does length buy score? Samples that the judge scored; what a gate settled says nothing about it."""

    samples: int = 0
    points: list[Point] = field(default_factory=list)
    """A sample of them, the same for the same ledger."""
    slope: float | None = None
    """Score per 100 tokens over all samples, by least squares."""
    intercept: float | None = None
    correlation: float | None = None
    """Spearman's rank correlation of the points: one outlier hardly moves it."""
    within_slope: float | None = None
    """The same among siblings, each compared with its group's mean: what the policy is taught."""
    within_correlation: float | None = None
    """Kendall's tau-b over all pairs of siblings."""
    within_samples: int = 0
    within_groups: int = 0
    """What these two rest on."""


class Cost(Struct):
    """What judging cost and what it will."""

    priced: bool = False
    spent: float = 0.0
    saved_cache: float = 0.0
    saved_shared: float = 0.0
    per_step: float | None = None
    """Mean over steps, the first left out where there are more than two: its cache was empty."""
    per_1000_samples: float | None = None
    per_1000_steps: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    """Of tokens_in, those that providers took from their prompt caches."""


class AlarmSample(Struct):
    """A sample that an alarm rests on."""

    link: str
    """Its name in a link; its id where the report does not know it."""
    id: str = ""
    value: float | None = None
    text: str = ""


class AlarmReport(Struct):
    """An alarm of the audit, from its begin to its end."""

    signal: str
    level: str
    """warning or critical."""
    step: int | None = None
    critical_step: int | None = None
    """Where it began as a warning: when it became critical."""
    over: bool = False
    over_step: int | None = None
    sentence: str = ""
    evidence: dict[str, float | str] = field(default_factory=dict)
    samples: list[AlarmSample] = field(default_factory=list)
    advice: str = ""
    action: str = ""
    """What was done beside the log: stop or weight."""
    weight: float = 1.0


class AuditStep(Struct):
    """What the audit measured in a step, or in several neighbours: a curve has a point once enough was asked."""

    step: float
    curves: dict[str, float] = field(default_factory=dict)
    """wrong, right: mean value given to canaries that deserve none, and to good ones. gap: of the judge above the
    shadow judge; agreement: share of answers less than 0.3 apart; exploited: share with a high score (0.75) that the
    shadow is 0.3 or more below; these three are of all answers, by the chance of being drawn. probe, fixed: mean rise
    of a rewritten answer's value, and of the fixed set's. The rest are signals' own numbers, as in metrics()."""


class AuditReport(Struct):
    """Is the reward being gamed? What the audit found."""

    asked: int = 0
    cost: float = 0.0
    alarms: list[AlarmReport] = field(default_factory=list)
    more_alarms: int = 0
    """Later ones that are not listed."""
    steps: list[AuditStep] = field(default_factory=list)


class Finding(Struct):
    """One sentence about the run that a reader should not have to look for."""

    level: str
    """bad, warn or good."""
    text: str
    panel: str = ""
    """Which panel shows it."""


class Report(Struct):
    """Everything the panels show."""

    metrics: dict[str, float] = field(default_factory=dict)
    """The whole run under the names of `referee docs metrics`."""
    runs: list[RunInfo] = field(default_factory=list)
    scale: Scale = field(default_factory=Scale)
    steps: list[StepRow] = field(default_factory=list)
    times: list[TimeRow] = field(default_factory=list)
    slice_s: float = 1.0
    """Width of the slices in `times`."""
    lengths: Lengths = field(default_factory=Lengths)
    cost: Cost = field(default_factory=Cost)
    again: int = 0
    """Lines about samples that an earlier start had ended. Such a sample counts once, as it ended last."""
    trainer: bool = True
    """False: only files were judged, so waiting says nothing."""
    judges: list[JudgeReport] = field(default_factory=list)
    """Each of several judges; empty where there is one."""
    agreement: list[Agreement] = field(default_factory=list)
    made_of: list[CompositeReport] = field(default_factory=list)
    """Juries and cascades."""
    latencies: list[tuple[float, int]] = field(default_factory=list)
    """Answers by how long they took: seconds in the middle of a range 9 % wide, and how many. Without gaps."""
    criteria: list[CriterionReport] = field(default_factory=list)
    """Of rubrics, the most frequent criteria first."""
    more_criteria: int = 0
    """Others that were counted."""
    audit: AuditReport | None = None
    """None: no audit ran."""
    changes: list[str] = field(default_factory=list)
    """Of what answers at an endpoint, in sentences."""
    findings: list[Finding] = field(default_factory=list)
