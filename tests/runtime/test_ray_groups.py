"""Where siblings meet: the bookkeeping, the desk and the client, without Ray."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from referee.runtime.ray_desk import Answer, Desk, Gathered, Groups, Report
from referee.runtime.ray_groups import GroupClient

PATIENCE = 30.0
"""Seconds a wait may take on a busy machine; nothing is asserted about time."""


def test_a_group_is_complete_when_all_have_reported() -> None:
    """The clients that told something are named once, when the last member comes."""
    groups = Groups()
    assert groups.report(Report("u", "0", 10, 2), "a", 0.0) == []
    assert groups.look("u") == Gathered({"0": 10}, 2, False)
    assert groups.report(Report("u", "1", 12, 2), "b", 0.0) == ["a", "b"]
    assert groups.look("u") == Gathered({"0": 10, "1": 12}, 2, True)


def test_a_report_told_twice_counts_once() -> None:
    """A client that is not sure tells again; the group does not grow by it."""
    groups = Groups()
    groups.report(Report("u", "0", 10, 2), "a", 0.0)
    assert groups.report(Report("u", "0", 10, 2), "a", 0.0) == []
    assert groups.look("u").values == {"0": 10}


def test_who_comes_late_is_told_at_once() -> None:
    """A member beyond the expected ones, or one who tells again, hears of the complete group."""
    groups = Groups()
    groups.report(Report("u", "0", 10, 1), "a", 0.0)
    assert groups.report(Report("u", "1", 11, 1), "b", 0.0) == ["b"]


def test_old_groups_are_forgotten() -> None:
    """Memory is bounded by age and by number; what was touched last is kept."""
    groups = Groups(keep=10.0, most=3)
    for number in range(5):
        groups.report(Report(f"u{number}", "0", 1, 2), "a", 0.0)
    assert len(groups) == 3
    assert groups.look("u0").values == {}
    groups.report(Report("u2", "1", 1, 3), "a", 8.0)
    groups.report(Report("new", "0", 1, 2), "a", 11.0)
    assert groups.look("u2").values == {"0": 1, "1": 1}
    assert groups.look("u4").values == {}


def test_news_are_told_again_until_confirmed() -> None:
    """An answer that is lost on the way is not lost: only a confirmed number lets it go."""

    async def main() -> None:
        desk = Desk()
        await desk.exchange("a", 0, [("u", "0", 5, 1)], 0.0)
        again = await desk.exchange("a", 0, [], 0.0)
        assert [uid for uid, _ in again.complete] == ["u"]
        assert (await desk.exchange("a", again.number, [], 0.0)).complete == []

    asyncio.run(main())


class Unsteady:
    """A desk behind a line that can be cut, and that forgets everything when it is replaced."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.broken = 0
        self.attached = 0

    def attach(self) -> Unsteady:
        self.attached += 1
        return self

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        if self.broken:
            self.broken -= 1
            raise ConnectionError("cut")
        return await self.desk.exchange(client, confirmed, reports, min(wait, 0.05))

    async def look(self, uid: str) -> Gathered:
        if self.broken:
            raise ConnectionError("cut")
        return await self.desk.look(uid)


@pytest.fixture
def line() -> Unsteady:
    return Unsteady()


@pytest.fixture
def clients(line: Unsteady) -> Iterator[list[GroupClient]]:
    made = [GroupClient(line.attach) for _ in range(3)]
    yield made
    for client in made:
        client.close()
    for thread in threading.enumerate():
        if thread.name == "referee-groups":
            thread.join(PATIENCE)


def test_members_in_three_processes_meet(clients: list[GroupClient]) -> None:
    """Six members told through three clients: all six get the same six values."""

    async def main() -> list[Gathered]:
        return await asyncio.gather(
            *(clients[n % 3].meet("u", str(n), 10 * n, expected=6, wait=PATIENCE) for n in range(6))
        )

    found = asyncio.run(main())
    assert all(one.complete and one.values == {str(n): 10 * n for n in range(6)} for one in found)


def test_many_groups_at_once(clients: list[GroupClient]) -> None:
    """Groups do not mix, however they interleave."""

    async def main() -> list[Gathered]:
        work = [
            clients[(n + g) % 3].meet(f"u{g}", str(n), g, expected=4, wait=PATIENCE)
            for n in range(4)
            for g in range(100)
        ]
        return await asyncio.gather(*work)

    found = asyncio.run(main())
    assert all(one.complete and len(one.values) == 4 and len(set(one.values.values())) == 1 for one in found)


def test_a_sibling_that_never_comes_costs_the_wait_and_no_more(clients: list[GroupClient]) -> None:
    """After the wait the group is what is there, and it says that it is not complete."""

    async def main() -> list[Gathered]:
        return await asyncio.gather(
            clients[0].meet("u", "0", 1, expected=3, wait=0.3), clients[1].meet("u", "1", 2, expected=3, wait=0.3)
        )

    for found in asyncio.run(main()):
        assert not found.complete
        assert found.expected == 3
        assert found.values.items() <= {"0": 1, "1": 2}.items()


def test_one_short_wait_does_not_end_a_long_one(clients: list[GroupClient]) -> None:
    """Each member has its own patience, also inside one process."""

    async def main() -> tuple[Gathered, Gathered]:
        patient = asyncio.create_task(clients[0].meet("u", "0", 1, expected=3, wait=PATIENCE))
        hasty = await clients[0].meet("u", "1", 2, expected=3, wait=0.1)
        await clients[1].meet("u", "2", 3, expected=3, wait=PATIENCE)
        return hasty, await patient

    hasty, patient = asyncio.run(main())
    assert not hasty.complete
    assert patient.complete


def test_a_cut_line_is_mended(clients: list[GroupClient], line: Unsteady) -> None:
    """Calls that fail are made again, to a desk that is looked for again."""
    line.broken = 3

    async def main() -> list[Gathered]:
        return await asyncio.gather(*(clients[n].meet("u", str(n), n, expected=2, wait=PATIENCE) for n in range(2)))

    assert all(found.complete for found in asyncio.run(main()))
    assert line.attached > 2


def test_a_new_desk_hears_everything_again(clients: list[GroupClient], line: Unsteady) -> None:
    """When the desk is lost, what was told to it is told to the next one, by those too who are no longer waiting."""

    async def main() -> tuple[Gathered, Gathered]:
        early = await clients[0].meet("u", "0", 1, expected=2, wait=0.2)
        line.desk = Desk()
        return early, await clients[1].meet("u", "1", 2, expected=2, wait=PATIENCE)

    early, late = asyncio.run(main())
    assert not early.complete
    assert late.complete
    assert late.values == {"0": 1, "1": 2}


def test_without_a_desk_the_own_values_are_there(clients: list[GroupClient], line: Unsteady) -> None:
    """A desk that is gone for good costs the wait; the members of this process still know each other."""
    line.broken = 1_000_000

    async def main() -> list[Gathered]:
        return await asyncio.gather(*(clients[0].meet("u", str(n), n, expected=3, wait=0.5) for n in range(2)))

    for found in asyncio.run(main()):
        assert not found.complete
        assert found.values == {"0": 0, "1": 1}


def test_every_loop_can_meet(clients: list[GroupClient]) -> None:
    """A client outlives the loops it is used from."""
    for number in range(3):
        found = asyncio.run(clients[0].meet(f"u{number}", "0", 1, expected=1, wait=PATIENCE))
        assert found.complete
