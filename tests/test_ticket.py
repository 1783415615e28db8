"""Tickets: waiting, awaiting, iterating and cancelling, from threads and loops."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading

import pytest

from referee import clock
from referee import ticket as ticket_module
from referee.errors import TicketCancelled, TicketTimeout, TooManyUnscored, WrongContext
from referee.records import Reward, Settled, Verdict
from referee.ticket import Ticket

SETTLED = Settled(verdict=Verdict(score=1.0, value=1.0), origin="call")


def reward(index: int) -> Reward:
    return Reward(index=index, id=str(index), group="", value=float(index), settled=SETTLED)


def ticket(count: int, trouble: str = "") -> Ticket:
    return Ticket(count, lambda blocking: trouble, lambda: None)


def test_result_is_in_submission_order() -> None:
    """Rewards land in any order and come back in the caller's."""
    claim = ticket(3)
    claim.deliver([reward(2)], None, False)
    claim.deliver([reward(0), reward(1)], None, True)
    assert [r.index for r in claim.result()] == [0, 1, 2]
    assert claim.done()
    assert claim.result() == claim.result()


def test_an_empty_batch_is_done_at_once() -> None:
    """Nothing to judge, nothing to wait for."""
    assert ticket(0).result(timeout=0) == []


def test_a_timeout_says_how_far_it_is_and_loses_nothing() -> None:
    """After the caller's timeout the work goes on and can be asked for again."""
    claim = ticket(2)
    claim.deliver([reward(0)], None, False)
    with pytest.raises(TicketTimeout, match="1 of 2"):
        claim.result(timeout=0)
    with pytest.raises(TimeoutError):
        claim.result(timeout=0)
    claim.deliver([reward(1)], None, True)
    assert len(claim.result()) == 2


def test_iteration_yields_as_rewards_land() -> None:
    """Iterating gives rewards in landing order while others are still out."""
    claim = ticket(2)
    claim.deliver([reward(1)], None, False)
    rewards = iter(claim)
    assert next(rewards).index == 1
    worker = threading.Thread(target=claim.deliver, args=([reward(0)], None, True))
    worker.start()
    assert next(rewards).index == 0
    worker.join()
    assert list(rewards) == []


def test_await_and_async_iteration_work_on_any_loop() -> None:
    """The same ticket can be awaited on one loop and again on another."""
    claim = ticket(2)

    async def collect() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.call_soon(claim.deliver, [reward(1)], None, False)
        loop.call_soon(claim.deliver, [reward(0)], None, True)
        return [r.index async for r in claim]

    async def wait() -> list[int]:
        return [r.index for r in await claim]

    assert asyncio.run(collect()) == [1, 0]
    assert asyncio.run(wait()) == [0, 1]


def test_an_error_carries_the_rewards_there_are() -> None:
    """A failed batch raises, and what was judged is on the error."""
    claim = ticket(2)
    claim.deliver([reward(1)], TooManyUnscored("too many"), True)
    with pytest.raises(TooManyUnscored) as caught:
        claim.result()
    assert [None if r is None else r.index for r in caught.value.rewards] == [None, 1]
    with pytest.raises(TooManyUnscored):
        list(claim)


def test_a_dead_place_fails_the_waiter() -> None:
    """Waiting for work that cannot finish raises."""
    with pytest.raises(TicketCancelled, match="the judging thread has died"):
        ticket(1, "the judging thread has died;").result()


def test_cancel_is_passed_on_once_there_is_something_to_cancel() -> None:
    """A finished ticket has nothing to cancel."""
    calls: list[int] = []
    claim = Ticket(1, lambda blocking: "", lambda: calls.append(1))
    claim.cancel()
    claim.deliver([reward(0)], None, True)
    claim.cancel()
    assert calls == [1]


def test_collecting_is_noted_once() -> None:
    """The first collection is recorded, later ones are not."""
    claim = ticket(1)
    calls: list[int] = []
    claim.on_collect = lambda ticket, rewards: calls.append(1)
    claim.deliver([reward(0)], None, True)
    claim.result()
    claim.result()
    assert calls == [1]


def test_tickets_do_not_pickle() -> None:
    """A ticket belongs to its process and says so."""
    with pytest.raises(WrongContext):
        pickle.dumps(ticket(1))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_progress_is_logged_while_a_caller_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asynchronous: bool
) -> None:
    """Under `referee`, at level INFO, now and then; no handler is installed."""
    monkeypatch.setattr(ticket_module, "LOG_EVERY_S", 0.0)
    caplog.set_level(logging.INFO, "referee")
    claim = ticket(4)

    def work() -> None:
        claim.deliver([reward(0), reward(1)], None, False)
        for _ in range(3000):
            if "50 % complete: 2 of 4" in caplog.text:
                break
            clock.pause(0.01)
        claim.deliver([reward(2), reward(3)], None, True)

    async def wait() -> int:
        return len(await claim)

    worker = threading.Thread(target=work)
    worker.start()
    assert (asyncio.run(wait()) if asynchronous else len(claim.result())) == 4
    worker.join()
    assert "50 % complete: 2 of 4 rewards are final" in caplog.text
    assert not logging.getLogger("referee").handlers
