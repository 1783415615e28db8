"""One verdict of each judge from each of its endpoints, for `referee doctor`: which model answers, in which form, how
fast, at what price. Nothing of it is cached or recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct
from msgspec.structs import replace

from referee.config import (
    CacheConfig,
    Config,
    EndpointConfig,
    JudgeConfig,
    LedgerConfig,
    asking_judges,
    change_judges,
    endpoints_of,
)
from referee.errors import RefereeError
from referee.judging import needs_groups
from referee.records import Criterion, Reason, Reward, Sample, Unscored, Verdict
from referee.referee import Referee
from referee.scoring.build import columns_shown

SECONDS = 30.0
"""For one probe."""
AT_ONCE = 8
FORMS = {
    "schema": "JSON schema",
    "tag": "text",
    "logprob": "log-probabilities",
    "integer": "text",
    "reward_model": "a number",
}
ADVICE = {
    Reason.REFUSED: "another model, or other criteria: this one declines to judge",
    Reason.TRUNCATED: "a larger judge.max_tokens, or a model that thinks less",
    Reason.TIMEOUT: "is the server up and fast enough? limits.attempt_timeout, endpoint.url",
    Reason.CONNECTION: "is the server up? endpoint.url, endpoint.proxy",
    Reason.DEADLINE: "is the server up and fast enough? endpoint.url",
    Reason.THROTTLED: "the provider's rate limit; try again later",
    Reason.OVERLOADED: "the provider has no room; try again later",
    Reason.TOO_LONG: "a model with a longer context, or a shorter template",
}
"""What to change, by the reason there is no verdict; where a reason is missing, its detail says it."""
UNREADABLE = "another model, or judge.reply: this one does not answer in the form it is asked for"

Check = tuple[bool | None, str]
"""Whether it is in place (None: no, but the run does without), and in words."""


class Found(Struct, frozen=True):
    """What came of one probe."""

    judge: JudgeConfig
    endpoint: EndpointConfig
    text: str
    works: bool


def probe_of(judge: JudgeConfig, columns: Iterable[str]) -> list[Sample]:
    """What this judge asks about: a sample with a reference, reasoning, a rule score above its bar, and these columns,
    which templates show; for a judge that compares responses, a better one and a worse one."""
    sample = Sample(
        id="probe",
        group="probe",
        prompt="What is the capital of France?",
        response="<think>It is on the Seine, so it is Paris.</think>The capital of France is Paris.",
        reference="Paris",
        columns=dict.fromkeys(columns, "geography"),
        rubric=(Criterion("Names the capital of France."),),
        rule_score=0.0 if judge.ask_above is None else judge.ask_above + 1.0,
    )
    worse = replace(sample, id="worse", response="<think>It is large.</think>The capital of France is Marseille.")
    return [sample, worse] if needs_groups((judge,)) else [sample]


def probes(config: Config) -> Iterator[Check]:
    """A line for every judge and endpoint. One that works nowhere fails, unless the reward is made without it."""
    judges = {judge.name: judge for judge in asking_judges(config.judge)}  # several may use the same one
    pairs = [
        (judge, config.endpoint[number]) for judge in judges.values() for number in endpoints_of(judge, config.endpoint)
    ]
    if len(pairs) == 1:
        found = [_probe(config, *pairs[0])]
    else:
        yield from _unused(config)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(lambda pair: _probe(replace(config, runtime="thread"), *pair), pairs))
    works = {one.judge.name for one in found if one.works}
    for one in found:
        spared = one.judge.name in works or one.judge.optional or (one.judge.weight == 0 and len(config.judge) > 1)
        where = f"{one.endpoint.label}: " if len(pairs) == 1 else f"judge {one.judge.name} at {one.endpoint.label}: "
        yield one.works or (None if spared else False), f"probe: {where}{one.text}"
    if len(pairs) > 1 and config.runtime in ("processes", "ray") and works:
        yield _through(config)


def _unused(config: Config) -> Iterator[Check]:
    asked = {number for judge in asking_judges(config.judge) for number in endpoints_of(judge, config.endpoint)}
    for number, endpoint in enumerate(config.endpoint):
        if number not in asked:
            yield None, f"endpoint {endpoint.label}: no judge names it, so it is never asked (judge.endpoint)"


def _through(config: Config) -> Check:
    """The same through the runtime of the configuration: worker processes or engines on Ray."""
    judge = next((judge for judge in config.judge if needs_groups((judge,))), config.judge[0])
    try:
        reward = _judged(config, probe_of(judge, columns_shown(config)))[0]
    except RefereeError as error:
        return False, f"probe through runtime {config.runtime}: {error}"
    if isinstance(reward.verdict, Unscored):
        return False, f"probe through runtime {config.runtime}: {_missing(reward.verdict)}"
    return True, f"probe through runtime {config.runtime}: {reward.settled.endpoint} answered"


def _probe(config: Config, judge: JudgeConfig, endpoint: EndpointConfig) -> Found:
    """One judge alone, with one endpoint alone."""
    lone = replace(judge, weight=1.0, optional=False)
    try:
        judges = change_judges([lone], lambda one: replace(one, endpoint=""))
        one = replace(config, judge=judges, endpoint=(replace(endpoint, backup=False),), team=())
        rewards = _judged(one, probe_of(judge, columns_shown(one)))
    except RefereeError as error:
        return Found(judge, endpoint, str(error), works=False)
    verdicts = [reward.verdict for reward in rewards]
    for verdict in verdicts:
        if isinstance(verdict, Unscored):
            return Found(judge, endpoint, _missing(verdict), works=False)
    given = [verdict for verdict in verdicts if isinstance(verdict, Verdict)]
    return Found(judge, endpoint, _said(rewards, given, judge, endpoint), works=True)


def _judged(given: Config, samples: Sequence[Sample]) -> list[Reward]:
    """Verdicts that are neither cached nor recorded."""
    config = replace(given, cache=CacheConfig(enabled=False), ledger=LedgerConfig(), team=())
    with Referee(config) as referee:
        rewards = referee.submit(samples, deadline=SECONDS).result(SECONDS + 5)
    if config.runtime == "ray":
        from referee.runtime.ray import shutdown
        from referee.runtime.ray_settings import engine_names

        if engine_names(config) != engine_names(given):  # engines of the probe alone
            shutdown(config)
    return rewards


def _said(rewards: Sequence[Reward], verdicts: Sequence[Verdict], judge: JudgeConfig, endpoint: EndpointConfig) -> str:
    settled, verdict = rewards[0].settled, verdicts[0]
    if settled.origin == "gate":
        return f"not asked ({verdict.reason})"
    form = FORMS.get(verdict.how, verdict.how)
    if verdict.how == "tag" and judge.kind == "yes_no":
        form = "text: it gives no log-probabilities, so yes is 1 and no is 0"
    elif verdict.how == "tag" and judge.reply == "auto":
        form = "text: it does not take a JSON schema, or does not keep to it"
    priced = endpoint.price_in is not None and endpoint.price_out is not None
    values = f"score {verdict.score:g} (value {verdict.value:.2f})"
    if len(verdicts) > 1:
        values = f"value {verdict.value:.2f} for a right answer, {verdicts[1].value:.2f} for a wrong one"
    ends = [reward.settled for reward in rewards]
    return (
        f"{settled.model or endpoint.model} answered in {settled.latency_s:.2f} s, by {form}; {values}, "
        f"{sum(end.tokens_in for end in ends)} tokens in, {sum(end.tokens_out for end in ends)} out, "
        + (f"${sum(end.cost for end in ends):.6f}" if priced else "cost unknown (no price_in, price_out)")
    )


def _missing(verdict: Unscored) -> str:
    unread = verdict.reason in (Reason.NO_VERDICT, Reason.SCHEMA, Reason.AMBIGUOUS, Reason.OUT_OF_RANGE, Reason.EMPTY)
    advice = UNREADABLE if unread else ADVICE.get(verdict.reason, "")
    return f"no verdict ({verdict.reason}: {verdict.detail})" + (f". To change: {advice}" if advice else "")
