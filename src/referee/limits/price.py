"""What tokens cost at one endpoint, in US dollars: the prompt's own, those from and into the provider's prompt cache,
and those of the reply, at the tier they were served at. Pure."""

from __future__ import annotations

from referee.config import EndpointConfig, provider_of
from referee.records import Reply

FLEX = "flex"
STANDARD = "default"
"""`Reply.tier` of the tier that prices are given for, as OpenAI names it."""


def tier_share(endpoint: EndpointConfig) -> float:
    """What the endpoint's tier costs, as a share of its prices."""
    return _flex(endpoint) if endpoint.tier == FLEX else 1.0


def _flex(endpoint: EndpointConfig) -> float:
    provider = provider_of(endpoint)
    return 1.0 if provider is None or provider.flex is None else provider.flex


class Price:
    """The prices of one endpoint."""

    def __init__(self, endpoint: EndpointConfig) -> None:
        price_in, price_out = endpoint.price_in, endpoint.price_out
        self.known = price_in is not None and price_out is not None
        self._in, self._out = price_in or 0.0, price_out or 0.0
        self._cached = self._in if endpoint.price_cached is None else endpoint.price_cached
        self._written = self._in if endpoint.price_cache_write is None else endpoint.price_cache_write
        self._dearest = max(self._in, self._cached, self._written)
        self._flex = _flex(endpoint)

    def cost(self, reply: Reply) -> float:
        """What a reply cost; 0 without a price. Tokens said to be cached count as such only as far as there are any in
        the prompt."""
        if not self.known:
            return 0.0
        paid = reply.tokens_in * self._in
        if reply.tokens_cached or reply.tokens_cache_write:
            cached = min(reply.tokens_cached, reply.tokens_in)
            written = min(reply.tokens_cache_write, reply.tokens_in - cached)
            paid = (reply.tokens_in - cached - written) * self._in + cached * self._cached + written * self._written
        cost = (paid + reply.tokens_out * self._out) / 1e6
        return cost * self._flex if reply.tier == FLEX else cost

    def most(self, tokens_in: float, tokens_out: float) -> float:
        """The most that many tokens can cost: all of the prompt at its dearest price, at the dearer tier. A provider
        may serve a request at another tier than was asked for."""
        return (tokens_in * self._dearest + tokens_out * self._out) / 1e6 * max(1.0, self._flex)
