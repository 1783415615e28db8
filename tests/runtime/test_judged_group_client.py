"""Siblings in several processes, judged as one group by one of them: clients and coordinator in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from referee import clock
from referee.runtime.ray_group_client import GroupClient
from referee.runtime.ray_group_coordinator import LONG_POLL, SILENT, Answer, GroupCoordinator, unpack
from referee.runtime.ray_judged_groups import Case, End
from referee.sim import run_virtual

WAIT, LIMIT = 600.0, 500.0


class Cluster:
    """A coordinator that can be replaced, and processes that can be cut off from it."""

    def __init__(self, processes: int = 3, max_bytes: int = 1 << 30) -> None:
        self.max_bytes = max_bytes
        self.coordinator = GroupCoordinator(max_bytes=max_bytes)
        self.processes = [Process(self) for _ in range(processes)]
        self.handed: list[tuple[Process, Case]] = []
        self.dies_with_case = False
        """The first process that is handed a group is cut off."""
        self.lost_with = ""
        """The coordinator is restarted once, after the first message of this kind."""

    def restart(self) -> None:
        """The coordinator is another one, which knows nothing; calls to the old one fail."""
        self.coordinator = GroupCoordinator(max_bytes=self.max_bytes)

    async def exchange(self, process: Process, *call: Any) -> Answer:
        asked, kinds = self.coordinator, {report[0] for report in call[2]}
        answer = await asked.exchange(*call)
        if self.lost_with in kinds | {data[0] for _, data in answer.given}:
            self.lost_with = ""
            self.restart()
        if asked is not self.coordinator or process.cut:
            raise ConnectionError("lost")
        for _, data in answer.given:
            found = unpack(data)
            if isinstance(found, Case) and (process, found) not in self.handed:
                process.cut = self.dies_with_case and not self.handed
                self.handed.append((process, found))
        return answer


class Process(GroupClient):
    """A reward worker's client, on the loop of the test. Its judge is what `judges` says."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(lambda: self)  # type: ignore[arg-type, return-value]
        self.cluster = cluster
        self.cut = False
        self.seconds = 1.0
        self.judged: list[dict[str, bytes]] = []

    def _running(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def _attached(self) -> Any:
        return self

    async def exchange(self, *call: Any) -> Answer:
        """A call to the coordinator, from here."""
        if self.cut:
            await asyncio.Event().wait()
        return await self.cluster.exchange(self, *call)

    async def texts(self, texts: dict[str, bytes]) -> dict[str, bytes]:
        """Judges a group: each end names all members."""
        self.judged.append(texts)
        await clock.sleep(self.seconds)
        return {member: b"%s of %s" % (member.encode(), b"".join(sorted(texts.values()))) for member in texts}

    def member(self, name: str, expected: int, uid: str = "u", wait: float = WAIT) -> Coroutine[Any, Any, End]:
        """One rollout's end."""
        return self.judge(uid, name, name.encode(), expected, self.texts, wait=wait, limit=LIMIT)


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return run_virtual(main())


def of(members: str, *whole: str) -> list[End]:
    """The ends of members that were judged as these groups."""
    groups = whole or (members,)
    return [End(f"{name} of {next(group for group in groups if name in group)}".encode()) for name in members]


def test_one_process_judges_the_whole_group() -> None:
    """Six siblings through three processes: one of them judges all six, once, and each is told its own end."""

    async def main() -> None:
        cluster = Cluster()
        calls = [cluster.processes[n % 3].member(name, 6) for n, name in enumerate("abcdef")]
        assert await asyncio.gather(*calls) == of("abcdef")
        assert len(cluster.handed) == sum(len(process.judged) for process in cluster.processes) == 1

    run(main)


def test_many_groups_at_once_do_not_mix() -> None:
    """However they interleave; the work is spread over the processes."""

    async def main() -> None:
        cluster = Cluster()

        async def sibling(group: int, name: str) -> End:
            await clock.sleep((group * 7 + ord(name) * 13) % 11)
            return await cluster.processes[(group + ord(name)) % 3].member(f"{name}{group:02}", 4, uid=str(group))

        found = await asyncio.gather(*(sibling(group, name) for name in "abcd" for group in range(50)))
        names = [f"{name}{group:02}" for name in "abcd" for group in range(50)]
        wholes = {name[1:]: "".join(f"{other}{name[1:]}" for other in "abcd") for name in names}
        assert found == [End(f"{name} of {wholes[name[1:]]}".encode()) for name in names]
        assert len(cluster.handed) == 50
        assert all(process.judged for process in cluster.processes)

    run(main)


def test_a_sibling_that_never_comes_costs_the_wait_and_one_that_comes_late_is_told() -> None:
    """The group is what is there when the first one has waited long enough, for all of them."""

    async def main() -> None:
        cluster = Cluster()
        one, two, three = cluster.processes
        early = asyncio.gather(one.member("a", 4), two.member("b", 4))
        await clock.sleep(WAIT - 100)
        third = asyncio.create_task(three.member("c", 4))
        await clock.sleep(110)
        assert await three.member("d", 4) == End(b"", "late")
        assert [*await early, await third] == of("abc")
        assert clock.now() < WAIT + 100

    run(main)


def test_a_process_that_dies_while_it_judges_is_replaced() -> None:
    """Another one that waits is handed the same group, the dead one's text with it."""

    async def main() -> None:
        cluster = Cluster()
        cluster.dies_with_case = True
        one, two, three = cluster.processes
        three.seconds = 1e6
        last = asyncio.gather(one.member("a", 3), two.member("b", 3))
        await clock.sleep(1)
        dead = asyncio.create_task(three.member("c", 3))
        assert [*await last] == of("abc")[:2]
        (judge, case), (other, again) = cluster.handed
        assert judge is three
        assert other is not three
        assert again == case
        assert clock.now() < SILENT + 3 * LONG_POLL
        dead.cancel()

    run(main)


def test_a_process_that_judges_for_long_is_left_alone() -> None:
    """It is heard of all the time, so nobody takes its group over."""

    async def main() -> None:
        cluster = Cluster()
        for process in cluster.processes:
            process.seconds = 5 * SILENT
        calls = [process.member(name, 3) for process, name in zip(cluster.processes, "abc", strict=True)]
        assert await asyncio.gather(*calls) == of("abc")
        assert len(cluster.handed) == 1

    run(main)


@pytest.mark.parametrize("moment", ["Text", "Case", "Ends"])
def test_a_lost_coordinator_costs_a_delay_and_no_group(moment: str) -> None:
    """While it gathers texts, while the group is judged, and with the ends that it was about to tell."""

    async def main() -> None:
        cluster = Cluster()
        cluster.lost_with = moment
        one, two, three = cluster.processes
        first = asyncio.gather(one.member("a", 3), two.member("b", 3))
        await clock.sleep(10)
        third = await three.member("c", 3)
        assert [*await first, third] == of("abc")
        assert cluster.lost_with == ""
        assert clock.now() < 10 + 3 * LONG_POLL

    run(main)


def test_a_new_coordinator_is_given_time_to_hear_of_all() -> None:
    """The wait of one is over when the others have not told it of themselves yet: it does not make do with that one."""

    async def main() -> None:
        cluster = Cluster()
        one, two, three = cluster.processes
        early = asyncio.gather(
            *(process.member(name, 4) for process, name in zip((one, two, three), "abc", strict=True))
        )
        await clock.sleep(WAIT - 1)
        two.cut = three.cut = True
        cluster.restart()
        await clock.sleep(10)
        two.cut = three.cut = False
        assert await early == of("abc")

    run(main)


@pytest.mark.parametrize("leaving", ["a", "c"])
def test_a_caller_that_leaves_does_not_lose_its_siblings(leaving: str) -> None:
    """Its text stays; and if its process is handed the group, that judges it all the same."""

    async def main() -> None:
        cluster = Cluster()
        calls = {
            name: asyncio.create_task(process.member(name, 3))
            for process, name in zip(cluster.processes, "abc", strict=True)
        }
        await clock.sleep(0.001 if leaving == "a" else 0.5)
        calls[leaving].cancel()
        others = [name for name in "abc" if name != leaving]
        assert [await calls[name] for name in others] == [End(f"{name} of abc".encode()) for name in others]
        assert calls[leaving].cancelled()

    run(main)


def test_every_wait_has_an_end() -> None:
    """Without a coordinator, or where nobody who judges answers."""

    async def main() -> None:
        cluster = Cluster(1)
        (one,) = cluster.processes
        one.seconds = 1e6
        assert await one.member("a", 1, uid="v") == End(b"", "lost")
        one.cut = True
        assert await one.member("a", 2) == End(b"", "lost")
        assert clock.now() == pytest.approx(2 * (WAIT + LIMIT), rel=0.1)

    run(main)


def test_what_has_no_room_is_told_so() -> None:
    """Its siblings go on without it when they have waited long enough."""

    async def main() -> None:
        cluster = Cluster(max_bytes=2)
        one, two, three = cluster.processes
        first = asyncio.gather(one.member("a", 3), two.member("b", 3))
        await clock.sleep(1)
        assert await three.member("c", 3) == End(b"", "full")
        assert [*await first] == of("ab")

    run(main)


def test_a_caller_that_has_given_up_hands_the_group_on() -> None:
    """A process is handed a group for a call that is over: another call judges it."""

    async def main() -> None:
        cluster = Cluster()
        one, two, three = cluster.processes
        three.seconds = 1e6
        hasty = one.judge("u", "a", b"a", 3, one.texts, wait=5.0, limit=30.0)
        calls = [asyncio.create_task(work) for work in (hasty, two.member("b", 3), three.member("c", 3))]
        await clock.sleep(40)
        assert calls[0].result() == End(b"", "lost")
        three.cut = True
        assert await calls[1] == End(b"b of abc")
        calls[2].cancel()

    run(main)


def test_a_member_that_is_gone_is_not_waited_for() -> None:
    """The others are judged at once, long before their wait is over."""

    async def main() -> None:
        cluster = Cluster()
        calls = [cluster.processes[n].member(name, 3) for n, name in enumerate("ab")]
        cluster.processes[2].gone("u", "c", 3)
        assert await asyncio.gather(*calls) == of("ab")
        assert clock.now() < WAIT / 10

    run(main)
