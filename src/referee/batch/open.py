"""A batch run from its configuration: which batch APIs, at what price, with what limits, and what it keeps where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from referee import clock
from referee.batch.anthropic import AnthropicBatches
from referee.batch.calls import Caller, Pace
from referee.batch.journal import Journal
from referee.batch.openai import OpenAIBatches
from referee.batch.outcomes import MAX_TRIES
from referee.batch.paid import PaidCache
from referee.batch.port import BatchApi
from referee.batch.status import Board
from referee.batch.transport import STUCK_S, BatchTransport
from referee.cache import Cache
from referee.config import Config, EndpointConfig, RedisConfig
from referee.config.providers import PROVIDERS, provider_of
from referee.engine.transport import HttpTransport
from referee.errors import ConfigError
from referee.wire import find_dialect

APIS: dict[str, Callable[[str, Caller], BatchApi]] = {"openai": OpenAIBatches, "anthropic": AnthropicBatches}
"""Batch APIs by provider."""
WHOLE_S = MAX_TRIES * STUCK_S
"""Seconds for one question: it may be part of several batches that expire."""
PRICES = ("price_in", "price_out", "price_cached", "price_cache_write")


def check_batch(config: Config) -> None:
    """Refuse endpoints that have no batch API we speak. Nothing was sent."""
    for endpoint in config.endpoint:
        if endpoint.tier:
            raise ConfigError(
                f'endpoint {endpoint.label}: --batch and tier = "{endpoint.tier}" exclude each other: both are '
                "cheaper ways to ask. Leave one out.",
                setting="endpoint.tier",
            )
        if not _provider(endpoint):
            raise ConfigError(
                f"endpoint {endpoint.label}: --batch needs a provider with a batch API: {' or '.join(APIS)}. Name it "
                'with provider = "openai" if the URL is a gateway that passes its batch API on; else leave --batch '
                "out.",
                setting="endpoint.provider",
            )


def batch_config(config: Config) -> Config:
    """The same for a batch run: the batch APIs' prices; as many questions open as may be; hours instead of seconds. No
    question waits for the first with its beginning: that would be a batch of its own, and its cache cold by then."""
    check_batch(config)
    limits = replace(
        config.limits,
        concurrency=config.batch.max_open,
        rpm=None,
        tpm=None,
        hedge=0.0,
        attempt_timeout=WHOLE_S,
        give_up_after=WHOLE_S,
        deadline=WHOLE_S,
    )
    endpoints = tuple(_for_batches(endpoint) for endpoint in config.endpoint)
    audit = replace(config.audit, enable=False)  # its questions would wait for hours, too
    return replace(config, endpoint=endpoints, limits=limits, redis=RedisConfig(), runtime="thread", audit=audit)


class BatchRun:
    """What a run of batches has for as long as it goes on. Close it after the Referee."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.journal = Journal(folder)
        self.board = Board()
        self.kept: set[str] = set()
        """Cache keys that rows of the output have paid for."""
        self._pace = Pace(config.batch.poll)
        self._opened = clock.wall()

    def transports(self, config: Config) -> Sequence[BatchTransport]:
        """One for each endpoint."""
        return [self._transport(endpoint) for endpoint in config.endpoint]

    def cache_over(self, cache: Cache) -> Cache:
        """The cache as this run sees it."""
        return PaidCache(cache, self.journal, self.kept, self._opened)

    def _transport(self, endpoint: EndpointConfig) -> BatchTransport:
        def open_api(headers: Mapping[str, str]) -> BatchApi:
            return api_of(endpoint, headers, self._pace)

        return BatchTransport(endpoint_name(endpoint), open_api, self.journal, self.board, self._pace)


def api_of(endpoint: EndpointConfig, headers: Mapping[str, str], pace: Pace) -> BatchApi:
    """An endpoint's batch API. `headers` hold its key."""
    url = find_dialect(endpoint.api).url(endpoint)
    return APIS[_provider(endpoint)](url, Caller(HttpTransport(endpoint.proxy), pace, headers))


def endpoint_name(endpoint: EndpointConfig) -> str:
    """An endpoint's name in the journal: batches of another are not looked after with its key."""
    address = endpoint.known_as or find_dialect(endpoint.api).url(endpoint)
    return " ".join(filter(None, (endpoint.name, endpoint.model, address)))


def _provider(endpoint: EndpointConfig) -> str:
    found = provider_of(endpoint)
    return next((name for name in APIS if found is not None and found is PROVIDERS.get(name)), "")


def _for_batches(endpoint: EndpointConfig) -> EndpointConfig:
    share = PROVIDERS[_provider(endpoint)].batch
    share = 0.5 if share is None else share
    prices = {name: getattr(endpoint, name) for name in PRICES}
    reduced = {name: price * share for name, price in prices.items() if price is not None}
    return replace(endpoint, prefix_cache="off" if endpoint.prefix_cache == "off" else "route", **reduced)
