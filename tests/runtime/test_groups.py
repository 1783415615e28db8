"""Whole groups from a client through workers and back, in virtual time: any order, any delays, any losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.group_judges import KIND, RankJudge, registered
from tests.runtime.fleet import Fleet, Job, sail

from referee import clock
from referee.judging import Deliberation, Form
from referee.judging.registry import Materials
from referee.records import Reason, Sample, Unscored, Verdict
from referee.runtime import routing
from referee.scoring.messages import Work
from referee.sim import ProviderSpec

RANK = {"name": "rank", "kind": KIND}
QUALITY = {"name": "quality", "kind": "yes_no"}
SLOW = ProviderSpec(latency_median=0.2, latency_sigma=1.0, tail_share=0.1)
"""Answers come in any order."""

ENDED = Unscored(reason=Reason.CANCELLED)

names = st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=1, max_size=30)
seeds = st.integers(1, 10_000)


@pytest.fixture(autouse=True, scope="module")
def small_messages() -> Iterator[None]:
    """Messages and steps that would divide groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "MESSAGE_SAMPLES", 3)
        patch.setattr(routing, "ROUTE_STEP", 2)
        yield


class Watched:
    """Makes judges that note which groups they were given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    def __call__(self, given: Materials) -> RankJudge:
        seen = self.seen

        class Judge(RankJudge):
            def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
                seen.append(tuple(sample.id for sample in samples))
                return super().deliberate(samples, form)

        return Judge(given)


def samples(groups: Sequence[str]) -> list[Sample]:
    return [
        Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}", id=str(n), group=name)
        for n, name in enumerate(groups)
    ]


def whole(groups: Sequence[str]) -> list[tuple[str, ...]]:
    """The groups a judge must be given, as ids."""
    found: dict[str | int, list[str]] = {}
    for n, name in enumerate(groups):
        found.setdefault(name or n, []).append(str(n))
    return [tuple(ids) for ids in found.values()]


def check(job: Job, groups: Sequence[str]) -> None:
    """Every sample has one end; one with a verdict was ranked in its whole group."""
    wanted = {id: ",".join(ids) for ids in whole(groups) for id in ids}
    for index, reward in enumerate(job.rewards):
        assert reward is not None
        verdict = next(term.settled.verdict for term in reward.terms if term.judge == "rank")
        if isinstance(verdict, Verdict):
            assert (verdict.score, verdict.reason) == (index % 10 + 1, wanted[str(index)])


@settings(deadline=None, max_examples=25)
@given(names, st.integers(1, 3), st.booleans(), st.booleans(), seeds)
def test_any_order_of_groups_and_any_delays(
    groups: list[str], hosts: int, balanced: bool, beside: bool, seed: int
) -> None:
    """Each sample gets one result, and the judge sees each group once, complete, in the caller's order."""
    judge = [QUALITY, RANK] if beside else RANK
    watched = Watched()

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(groups))
        await job.result()
        check(job, groups)
        assert job.reasons() == {"scored": len(groups)}

    with registered(watched):
        sail(story, SLOW, hosts=hosts, alone=balanced, seed=seed, judge=judge)
    assert Counter(watched.seen) == Counter(whole(groups))


@settings(deadline=None, max_examples=25)
@given(names, st.integers(1, 3), seeds, st.floats(0.0, 3.0), st.booleans())
def test_an_end_at_any_moment(groups: list[str], hosts: int, seed: int, moment: float, cancelled: bool) -> None:
    """Deadline or cancel: each sample has one end, and no judge was given a part of a group."""
    watched = Watched()

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(groups), seconds=600.0 if cancelled else max(0.01, moment))
        if cancelled:
            await clock.sleep(moment)
            fleet.remote.cancel(job.batch, ENDED)
        await job.result()
        check(job, groups)
        assert set(job.reasons()) <= {"scored", "cancelled" if cancelled else "deadline"}

    with registered(watched):
        sail(story, SLOW, hosts=hosts, seed=seed, judge=RANK, missing={"abort_above": 1.0})
    assert not Counter(watched.seen) - Counter(whole(groups))


@settings(deadline=None, max_examples=25)
@given(names, seeds, st.lists(st.floats(0.0, 1.0), max_size=2), st.booleans())
def test_workers_lost_at_any_moment(groups: list[str], seed: int, moments: list[float], balanced: bool) -> None:
    """Groups are judged again whole: every sample has its verdict, once."""
    watched = Watched()

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(groups))
        for number, moment in enumerate(moments):
            await clock.sleep(moment)
            await fleet.kill(number % 2)
            fleet.revive(number % 2)
        await job.result()
        check(job, groups)
        assert job.reasons() == {"scored": len(groups)}

    with registered(watched):
        sail(story, SLOW, hosts=2, alone=balanced, seed=seed, judge=[RANK, QUALITY])
    assert set(watched.seen) == set(whole(groups))


def test_siblings_that_landed_before_the_loss_keep_their_result() -> None:
    """Their group is judged again with them, for the one that had none, and gives the same verdicts."""
    groups = ["a", "b", "c", "d", "e"] * 4
    watched = Watched()

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(groups))
        while not (partly := _partly(job, groups)) and not job.done.is_set():
            await clock.sleep(0.005)
        assert partly, "no group has landed in part"
        before = list(job.rewards)
        watched.seen.clear()
        for number in range(2):
            await fleet.kill(number)
            fleet.revive(number)
        await job.result()
        check(job, groups)
        assert job.reasons() == {"scored": len(groups)}
        for index, reward in enumerate(before):
            assert reward is None or job.rewards[index] is reward
        assert set(partly) <= set(watched.seen)

    with registered(watched):
        sail(story, SLOW, hosts=2, judge=[RANK, QUALITY])


def test_work_that_is_sent_twice_is_begun_again_in_whole_groups_only() -> None:
    """A group of which a sample has ended, and its result may be lost, is judged anew; the others go on."""
    groups = ["a", "b", "c", "d", "e"] * 4
    watched = Watched()

    async def story(fleet: Fleet) -> None:
        given = samples(groups)
        job = fleet.submit(given)
        while not (partly := _partly(job, groups)) and not job.done.is_set():
            await clock.sleep(0.005)
        done = {ids for ids in whole(groups) if all(job.rewards[int(id)] is not None for id in ids)}
        watched.seen.clear()
        fleet.hosts[0].take(Work(1, "b", 60.0, 60.0, tuple(range(len(given))), tuple(given)))
        await job.result()
        check(job, groups)
        assert partly
        assert set(watched.seen) == {*partly, *done}

    with registered(watched):
        sail(story, SLOW, hosts=1, judge=[RANK, QUALITY])


def _partly(job: Job, groups: Sequence[str]) -> list[tuple[str, ...]]:
    """Groups of which some samples have a reward and some have none."""
    return [ids for ids in whole(groups) if len({job.rewards[int(id)] is None for id in ids}) == 2]
