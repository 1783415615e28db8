"""Settings and faults of a simulated provider. Data only.

All times are in provider seconds; `time_scale` makes them pass faster.
"""

from __future__ import annotations

import difflib
from typing import Literal, get_args

import msgspec
from msgspec import Struct, field

from referee.errors import ConfigError
from referee.sim.billing import Prices, PromptCache
from referee.sim.comparisons import Perception

RetryAfter = Literal["seconds", "float", "ms", "date", "none", "junk", "negative", "far"]
"""Form of Retry-After: whole seconds, a fraction, retry-after-ms, an HTTP date, absent, junk, a negative number, or
thirty years from now."""

Fault = Literal[
    # 429, one per form of Retry-After, and the "you ramp too fast" kind
    "throttle_seconds",
    "throttle_float",
    "throttle_ms",
    "throttle_date",
    "throttle_none",
    "throttle_junk",
    "throttle_negative",
    "throttle_far",
    "slow_down",
    # other statuses
    "http_500",
    "http_502",
    "http_503",
    "http_504",
    "http_529",
    "http_408",
    "quota",
    "auth",
    "forbidden",
    "unknown_model",
    "too_long",
    "policy",
    "redirect",
    # the wire
    "hang",
    "drip",
    "reset",
    "cut",
    "cut_silent",
    "huge",
    "bomb",
    # status 200, but the body is no chat completion
    "html",
    "empty_body",
    "malformed",
    "nan_json",
    "duplicate_keys",
    "no_choices",
    # a chat completion, but no usable verdict in it
    "refusal",
    "content_filter",
    "length",
    "empty_content",
    "tool_call",
    "two_verdicts",
    "no_verdict",
    "out_of_range",
    "nan_score",
    "duplicate_score",
    # labels of a group; where none are asked for, as no_verdict
    "label_missing",
    "label_twice",
    "label_unknown",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class BatchSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider's batch APIs, OpenAI's and Anthropic's. Items are served as single requests are, and billed so."""

    validate_s: float = 0.0
    """Seconds a file is checked for before work begins (OpenAI)."""
    process_s: float = 0.0
    """Seconds from then to the last item."""
    error_share: float = 0.0
    """Share of items that end with an error of the server's, not billed."""
    expire_share: float = 0.0
    """Share of items that are not begun before the batch expires."""
    refuse_text: str = ""
    """OpenAI: a file with a line that holds this is refused, and the line named. Anthropic: the item is."""
    fail_code: str = ""
    """OpenAI: every file is refused for this, without a line."""
    max_running: int | None = None
    """OpenAI: items of all running batches together; beyond that a batch fails with token_limit_exceeded."""
    lost_answers: float = 0.0
    """Share of batches that are created although their creation is answered with 500."""


class ProviderSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider's behaviour. The default replies at once, without limits or faults."""

    api: str = "chat"
    """The API it speaks, as in endpoint.api: one of `referee.sim.apis`."""
    latency_median: float = 0.0
    """Median service time in seconds, below capacity."""
    latency_sigma: float = 0.0
    """Standard deviation of the log of the service time (lognormal). 0: constant; 0.5 is usual for chat models."""
    tail_share: float = 0.0
    """Share of replies that are slow for no visible reason."""
    tail_factor: float = 10.0
    """Factor on their service time."""
    capacity: int | None = None
    """Requests served concurrently. None: no limit."""
    mode: Literal["refuse", "queue", "degrade"] = "refuse"
    """Above capacity: refuse (429, fast), queue (FIFO, like vLLM), degrade (all get slower)."""
    schedule: tuple[tuple[float, int], ...] = ()
    """Changes of capacity: (second since the first request, capacity from then on), in order."""
    refuse_latency: float = 0.02
    """Seconds a refusal or an error status takes."""
    rpm: int | None = None
    """Requests per minute."""
    tpm: int | None = None
    """Tokens per minute, prompt and reply."""
    window: float = 60.0
    """Seconds in which rpm and tpm are counted; a shorter window allows its share of them."""
    rate_headers: bool = True
    """Send x-ratelimit-* headers when rpm or tpm is set."""
    retry_after: RetryAfter = "float"
    """Form of the hint on a refusal. Whole seconds and dates are rounded up: a long wait under a time_scale."""
    retry_after_s: float = 1.0
    """Retry-After in seconds where no rate window determines it."""
    outages: tuple[tuple[float, float], ...] = ()
    """(start, end) in seconds since the first request."""
    outage: Literal["http_503", "http_529", "hang", "reset"] = "http_503"
    """What a request meets in an outage."""
    faults: dict[Fault, float] = field(default_factory=dict)
    """Probability of each fault per request; the sum may not pass 1."""
    drip_interval: float = 1.0
    """Seconds between two bytes of a dripping body."""
    redirect_to: str = "http://127.0.0.1:9/v1/chat/completions"
    """Target of the fault "redirect". By default nothing listens there."""
    huge_bytes: int = 64 * 1024 * 1024
    """Size of a huge body, or of a decompressed gzip bomb."""
    time_scale: float = 1.0
    """All times above are divided by it: 50 plays a minute in 1.2 s."""
    key: str = ""
    """If set, requests without this API key get 401."""
    model: str = ""
    """If set, requests for another model get 404."""
    unsupported: tuple[str, ...] = ()
    """Request fields, by chat's names, answered with 400 unsupported_parameter (response_format, temperature…)."""
    chars_per_token: float = 4.0
    """Characters billed as one token: about 4 of English, 1 at worst of ASCII."""
    reasoning_tokens: int = 0
    """Most tokens of hidden reasoning billed with a reply, whatever max_tokens says; how many is drawn evenly."""
    prompt_cache: PromptCache | None = None
    """Cache of prompts' beginnings. None: it has none."""
    prices: Prices = Prices()
    """What its bill goes by."""
    flex_full: tuple[tuple[float, float], ...] = ()
    """(start, end) in seconds since the first request, in which there is no capacity for the flex tier."""
    context_tokens: int | None = None
    """Prompts longer than this get 400 context_length_exceeded."""
    judge: Literal["honest", "constant"] = "honest"
    """See `referee.sim.judge`. constant: {"reason", "score": 7} to every request, unread: the cheapest server for
    measuring clients. Only latency and capacity apply."""
    compares: Perception = Perception()
    """How it sees the responses of a group: noise, liking for the first place, ties."""
    batch: BatchSpec | None = None
    """Its batch APIs; None: it has none. Only as an HTTP server."""

    def __post_init__(self) -> None:
        for name in self.faults:
            if name not in FAULTS:
                near = difflib.get_close_matches(name, FAULTS, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"the simulated provider has no fault {name!r}{hint}", setting="faults")
        _require(all(0 <= share <= 1 for share in self.faults.values()), "faults", "every probability within [0, 1]")
        _require(sum(self.faults.values()) <= 1 + 1e-9, "faults", "probabilities that sum to at most 1")
        _require(0 <= self.tail_share <= 1, "tail_share", "a share within [0, 1]")
        for setting in ("time_scale", "window", "drip_interval", "chars_per_token"):
            _require(getattr(self, setting) > 0, setting, "a positive number")
        for setting in ("latency_median", "latency_sigma", "refuse_latency", "retry_after_s"):
            _require(getattr(self, setting) >= 0, setting, "a number of at least 0")
        starts = [at for at, _ in self.schedule]
        _require(starts == sorted(starts), "schedule", "times in rising order")
        _require(all(limit >= 0 for _, limit in self.schedule), "schedule", "capacities of at least 0")
        _require(self.capacity is None or self.capacity >= 0, "capacity", "a number of at least 0, or none")
        reads = self.faults or self.outages or self.rpm or self.tpm or self.key or self.model or self.unsupported
        if self.judge == "constant":
            _require(
                not reads and self.context_tokens is None, "judge", "another one than constant: requests are unread"
            )
        for setting in ("outages", "flex_full"):
            spans = getattr(self, setting)
            _require(all(start < end for start, end in spans), setting, "each start before its end")


def _require(holds: bool, setting: str, wanted: str) -> None:
    if not holds:
        raise ConfigError(f"simulated provider: {setting} needs {wanted}", setting=setting)


def read_spec(text: str | bytes) -> ProviderSpec:
    """A spec from JSON; an unknown or mistyped field is a ConfigError that names it."""
    try:
        return msgspec.json.decode(text, type=ProviderSpec)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"simulated provider: the spec cannot be read: {error}") from None
