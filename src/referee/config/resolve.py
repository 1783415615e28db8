"""Fills in what an endpoint's provider says where the user says nothing: address, API, key variable, fields, prices.

What the user wrote wins over the provider's, the provider's over the defaults. Doing it twice changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from referee.config.prices import Price, find_price, price_table
from referee.config.providers import LOCAL, LOCAL_MODEL, PROVIDERS, Provider, provider_name
from referee.config.schema import EndpointConfig, Filled
from referee.errors import Refuse, nearest

GGUF = ".gguf"
_DEFAULTS = EndpointConfig()
_SAME_NAMES = ("openai", "azure")
"""Providers that may know a model by the name that is our default: an EndpointConfig made in Python does not say
whether the user wrote it."""
_PRICES = {"price_in": "input", "price_out": "out", "price_cached": "cached", "price_cache_write": "write"}
_FREE = Price(0.0, 0.0)


def resolved(endpoint: EndpointConfig, written: Collection[str] | None, place: str, refuse: Refuse) -> EndpointConfig:
    """The endpoint with all its provider says. `written`: the keys the user gave; None: those that are not at their
    default. `place`: its name in errors, such as endpoint[0]."""
    if written is None:
        written = {name for name in endpoint.__struct_fields__ if getattr(endpoint, name) != getattr(_DEFAULTS, name)}
        if endpoint.provider in _SAME_NAMES:
            written.add("model")
    if endpoint.provider and endpoint.filled.provider != endpoint.provider:
        endpoint = _with_provider(endpoint, written, place, refuse)
    found = _with_prices(endpoint)
    return endpoint if found == endpoint else found


def _with_provider(endpoint: EndpointConfig, written: Collection[str], place: str, refuse: Refuse) -> EndpointConfig:
    name = endpoint.provider
    known = PROVIDERS.get(name)
    if known is None:
        raise refuse(f"{place}.provider", f"{name!r} is not known.{nearest(name, PROVIDERS)}")
    if "url" not in written and not known.url:
        raise refuse(
            f"{place}.url",
            f'provider = "{name}" has no address that is the same for all. Write yours: url = "{known.example_url}".',
        )
    if "url" in written:
        _refuse_foreign(endpoint, known, place, refuse)
    if "model" not in written and name not in ("openai", LOCAL):
        raise refuse(
            f"{place}.model",
            f'missing: provider = "{name}" has no default model. Name the judge model, by the name the provider knows '
            f"it by (see `referee docs providers/{name}`).",
        )
    changes: dict[str, Any] = {
        field: getattr(known, field) for field in ("url", "api", "key_env") if field not in written
    }
    if known.extra:
        changes["extra"] = _merged(known.extra, endpoint.extra)
    if name == LOCAL:
        changes |= _local(endpoint, written, place, refuse)
    filled = msgspec.structs.replace(endpoint.filled, provider=name)
    return msgspec.structs.replace(endpoint, **changes, filled=filled)


def _refuse_foreign(endpoint: EndpointConfig, known: Provider, place: str, refuse: Refuse) -> None:
    """A URL of one provider and the name of another: one is a mistake, and the key would go to the wrong one."""
    owner = provider_name(msgspec.structs.replace(endpoint, provider=""))
    if owner and owner != endpoint.provider:
        right = known.url or known.example_url
        raise refuse(
            f"{place}.provider",
            f'"{endpoint.provider}", but url is {owner}\'s ({urlsplit(endpoint.url).hostname}). Leave url out'
            f' ({right}), or write provider = "{owner}".',
        )


def _local(endpoint: EndpointConfig, written: Collection[str], place: str, refuse: Refuse) -> dict[str, Any]:
    model = endpoint.model if "model" in written else LOCAL_MODEL
    if model != LOCAL_MODEL and not model.lower().endswith(GGUF):
        raise refuse(
            f"{place}.model",
            f'with provider = "local" the path of a GGUF file (…{GGUF}), or left out for {LOCAL_MODEL}; not {model!r}. '
            'A server of your own is provider = "llamacpp", "ollama" or "vllm".',
        )
    return {"model": model, "name": endpoint.name or os.path.basename(model).removesuffix(GGUF)}


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Both; where both say something, theirs. Tables are merged field by field."""
    found = dict(ours)
    for name, value in theirs.items():
        inner = found.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            found[name] = _merged(inner, value)
        else:
            found[name] = value
    return found


def table_price(endpoint: EndpointConfig, model: str = "") -> Price | None:
    """What the shipped table says of an endpoint's model; None: it is not there."""
    name = provider_name(endpoint)
    return _FREE if name == LOCAL else find_price(name, model or endpoint.model)


def _with_prices(endpoint: EndpointConfig) -> EndpointConfig:
    """Prices from the table where the user gave none. Those filled in for another model are taken back first: the
    model may have been changed since."""
    given: dict[str, float | None] = {field: getattr(endpoint, field) for field in _PRICES}
    filled = endpoint.filled
    if filled.prices_of:
        before = table_price(endpoint, filled.prices_of)
        ours = {field: getattr(before, name, None) for field, name in _PRICES.items()}
        given = {field: None if given[field] == ours[field] else given[field] for field in _PRICES}
    price = table_price(endpoint) if given["price_in"] is None and given["price_out"] is None else None
    if price is None:
        now = Filled(provider=filled.provider)
        return msgspec.structs.replace(endpoint, **given, filled=now) if filled.prices_of else endpoint
    found = {field: getattr(price, name) if given[field] is None else given[field] for field, name in _PRICES.items()}
    date = "" if provider_name(endpoint) == LOCAL else price_table().date
    now = Filled(provider=filled.provider, prices_of=endpoint.model, prices_date=date)
    return msgspec.structs.replace(endpoint, **found, filled=now)


def price_words(endpoint: EndpointConfig) -> str:
    """What is known of its prices, in words: where they are from, or what to set."""
    if endpoint.price_in is None or endpoint.price_out is None:
        return (
            f"no price is known for {endpoint.model}, so the cost is unknown. Set endpoint.price_in and price_out "
            "(0 if its tokens cost nothing)"
        )
    prices = f"${endpoint.price_in:g} in, ${endpoint.price_out:g} out per million tokens"
    date = endpoint.filled.prices_date
    return f"{prices}, of the shipped table of {date} (`referee prices`)" if date else prices
