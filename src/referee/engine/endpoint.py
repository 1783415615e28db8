"""One endpoint as the engine sees it: where to send, with what key, how much at once, and how it is doing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from referee import wire
from referee.cache import KeyMaker
from referee.config import EndpointConfig, LimitsConfig, Secret
from referee.errors import ConfigError
from referee.limits import Breaker, Bucket, Limit, Stamp, make_limit
from referee.limits.billing_bound import Bound, Excess, bound
from referee.limits.price import Price
from referee.records import Action, Ask, Failure, Reason, Reply, Sampling, Unscored

MIN_CACHED_TOKENS = 1024
"""Providers cache no shorter beginnings of prompts (OpenAI, Anthropic)."""
log = logging.getLogger("referee.engine")


DOUBT = 60.0
"""Seconds for which a server that has done its work is not believed when it says that it never will: an ingress without
its backend answers 404, a gateway whose login service is away 401. Longer than a restart, shorter than a run."""


MOST_IMAGE_TOKENS = 6_000
"""For the worst case of one image. Where a provider bills more, `Excess` learns that."""
FLEX_TIMEOUT = 900.0
"""Least seconds for an attempt at the flex tier, where requests wait for capacity: what OpenAI advises."""


def least_tokens(config: EndpointConfig) -> int | None:
    """From how many tokens on it is worth waiting until a beginning is cached; None: never."""
    if config.prefix_cache:
        return 1 if config.prefix_cache == "warm" else None
    cheaper = config.price_cached is not None and config.price_cached < (config.price_in or 0.0)
    return MIN_CACHED_TOKENS if cheaper else None


class Endpoint:
    """Mutable state of one endpoint. Used from one loop only."""

    def __init__(self, config: EndpointConfig, limits: LimitsConfig, key: Secret | None) -> None:
        self.config = config
        self.label = config.label
        self.dialect = dialect = wire.find_dialect(config.api)
        self.url = dialect.url(config)
        if urlsplit(self.url)[:2] != urlsplit(config.url)[:2]:
            raise ConfigError(
                f"endpoint.api: {config.api!r} would send requests, and the key, to a host that is not endpoint.url's.",
                setting="endpoint.api",
            )
        self.headers = dialect.headers(key)
        password = unquote(urlsplit(config.proxy).password or "")
        self.redactor = wire.Redactor(key.reveal().strip() if key else "", password)
        self.encoder = dialect.encoder(config)
        self.keys = KeyMaker(config, dialect)
        self.limiter: Limit = make_limit(limits)
        self.requests = Bucket(limits.rpm)
        self.tokens = Bucket(limits.tpm)
        self.breaker = Breaker()
        self.excess = Excess()
        """By how much requests were billed above what was foreseen."""
        self.adaptation = wire.PLAIN
        """What this server turned out not to support, learned from its refusals."""
        self.attempt_timeout = max(limits.attempt_timeout, FLEX_TIMEOUT) if config.tier else limits.attempt_timeout
        self.latency = 1.0
        """Seconds an answer usually takes here, a moving mean."""
        self.warm_from = least_tokens(config)
        """From how many tokens on the first of several requests with the same beginning goes ahead; None: never."""
        self.in_flight = 0
        self.sent = 0
        self.throttled = 0
        self.served = float("-inf")
        """When the latest of the requests that got an answer was sent."""
        self._doubted = float("-inf")
        self._standard = wire.PLAIN, wire.PLAIN | {"tier"}
        self._proved: tuple[Sampling, wire.Adaptation] | None = None
        self._price = Price(config)
        self._schema: tuple[Sampling, int] | None = None

    def answered(self, sent: float, latency: float) -> None:
        """A request sent at that time was answered after `latency` seconds."""
        self.latency += (latency - self.latency) * (0.1 if self.served > float("-inf") else 1.0)
        self.served = max(self.served, sent)

    def proved(self, sampling: Sampling, adaptation: wire.Adaptation) -> None:
        """A request that asked for this was served."""
        self._proved = sampling, adaptation

    def believed(self, failure: Failure, sampling: Sampling, now: float) -> Failure:
        """The failure; or, where it would close an endpoint that has served well, an outage for some time.

        A server that has given log-probabilities has them, whatever one of its replicas says: verdicts with and without
        are not on one scale, and must not be mixed in a run.
        """
        if failure.unsupported and self._proved == (sampling, self.adaptation):
            return replace(failure, action=Action.BACK_OFF, unsupported="")
        if failure.action is not Action.CLOSE or failure.reason is Reason.QUOTA or self.served == float("-inf"):
            return failure
        if self.served >= self._doubted:  # the first such answer, or the first since one that was good
            self._doubted = now
            log.warning(
                "%s: %s; it has served before, so it is asked again for %g s", self.label, failure.detail, DOUBT
            )
        return failure if now - self._doubted >= DOUBT else replace(failure, action=Action.BACK_OFF)

    def failed(self, failure: Failure, stamp: Stamp, now: float, chance: float) -> None:
        """What a failed attempt means for the next. Its permit is still out."""
        breaker = self.breaker
        if failure.status:
            breaker.on_answer()
        if failure.action is Action.CLOSE:
            breaker.close(Unscored(reason=failure.reason, detail=failure.detail))
        elif failure.action is Action.PARK:
            self.throttled += 1
            over_limit, stale = self.limiter.caused_refusal(self.in_flight), self.limiter.is_stale(stamp)
            breaker.on_throttled(now, chance, failure.retry_after, self.latency, over_limit, stale)
        elif failure.action is Action.WAIT and self.config.tier_fallback:
            pass  # the standard tier serves
        elif failure.action in (Action.BACK_OFF, Action.WAIT, Action.RETRY):
            connecting = failure.action is Action.BACK_OFF and failure.reason is Reason.CONNECTION
            breaker.on_fault(now, chance, connecting)
            if failure.retry_after is not None:
                breaker.obey(failure.retry_after, now, chance)
            if breaker.unreachable(now):
                detail = f"{failure.detail}; it has never answered. Check endpoint.url and the network"
                breaker.close(Unscored(reason=Reason.CONNECTION, detail=detail))

    def at_standard_tier(self) -> wire.Adaptation:
        """What a request leaves out that is not asked at the endpoint's tier."""
        if self._standard[0] is not self.adaptation:  # the encoder knows equal ones by identity
            self._standard = self.adaptation, self.adaptation | {"tier"}
        return self._standard[1]

    def tokens_of(self, request: Ask) -> int:
        """Tokens a request may use: what providers count before they process it."""
        return request.prompt_tokens + request.sampling.max_tokens

    def foresee(self, request: Ask) -> Bound | None:
        """The most tokens one attempt should be billed for; None where no price makes a cost of it."""
        if not self._price.known:
            return None
        sampling = request.sampling
        if self._schema is None or self._schema[0] is not sampling:
            self._schema = sampling, len(msgspec.json.encode(sampling.schema))
        size = self._schema[1]
        for message in request.messages:
            text = message.content
            size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
            size += MOST_IMAGE_TOKENS * len(message.media)
        return bound(size, sampling.max_tokens)

    def worst_cost(self, foreseen: Bound | None) -> float:
        """The most that may cost in US dollars, by what has been seen here."""
        if foreseen is None:
            return 0.0
        return self._price.most(foreseen.prompt * self.excess.prompt, foreseen.reply * self.excess.reply)

    def cost(self, reply: Reply) -> float:
        """What a reply cost, in US dollars; 0 when the endpoint has no price."""
        return self._price.cost(reply)

    def __repr__(self) -> str:
        return f"Endpoint({self.label}, {self.in_flight} in flight, {self.limiter!r}, {self.breaker!r})"


def closed_reason(endpoints: Sequence[Endpoint]) -> Unscored | None:
    """Why no endpoint of these can answer any more, once all are closed."""
    reasons = [endpoint.breaker.closed for endpoint in endpoints]
    return reasons[0] if all(reasons) else None


def unserved(usable: Sequence[Endpoint], patience: float) -> Unscored:
    """Why a request that only these may serve is given up."""
    if not usable:
        return Unscored(reason=Reason.REFUSED, detail="every judge that can be asked has declined")
    return closed_reason(usable) or Unscored(
        reason=Reason.OVERLOADED, detail=f"no endpoint has answered for {patience:g} s"
    )
