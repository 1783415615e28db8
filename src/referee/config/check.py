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
MAX_SECONDS = 1e9
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

UNITS = {
    "limits.budget_usd": " US dollars",
    "limits.attempt_timeout": " seconds",
    "limits.give_up_after": " seconds",
    "limits.deadline": " seconds",
    "limits.hedge": " (0 = off)",
    "batch.poll": " seconds",
    "redis.timeout": " seconds",
    "redis.keep_days": " days (0 = for ever)",
    "missing.abort_above": " (1 = off)",
}
"""What a message about such a number adds to its range."""


def check(config: Config, refuse: Refuse) -> None:
    """Raise what `refuse` makes of the first problem."""
    limits, missing, shaping, redis = config.limits, config.missing, config.shaping, config.redis
    length = shaping.length
    for name, number, least, most in (
        ("limits.max_concurrency", limits.max_concurrency, 1, math.inf),
        ("limits.concurrency", None if limits.concurrency == "auto" else limits.concurrency, 1, math.inf),
        ("limits.rpm", limits.rpm, 1, math.inf),
        ("limits.tpm", limits.tpm, 1, math.inf),
        ("limits.hedge", limits.hedge, 0, 1),
        ("batch.max_open", config.batch.max_open, 1, math.inf),
        ("cache.memory_items", config.cache.memory_items, 0, math.inf),
        ("cache.max_gb", config.cache.max_gb, 0, math.inf),
        ("redis.jobs", redis.jobs, 1, math.inf),
        ("redis.keep_days", redis.keep_days, 0, 36500),
        ("shaping.coefficient", shaping.coefficient, -MAX_WEIGHT, MAX_WEIGHT),
        ("shaping.length.penalty_scale", length.penalty_scale, 0, MAX_WEIGHT),
        ("shaping.length.max_penalty", length.max_penalty, 0, MAX_WEIGHT),
        ("workers", config.workers, 1, math.inf),
        ("shards", config.shards, 1, math.inf),
    ):
        if number is not None and not least <= number <= most:
            words = f"at least {least:g}" if most == math.inf else f"a number from {least:g} to {most:g}"
            raise refuse(name, f"must be {words}{UNITS.get(name, '')}, not {number}.")
    for name, number, most in (
        ("limits.budget_usd", limits.budget_usd, MAX_WEIGHT),
        ("limits.attempt_timeout", limits.attempt_timeout, MAX_SECONDS),
        ("limits.give_up_after", limits.give_up_after, MAX_SECONDS),
        ("limits.deadline", limits.deadline, MAX_SECONDS),
        ("batch.poll", config.batch.poll, MAX_SECONDS),
        ("redis.timeout", redis.timeout, 60),
        ("missing.abort_above", missing.abort_above, 1),
    ):
        if number is not None and not 0 < number <= most:
            raise refuse(name, f"must be above 0 and at most {most:g}{UNITS.get(name, '')}, not {number}.")
    if not 0 <= length.peak_ratio < length.outer_ratio < math.inf:
        raise refuse(
            "shaping.length.outer_ratio",
            f"outer_ratio ({length.outer_ratio}) must exceed peak_ratio ({length.peak_ratio}), both at least 0.",
        )
    if missing.policy == "value" and (missing.value is None or not math.isfinite(missing.value)):
        raise refuse("missing.value", f'policy = "value" needs a finite number here, not {missing.value}; no default.')
    if missing.policy != "value" and missing.value is not None:
        raise refuse("missing.value", f'{missing.value} is only read with policy = "value", not "{missing.policy}".')
    for number, endpoint in enumerate(config.endpoint):
        _check_endpoint(endpoint, f"endpoint[{number}]", limits.budget_usd is not None, refuse)
    check_judges(config, refuse)
    check_audit(config.audit, refuse)
    check_teams(config, refuse)
    _check_redis(redis, refuse)
    for name, variable in (
        ("redis.password_env", redis.password_env),
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
