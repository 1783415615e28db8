"""Several teams on one engine, in virtual time: what each spends and sends, and that none of them harms another."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.harness import HOST, config_for, samples
from tests.engine.test_bill import groups

from referee import clock
from referee.engine.port import Response
from referee.limits.budget import nano
from referee.records import Reward, Sample, Unscored
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

PRICE = 10.0
PRICED = {"price_in": PRICE, "price_out": PRICE}
NOON = 1_795_003_200.0
TODAY = "2026-11-18"


class Bill(SimTransport):
    """A provider that knows by the text of a request whose it is: when each arrived, and what it was billed."""

    def __init__(self, provider: Mapping[str, Provider]) -> None:
        super().__init__(provider)
        self.arrived: dict[str, list[float]] = {}
        self.nano: dict[str, int] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        found = re.search(rb"of-(\w+)", body)
        name = found[1].decode() if found else ""
        self.arrived.setdefault(name, []).append(clock.now())
        answer = await super().post(url, headers, body, timeout)
        if answer.status == 200:
            usage = msgspec.json.decode(answer.body)["usage"]
            tokens = usage["prompt_tokens"] + usage["completion_tokens"]
            self.nano[name] = self.nano.get(name, 0) + tokens * round(PRICE * 1000)
        return answer


class Desk:
    """A scorer with teams, and what its provider saw."""

    def __init__(self, folder: Path, teams: list[dict[str, Any]], spec: ProviderSpec, **sections: Any) -> None:
        settings = [{"token_env": f"T{number}", **team} for number, team in enumerate(teams)]
        serve = {"state": str(folder / "serve.sqlite")}
        judge = sections.pop("judge", {"max_tokens": 64})
        endpoint = {**PRICED, **sections.pop("endpoint", {})}
        self.config = config_for([HOST], endpoints=[endpoint], team=settings, serve=serve, judge=judge, **sections)
        self.bill = Bill({HOST: Provider(spec, 1)})
        self.scorer: Scorer = build_scorer(self.config, self.bill, random.Random(1), b"secret")
        self.state = folder / "serve.sqlite"

    async def judge(self, team: str, given: list[Sample], seconds: float = 3000.0, late: float = 0.0) -> list[Reward]:
        """Have a team's samples judged, `late` seconds from now."""
        rewards: dict[int, Reward] = {}

        def deliver(landed: list[Reward], error: Any, done: bool) -> None:
            assert error is None, error
            rewards.update({reward.index: reward for reward in landed})

        await clock.sleep(late)
        batch = Batch(f"b-{team}", given, self.config, seconds, deliver)
        batch.team = team
        await self.scorer.run(batch)
        return [rewards[index] for index in range(len(given))]

    def kept(self, period: str = TODAY) -> dict[str, int]:
        """Nano-dollars in the file, by team."""
        with closing(sqlite3.connect(self.state)) as link:
            rows = link.execute("SELECT team, SUM(held) FROM spent WHERE period = ? GROUP BY team", (period,))
            return dict(rows.fetchall())


def play(
    folder: Path,
    teams: list[dict[str, Any]],
    story: Callable[[Desk], Coroutine[Any, Any, Any]],
    spec: ProviderSpec | None = None,
    orderly: bool = True,
    **sections: Any,
) -> Desk:
    """Play a story with a desk; not `orderly`: the process is killed at its end."""

    async def main() -> Desk:
        desk = Desk(folder, teams, spec or ProviderSpec(latency_median=0.5), **sections)
        await story(desk)
        if orderly:
            await desk.scorer.aclose()
        return desk

    return run_virtual(main())


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wall time begins at noon UTC and goes with the loop."""

    def wall() -> float:
        try:
            return NOON + asyncio.get_running_loop().time()
        except RuntimeError:
            return NOON

    monkeypatch.setattr(clock, "wall", wall)


def rollouts(team: str, count: int, name: str = "n") -> list[Sample]:
    return samples(count, f"of-{team} {name}")


def costs(rewards: list[Reward]) -> int:
    return sum(nano(reward.settled.cost) for reward in rewards)


def ends(rewards: list[Reward]) -> dict[str, int]:
    found: dict[str, int] = {}
    for reward in rewards:
        name = "scored" if reward.scored else str(reward.verdict.reason)
        found[name] = found.get(name, 0) + 1
    return found


@pytest.mark.parametrize("concurrency", [1, 20, "auto"])
def test_a_budget_is_used_up_and_no_nano_dollar_more(tmp_path: Path, concurrency: Any) -> None:
    """The team's rows, the provider's bill and the kept sums agree; another team is judged as if nothing was."""
    found: dict[str, list[Reward]] = {}

    async def story(desk: Desk) -> None:
        math, code = await asyncio.gather(
            desk.judge("math", rollouts("math", 600)), desk.judge("code", rollouts("code", 64))
        )
        found.update(math=math, code=code)

    teams = [{"name": "math", "budget_usd_day": 0.2}, {"name": "code", "budget_usd_month": 5.0}]
    desk = play(tmp_path, teams, story, limits={"concurrency": concurrency})
    assert ends(found["code"]) == {"scored": 64}
    assert set(ends(found["math"])) == {"scored", "budget"}
    for name, rewards in found.items():
        assert costs(rewards) == desk.bill.nano[name] == desk.kept()[name] == desk.kept("2026-11")[name]
    left = nano(0.2) - desk.bill.nano["math"]
    detail = next(reward.verdict.detail for reward in found["math"] if isinstance(reward.verdict, Unscored))
    assert detail.startswith("team math: budget_usd_day = 0.2 has no room for another request: ")
    worst = float(detail.split("could cost up to ")[1].split(",")[0])
    assert 0 <= left < nano(1.06 * worst)


def test_a_restart_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    """The second run has what the first one left; the third has nothing, and says so without a request."""
    spent = []
    for number in range(3):
        more = rollouts("math", 200, f"run {number}")
        desk = play(tmp_path, [{"name": "math", "budget_usd_day": 0.1}], lambda desk: desk.judge("math", more[:60]))  # noqa: B023
        spent.append(desk.bill.nano.get("math", 0))
        assert sum(spent) == desk.kept()["math"] <= nano(0.1)
    assert spent[0] > 0
    assert spent[2] == 0


@pytest.mark.parametrize("after", [0.3, 1.1, 2.7])
def test_a_kill_forgets_nothing_that_was_spent(tmp_path: Path, after: float) -> None:
    """What had been leased counts as spent: all runs together stay within the budget."""
    billed = 0
    for number in range(6):

        async def story(desk: Desk, number: int = number) -> None:
            working = asyncio.ensure_future(desk.judge("math", rollouts("math", 400, f"run {number}")))
            await clock.sleep(after)
            working.cancel()  # no more of the story: the file stays as it is at this moment

        desk = play(tmp_path, [{"name": "math", "budget_usd_day": 0.1}], story, orderly=False)
        billed += desk.bill.nano.get("math", 0)
        assert billed <= desk.kept()["math"] <= nano(0.1)


def test_a_rate_is_kept_in_every_minute_and_is_the_teams_own(tmp_path: Path) -> None:
    """60 a minute of the one team, while the other is judged at the provider's pace."""
    done: dict[str, float] = {}

    async def one(desk: Desk, team: str, count: int, late: float) -> None:
        assert ends(await desk.judge(team, rollouts(team, count), late=late)) == {"scored": count}
        done[team] = clock.now()

    async def story(desk: Desk) -> None:
        await asyncio.gather(one(desk, "slow", 150, 0.0), one(desk, "fast", 300, 5.0))

    teams = [{"name": "slow", "rpm": 60}, {"name": "fast"}]
    desk = play(tmp_path, teams, story, limits={"concurrency": 10})
    arrived = desk.bill.arrived["slow"]
    assert max(sum(at <= other < at + 60 for other in arrived) for at in arrived) <= 60
    assert done["slow"] > 90
    assert done["fast"] < 5 + 2 * 300 * 0.5 / 10


@pytest.mark.parametrize("bound", [{"budget_usd_day": 0.000_01}, {"rpm": 1}, {}])
def test_a_greedy_team_takes_turns_with_the_others(tmp_path: Path, bound: dict[str, Any]) -> None:
    """64 samples beside 5,000, whether those wait for money, for their rate or only for their turn, are judged in
    twice the time they take alone, or less."""

    def seconds(greedy: bool, folder: Path) -> float:
        folder.mkdir()
        found = []

        async def story(desk: Desk) -> None:
            large = asyncio.ensure_future(desk.judge("large", rollouts("large", 5_000 if greedy else 1), 300.0))
            began = await clock.sleep(20.0) or clock.now()
            assert ends(await desk.judge("small", rollouts("small", 64))) == {"scored": 64}
            found.append(clock.now() - began)
            large.cancel()

        play(folder, [{"name": "large", **bound}, {"name": "small"}], story, limits={"concurrency": 8})
        return found[0]

    alone, beside = seconds(False, tmp_path / "alone"), seconds(True, tmp_path / "beside")
    assert beside < alone * (1.2 if bound else 2.4)


@pytest.mark.parametrize("first", [{}, {"budget_usd_day": 0.000_01}, {"rpm": 1}])
def test_a_question_of_two_teams_is_asked_once(tmp_path: Path, first: dict[str, Any]) -> None:
    """Whoever is let through first pays. A team that may not send gets the answer that the other has paid for."""
    found: dict[str, list[Reward]] = {}

    async def story(desk: Desk) -> None:
        same = rollouts("any", 40)
        one, two = await asyncio.gather(desk.judge("one", same), desk.judge("two", same, late=0.1))
        found.update(one=one, two=two)

    desk = play(tmp_path, [{"name": "one", **first}, {"name": "two"}], story, limits={"concurrency": 5})
    assert ends(found["two"]) == {"scored": 40}
    if "budget_usd_day" not in first:  # that one has given up before the other came
        assert ends(found["one"]) == {"scored": 40}
        assert len(desk.bill.arrived["any"]) == 40
        assert {r.settled.origin for r in found["two"]} <= {"shared", "call", "cache"}
    assert costs(found["one"]) + costs(found["two"]) == desk.bill.nano["any"]
    kept = desk.kept()
    assert (costs(found["one"]), costs(found["two"])) == (kept.get("one", 0), kept.get("two", 0))


@pytest.mark.parametrize("faults", [{"no_verdict": 0.4}, {"http_503": 0.3}, {"throttle_seconds": 0.3}], ids=str)
@pytest.mark.parametrize("mode", ["off", "warm"])
def test_a_question_of_several_teams_that_is_tried_again(tmp_path: Path, faults: dict[Any, float], mode: str) -> None:
    """Every team has its verdicts long before the deadline, and what rows, sums and bill say is the same."""
    found: list[Reward] = []

    async def story(desk: Desk) -> None:
        same = groups(8, 4, 900)
        for rewards in await asyncio.gather(*(desk.judge(team, same, seconds=300.0) for team in ("a", "b", "c"))):
            found.extend(rewards)
        assert clock.now() < 100.0

    teams = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    spec = ProviderSpec(latency_median=1.0, latency_sigma=0.3, faults=faults)
    limits = {"concurrency": 3, "deadline": 600.0}
    desk = play(tmp_path, teams, story, spec, limits=limits, endpoint={"prefix_cache": mode})
    assert set(ends(found)) <= {"scored", "no_verdict"}
    assert costs(found) == sum(desk.bill.nano.values()) == sum(desk.kept().values())


def test_who_leaves_does_not_take_the_answer_from_another_team(tmp_path: Path) -> None:
    """The other asks for itself, and pays for that."""

    async def story(desk: Desk) -> None:
        same = rollouts("any", 5)
        one = asyncio.ensure_future(desk.judge("one", same))
        two = asyncio.ensure_future(desk.judge("two", same, late=0.2))
        await clock.sleep(0.4)
        one.cancel()
        rewards = await two
        assert ends(rewards) == {"scored": 5}
        assert costs(rewards) > 0

    desk = play(tmp_path, [{"name": "one"}, {"name": "two"}], story, ProviderSpec(latency_median=2.0))
    assert len(desk.bill.arrived["any"]) == 10


def test_cached_verdicts_cost_a_team_nothing(tmp_path: Path) -> None:
    """Also one whose budget is spent is answered from the cache, by whomever it was filled."""

    async def story(desk: Desk) -> None:
        same = rollouts("any", 30)
        assert ends(await desk.judge("rich", same)) == {"scored": 30}
        rewards = await desk.judge("poor", same + rollouts("poor", 1))
        assert ends(rewards) == {"scored": 30, "budget": 1}
        assert {reward.settled.origin for reward in rewards[:30]} == {"cache"}

    desk = play(tmp_path, [{"name": "rich"}, {"name": "poor", "budget_usd_day": 0.000_01}], story)
    assert desk.kept().get("poor", 0) == 0


def test_a_new_day_has_its_own_money(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After midnight UTC a team is judged again, and each day has what was sent in it."""
    evening, before = 43_200.0 - 60.0, clock.wall
    monkeypatch.setattr(clock, "wall", lambda: before() + evening)

    async def story(desk: Desk) -> None:
        assert "budget" in ends(await desk.judge("math", rollouts("math", 100)))
        await clock.sleep(61.0 - clock.now())
        assert "scored" in ends(await desk.judge("math", rollouts("math", 100, "again")))

    desk = play(tmp_path, [{"name": "math", "budget_usd_day": 0.2}], story)
    days = desk.kept()["math"], desk.kept("2026-11-19")["math"]
    assert all(nano(0.15) < day <= nano(0.2) for day in days)
    assert sum(days) == desk.kept("2026-11")["math"] == desk.bill.nano["math"]


@pytest.mark.parametrize(
    ("team", "seconds"),
    [({"budget_usd_day": 0.02, "budget_usd_month": 0.3}, 400.0), ({"budget_usd_month": 0.3, "rpm": 30}, 20.0)],
    ids=["a day too small for a request", "requests that still wait at the end"],
)
def test_what_was_leased_and_not_spent_is_given_back(tmp_path: Path, team: dict[str, Any], seconds: float) -> None:
    """After an orderly end the sums are what was spent, of the day and of the month."""
    desk = play(
        tmp_path,
        [{"name": "math", **team}],
        lambda desk: desk.judge("math", rollouts("math", 60), seconds=seconds),
        limits={"concurrency": 2},
    )
    assert desk.kept().get("math", 0) == desk.kept("2026-11").get("math", 0) == desk.bill.nano.get("math", 0)


def test_one_teams_missing_samples_do_not_stop_another(tmp_path: Path) -> None:
    """What a spent budget leaves unscored counts for no `abort_above`, and each team's own troubles for its own."""

    async def story(desk: Desk) -> None:
        assert ends(await desk.judge("poor", rollouts("poor", 400))) == {"budget": 400}
        assert ends(await desk.judge("rich", rollouts("rich", 40))) == {"scored": 40}

    play(
        tmp_path,
        [{"name": "poor", "budget_usd_day": 0.000_01}, {"name": "rich"}],
        story,
        missing={"abort_above": 0.01},
    )


def test_a_state_that_cannot_be_written_stops_only_teams_with_a_budget(tmp_path: Path) -> None:
    """Their samples wait for it until their deadline; a team without one is judged."""

    async def story(desk: Desk) -> None:
        desk.state.mkdir()
        rich, poor = await asyncio.gather(
            desk.judge("free", rollouts("free", 20)), desk.judge("bound", rollouts("bound", 20), seconds=30.0)
        )
        assert ends(rich) == {"scored": 20}
        assert ends(poor) == {"deadline": 20}
        assert "bound" not in desk.bill.arrived

    play(tmp_path, [{"name": "free"}, {"name": "bound", "budget_usd_day": 1.0}], story)
