"""What models cost, from the shipped table `prices.toml`, which is read once, when first asked."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field

_DATED = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|latest)$")
"""A snapshot of a model costs what its family costs: gpt-4o-mini-2024-07-18, claude-haiku-4-5-20251001, …-latest."""
_PREFIXES = ("accounts/fireworks/models/", "models/")


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars per million tokens, standard tier."""

    input: float = field(name="in")
    out: float
    cached: float | None = None
    write: float | None = None
    up_to: int | None = None
    """The most prompt tokens for which this holds; longer prompts cost more. None: any number."""


class PriceList(Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of one provider."""

    source: str
    """Its own page."""
    models: dict[str, Price]
    note: str = ""


class PriceTable(Struct, frozen=True):
    """All prices, and the day they were compared with their sources."""

    date: str
    providers: dict[str, PriceList]


@functools.cache
def price_table() -> PriceTable:
    """The shipped table."""
    data: dict[str, Any] = tomllib.loads(Path(__file__).with_name("prices.toml").read_text(encoding="utf-8"))
    return PriceTable(data.pop("date"), convert(data, dict[str, PriceList]))


def find_price(provider: str, model: str) -> Price | None:
    """The price of a model, None if it is not in the table.

    The whole name first; then without a leading path of the provider's; then without a date or `latest` at its end.
    Nothing else is taken for the same: gpt-4o-mini is not gpt-4o, and a fine-tuned model (ft:…) has its own price.
    """
    known = price_table().providers.get(provider)
    if known is None:
        return None
    models = _by_lower_name(provider)
    name = model.lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return models.get(name) or models.get(_DATED.sub("", name))


@functools.cache
def _by_lower_name(provider: str) -> dict[str, Price]:
    return {name.lower(): price for name, price in price_table().providers[provider].models.items()}
