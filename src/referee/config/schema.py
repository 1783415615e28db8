"""Every setting: its name, default and meaning. Data only; rules across settings are in `check`."""

from __future__ import annotations

import hashlib
import os
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from referee.config.audit_schema import AuditConfig
from referee.config.judge_schema import JudgeConfig
from referee.config.keys import without_keys
from referee.config.team_schema import TeamConfig

LONE = "judge"
"""Name of a judge that has none."""


class Secret:
    """An API key that is hidden in repr, str, JSON and pickles. `reveal` is called where a request is sent."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The key itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a Secret does not pickle: send where the key is found (key_env, key_file), not the key")


class LocalConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The embedded server of an endpoint with provider = "local". Only it reads this section."""

    template: str = ""
    """Chat template. Empty: the model's own. "plain": the texts without roles. Else one of llama.cpp's by its name
    (chatml, llama3, …), or the template itself, in Jinja."""
    context: Annotated[int, Meta(ge=256)] = 4096
    """Tokens for one request, reply included. Longer requests are unscored (too_long); more needs more memory."""
    slots: Annotated[int, Meta(ge=1)] = 2
    """Requests worked on at once. Each needs memory for its own context."""
    threads: Annotated[int, Meta(ge=0)] = 0
    """Threads of the CPU. 0: as many as this process may use, but for the model that is shipped at most 4."""


class Filled(Struct, frozen=True, forbid_unknown_fields=True):
    """What referee filled in by itself. Not for users to write."""

    provider: str = ""
    """The provider whose url, api, key_env and extra were filled in where there were none."""
    prices_of: str = ""
    """The model whose prices were filled in."""
    prices_date: str = ""
    """The date of the table they are from."""


class EndpointConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One endpoint of a judge model."""

    provider: str = ""
    """A provider by name (openai, anthropic, gemini, vllm…; `referee prices` lists them): sets url, api, key_env and
    prices where you do not. local: an embedded server for the GGUF file that `model` names. See
    `referee docs providers`. Empty: what the other settings say."""
    url: str = "https://api.openai.com/v1/chat/completions"
    """The chat-completions URL, or its base (…/v1). With another `api`: what that takes."""
    api: str = "chat"
    """The API it speaks, see `referee docs apis`. chat: OpenAI's chat completions, which most servers understand.
    responses: OpenAI's Responses API. anthropic: Messages. gemini: generateContent. classify, score, pooling: reward
    models and cross-encoders on vLLM or SGLang; decision: a decision model, see `referee docs reward_models`. Others
    come from installed packages, see `referee docs extending`."""
    model: str = "gpt-4o-mini"
    """The judge model, by the name the endpoint knows it by."""
    name: str = ""
    """Shown in records. Empty: the host, and the model where several endpoints have the same host."""
    known_as: str = ""
    """Name by which the cache and `--resume` know the server, instead of its host and port: for one whose address
    changes from run to run. Give one name only to servers that answer alike. Empty: its address."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key. Empty: no key is sent."""
    key_file: str = ""
    """File that holds the key, instead of the environment. Relative: to the TOML file that says so."""
    api_key: Secret | None = None
    """Only from Python: the key itself. Refused in a file."""
    price_in: float | None = None
    """US dollars per million tokens of the prompt. Not given: from the shipped table, if it has the provider's model
    (`referee prices`). Without prices the cost is unknown and `budget_usd` is refused."""
    price_out: float | None = None
    """US dollars per million tokens of the reply."""
    price_cached: float | None = None
    """US dollars per million tokens of the prompt that the provider took from its prompt cache. Not given: price_in."""
    price_cache_write: float | None = None
    """US dollars per million tokens of the prompt that the provider put into its cache. Not given: price_in."""
    prefix_cache: Literal["", "off", "route", "warm"] = ""
    """For the provider's prompt cache. route: of several replicas, questions that begin alike go to the same one. warm:
    also, the first of them is answered before the others are sent. off: neither. Not given: warm where price_cached is
    below price_in and the beginning has 1024 tokens or more, otherwise route."""
    tier: Literal["", "flex"] = ""
    """flex: the provider's cheaper, slower service, where it has one. Prices are always those of the standard tier."""
    tier_fallback: bool = False
    """Where the tier has no room, ask at the standard tier and price instead of waiting."""
    key_over_http: bool = False
    """Allow the key to travel over plain http to a host that is not this machine (a judge inside your own network)."""
    backup: bool = False
    """Use only while no other endpoint is usable."""
    proxy: str = ""
    """HTTP proxy: http(s)://host:port or http(s)://user:password@host:port. An https endpoint is reached by CONNECT, so
    the proxy sees neither key nor texts. Environment proxies are not used by themselves."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields for the request body, as they are (reasoning_effort, chat_template_kwargs…). Not those that settings
    of ours fill in, such as max_tokens, and no keys."""
    local: LocalConfig = field(default_factory=LocalConfig)
    filled: Filled = field(default_factory=Filled)

    @property
    def host(self) -> str:
        """Host and port the key is bound to. Empty for an invalid URL, which is refused by `check`."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2].lower()
        except ValueError:
            return ""

    @property
    def label(self) -> str:
        """Name for records."""
        return self.name or self.host

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown: dict[str, Any] = {"url": without_credentials(self.url), "proxy": without_credentials(self.proxy)}
        shown["extra"] = without_keys(self.extra)
        return [(name, shown.get(name, getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        return f"EndpointConfig({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Concurrency, rates, budget and timeouts. The default finds the provider's limit by itself."""

    concurrency: int | Literal["auto"] = "auto"
    """Calls in flight per endpoint: auto adapts, a number is a fixed limit."""
    max_concurrency: int = 512
    """Ceiling for auto."""
    rpm: int | None = None
    """Requests per minute, per endpoint, if you know it: kept in every minute by the server's clock, also by requests
    sent again, and so used up to 97 %. Server headers are obeyed anyway."""
    tpm: int | None = None
    """Tokens per minute, per endpoint."""
    budget_usd: float | None = None
    """Stop sending before more than this is spent. Each call in flight counts at its worst case: a token for every byte
    of its prompt, twice `judge.max_tokens`, and more once a reply was billed for more. Counted per Referee: every start
    of a run, `--resume` too, begins at 0."""
    hedge: float = 0.0
    """Share of requests that may be asked a second time because they are slower than 95 % of the others (0.05: one in
    twenty). The first answer counts, both are paid. 0 turns it off; it shortens the tail where latency is uneven."""
    attempt_timeout: float = 60.0
    """Seconds for one call, to its last byte."""
    give_up_after: float = 60.0
    """Seconds a request may go on failing (errors, timeouts) while its endpoint answers others: then it is unscored
    with its last failure, so that a few such requests do not hold a batch until its deadline. To tell them from an
    outage, one that was answered before is asked again. Outages are waited out, until `deadline`."""
    deadline: float = 300.0
    """Seconds for a batch; what is not judged by then is unscored (deadline). `referee score` has no batches: there it
    is the time for one rollout, from its first attempt on."""


class BatchConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`referee score --batch`: providers' batch APIs, see `referee docs batch`. Only it reads this section."""

    poll: float = 30.0
    """Longest seconds between two looks at a batch."""
    max_open: int = 20_000
    """Questions open at once, in all batches together. Each takes about 30 kB of memory with a prompt of 5 kB."""


class CacheConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Verdicts already paid for."""

    enabled: bool = True
    """Keep verdicts and use them again. False: every request is paid for, also one that was made before."""
    path: str = ".referee/cache.sqlite"
    """SQLite file on a local disk. Empty: memory only. Relative: to the directory the run is started in."""
    max_gb: float = 10.0
    """Size of the file beyond which the oldest verdicts make room for new ones. 0: no bound."""
    memory_items: int = 10_000
    """Verdicts kept in memory in front of the file."""


class RedisConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A Redis or Valkey server that several jobs share, see `referee docs redis`. Needs the extra `redis`."""

    url: str = ""
    """redis://host:6379/0, rediss:// for TLS, unix:///path/to/socket. Empty: nothing is shared."""
    password_env: str = ""
    """Environment variable that holds the password. A user name goes into the url: redis://user@host."""
    ca_file: str = ""
    """PEM file of the authority behind a rediss:// server's certificate. Empty: those this machine trusts. Relative: to
    the TOML file that says so."""
    prefix: str = "referee"
    """Start of every key. Jobs with the same prefix share verdicts and limits."""
    cache: bool = True
    """Share verdicts, and judge what several jobs ask at the same time once."""
    limits: bool = True
    """Share limits.rpm, tpm and a fixed concurrency among all jobs that ask the same model with the same API key."""
    jobs: int = 1
    """How many jobs share, if you know. Without Redis each uses its even part by this number, or by that last seen."""
    keep_days: float = 30.0
    """Days a verdict stays in Redis. 0: for ever."""
    timeout: float = 0.25
    """Seconds an answer may take. Later than that, the job goes on without Redis and tries again every 5 s."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = {"url": without_credentials(self.url)}
        return [(name, shown.get(name, getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        return f"RedisConfig({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class LengthConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Penalty for straying from the group's median length. Values as in `referee docs shaping`."""

    enable: bool = False
    """Apply it. Samples need a group, and all of a group a length or none."""
    penalty_scale: float = 1.0
    """Factor on the penalty when it is taken off the reward."""
    max_penalty: float = 1.0
    """The penalty's plateau, before penalty_scale. `referee docs shaping` says how large it may be."""
    peak_ratio: float = 0.3
    """Half-width of the zone around the median in which there is no penalty, as a share of the median."""
    outer_ratio: float = 0.5
    """Distance from the median at which the plateau starts, as a share of it; must exceed peak_ratio."""


class ShapingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """reward = rule score + coefficient * judge - penalty_scale * penalty."""

    coefficient: float = 1.0
    """Weight of the judge's score."""
    scale: Literal["unit", "native"] = "unit"
    """unit: the judge's score mapped to [0, 1]. native: its own numbers (1 to 10)."""
    length: LengthConfig = field(default_factory=LengthConfig)


class MissingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What the trainer gets for a sample that could not be scored."""

    policy: Literal["abstain", "group_mean", "value", "raise"] = "abstain"
    """abstain: the framework's own "no reward" signal. group_mean: the mean of the scored siblings (abstain if none).
    value: the number below. raise: an error."""
    value: float | None = None
    """For policy = "value"; there is no default, on purpose."""
    abort_above: float = 0.5
    """Stop with an error when more than this share of the last 256 samples that judges were asked about was unscored.
    1 turns it off."""


class LedgerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The record of every verdict."""

    dir: str | None = None
    """Folder for ledger files. Relative: to the directory the run is started in. Not set: none in Python, beside the
    output of `referee score`, and `.referee/runs/…` in trainers' hooks, where an empty text turns it off."""
    content: bool = True
    """Keep prompts and replies, not only their digests."""
    max_mb: Annotated[int, Meta(ge=1)] | None = None
    """Size in MB at which a process stops writing its file, with a warning; rewards go on. Not set: no bound, but 512
    for the folder that trainers' hooks choose themselves."""


class ServeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP service, `referee serve`. Only it reads this section."""

    token_env: str = ""
    """Environment variable that holds the token callers must send. Needed to listen anywhere but on loopback, unless
    there is a [[team]]: then it is the operator's, who may use every judge and sees everything."""
    state: str = ".referee/serve.sqlite"
    """With [[team]] and without [redis] url: SQLite file, on a local disk, that keeps what teams have spent. Relative:
    to the directory the service is started in."""
    max_body: Annotated[int, Meta(ge=1024)] = 33_554_432
    """Bytes of one request's body; a longer one is answered 413."""
    max_queue: Annotated[int, Meta(ge=1)] = 20_000
    """Samples held at once, for all callers together: being judged, or in a ticket not yet collected. Then 429, but not
    for a caller that holds less than an equal share of it."""
    max_tickets: Annotated[int, Meta(ge=1)] = 1024
    """Tickets kept at once. Then 429, with the same exception."""
    ticket_seconds: Annotated[float, Meta(gt=0, le=1e9)] = 600.0
    """Seconds the results of a finished ticket are kept for collection, with [redis] url in Redis too."""
    drain_seconds: Annotated[float, Meta(ge=0, le=1e9)] = 30.0
    """After SIGTERM: seconds that work that was accepted may still take, and its results wait to be collected. What is
    not judged by then is cancelled; tickets in Redis are left to other replicas."""
    answer_after: str = ""
    """For callers that send prompt and answer as one text: what stands before the answer, such as
    "<|im_start|>assistant". It must be there once, else 422: where the answer begins is not guessed. Empty: the whole
    text is judged."""


class OtelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """OpenTelemetry spans, one for each sample asked about; see `referee docs metrics`. Needs the extra `otel`."""

    enabled: bool = False
    """Make spans and give them to the tracer provider your program has set up."""
    content: bool = False
    """Put the judge's prompt, its reply and its reasons into them."""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration; `referee.config.load` makes it from a file or a mapping."""

    judge: tuple[JudgeConfig, ...] = field(default_factory=lambda: (JudgeConfig(name=LONE),))
    endpoint: tuple[EndpointConfig, ...] = field(default_factory=lambda: (EndpointConfig(),))
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    redis: RedisConfig = field(default_factory=RedisConfig)
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
    missing: MissingConfig = field(default_factory=MissingConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    otel: OtelConfig = field(default_factory=OtelConfig)
    serve: ServeConfig = field(default_factory=ServeConfig)
    team: tuple[TeamConfig, ...] = field(default_factory=tuple)
    runtime: Literal["thread", "inline", "processes", "ray"] = "thread"
    """Where judging runs: thread (a background event loop), inline (one call after another, for debugging),
    processes (worker processes, which leave the trainer's interpreter free) or ray (engine actors that all processes
    of a cluster share). See `referee docs scale`."""
    workers: int = 2
    """Worker processes for runtime = "processes". They share one limit, one rate and one budget."""
    shards: int = 1
    """Engine actors for runtime = "ray". They share one limit, one rate and one budget; all clients must agree."""
    ray_address: str = ""
    """Ray cluster for runtime = "ray". Empty: the one this process is on, else this machine's, else a local one."""

    @property
    def known_judges(self) -> tuple[JudgeConfig, ...]:
        """Those that the run asks, and the one that only the audit asks."""
        return (*self.judge, *self.audit.judge)

    def public(self) -> dict[str, Any]:
        """The configuration as plain data, without keys and without credentials inside URLs."""
        data: dict[str, Any] = msgspec.to_builtins(self, enc_hook=lambda _: None)
        for endpoint in data["endpoint"]:
            endpoint.pop("api_key", None)
            endpoint["extra"] = without_keys(endpoint["extra"])
            for name in ("url", "proxy"):
                endpoint[name] = without_credentials(endpoint[name])
        data["redis"]["url"] = without_credentials(data["redis"]["url"])
        return data

    def digest(self) -> str:
        """A short hash of this configuration.

        Files count by name only: machines of one job may keep them in different folders.
        """
        data = self.public()
        judges = [*data["judge"], *data["audit"]["judge"]]
        for judge in judges:
            judges += judge["uses"]
            for name in ("prompt_file", "rubric_file"):
                judge[name] = os.path.basename(judge[name])
        data["audit"]["canaries"] = os.path.basename(data["audit"]["canaries"])
        data["redis"]["ca_file"] = os.path.basename(data["redis"]["ca_file"])
        for endpoint in data["endpoint"]:
            endpoint["key_file"] = os.path.basename(endpoint["key_file"])
            if endpoint["provider"] == "local":
                endpoint["model"] = endpoint["filled"]["prices_of"] = os.path.basename(endpoint["model"])
        return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()[:16]


def without_credentials(url: str) -> str:
    """The URL without user and password. Works on any text, because errors show invalid URLs too."""
    scheme, mark, rest = url.partition("://")
    authority, slash, path = (rest if mark else scheme).partition("/")
    return f"{scheme if mark else ''}{mark}{authority.rpartition('@')[2]}{slash}{path}"
