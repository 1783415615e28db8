"""What a worker begins next: further rounds before new cases, jobs in turn, all of it counted in questions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.scoring.test_case import SAMPLE, ask

from referee import clock
from referee.records import Reason, Unscored
from referee.scoring.case import Case
from referee.scoring.job import Job
from referee.scoring.messages import Work
from referee.scoring.room import PLAN_AHEAD, Room
from referee.sim import run_virtual

FULL = -PLAN_AHEAD


class Engine:
    """Endpoints with so much room, and what was begun there."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.begun: list[str] = []
        self.room = Room(self._begin)

    def _begin(self, job: Job, case: Case, asks: Any) -> None:
        self.begun.append(asks[0].nonce)
        self.free -= len(asks)

    def ended(self, count: int) -> None:
        """So many questions have their answers."""
        self.free += count
        self.room.changed()

    def job(self, number: int = 1, caller: str = "") -> Job:
        """A job whose judge asks these endpoints."""
        work = Work(number, "b", 9.0, 9.0, (0,), (SAMPLE,), caller)
        return Job("", work, number, float(number), rooms=[lambda: self.free])


def play(story: Coroutine[Any, Any, None]) -> None:
    run_virtual(story)


def test_a_further_round_begins_at_once_where_there_is_room() -> None:
    """It may exceed the room by its own questions, and then nothing else begins."""

    async def story() -> None:
        engine = Engine(FULL + 1)
        engine.room.next_round(engine.job(), Case(0, (0,)), [ask("large")] * 240)
        assert engine.begun == ["large"]
        engine.room.next_round(engine.job(), Case(0, (0,)), [ask("next")])
        engine.ended(239)
        await clock.breathe()
        assert engine.begun == ["large"]
        engine.ended(1)
        await clock.breathe()
        assert engine.begun == ["large", "next"]

    play(story())


def test_rounds_that_wait_go_before_new_cases() -> None:
    """In their order, each when there is room; a job that waited longer is woken after them."""

    async def story() -> None:
        engine = Engine(FULL)
        waiting = engine.job()
        new = asyncio.ensure_future(engine.room.wait(waiting))
        await clock.breathe()
        for name in ("first", "second"):
            engine.room.next_round(engine.job(), Case(0, (0,)), [ask(name)] * 40)
        assert engine.room.spare(waiting) == 0
        engine.ended(40)
        await clock.breathe()
        assert engine.begun == ["first"]
        assert not new.done()
        engine.ended(30)
        await clock.breathe()
        assert engine.begun == ["first", "second"]
        assert engine.room.spare(waiting) <= 0
        engine.ended(80)
        await asyncio.wait_for(new, 1.0)
        assert engine.room.spare(waiting) > 0

    play(story())


def test_a_round_whose_case_was_ended_meanwhile_is_not_begun() -> None:
    """It asks nothing more, and takes no room."""

    async def story() -> None:
        engine, case = Engine(FULL), Case(0, (0,))
        engine.room.next_round(engine.job(), case, [ask("ended")])
        engine.room.next_round(engine.job(), Case(0, (0,)), [ask("open")])
        case.verdicts = [Unscored(reason=Reason.CANCELLED)]
        engine.ended(1)
        await clock.breathe()
        assert engine.begun == ["open"]

    play(story())
