"""The values that flow through referee, left to right. Data only: frozen, slotted, picklable, no I/O, no clock.

Sample -> Ask -> Reply | Failure -> Verdict | Unscored -> Settled -> Reward
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from referee.html import reward_html
from referee.samples import Criterion, Media, Message, Query, Sample, Text, Tool, ToolCall

__all__ = [
    "Action",
    "Ask",
    "Criterion",
    "Failure",
    "How",
    "Media",
    "Message",
    "Origin",
    "Part",
    "Query",
    "RateHints",
    "Reason",
    "Reply",
    "Reward",
    "Sample",
    "Sampling",
    "Settled",
    "Term",
    "Text",
    "TokenChoice",
    "Tool",
    "ToolCall",
    "Unscored",
    "Verdict",
]


class Reason(enum.StrEnum):
    """Why there is no score. A closed set: reports, policies and tests can rely on it."""

    THROTTLED = "throttled"  # the provider said: too many requests or tokens
    OVERLOADED = "overloaded"  # the provider said: not now (5xx, 529)
    TIMEOUT = "timeout"  # an attempt took longer than its total timeout
    CONNECTION = "connection"  # no usable HTTP answer: refused, reset, cut short, not JSON
    DEADLINE = "deadline"  # the batch's time was up
    REFUSED = "refused"  # the judge or its filter declined to answer
    TRUNCATED = "truncated"  # the judge's reply (or the rollout, if so configured) was cut at its token limit
    EMPTY = "empty"  # the reply held no text
    NO_VERDICT = "no_verdict"  # text, but no verdict where it must stand
    AMBIGUOUS = "ambiguous"  # more than one verdict, or doubt which one is the judge's
    OUT_OF_RANGE = "out_of_range"  # a number outside the declared scale; nothing is clamped
    SCHEMA = "schema"  # JSON that does not have the declared shape
    TOO_LONG = "too_long"  # the request does not fit the judge's context
    TOO_LARGE = "too_large"  # the reply passed the byte cap
    AUTH = "auth"  # key missing, wrong, or without permission
    QUOTA = "quota"  # the account has no credit left
    CONFIG = "config"  # unknown model or URL, unsupported parameter, TLS failure
    BUDGET = "budget"  # the user's own money limit
    CANCELLED = "cancelled"  # the caller gave up
    ALONE = "alone"  # a judge of groups, and nothing to compare the response with
    UNCERTAIN = "uncertain"  # a verdict, but less certain than the user asks for (judge.abstain_above)


class Action(enum.StrEnum):
    """What the engine does about a failed attempt."""

    PARK = "park"  # throttled: back to the queue, pause the endpoint, shrink the limit
    BACK_OFF = "back_off"  # overloaded or timed out: back to the queue after a while, stop growing
    WAIT = "wait"  # no capacity at this tier, whatever our rate: again after a while; the limit stays
    RETRY = "retry"  # a glitch of one connection or one reply: again soon
    ASK_AGAIN = "ask_again"  # the model's reply is unusable: a small bounded number of new attempts
    GIVE_UP = "give_up"  # this request cannot succeed; others can
    CLOSE = "close"  # no request can succeed here: close the endpoint


class Sampling(Struct, frozen=True, gc=False):
    """How the judge model is asked to generate. Shared by all requests of one judge."""

    max_tokens: int = 512
    temperature: float | None = 0.0
    top_logprobs: int = 0
    schema: dict[str, Any] | None = None
    """JSON schema the reply must follow, or None for text."""
    schema_name: str = "verdict"


def _unread(request: Ask, reply: Reply) -> Verdict | Unscored:
    return Unscored(reason=Reason.CONFIG, detail="this request has no reader")


class Ask(Struct, frozen=True, gc=False):
    """One question to a judge model, and how its reply is read. `facets` is everything that shaped it, nonce left out:
    the cache key is made of them."""

    messages: tuple[Message, ...]
    sampling: Sampling
    facets: tuple[tuple[str, str], ...]
    nonce: str
    prompt_tokens: int
    """Estimate, for token limits and the budget, until the provider reports usage."""
    read: Callable[[Ask, Reply], Verdict | Unscored] = _unread
    """What a strict reading of the reply is. Never raises."""
    again: int = 2
    """New attempts after a reply that cannot be read."""
    pool: str = ""
    """Which endpoints may answer: the name of a judge's set of them. Empty: all."""
    in_text: Callable[[], Ask | Verdict | Unscored] | None = None
    """The same question in text form, for endpoints that do not take or do not keep to a schema. None: there is none,
    or this is it."""
    prefixes: tuple[tuple[str, int], ...] = ()
    """Beginnings that it shares with other questions, the shorter first, each as a name and about how many tokens it
    has: its prompt's, and its response's where several questions are asked about that."""
    queries: tuple[Query, ...] = ()
    """For a decision model: what it is asked about the messages; a system message says the same in words."""
    raw: bool = False
    """For a reward model: its numbers are wanted before any activation."""


class TokenChoice(Struct, frozen=True, gc=False):
    """One generated token and the likeliest alternatives at its place: (text, natural log of probability)."""

    token: str
    top: tuple[tuple[str, float], ...]


class Reply(Struct, frozen=True, kw_only=True, gc=False):
    """A complete, well-formed answer of the judge model. Whether it holds a verdict is judging's question."""

    text: str
    finish: str = ""
    refusal: str = ""
    model: str = ""
    request_id: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    """Of tokens_in, how many the provider took from its own prompt cache."""
    tokens_cache_write: int = 0
    """Of tokens_in, how many the provider put into its prompt cache at a price of their own."""
    tier: str = ""
    """The service tier it is billed at, by the provider's account or, where that is silent, as asked for; empty: the
    standard one."""
    provider: str = ""
    """Which provider answered, where a router says so."""
    fingerprint: str = ""
    """What the server says of its own configuration (OpenAI: system_fingerprint)."""
    choices: tuple[TokenChoice, ...] = ()
    """Per generated token, when log-probabilities were asked for and given."""


class Failure(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt that gave no Reply, and what to do about it. `detail` never holds a key or a whole body."""

    reason: Reason
    action: Action
    detail: str = ""
    status: int = 0
    code: str = ""
    request_id: str = ""
    retry_after: float | None = None
    """Seconds the server asked us to stay away, from any of the header forms; None if it did not say."""
    unsupported: str = ""
    """The request parameter the server does not know (response_format, temperature…), when that is the complaint."""


class RateHints(Struct, frozen=True, gc=False):
    """What the server's rate-limit headers say. None where it says nothing; resets in seconds from now."""

    limit_requests: int | None = None
    remaining_requests: int | None = None
    reset_requests: float | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None
    reset_tokens: float | None = None


How = Literal[
    "schema",
    "tag",
    "logprob",
    "integer",
    "reward_model",
    "gate",
    "check",
    "terms",
    "rubric",
    "listwise",
    "pairwise",
    "jury",
    "cascade",
    "repeat",
]

COMPARED = frozenset(("listwise", "pairwise"))
"""Verdicts whose parts are orders and comparisons, not criteria."""


class Verdict(Struct, frozen=True, kw_only=True, gc=False, tag="verdict"):
    """An accepted judgement."""

    score: float
    """On the judge's own scale."""
    value: float
    """The same in [0, 1]."""
    reason: str = ""
    """The judge's words, or which gate settled it."""
    how: How = "tag"
    """Which path produced it."""
    uncertainty: float | None = None
    """Of a yes or no with log-probabilities, the entropy in nats. Of levels with log-probabilities (`expected`), of
    several answers to one question and of jurors, the standard deviation of the value."""
    parts: tuple[Part, ...] = ()
    """What it is made of, by name: criteria, jurors, comparisons."""


class Part(Struct, frozen=True, kw_only=True, gc=False):
    """One named piece of a verdict."""

    name: str
    verdict: Verdict | Unscored
    weight: float = 1.0
    """0: it does not count."""
    text: str = ""
    """Of a criterion, its sentence; of a comparison or an order, how it was shown."""
    label: str = ""
    """Of a criterion, the judge's word: yes, no, a choice, not applicable. Of a comparison: won, lost, tied. Of a
    cascade's member: whether it has decided."""
    good: bool = True
    """Of a criterion, whether its being true speaks for the response."""

    def row(self, how: str = "") -> dict[str, Any]:
        """What rows of rewards and the ledger say of it. `how`: the verdict's; a comparison has no weight or sign."""
        given = self.verdict
        row: dict[str, Any] = {
            "name": self.name,
            "text": self.text,
            **({} if how in COMPARED else {"weight": self.weight, "true_is": "good" if self.good else "bad"}),
            "verdict": self.label,
            "value": given.value if isinstance(given, Verdict) else None,
            "why": given.reason if isinstance(given, Verdict) else given.detail,
            "unscored": "" if isinstance(given, Verdict) else given.reason.value,
        }
        if isinstance(given, Verdict) and given.uncertainty is not None:
            row["uncertainty"] = given.uncertainty
        if given.parts:
            row["parts"] = [part.row(given.how if isinstance(given, Verdict) else "") for part in given.parts]
        return row


class Unscored(Struct, frozen=True, kw_only=True, gc=False, tag="unscored"):
    """No judgement, and why. It never becomes a number by itself."""

    reason: Reason
    detail: str = ""
    parts: tuple[Part, ...] = ()
    """What there is of it all the same, by name: criteria, jurors, answers, with a verdict or without."""


Origin = Literal["call", "cache", "shared", "gate", "none"]


class Settled(Struct, frozen=True, kw_only=True, gc=False):
    """The end of one sample's judging: the verdict or its absence, and where it came from."""

    verdict: Verdict | Unscored
    origin: Origin = "none"
    """call: paid for now; cache; shared: another sample's identical request in flight; gate; none: never sent."""
    key: str = ""
    reply: Reply | None = None
    """The last one, where several questions were asked."""
    endpoint: str = ""
    model: str = ""
    """Where it was asked, by the endpoint's name, and the model that answered, by its own account; of several questions
    all of them, with commas."""
    attempts: int = 0
    sent: float = 0.0
    """Wall time of the first attempt."""
    queued_s: float = 0.0
    latency_s: float = 0.0
    """Of the last attempt, on the wire."""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_cache_write: int = 0
    """Of all replies that were paid for now, as the provider reports them: of tokens_in, those from its prompt cache
    and those that it put there at a price of their own."""
    cost: float = 0.0
    """US dollars, all attempts; 0 when the endpoint has no price."""
    saved: float = 0.0
    """US dollars that a cached or shared verdict did not cost."""

    def _origin(self) -> dict[str, str]:
        """What the last reply says of its provider and server, where it does."""
        reply = self.reply
        given = (("provider", reply.provider), ("fingerprint", reply.fingerprint)) if reply is not None else ()
        return {name: value for name, value in given if value}

    def row(self) -> dict[str, Any]:
        """What rows of rewards, here and over HTTP, say of it."""
        verdict = self.verdict if isinstance(self.verdict, Verdict) else None
        missing = self.verdict if isinstance(self.verdict, Unscored) else None
        how = verdict.how if verdict else ""
        return {
            "score": verdict.score if verdict else None,
            "value": verdict.value if verdict else None,
            "why": verdict.reason if verdict else "",
            "unscored": missing.reason.value if missing else "",
            "detail": missing.detail if missing else "",
            "origin": self.origin,
            "how": how,
            "uncertainty": verdict.uncertainty if verdict else None,
            "cost": self.cost,
            "model": self.model,
            "endpoint": self.endpoint,
            **self._origin(),
            "key": self.key,
            "parts": [] if how == "terms" else [part.row(how) for part in self.verdict.parts],
        }


class Term(Struct, frozen=True, gc=False):
    """What one judge adds to a reward."""

    judge: str
    """Its name."""
    value: float | None
    """weight * coefficient * its score. None when unscored."""
    weight: float
    settled: Settled


class Reward(Struct, frozen=True, kw_only=True, gc=False):
    """What the trainer gets for one sample, and what it is made of."""

    index: int
    """Position in the submitted batch."""
    id: str
    group: str
    value: float | None
    """The reward. None: no reward, use the framework's own signal for it."""
    settled: Settled
    """How the judging ended; with several judges, what they said as one."""
    terms: tuple[Term, ...] = ()
    """What each judge said and adds, in the order of the configuration."""
    rule: float = 0.0
    judge: float | None = None
    """The sum of the judges' terms, coefficient included. None when one is missing that must not be."""
    penalty: float = 0.0
    """The length penalty, scale included; it was subtracted."""
    length: int = 0
    median_length: float = 0.0
    filled: str = ""
    """Empty, or the missing policy that supplied `value`: group_mean or value."""

    def __repr__(self) -> str:
        """Short: lists of rewards are printed, and a reply may be long."""
        given = self.settled.verdict
        end = f"score={given.score:g}" if isinstance(given, Verdict) else f"unscored={given.reason.value!r}"
        return f"Reward(index={self.index}, id={self.id[:40]!r}, value={self.value!r}, {end})"

    _repr_html_ = reward_html

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data, as in rows of rewards, here and over HTTP."""
        judges = {term.judge: {"weight": term.weight, "judge": term.value, **term.settled.row()} for term in self.terms}
        return {
            "id": self.id,
            "group": self.group,
            "reward": self.value,
            "rule": self.rule,
            "judge": self.judge,
            "penalty": self.penalty,
            "length": self.length,
            "median_length": self.median_length,
            "filled": self.filled,
            **self.settled.row(),
            "judges": judges if len(judges) > 1 else {},
        }

    @property
    def judged(self) -> tuple[Settled, ...]:
        """What each judge said."""
        return tuple([term.settled for term in self.terms])

    @property
    def verdict(self) -> Verdict | Unscored:
        """The judge's verdict, or why there is none; with several judges, what they said as one."""
        return self.settled.verdict

    @property
    def scored(self) -> bool:
        """True if a judge or a gate gave a verdict."""
        return isinstance(self.settled.verdict, Verdict)
