"""Where siblings meet: the bookkeeping, the desk and the client, without Ray."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from referee.runtime.ray_group_client import GroupClient
from referee.runtime.ray_group_coordinator import Answer, Gathered, GroupCoordinator, Groups, Report, Told, pack

PATIENCE = 30.0
"""Seconds a wait may take on a busy machine; nothing is asserted about time."""


def told(groups: Groups, client: str, call: int, value: Any, *, expected: int = 2, uid: str = "u") -> list[Told]:
    """What a report settles; the member is named by client and call."""
    return groups.report(Report(uid, f"{client}{call}", value, expected, call), client, 0.0)


def test_a_group_is_given_out_when_all_have_reported() -> None:
    """Each client that waits is told once, with the calls it answers; the values are gone then."""
    groups = Groups()
    assert told(groups, "a", 1, 10) == []
    found = Gathered({"a1": 10, "b1": 12}, 2, True)
    assert told(groups, "b", 1, 12) == [Told("a", [1], found), Told("b", [1], found)]
    assert groups.leave("u", "a", 1).values == {}


def test_a_report_sent_twice_counts_once() -> None:
    """A client that is not sure sends it again: before its group is complete, and after it was given out."""
    groups = Groups()
    told(groups, "a", 1, 10)
    assert told(groups, "a", 1, 10) == []
    assert len(told(groups, "b", 1, 12)) == 2
    assert told(groups, "a", 1, 10) == []
    assert told(groups, "b", 2, 20) == []
    assert told(groups, "a", 2, 21) == [
        Told("b", [2], Gathered({"b2": 20, "a2": 21}, 2, True)),
        Told("a", [2], Gathered({"b2": 20, "a2": 21}, 2, True)),
    ]


def test_the_same_name_afterwards_is_another_group() -> None:
    """Nothing of the group that was given out is in it."""
    groups = Groups()
    for call, values in ((1, (10, 12)), (2, (90, 95))):
        told(groups, "a", call, values[0])
        assert told(groups, "b", call, values[1])[0].found.values == {f"a{call}": values[0], f"b{call}": values[1]}


def test_a_member_that_comes_too_late_is_told_so() -> None:
    """The others gave it up: it hears that at once, joins nothing, and with the last of the late ones it is over."""
    groups = Groups()
    told(groups, "a", 1, 10, expected=3)
    assert groups.leave("u", "a", 1) == Gathered({"a1": 10}, 3, False)
    for call in (1, 2):
        late = Gathered({f"b{call}": 50}, 3, False, late=True)
        assert told(groups, "b", call, 50, expected=3) == [Told("b", [call], late)]
    assert told(groups, "b", 2, 50, expected=3) == []  # sent again
    assert told(groups, "b", 3, 70, expected=3) == []  # all have come: this one begins another group
    assert groups.leave("u", "b", 3).values == {"b3": 70}


def test_a_group_is_open_while_somebody_waits() -> None:
    """One member that gives up takes what is there; the others may still be completed."""
    groups = Groups()
    told(groups, "a", 1, 10, expected=3)
    told(groups, "a", 2, 11, expected=3)
    assert groups.leave("u", "a", 1).values == {"a1": 10, "a2": 11}
    (complete, last) = told(groups, "b", 1, 12, expected=3)
    assert (complete.calls, last.calls, complete.found.values) == ([2], [1], {"a1": 10, "a2": 11, "b1": 12})


def test_who_waits_for_nothing_is_told_nothing() -> None:
    """Its value counts, however long it is until somebody asks for it."""
    groups = Groups()
    groups.report(Report("u", "0", 10, 2, 1, waits=False), "a", 0.0)
    assert told(groups, "b", 1, 12) == [Told("b", [1], Gathered({"0": 10, "b1": 12}, 2, True))]


def test_old_groups_are_forgotten() -> None:
    """Memory is bounded by age and by number; what was touched last is kept."""
    groups = Groups(keep=10.0, most=3)
    for number in range(5):
        told(groups, "a", number, 1, uid=f"u{number}")
    assert len(groups) == 3
    assert groups.leave("u0", "a", 0).values == {}
    groups.report(Report("u2", "b", 1, 3, 10), "a", 8.0)
    groups.report(Report("new", "b", 1, 2, 11), "a", 11.0)
    assert groups.leave("u2", "a", 2).values == {"a2": 1, "b": 1}
    assert groups.leave("u4", "a", 4).values == {}


def test_news_are_told_again_until_confirmed() -> None:
    """An answer that is lost on the way is not lost: only a confirmed number lets it go."""

    async def main() -> None:
        desk = GroupCoordinator()
        await desk.exchange("a", 0, [pack(Report("u", "0", 5, 1, 7))], 0.0)
        again = await desk.exchange("a", 0, [], 0.0)
        assert again.given == [([7], pack(Gathered({"0": 5}, 1, True)))]
        assert (await desk.exchange("a", again.number, [], 0.0)).given == []

    asyncio.run(main())


class Unsteady:
    """A desk behind a line that can be cut, and that forgets everything when it is replaced."""

    def __init__(self) -> None:
        self.desk = GroupCoordinator()
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

    async def leave(self, uid: str, client: str, call: int) -> tuple[Any, ...]:
        if self.broken:
            raise ConnectionError("cut")
        return await self.desk.leave(uid, client, call)


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
    """When the desk is lost, what was told to it is told to the next one, by those too who wait for nothing."""

    async def main() -> tuple[Gathered, Gathered]:
        clients[2].tell("u", "2", 3, expected=3)
        early = asyncio.create_task(clients[0].meet("u", "0", 1, expected=3, wait=PATIENCE))
        await clients[0].meet("own", "0", 1, expected=1, wait=PATIENCE)  # sent after it, so that is there too
        await clients[2].meet("own", "0", 1, expected=1, wait=PATIENCE)
        line.desk = GroupCoordinator()
        late = await clients[1].meet("u", "1", 2, expected=3, wait=PATIENCE)
        return await early, late

    for found in asyncio.run(main()):
        assert found.complete
        assert found.values == {"0": 1, "1": 2, "2": 3}


def test_a_name_that_comes_again_is_another_group(clients: list[GroupClient]) -> None:
    """A second run that names its prompts as the first one did: no value of the first is among the second's."""

    async def main(run: int) -> list[Gathered]:
        return await asyncio.gather(
            *(clients[n % 3].meet("u", str(n), (run, n), expected=6, wait=PATIENCE) for n in range(6))
        )

    for run in range(3):
        assert all(found.values == {str(n): (run, n) for n in range(6)} for found in asyncio.run(main(run)))


def test_a_cut_line_after_the_answer_brings_nothing_back(clients: list[GroupClient], line: Unsteady) -> None:
    """Reports are sent again to a desk that has given their group out: the next group of that name is clean."""

    async def main(run: int) -> list[Gathered]:
        line.broken = 2 * run
        return await asyncio.gather(
            *(clients[n].meet("u", str(n), (run, n), expected=3, wait=PATIENCE) for n in range(3))
        )

    for run in range(3):
        assert all(found.values == {str(n): (run, n) for n in range(3)} for found in asyncio.run(main(run)))


def test_who_comes_after_the_others_gave_up_is_late(clients: list[GroupClient]) -> None:
    """It is told so at once, and has no value but its own."""

    async def main() -> tuple[Gathered, Gathered]:
        early = await clients[0].meet("u", "0", 1, expected=2, wait=0.3)
        return early, await clients[1].meet("u", "1", 2, expected=2, wait=PATIENCE)

    early, late = asyncio.run(main())
    assert (early.values, early.complete, early.late) == ({"0": 1}, False, False)
    assert (late.values, late.complete, late.late) == ({"1": 2}, False, True)


def test_without_a_desk_the_own_value_is_there(clients: list[GroupClient], line: Unsteady) -> None:
    """A desk that is gone for good costs the wait; members of this process that wait together know each other."""
    line.broken = 1_000_000

    async def main() -> list[Gathered]:
        patient = asyncio.create_task(clients[0].meet("u", "1", 1, expected=3, wait=PATIENCE))
        hasty = await clients[0].meet("u", "0", 0, expected=3, wait=0.5)
        patient.cancel()
        return [hasty]

    for found in asyncio.run(main()):
        assert not found.complete
        assert found.values == {"0": 0, "1": 1}


def test_every_loop_can_meet(clients: list[GroupClient]) -> None:
    """A client outlives the loops it is used from."""
    for number in range(3):
        found = asyncio.run(clients[0].meet(f"u{number}", "0", 1, expected=1, wait=PATIENCE))
        assert found.complete
