"""AsyncOpenAIManager: the documents' judge by itself. Submit responses, keep computing, collect; one integer each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from referee import clock
from referee.cache import KeyMaker
from referee.config import load
from referee.errors import TicketTimeout
from referee.judging import first_round, make_judge, refuse_groups
from referee.records import Reward, Sample
from referee.ticket import Ticket
from referee.trainers.verl.backend import Backend
from referee.trainers.verl.config import ENDPOINT, MODEL, LengthPenaltyConfig, in_own_keys
from referee.wire import CHAT

TIMEOUT = 300.0
"""Seconds a batch may take, as in the documents."""

Item = str | tuple[str, float]
"""A response; or a response and its rule score, which is asked about only if it is above 0."""


class AsyncOpenAIManager:
    """An integer from 1 to 10 for each response, times `reward_coefficient`. None where the judge gave no score."""

    def __init__(
        self,
        api_key: str | None = None,
        model_name: str = MODEL,
        api_endpoint: str = ENDPOINT,
        system_prompt: str = "",
        reward_coefficient: float = 1.0,
        max_concurrent: int = 10,
        referee: dict[str, Any] | None = None,
    ) -> None:
        """`referee`: more settings under referee's own names, such as {"cache": {"path": ""}}."""
        self._config = LengthPenaltyConfig(
            enable_openai_reward=True,
            api_key=api_key,
            model_name=model_name,
            api_endpoint=api_endpoint,
            system_prompt=system_prompt or "",
            reward_coefficient=reward_coefficient,
            max_concurrent_requests=max_concurrent,
            use_async_io=True,
            referee={"missing": {"policy": "abstain"}, **(referee or {})},
        )
        self.reward_coefficient = reward_coefficient
        with in_own_keys():
            judges = load(self._config.settings("thread")).judge  # a key that is missing is missed now
        refuse_groups(judges, "AsyncOpenAIManager", "LengthPenaltyRewardManager")
        self._backend = Backend(self._config)

    async def initialize(self) -> None:
        """Open the judge. Called by itself on first use."""
        await asyncio.to_thread(self._backend.start)

    def submit(self, responses: Sequence[Item]) -> Ticket:
        """Start judging and return at once."""
        return self._backend.submit([_sample(item, index) for index, item in enumerate(responses)])

    def collect(self, ticket: Ticket, timeout: float = TIMEOUT) -> list[float | None]:
        """The scores in the order of submission. TicketTimeout if they take longer; ask again then."""
        with in_own_keys():
            return self._scores(ticket.result(timeout))

    async def acollect(
        self,
        ticket: Ticket,
        timeout: float = TIMEOUT,
        progress_callback: Callable[[int, int], None] | None = None,
    ) -> list[float | None]:
        """The same on an event loop. `progress_callback(done, all)` is called as scores land."""

        until = clock.monotonic() + timeout
        landing, done = aiter(ticket), 0
        with in_own_keys():
            while True:
                try:
                    await clock.within(anext(landing), max(0.0, until - clock.monotonic()))
                except StopAsyncIteration:
                    break
                except TimeoutError:
                    if ticket.done():
                        break
                    raise TicketTimeout(
                        f"{ticket.landed()} of {len(ticket)} scores are there after {timeout:g} s; the rest is still "
                        "being judged. Ask again, raise the timeout, or cancel the ticket."
                    ) from None
                done += 1
                if progress_callback is not None:
                    progress_callback(done, len(ticket))
            return self.collect(ticket, 0.0)

    async def submit_and_get_batch_results(
        self, responses_to_evaluate: Sequence[Item], check_interval: float = 0.01
    ) -> list[float | None]:
        """Submit and collect, under the documents' name. Nothing is polled, so `check_interval` is not used."""
        ticket = await asyncio.to_thread(self.submit, list(responses_to_evaluate))
        try:
            return await self.acollect(ticket)
        except asyncio.CancelledError:
            ticket.cancel()
            raise

    async def wait_for_results_with_callback(
        self,
        future: Awaitable[list[float | None]],
        progress_callback: Callable[[int, int], None] | None = None,
        timeout: float = TIMEOUT,
    ) -> list[float | None]:
        """Wait for what `submit_and_get_batch_results` returns. Progress is reported at the end; see `acollect`."""
        scores = await clock.within(future, timeout)
        if progress_callback is not None:
            progress_callback(len(scores), len(scores))
        return scores

    def get_request_hash(self, response: str) -> str:
        """The key this manager's request about a response is deduplicated and cached by."""
        return _hash(response, self._config)

    async def shutdown(self) -> None:
        """Close the judge. Safe to call twice."""
        await asyncio.to_thread(self._backend.close)

    def __repr__(self) -> str:
        return f"AsyncOpenAIManager({self._config.model_name} at {self._config.api_endpoint})"

    def _scores(self, rewards: Sequence[Reward]) -> list[float | None]:
        return [reward.judge for reward in rewards]


def get_request_hash(
    response: str, system_prompt: str = "", model_name: str = MODEL, api_endpoint: str = ENDPOINT
) -> str:
    """The key a request is deduplicated and cached by: everything that shapes the answer is in it."""
    config = LengthPenaltyConfig(
        model_name=model_name, api_endpoint=api_endpoint, system_prompt=system_prompt, enable_openai_reward=True
    )
    return _hash(response, config)


def _hash(response: str, config: LengthPenaltyConfig) -> str:
    settings = config.settings("thread", keyless=True)
    loaded = load(settings)
    judge = make_judge(loaded.judge[0], b"the key does not depend on this")
    asks = first_round(judge, (_sample((response, 1.0), 0),), "text")
    return KeyMaker(loaded.endpoint[0], CHAT).key(asks[0]) if asks else ""


def _sample(item: Item, index: int) -> Sample:
    response, rule = (item, 1.0) if isinstance(item, str) else (item[0], float(item[1]))
    return Sample(prompt="", response=response, id=str(index), rule_score=rule)
