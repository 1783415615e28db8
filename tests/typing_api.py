"""The public names as a typed program uses them. mypy --strict reads this; nothing runs it."""

from __future__ import annotations

from referee import Referee, Reward, Sample, Ticket, Unscored, Verdict


def blocking() -> list[float | None]:
    with Referee.from_config({"endpoint": {"model": "m"}}) as referee:
        ticket: Ticket = referee.submit([Sample(prompt="p", response="r")], deadline=10.0)
        for reward in ticket:
            took: Reward = reward
            assert took.scored
        rewards: list[Reward] = ticket.result(timeout=1.0)
        metrics: dict[str, float] = referee.metrics()
        assert metrics
        return [reward.value for reward in rewards]


async def awaiting(referee: Referee) -> str:
    ticket = referee.submit([Sample(prompt="p", response="r")])
    async for reward in ticket:
        assert isinstance(reward.index, int)
    first: Reward = (await ticket)[0]
    again: list[Reward] = await referee.ascore([Sample(prompt="p", response="r")])
    assert again
    verdict = first.verdict
    if isinstance(verdict, Unscored):
        return verdict.reason.value
    judged: Verdict = verdict
    return judged.reason
