"""Providers by name: what `endpoint.provider` fills in. Data only; prices are in `prices`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from referee.config.schema import EndpointConfig


class Provider(Struct, frozen=True, kw_only=True):
    """What is known of one provider."""

    url: str = ""
    """Base of its API. Empty: the user must give `endpoint.url`."""
    api: str = "chat"
    key_env: str = ""
    """Variable that usually holds its key. Empty: no key is sent."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields for its requests; those of `endpoint.extra` win."""
    flex: float | None = None
    """What `tier = "flex"` costs, as a share of the standard price; None: it has no such tier."""
    batch: float | None = None
    """The same of its batch API."""


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(url="https://api.anthropic.com/v1", api="anthropic", key_env="ANTHROPIC_API_KEY", batch=0.5),
    "openai": Provider(url="https://api.openai.com/v1", key_env="OPENAI_API_KEY", flex=0.5, batch=0.5),
}


def provider_of(endpoint: EndpointConfig) -> Provider | None:
    """The provider of an endpoint: the named one, else the one whose host its URL has; None: an unknown one."""
    if endpoint.provider:
        return PROVIDERS.get(endpoint.provider)
    host = endpoint.host
    return next((found for found in PROVIDERS.values() if found.url and urlsplit(found.url).netloc == host), None)
