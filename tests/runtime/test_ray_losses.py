"""The Ray runtime without Ray: lost calls, lost engines, lost clients. Nothing is lost with them or paid twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.runtime.simulated_ray import PATIENCE, Make, Start, samples, scores, wait_for

from referee.ledger.reader import read
from referee.runtime import ray_actor_client, ray_engine


@pytest.mark.parametrize("shards", [1, 3])
def test_an_engine_lost_mid_batch_loses_nothing(start: Start, connect: Make, tmp_path: Path, shards: int) -> None:
    """Everything is sent again to the engine that takes its place; each sample is once in the ledger."""
    cluster = start(latency_median=0.02)
    referee = connect(cluster, ledger={"dir": str(tmp_path)}, limits={"concurrency": 6}, shards=shards)
    ticket = referee.submit(samples(300))
    wait_for(lambda: ticket.landed() > 20)
    cluster.kill()
    assert scores(ticket.result(PATIENCE)) == [n % 10 + 1 for n in range(300)]
    referee.close()
    lines = [line for line in read(tmp_path) if type(line).__name__ == "VerdictLine"]
    assert sorted(line.index for line in lines) == list(range(300))  # type: ignore[union-attr]


@pytest.mark.parametrize("trouble", ["refuse_calls", "lose_answers"])
def test_a_bad_line_costs_nothing_twice(
    start: Start, connect: Make, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls and answers that are lost are repeated; the engine still knows the work, and nothing is asked twice."""
    monkeypatch.setattr(ray_actor_client, "MOST_AGAIN", 0.2)
    cluster = start(latency_median=0.02)
    referee = connect(cluster, cache={"enabled": False})
    referee.score(samples(1))
    ticket = referee.submit(samples(60, 1))
    for _ in range(4):
        setattr(cluster, trouble, 2)
        wait_for(lambda: getattr(cluster, trouble) == 0 or ticket.done())
    assert all(reward.scored for reward in ticket.result(PATIENCE))
    assert cluster.provider.stats().received == 61


def test_what_comes_while_an_answer_is_lost_is_not_lost_with_it(
    start: Start, connect: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call is repeated as it was: the engine has taken it, and would not look at what was added."""
    monkeypatch.setattr(ray_actor_client, "MOST_AGAIN", 0.2)
    cluster = start(latency_median=0.01)
    referee = connect(cluster, cache={"enabled": False}, limits={"deadline": 20.0})
    referee.score(samples(1))
    tickets = [referee.submit(samples(5, 10))]
    taken = ray_engine.EngineActor.send

    async def take_and_fail(self: ray_engine.EngineActor, client: str, number: int, messages: list[bytes]) -> str:
        await taken(self, client, number, messages)
        monkeypatch.setattr(ray_engine.EngineActor, "send", taken)
        tickets.append(referee.submit(samples(5, 20)))
        await asyncio.sleep(0.2)  # until it waits beside what is on its way
        raise ConnectionError("the answer was lost")

    assert all(reward.scored for reward in tickets[0].result(PATIENCE))
    monkeypatch.setattr(ray_engine.EngineActor, "send", take_and_fail)
    tickets.append(referee.submit(samples(5, 30)))
    wait_for(lambda: len(tickets) == 3)
    for ticket in tickets:
        assert all(reward.scored for reward in ticket.result(PATIENCE))


def test_the_budget_outlives_the_engine(start: Start, connect: Make) -> None:
    """Money spent before an engine was lost counts for the one in its place."""
    cluster = start()
    referee = connect(cluster, limits={"budget_usd": 1.0})
    referee.score(samples(20))
    spent = referee.metrics()["budget_spent_usd"]
    assert spent > 0
    cluster.kill()
    referee.score(samples(20, 100))
    assert referee.metrics()["budget_spent_usd"] == pytest.approx(2 * spent, rel=0.2)


def test_money_is_not_counted_twice_after_a_cut(start: Start, connect: Make) -> None:
    """The same engine, met again, knows what it has spent."""
    cluster = start()
    referee = connect(cluster, limits={"budget_usd": 1.0})
    referee.score(samples(20))
    spent = referee.metrics()["budget_spent_usd"]
    cluster.refuse_calls = 2
    referee.score(samples(1, 50))
    assert referee.metrics()["budget_spent_usd"] == pytest.approx(spent, rel=0.2)


def test_a_forgotten_client_sends_its_work_again(start: Start, connect: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was away too long has lost its place, not its samples."""
    cluster = start(latency_median=0.05)
    referee = connect(cluster, limits={"concurrency": 4})
    ticket = referee.submit(samples(100))
    wait_for(lambda: ticket.landed() > 4)
    (engine,) = cluster.engines.values()
    for client in list(engine._clients):
        cluster.loop.call_soon_threadsafe(engine._drop, client)
    assert all(reward.scored for reward in ticket.result(PATIENCE))


def test_a_client_that_vanishes_is_forgotten(start: Start, connect: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease runs out and its work is stopped: nobody pays for rewards that nobody will collect."""
    monkeypatch.setattr(ray_engine, "CLIENT_LEASE", 0.2)
    monkeypatch.setattr(ray_engine, "CHECK", 0.05)
    cluster = start(latency_median=0.2)
    referee = connect(cluster, limits={"concurrency": 2})
    referee.submit(samples(500))
    wait_for(lambda: cluster.provider.stats().received > 2)
    cluster.refuse_calls = 1_000_000_000
    (engine,) = cluster.engines.values()
    wait_for(lambda: not engine._clients)
    wait_for(lambda: engine._pending == 0)
    assert cluster.provider.stats().received < 500
