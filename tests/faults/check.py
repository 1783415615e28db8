"""What must hold in every play, whatever the faults: conservation, deadlines, no invention, money, pace, replay."""

from __future__ import annotations

import functools
from bisect import bisect_left

from tests.faults.scenario import PRICE_IN, PRICE_OUT
from tests.faults.world import Heard, Play

from referee.config import EndpointConfig, JudgeConfig
from referee.judging import make_judge
from referee.records import Ask, Reply, Sample, Verdict
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual
from referee.wire import CHAT

EPSILON = 1e-6
ANSWERED_FAULTS = frozenset(
    {
        *("html", "empty_body", "malformed", "nan_json", "duplicate_keys", "no_choices", "refusal", "content_filter"),
        *("length", "empty_content", "tool_call", "two_verdicts", "no_verdict", "out_of_range", "nan_score"),
        *("duplicate_score", "label_missing", "label_twice", "label_unknown"),
    }
)
"""Faults of an answer that came whole, with status 200."""
HARMLESS = frozenset({"nan_json"})
"""The verdict inside is whole, so taking it is right."""


def broken(play: Play) -> list[str]:
    """Every invariant that does not hold, in words; empty if all do."""
    found = [problem for heard in play.heard for problem in _conserved(play, heard)]
    found += [problem for heard in play.heard for problem in _invented(play, heard)]
    found += _money(play) + _pace(play) + _paid_once(play)
    found += [f"left over: {what}" for what in play.left_over]
    return found


def _conserved(play: Play, heard: Heard) -> list[str]:
    """Each sample ends exactly once, by the deadline, and the batch is complete exactly once."""
    closed = play.scenario.closed_at
    if heard.ended is None and closed is not None and closed <= heard.act.at:
        return []  # closed before it was submitted
    problems = []
    missing = [n for n in range(len(heard.act.samples)) if n not in heard.rewards]
    if missing:
        problems.append(f"samples without an end: {missing[:5]}")
    if heard.twice:
        problems.append(f"samples that ended twice: {heard.twice[:5]}")
    if heard.done != 1:
        problems.append(f"the batch was complete {heard.done} times")
    limit = play.config.limits.deadline
    if heard.ended is not None and heard.ended > heard.began + limit + EPSILON:
        problems.append(f"ended {heard.ended - heard.began - limit:.3f} s after its deadline")
    for index, reward in heard.rewards.items():
        if reward.index != index or (reward.value is None) != (not reward.scored and not reward.filled):
            problems.append(f"sample {index}: value {reward.value} does not go with {reward.verdict}")
    return problems


def _invented(play: Play, heard: Heard) -> list[str]:
    """Every score is the one an honest judge gives this sample when nothing goes wrong."""
    problems = []
    for index, reward in heard.rewards.items():
        verdict = reward.verdict
        if not isinstance(verdict, Verdict) or reward.settled.origin == "gate":
            continue
        sample = heard.act.samples[index]
        kind = play.config.judge[0].kind
        if not any(_same(verdict, honest) for honest in _honest(kind, sample.response, sample.reference)):
            problems.append(f"sample {index} ({sample.response!r}) was given {verdict.score} ({verdict.how})")
    return problems


def _same(one: Verdict, other: Verdict) -> bool:
    return abs(one.score - other.score) < EPSILON and abs(one.value - other.value) < EPSILON


@functools.lru_cache(maxsize=4096)
def _honest(kind: str, response: str, reference: str | None) -> tuple[Verdict, ...]:
    """The verdicts of a provider without faults, asked in either form."""
    judge = make_judge(JudgeConfig(kind=kind, max_tokens=64), b"secret")  # type: ignore[arg-type]
    sample = Sample(prompt="How many are there?", response=response, reference=reference)

    async def ask(request: Ask) -> Verdict:
        transport = SimTransport(Provider(ProviderSpec()))
        answer = await transport.post("http://judge.test/v1", {}, CHAT.encoder(EndpointConfig()).encode(request), 30.0)
        reply = CHAT.read(answer.status, answer.headers, answer.body, 0.0)
        assert isinstance(reply, Reply)
        verdict = judge.read(request, reply)
        assert isinstance(verdict, Verdict), verdict
        return verdict

    plans = [judge.plan(sample, "schema"), judge.plan(sample, "text")]
    return tuple(run_virtual(ask(plan)) for plan in plans if isinstance(plan, Ask))


def _money(play: Play) -> list[str]:
    """Never more is spent than the budget, by our count and by the providers'."""
    budget = play.config.limits.budget_usd
    if budget is None:
        return []
    billed = sum(s.tokens_in * PRICE_IN + s.tokens_out * PRICE_OUT for s in play.stats.values()) / 1e6
    ours = play.metrics["budget_spent_usd"]
    return [
        f"{what} {usd:.6f} of a budget of {budget}"
        for what, usd in (("billed", billed), ("counted", ours))
        if usd > budget + EPSILON
    ]


def _pace(play: Play) -> list[str]:
    """No minute holds more requests than allowed, and never more are open at once."""
    limits, problems = play.config.limits, []
    for host in play.scenario.specs:
        times = [at for at, where in play.sends if where == host]
        if limits.rpm is not None:
            most = max((n + 1 - bisect_left(times, at - 60 + EPSILON) for n, at in enumerate(times)), default=0)
            if most > limits.rpm:
                problems.append(f"{most} requests to {host} in one minute, allowed {limits.rpm}")
        if isinstance(limits.concurrency, int) and play.most_open[host] > limits.concurrency:
            problems.append(f"{play.most_open[host]} open at {host}, allowed {limits.concurrency}")
    return problems


def _paid_once(play: Play) -> list[str]:
    """A good answer is never asked for twice: the same key, in either form, is answered well once at most."""
    if not play.config.cache.enabled or play.scenario.closed_at is not None:
        return []
    clean = 0
    for stats in play.stats.values():
        spoiled = sum(n for fault, n in stats.by_fault.items() if fault in ANSWERED_FAULTS - HARMLESS)
        clean += stats.answered - spoiled
    cancelled = any(act.cancelled_at is not None for act in play.scenario.acts)
    distinct = len({(s.prompt, s.response) for act in play.scenario.acts for s in act.samples if s.response})
    forms = 2 if play.config.judge[0].reply == "auto" else 1
    # A caller who left, a time-out or a full batch may leave an answer that nobody reads any more.
    slack = sum(s.abandoned for s in play.stats.values()) + (len(play.sends) if cancelled else 0)
    if clean > distinct * forms + slack:
        return [f"{clean} good answers for {distinct} distinct samples in {forms} forms"]
    return []
