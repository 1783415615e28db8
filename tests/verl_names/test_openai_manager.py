"""AsyncOpenAIManager: submit, keep computing, collect; the documents' names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.contracts.group_judges import KIND, registered

from referee.errors import ConfigError, EndpointClosed, MissingKeyError, TicketTimeout
from referee.sim import ServerProcess
from referee.trainers.verl import AsyncOpenAIManager, get_request_hash
from referee.trainers.verl.config import LengthPenaltyConfig

Serve = Callable[..., ServerProcess]
MEMORY: dict[str, Any] = {"cache": {"path": ""}}


def manager(server: ServerProcess, **more: Any) -> AsyncOpenAIManager:
    return AsyncOpenAIManager(
        api_key="sk-test",
        model_name="m",
        api_endpoint=server.url,
        system_prompt=more.pop("system_prompt", "Grade from 1 to 10. Digits only."),
        referee={**MEMORY, **more.pop("referee", {})},
        **more,
    )


def quality(*marks: object) -> list[str]:
    return [f"response {number} [[quality={mark}]]" for number, mark in enumerate(marks)]


def test_scores_come_back_in_order_times_the_coefficient(serve: Serve) -> None:
    """Submit returns at once; collect waits."""
    judge = manager(serve(), reward_coefficient=0.1)
    ticket = judge.submit(quality(7, 1, 10))
    assert judge.collect(ticket) == pytest.approx([0.7, 0.1, 1.0])
    asyncio.run(judge.shutdown())
    asyncio.run(judge.shutdown())


def test_no_score_is_none_and_never_zero(serve: Serve) -> None:
    """Out of range, prose and fractions are not scores; what the rule has failed is not asked and adds 0."""
    server = serve()
    judge = manager(server, referee={"judge": {"ask_again": 0}})
    responses = [*quality(11, "good", 7.5, 3), ("failed by the rule [[quality=9]]", 0.0)]
    assert judge.collect(judge.submit(responses)) == [None, None, None, 3.0, 0.0]
    assert server.stats().received == 4


def test_a_judge_of_groups_is_refused(serve: Serve) -> None:
    """Responses come without their groups here; the error names the manager that knows them."""
    with registered(), pytest.raises(ConfigError, match="use LengthPenaltyRewardManager"):
        manager(serve(), referee={"judge": {"kind": KIND}})


def test_the_documents_coroutine(serve: Serve) -> None:
    """submit_and_get_batch_results in a running loop, pairs of response and rule score."""

    async def run() -> list[float | None]:
        judge = manager(serve())
        await judge.initialize()
        try:
            pairs = [(text, 1.0) for text in quality(2, 4)]
            return await judge.wait_for_results_with_callback(judge.submit_and_get_batch_results(pairs, 0.001))
        finally:
            await judge.shutdown()

    assert asyncio.run(run()) == [2.0, 4.0]


def test_progress_is_told_while_waiting(serve: Serve) -> None:
    """One call for each score that lands."""
    judge = manager(serve())
    seen: list[tuple[int, int]] = []
    scores = asyncio.run(judge.acollect(judge.submit(quality(1, 2, 3)), progress_callback=lambda *at: seen.append(at)))
    assert scores == [1.0, 2.0, 3.0]
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_timeout_of_the_callers_loses_nothing(serve: Serve) -> None:
    """Ask again and the scores are there."""
    judge = manager(serve(latency_median=0.3))
    ticket = judge.submit(quality(5))
    with pytest.raises(TicketTimeout):
        judge.collect(ticket, timeout=0.0)
    with pytest.raises(TicketTimeout, match="0 of 1 scores are there after"):
        asyncio.run(judge.acollect(ticket, timeout=0.01))
    assert judge.collect(ticket) == [5.0]


def test_max_concurrent_is_kept(serve: Serve) -> None:
    """The provider never sees more calls at once than allowed."""
    server = serve(latency_median=0.02)
    judge = manager(server, max_concurrent=3)
    assert None not in judge.collect(judge.submit(quality(*[5] * 40)))
    assert server.stats().max_open <= 3


def test_equal_responses_are_asked_once_and_another_prompt_anew(serve: Serve) -> None:
    """Deduplicated by everything that shapes the answer."""
    server = serve()
    judge = manager(server)
    assert judge.collect(judge.submit(["same [[quality=6]]"] * 20)) == [6.0] * 20
    assert server.stats().received == 1
    other = manager(server, system_prompt="Another prompt. 1 to 10.")
    assert other.collect(other.submit(["same [[quality=6]]"])) == [6.0]
    assert server.stats().received == 2


def test_the_hash_is_the_key_of_the_cache(serve: Serve) -> None:
    """It is the engine's own key; it changes with response, prompt, model and endpoint."""
    judge = manager(serve())
    ticket = judge.submit(["same [[quality=6]]"])
    judge.collect(ticket)
    assert ticket.result()[0].settled.key == judge.get_request_hash("same [[quality=6]]")
    keys = {
        get_request_hash("a"),
        get_request_hash("b"),
        get_request_hash("a", system_prompt="x"),
        get_request_hash("a", model_name="x"),
        get_request_hash("a", api_endpoint="https://other.test/v1"),
    }
    assert len(keys) == 5
    assert get_request_hash("a") == get_request_hash("a")


def test_a_missing_key_is_an_error_at_once() -> None:
    """Before anything is submitted."""
    with pytest.raises(MissingKeyError):
        AsyncOpenAIManager(api_key=None, system_prompt="x")


def test_a_wrong_key_is_one_clear_error(serve: Serve) -> None:
    """Not a batch of zeros."""
    judge = manager(serve(key="sk-right"))
    with pytest.raises(EndpointClosed, match="auth"):
        judge.collect(judge.submit(quality(5, 6)))


def test_the_request_is_the_documents_contract() -> None:
    """System prompt, bare response, nothing else asked of the endpoint."""
    settings = LengthPenaltyConfig(api_key="k", system_prompt="P").settings("thread")
    assert settings["judge"]["kind"] == "integer"
    assert settings["judge"]["reply"] == "text"
