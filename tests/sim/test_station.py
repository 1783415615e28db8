"""Slots and the queue in front of them: none is lost, none is given twice."""

from __future__ import annotations

import asyncio

import pytest

from referee import clock
from referee.sim.spec import ProviderSpec
from referee.sim.station import Station
from referee.sim.virtual import run_virtual


def test_a_slot_given_to_one_who_leaves_goes_back() -> None:
    """Cancelled after its turn came and before it could take it: the slot is free again."""

    async def main() -> int:
        station = Station(ProviderSpec(capacity=1))
        station.enter()
        waiter = asyncio.create_task(station.wait(0.0))
        await clock.breathe()
        station.leave()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        return station.busy

    assert run_virtual(main()) == 0


def test_one_who_leaves_the_queue_is_gone_from_it() -> None:
    """A cancelled request leaves the queue."""

    async def main() -> list[int]:
        station = Station(ProviderSpec(capacity=1))
        station.enter()
        waiters = [asyncio.create_task(station.wait(0.0)) for _ in range(3)]
        await clock.breathe()
        lengths = [station.queued]
        waiters[1].cancel()
        await clock.breathe()
        lengths.append(station.queued)
        station.leave()
        await waiters[0]
        station.leave()
        await waiters[2]
        return [*lengths, station.queued, station.busy, station.max_busy]

    assert run_virtual(main()) == [3, 2, 0, 1, 1]


def test_capacity_changes_at_its_times() -> None:
    """Each change holds from its second on."""
    station = Station(ProviderSpec(capacity=None, schedule=((1.0, 5), (2.0, 0))))
    assert [station.capacity(at) for at in (0.0, 0.999, 1.0, 1.5, 2.0, 1e9)] == [None, None, 5, 5, 0, 0]
