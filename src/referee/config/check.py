"""Validation across settings. Each message names the key, the value and what would be right."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

import msgspec

from referee.config.audit_schema import check_audit
from referee.config.judges import MAX_WEIGHT, check_judges
from referee.config.keys import is_variable
from referee.config.providers import LOCAL, PROVIDERS, provider_of
from referee.config.schema import Config, EndpointConfig, LocalConfig, RedisConfig
from referee.config.teams import check_teams
from referee.errors import Refuse

_NO_LOCAL = LocalConfig()
LOOPBACK = ("localhost", "127.0.0.1", "::1")
RESERVED_FIELDS = {
    "model": "endpoint.model",
    "messages": "judge.prompt_file",
    "max_tokens": "judge.max_tokens",
    "max_completion_tokens": "judge.max_tokens",
    "response_format": "judge.reply",
    "logprobs": "judge.kind",
    "top_logprobs": "judge.kind",
}
"""Request fields and the settings that fill them in: the budget and the reading of replies depend on these."""


def check(config: Config, refuse: Refuse) -> None:
    """Raise what `refuse` makes of the first problem."""
    limits, missing, length = config.limits, config.missing, config.shaping.length
    for name, number, least in (
        ("limits.max_concurrency", limits.max_concurrency, 1),
        ("limits.concurrency", limits.concurrency if limits.concurrency != "auto" else 1, 1),
        ("limits.rpm", limits.rpm if limits.rpm is not None else 1, 1),
        ("limits.tpm", limits.tpm if limits.tpm is not None else 1, 1),
        ("batch.max_open", config.batch.max_open, 1),
        ("cache.memory_items", config.cache.memory_items, 0),
        ("cache.max_gb", config.cache.max_gb, 0.0),
        ("workers", config.workers, 1),
        ("shards", config.shards, 1),
    ):
        if not number >= least:
            raise refuse(name, f"must be at least {least:g}, not {number}.")
    for name, seconds in (
        ("limits.attempt_timeout", limits.attempt_timeout),
        ("limits.give_up_after", limits.give_up_after),
        ("limits.deadline", limits.deadline),
        ("batch.poll", config.batch.poll),
    ):
        if not (seconds > 0 and math.isfinite(seconds)):
            raise refuse(name, f"must be a positive number of seconds, not {seconds}.")
    if not 0 <= length.peak_ratio < length.outer_ratio < math.inf:
        raise refuse(
            "shaping.length.outer_ratio",
            f"outer_ratio ({length.outer_ratio}) must exceed peak_ratio ({length.peak_ratio}), both at least 0.",
        )
    for name, weight in (
        ("shaping.length.penalty_scale", length.penalty_scale),
        ("shaping.length.max_penalty", length.max_penalty),
    ):
        if not 0 <= weight <= MAX_WEIGHT:
            raise refuse(name, f"must be a number from 0 to {MAX_WEIGHT:g}, not {weight}.")
    if not abs(config.shaping.coefficient) <= MAX_WEIGHT:
        raise refuse("shaping.coefficient", f"must be at most {MAX_WEIGHT:g}, not {config.shaping.coefficient}.")
    if missing.policy == "value" and (missing.value is None or not math.isfinite(missing.value)):
        raise refuse("missing.value", f'policy = "value" needs a finite number here, not {missing.value}; no default.')
    if missing.policy != "value" and missing.value is not None:
        raise refuse("missing.value", f'{missing.value} is only read with policy = "value", not "{missing.policy}".')
    if not 0 <= limits.hedge <= 1:
        raise refuse("limits.hedge", f"must be a share from 0 (off) to 1, not {limits.hedge}.")
    if not 0 < missing.abort_above <= 1:
        raise refuse("missing.abort_above", f"must be above 0 and at most 1 (1 = off), not {missing.abort_above}.")
    for number, endpoint in enumerate(config.endpoint):
        _check_endpoint(endpoint, f"endpoint[{number}]", limits.budget_usd is not None, refuse)
    if limits.budget_usd is not None and not 0 < limits.budget_usd < math.inf:
        raise refuse("limits.budget_usd", f"must be above 0 and finite, not {limits.budget_usd}.")
    check_judges(config, refuse)
    check_audit(config.audit, refuse)
    check_teams(config, refuse)
    _check_redis(config.redis, refuse)
    for name, variable in (
        ("redis.password_env", config.redis.password_env),
        ("serve.token_env", config.serve.token_env),
    ):
        _check_variable(name, variable, refuse)
    try:
        config.digest()
    except UnicodeEncodeError as error:
        raise refuse("text", f"half a character (lone surrogate) in {error.object[:40]!r}.") from None


def _check_variable(name: str, variable: str, refuse: Refuse) -> None:
    if variable and not is_variable(variable):
        raise refuse(
            name,
            "must be the name of an environment variable, such as JUDGE_KEY, and not what stands in it. What is "
            "there now is not shown, because it may be the secret itself.",
        )


def _check_endpoint(endpoint: EndpointConfig, name: str, budget: bool, refuse: Refuse) -> None:
    _check_variable(f"{name}.key_env", endpoint.key_env, refuse)
    for field, url in (("url", endpoint.url), ("proxy", endpoint.proxy)):
        if not _is_web(url) and (url or field == "url"):
            shown = url.rpartition("@")[2].partition("?")[0]
            raise refuse(f"{name}.{field}", f"must be an http(s) URL, not {shown!r}.")
        host = urlsplit(url).hostname or ""
        if not host.isascii() or not host.isprintable() or " " in host:
            raise refuse(
                f"{name}.{field}",
                f"the host name must be ASCII without spaces (an international name in its xn-- form), not {host!r}.",
            )
    parts = urlsplit(endpoint.url)
    if "@" in parts.netloc or parts.query:
        raise refuse(f"{name}.url", "must not hold credentials or a query: the key is sent in a header.")
    wants_key = endpoint.key_file or endpoint.api_key or endpoint.key_env not in ("", "OPENAI_API_KEY")
    if wants_key and not key_may_travel(endpoint):
        raise refuse(
            f"{name}.url",
            f'the key would travel unencrypted to {_next_host(endpoint)}. Use https, or key_env = "" if the endpoint '
            "needs no key, or key_over_http = true if the network in between is yours.",
        )
    if not endpoint.model:
        raise refuse(f"{name}.model", "must name the judge model.")
    if (endpoint.price_in is None) != (endpoint.price_out is None):  # of numbers, `load` has filled in price_out
        raise refuse(
            f"{name}.price_in",
            f"price_in ({endpoint.price_in}) and price_out ({endpoint.price_out}) go together: give both or neither.",
        )
    for field in ("price_in", "price_out", "price_cached", "price_cache_write"):
        price: float | None = getattr(endpoint, field)
        if price is not None and not 0 <= price < math.inf:
            raise refuse(f"{name}.{field}", f"must be a finite number of at least 0, not {price}.")
        if price is not None and endpoint.price_in is None:
            raise refuse(f"{name}.{field}", "is only read with price_in and price_out: give those too.")
    if endpoint.local != _NO_LOCAL and endpoint.provider != LOCAL:
        raise refuse(f"{name}.local", 'is set, but only an embedded server reads it: provider = "local".')
    _check_tier(endpoint, name, refuse)
    try:
        msgspec.json.encode(endpoint.extra)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise refuse(f"{name}.extra", f"cannot be sent as JSON ({type(error).__name__}).") from None
    for field, setting in RESERVED_FIELDS.items():
        if field in endpoint.extra:
            raise refuse(f"{name}.extra", f"`{field}` is not for extra: {setting} says it.")
    for field, usual in (("n", 1), ("stream", False)):
        if endpoint.extra.get(field, usual) != usual:
            raise refuse(f"{name}.extra", f"`{field}` must be {msgspec.json.encode(usual).decode()} or left out.")
    if budget and endpoint.price_in is None:
        raise refuse("limits.budget_usd", f"needs {name}.price_in and price_out (US dollars per million tokens).")


def _check_tier(endpoint: EndpointConfig, name: str, refuse: Refuse) -> None:
    if endpoint.tier_fallback and not endpoint.tier:
        raise refuse(f"{name}.tier_fallback", 'is only read with tier = "flex".')
    field = "serviceTier" if "serviceTier" in endpoint.extra else "service_tier"
    written = endpoint.extra.get(field)
    if written == "flex" or (endpoint.tier and written is not None):
        raise refuse(f"{name}.extra", f"`{field}` is not for extra: {name}.tier says it, and prices go by that.")
    provider = provider_of(endpoint)
    if endpoint.tier == "flex" and (provider is None or provider.flex is None):
        having = ", ".join(f'"{known}"' for known, found in PROVIDERS.items() if found.flex is not None)
        which = f'provider = "{endpoint.provider}"' if endpoint.provider else f"{endpoint.host or 'this URL'}"
        raise refuse(
            f"{name}.tier",
            f"{which} is not known to have a flex tier. Leave tier out; or, if it passes requests on to a provider "
            f"that has one, name that in {name}.provider ({having}).",
        )


def _check_redis(redis: RedisConfig, refuse: Refuse) -> None:
    if redis.url and not _is_redis(redis.url):
        shown = redis.url.rpartition("@")[2].partition("?")[0]
        raise refuse(
            "redis.url",
            f"must be redis://host:port/number, rediss://… or unix:///path, without a query, not {shown!r}.",
        )
    if (
        not redis.prefix.isascii()
        or not redis.prefix.isprintable()
        or not redis.prefix
        or set(redis.prefix) & set(" {}")
    ):
        raise refuse("redis.prefix", f"must be plain characters without spaces or braces, not {redis.prefix!r}.")
    if not 0 < redis.timeout <= 60:
        raise refuse("redis.timeout", f"must be above 0 and at most 60 seconds, not {redis.timeout}.")
    if redis.jobs < 1:
        raise refuse("redis.jobs", f"must be at least 1, not {redis.jobs}.")
    if not 0 <= redis.keep_days <= 36500:
        raise refuse("redis.keep_days", f"must be from 0 to 36500 days, not {redis.keep_days}.")


def _next_host(endpoint: EndpointConfig) -> str | None:
    """The host that sees the request unencrypted: the endpoint's or its proxy's."""
    return urlsplit(endpoint.proxy or endpoint.url).hostname


def _is_redis(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.query or parts.fragment:
            return False
        if parts.scheme == "unix":
            return len(parts.path) > 1
        number = parts.path.strip("/")
        return (
            parts.scheme in ("redis", "rediss")
            and bool(parts.hostname)
            and parts.port != 0
            and (not number or (number.isascii() and number.isdigit()))
        )
    except ValueError:
        return False


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def key_may_travel(endpoint: EndpointConfig) -> bool:
    """False if a key would cross a network unencrypted; such an endpoint is called without one."""
    parts = urlsplit(endpoint.url)
    # What goes to a remote proxy leaves this machine, even if the endpoint is local.
    local = parts.hostname in LOOPBACK and (not endpoint.proxy or urlsplit(endpoint.proxy).hostname in LOOPBACK)
    return parts.scheme == "https" or local or endpoint.key_over_http
