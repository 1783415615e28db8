"""A simulated network that keeps the provider's books: what arrived when, and what each request was billed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import msgspec

from referee import clock
from referee.engine.port import Response, TransportFault
from referee.sim import Provider, SimTransport


class Books:
    """What all networks of one run have seen."""

    def __init__(self) -> None:
        self.networks: list[Network] = []

    def network(self, dying: float = 0.0, spread: float = 0.0) -> type[Network]:
        """A kind of network: `dying` is the share of answers that are billed and lost with their kept connection;
        requests take up to `spread` seconds to arrive."""
        return type("_Network", (Network,), {"books": self, "dying": dying, "spread": spread})

    def billed(self, price: float) -> float:
        """US dollars, at a price for a million tokens of either kind."""
        return sum(sum(call.tokens) for network in self.networks for call in network.calls) * price / 1e6

    def unforeseen(self, price: float, max_tokens: int) -> float:
        """US dollars by which replies in flight, when each engine sent its last request, were billed above all it had
        seen: what no budget can foresee."""
        return sum(network.unforeseen(max_tokens) for network in self.networks) * price / 1e6

    def busiest_minute(self) -> int:
        """Most arrivals in any sixty seconds."""
        arrivals = sorted(call.arrived for network in self.networks for call in network.calls)
        most = first = 0
        for last, at in enumerate(arrivals):
            while arrivals[first] <= at - 60.0:
                first += 1
            most = max(most, last - first + 1)
        return most


class Call:
    """One request: when it left, arrived and was over, and its tokens, of prompt and reply."""

    __slots__ = ("arrived", "left", "over", "tokens")

    def __init__(self, now: float) -> None:
        self.left = self.arrived = now
        self.over = float("inf")
        self.tokens = (0, 0)


class Network(SimTransport):
    """One engine's network."""

    books: Books
    dying: float
    spread: float

    def __init__(self, provider: Provider | Mapping[str, Provider]) -> None:
        super().__init__(provider)
        self.calls: list[Call] = []
        self._rng = random.Random(len(self.books.networks))
        self.books.networks.append(self)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        now = asyncio.get_running_loop().time
        call = Call(now())
        self.calls.append(call)
        await clock.sleep(self._rng.random() * self.spread)
        call.arrived = now()
        try:
            answer = await super().post(url, headers, body, timeout)
        finally:
            call.over = now()
        if answer.status == 200:
            usage = msgspec.json.decode(answer.body)["usage"]
            call.tokens = usage["prompt_tokens"], usage["completion_tokens"]
        if self._rng.random() < self.dying:
            raise TransportFault("reset", "the server closed the connection", stale=True)
        return answer

    def unforeseen(self, max_tokens: int) -> int:
        """Tokens by which replies in flight, when the last request left, passed twice max_tokens and the longest reply
        that had been seen by then."""
        if not self.calls:
            return 0
        last = max(call.left for call in self.calls)
        seen = max((call.tokens[1] for call in self.calls if call.over < last), default=0)
        return sum(max(0, call.tokens[1] - max(seen, 2 * max_tokens)) for call in self.calls if call.over >= last)


class Claiming(SimTransport):
    """A server that says after every answer that nothing is left for an hour. It serves `serves` requests, refuses
    what comes after them until `opens`, and then serves again."""

    serves = 10**9
    opens = 0.0

    def __init__(self, provider: Provider | Mapping[str, Provider]) -> None:
        super().__init__(provider)
        self._served = 0

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        says = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h0m0s"}
        refused = self._served >= self.serves and asyncio.get_running_loop().time() < self.opens
        self._served += not refused
        answer = await super().post(url, headers, body, timeout)
        if refused:
            return Response(429, says, b'{"error": {"message": "daily limit", "code": "rate_limit_exceeded"}}')
        return Response(answer.status, {**answer.headers, **says}, answer.body)
