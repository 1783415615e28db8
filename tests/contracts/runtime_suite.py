"""What every runtime promises, wherever it runs. A test class inherits these and says how its Referee is opened."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contracts.group_judges import BOOT, KIND, build_with_groups, registered

from referee import clock
from referee import referee as entry
from referee.config import load
from referee.errors import EndpointClosed, InputError, TicketCancelled, TicketTimeout, WrongContext
from referee.ledger import read
from referee.ledger.metrics import metrics
from referee.records import Reward, Sample, Verdict
from referee.referee import Referee
from referee.report import build
from referee.runtime import child
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport, start_server_process
from referee.ticket import Ticket

PATIENCE = 50.0
"""Seconds to wait for something that must come. Nothing is asserted about time."""
BASE: dict[str, Any] = {
    "endpoint": {"url": "http://sim.test/v1", "model": "m", "key_env": ""},
    "cache": {"path": ""},
}
Make = Callable[..., Referee]


def samples(count: int) -> list[Sample]:
    """So many rollouts of qualities 1 to 10, each different."""
    return [Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}", id=str(n)) for n in range(count)]


def scores(rewards: list[Any]) -> list[float]:
    """The judge's scores."""
    return [reward.verdict.score for reward in rewards]


def reasons(rewards: list[Any]) -> set[str]:
    """Why samples were not scored."""
    return {str(reward.verdict.reason) for reward in rewards}


def open_in_process(runtime: str, spec: ProviderSpec, sections: dict[str, Any]) -> Referee:
    """A Referee whose provider is simulated in this very process."""
    config = load({**BASE, **sections, "runtime": runtime})
    return Referee(config, worker_with(lambda: SimTransport(Provider(spec, 1))))


def open_over_http(runtime: str, spec: ProviderSpec, sections: dict[str, Any], stack: contextlib.ExitStack) -> Referee:
    """A Referee whose provider is a process of its own, for runtimes that leave this one."""
    server = stack.enter_context(start_server_process(spec, 1))
    endpoint = {**BASE["endpoint"], **sections.get("endpoint", {}), "url": server.url}
    config = load({**BASE, **sections, "endpoint": endpoint, "runtime": runtime})
    if runtime == "ray" and any(judge.kind == KIND for judge in config.judge):
        return Referee(config, build_with_groups)
    return Referee(config)


TWO = [
    {"name": "quality", "kind": "score", "weight": 0.75},
    {"name": "safe", "kind": "yes_no", "weight": 0.25},
    {"name": "watched", "kind": "integer", "weight": 0.0},
]


class Opening:
    """How the Referees of a test are opened and closed."""

    def open(self, spec: ProviderSpec, sections: dict[str, Any], stack: contextlib.ExitStack) -> Referee:
        """A Referee on a provider like this. What must be closed later goes on the stack."""
        raise NotImplementedError

    @pytest.fixture
    def make(self) -> Iterator[Make]:
        """Opens Referees, and closes them before their providers."""
        with contextlib.ExitStack() as stack:

            def make(spec: ProviderSpec | None = None, **sections: Any) -> Referee:
                referee = self.open(spec or ProviderSpec(), sections, stack)
                stack.callback(referee.close)
                return referee

            yield make


class RuntimeContract(Opening):
    """Order, no hang, no leak."""

    def test_a_judge_that_is_never_readable_is_one_warning_with_a_reply(
        self, make: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        """At the first batch without a score; later ones of the same Referee are in its metrics."""
        referee = make(ProviderSpec(faults={"no_verdict": 1.0}), judge={"ask_again": 0}, missing={"abort_above": 1.0})
        with caplog.at_level("WARNING", logger="referee"):
            for _ in range(2):
                assert not any(reward.scored for reward in referee.submit(samples(8)).result(PATIENCE))
        said = [record.getMessage() for record in caplog.records if "no sample of a batch of 8" in record.getMessage()]
        assert len(said) == 1
        assert "no_verdict 8" in said[0]
        assert "reply, for example: '" in said[0]

    def test_an_outage_that_lasts_is_told_again(
        self, make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every ten minutes, which are none here."""
        monkeypatch.setattr(entry, "WARN_EVERY_S", 0.0)
        referee = make(ProviderSpec(faults={"no_verdict": 1.0}), judge={"ask_again": 0}, missing={"abort_above": 1.0})
        with caplog.at_level("WARNING", logger="referee"):
            for _ in range(2):
                referee.submit(samples(8)).result(PATIENCE)
        assert sum("no sample of a batch of 8" in record.getMessage() for record in caplog.records) == 2

    def test_a_batch_that_no_judge_was_shown_is_a_warning(self, make: Make, caplog: pytest.LogCaptureFixture) -> None:
        """All cut at the token limit: the lowest scores are the gate's, which metrics alone do not tell."""
        referee, cut = make(), [replace(sample, truncated=True) for sample in samples(3)]
        with caplog.at_level("WARNING", logger="referee"):
            referee.submit([*cut, *samples(1)]).result(PATIENCE)
            referee.submit(cut[:1]).result(PATIENCE)
            assert not [record for record in caplog.records if "gate truncated" in record.getMessage()]
            assert scores(referee.submit(cut).result(PATIENCE)) == [1, 1, 1]
        said = [record.getMessage() for record in caplog.records if "batch of 3" in record.getMessage()]
        assert len(said) == 1
        assert "token limit (3)" in said[0]

    def test_rewards_come_back_in_order(self, make: Make) -> None:
        """Twenty samples, twenty rewards, each its own."""
        assert scores(make().score(samples(20))) == [n % 10 + 1 for n in range(20)]

    def test_a_batch_may_be_judged_by_some_of_the_judges(self, make: Make, tmp_path: Path) -> None:
        """Its rewards are made of their terms alone, and so are the ledger's lines; the report reads that."""
        referee = make(judge=TWO, ledger={"dir": str(tmp_path)})
        one = referee.submit(samples(10), judges=("quality",)).result(PATIENCE)
        two = referee.submit(samples(10), judges=("watched", "quality")).result(PATIENCE)
        everything = referee.score(samples(10))
        assert [len(reward.terms) for reward in (one[0], two[0], everything[0])] == [1, 2, 3]
        for n, (first, second) in enumerate(zip(one, two, strict=True)):
            assert first.terms[0].judge == "quality"
            assert [term.judge for term in second.terms] == ["quality", "watched"]
            assert first.value == second.value == pytest.approx(0.75 * n / 9)
        referee.close()
        assert metrics(read(tmp_path))["judge/quality/scored"] == 30
        assert metrics(read(tmp_path))["judge/safe/scored"] == 10
        assert build(read(tmp_path)) is not None

    @pytest.mark.parametrize(
        ("judges", "says"), [(("qualty",), "Did you mean 'quality'"), (("watched",), "weight 0"), ("safe", "")]
    )
    def test_judges_that_cannot_make_a_reward_are_refused(self, make: Make, judges: Any, says: str) -> None:
        """By name, before anything is judged; one name by itself is a list of one."""
        referee = make(judge=TWO)
        if not says:
            assert referee.submit(samples(2), judges=judges).result(PATIENCE)[0].terms[0].judge == "safe"
            return
        with pytest.raises(InputError, match=says):
            referee.submit(samples(2), judges=judges)
        assert referee.metrics().get("requests", 0) == 0

    def test_a_second_batch_works_as_the_first(self, make: Make) -> None:
        """Nothing is used up by a batch."""
        referee = make()
        assert scores(referee.score(samples(3))) == scores(referee.score(samples(3)))
        assert referee.metrics()["cache_hits"] == 3

    def test_it_can_be_started_before_the_first_batch(self, make: Make) -> None:
        """Started twice it is started once; what is counted by size is counted from nothing on."""
        referee = make()
        names = set(referee.histograms())
        referee.start()
        referee.start()
        assert scores(referee.score(samples(3))) == [1, 2, 3]
        found = referee.histograms()
        assert names == set(found)
        assert {name: buckets.counts[-1] for name, buckets in found.items()} == dict.fromkeys(names, 3)

    def test_what_is_collected_is_freed_without_the_collector(self, make: Make) -> None:
        """Batch and ticket do not hold each other: a run of many batches keeps none of their samples."""
        referee = make()
        referee.score(samples(3))
        gc.collect()
        gc.disable()
        try:
            others = [thing for thing in gc.get_objects() if isinstance(thing, Ticket)]  # of other tests
            for _ in range(3):
                referee.score(samples(8))
            found = [thing for thing in gc.get_objects() if isinstance(thing, Ticket)]
            assert len(found) == len(others)
        finally:
            gc.enable()

    def test_an_empty_batch_is_no_work(self, make: Make) -> None:
        """No samples, no rewards, no error."""
        assert make().score([]) == []

    def test_iteration_gives_every_reward_once(self, make: Make) -> None:
        """Iterating a ticket yields as many rewards as were submitted."""
        assert sorted(r.index for r in make().submit(samples(9))) == list(range(9))

    def test_ascore_leaves_the_callers_loop_free(self, make: Make) -> None:
        """Other tasks of the caller's loop run while the judge works."""
        referee = make(ProviderSpec(latency_median=0.05))

        async def main() -> tuple[int, int]:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.005)
                    ticks += 1

            beat = asyncio.create_task(tick())
            rewards = await referee.ascore(samples(2))
            beat.cancel()
            return len(rewards), ticks

        count, ticks = asyncio.run(main())
        assert count == 2
        assert ticks > 0

    def test_every_new_loop_can_await(self, make: Make) -> None:
        """A Referee outlives the loops of its callers."""
        referee = make()
        for _ in range(3):
            assert len(asyncio.run(referee.ascore(samples(2)))) == 2

    def test_score_inside_a_running_loop_blocks_but_answers(self, make: Make) -> None:
        """Notebooks and async actors call the blocking form too; it must not die there."""
        referee = make()

        async def main() -> int:
            return len(referee.score(samples(4)))

        assert asyncio.run(main()) == 4

    def test_threads_can_share_a_referee(self, make: Make) -> None:
        """Several threads score at once and each gets its own rewards."""
        referee = make()
        results: dict[int, list[float]] = {}

        def work(number: int) -> None:
            results[number] = scores(referee.score(samples(number + 1)))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {number: len(found) for number, found in results.items()} == {0: 1, 1: 2, 2: 3, 3: 4}

    def test_a_closed_endpoint_is_one_clear_error(self, make: Make) -> None:
        """A wrong key fails the batch with the setting to change, and without the key."""
        referee = make(ProviderSpec(key="right"))
        with pytest.raises(EndpointClosed, match="key_env") as caught:
            referee.score(samples(30))
        assert caught.value.reason == "auth"
        assert len(caught.value.rewards) == 30

    def test_a_closed_referee_says_so(self, make: Make) -> None:
        """After close nothing is judged; closing twice is fine."""
        referee = make()
        referee.score(samples(1))
        referee.close()
        referee.close()
        with pytest.raises(WrongContext, match="closed"):
            referee.score(samples(1))

    def test_nothing_is_left_after_close(self, make: Make) -> None:
        """No thread of ours outlives close."""
        referee = make()
        referee.score(samples(3))
        referee.close()
        assert not [t for t in threading.enumerate() if t.name.startswith("referee")]

    def test_the_deadline_ends_a_batch_that_hangs(self, make: Make) -> None:
        """A judge that never answers costs the batch its deadline and no more."""
        referee = make(ProviderSpec(faults={"hang": 1.0}), limits={"deadline": 0.2})
        rewards = referee.score(samples(5))
        assert reasons(rewards) <= {"deadline", "timeout"}
        assert all(r.value is None for r in rewards)

    def test_group_rewards_see_the_whole_group(self, make: Make) -> None:
        """The median of a group's lengths is over all of it, wherever its members were judged."""
        referee = make(shaping={"length": {"enable": True}})
        given = [Sample(prompt="p", response=f"[[quality=5]] {n}", group=str(n % 3), length=100 + n) for n in range(30)]
        medians = {r.group: r.median_length for r in referee.score(given)}
        assert medians == {"0": 113.5, "1": 114.5, "2": 115.5}

    def test_too_many_unscored_stop_the_batch(self, make: Make) -> None:
        """`[missing] policy = "raise"` is the batch's own error, with what there is."""
        referee = make(ProviderSpec(faults={"refusal": 1.0}), missing={"policy": "raise"})
        with pytest.raises(Exception, match="policy is") as caught:
            referee.score(samples(4))
        assert len(caught.value.rewards) == 4  # type: ignore[attr-defined]

    def test_the_record_ends_with_the_totals(self, make: Make, tmp_path: Path) -> None:
        """What a short run's record says of requests and throttling is what the Referee itself said at its end."""
        spec = ProviderSpec(faults={"throttle_float": 0.3}, retry_after_s=0.001, refuse_latency=0.0)
        referee = make(spec, ledger={"dir": str(tmp_path)}, limits={"concurrency": 4})
        referee.score(samples(40))
        told = referee.metrics()
        referee.close()
        assert told["requests"] >= told["attempts"] >= 40
        assert told["throttled"] > 0
        for found in (metrics(read(tmp_path)), build(read(tmp_path)).metrics):
            assert (found["requests"], found["throttled"]) == (told["requests"], told["throttled"])

    def test_a_deadline_that_is_no_time_is_refused(self, make: Make) -> None:
        """A string or a NaN is named before anything is spent."""
        referee = make()
        for wrong in ("300", float("nan"), 0, True):
            with pytest.raises(InputError, match="deadline"):
                referee.submit(samples(1), deadline=wrong)  # type: ignore[arg-type]


class BackgroundContract(RuntimeContract):
    """What those promise as well that judge while the caller goes on."""

    def test_a_caller_has_a_name(self, make: Make) -> None:
        """A number is refused before it can do harm where the judging is done; with a name the batch is judged."""
        referee = make()
        with pytest.raises(InputError, match="caller"):
            referee.submit(samples(1), caller=3)  # type: ignore[arg-type]
        assert scores(referee.submit(samples(1), caller="rank 3").result()) == [1]

    def test_the_callers_timeout_leaves_the_work_running(self, make: Make) -> None:
        """A short wait raises TicketTimeout; the same ticket gives the rewards later."""
        ticket = make(ProviderSpec(latency_median=0.2)).submit(samples(2))
        with pytest.raises(TicketTimeout):
            ticket.result(timeout=0.01)
        assert len(ticket.result(timeout=PATIENCE)) == 2

    def test_cancel_ends_the_batch(self, make: Make) -> None:
        """Cancelling leaves every sample with an end: unscored, cancelled."""
        ticket = make(ProviderSpec(latency_median=60.0)).submit(samples(5))
        ticket.cancel()
        assert reasons(ticket.result(timeout=PATIENCE)) == {"cancelled"}

    def test_close_fails_whoever_waits(self, make: Make) -> None:
        """Closing while others wait gives them an end, not a hang."""
        referee = make(ProviderSpec(latency_median=60.0))
        ticket = referee.submit(samples(2))
        closer = threading.Timer(0.1, referee.close)
        closer.start()
        try:
            rewards = ticket.result(timeout=PATIENCE)
        except TicketCancelled:
            rewards = []
        assert all(r.value is None for r in rewards)
        closer.join()

    def test_it_refuses_to_wait_for_itself(self, make: Make) -> None:
        """A blocking call on the engine's own loop would deadlock; it raises instead."""
        referee = make(ProviderSpec(latency_median=0.5))
        ticket = referee.submit(samples(1))
        found: list[BaseException] = []
        asked = threading.Event()

        def ask() -> None:
            try:
                ticket.result()
            except BaseException as error:
                found.append(error)
            asked.set()

        referee._runtime._loop.call_soon_threadsafe(ask)  # type: ignore[attr-defined]
        assert asked.wait(PATIENCE)
        assert isinstance(found[0], WrongContext)
        ticket.result(timeout=PATIENCE)


def grouped(count: int, groups: int) -> list[Sample]:
    """So many rollouts of qualities 1 to 10; groups take turns, and every seventh rollout has none."""
    return [
        replace(sample, group="" if n % 7 == 6 else f"g{n % groups}", prompt=f"p{n % groups}")
        for n, sample in enumerate(samples(count))
    ]


def siblings(given: list[Sample], index: int) -> str:
    """The ids of a sample's group, as the judge must be shown them."""
    name = given[index].group
    return ",".join(s.id for n, s in enumerate(given) if n == index or (name and s.group == name))


def check_ranks(given: list[Sample], rewards: list[Reward], judge: int = 0) -> None:
    """Every sample was judged once, among all of its group, in the caller's order."""
    assert [reward.index for reward in rewards] == list(range(len(given)))
    for index, reward in enumerate(rewards):
        verdict = reward.judged[judge].verdict
        assert isinstance(verdict, Verdict)
        assert verdict.score == index % 10 + 1
        assert verdict.reason == siblings(given, index)


RANK: dict[str, Any] = {"name": "rank", "kind": KIND}


class GroupContract(Opening):
    """A judge of whole groups is given them whole, wherever it runs."""

    @pytest.fixture(autouse=True)
    def known(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """This process knows the judge of groups, and so do worker processes."""
        monkeypatch.setattr(child, "_BOOT", child._BOOT.replace("from referee", f"{BOOT}from referee", 1))
        with registered():
            yield

    def test_a_group_is_judged_as_one_although_others_lie_between(self, make: Make) -> None:
        """Sixty rollouts of five groups in turn: each group whole, in the caller's order, and so are the rewards."""
        given = grouped(60, 5)
        check_ranks(given, make(judge=RANK).score(given))

    def test_groups_of_two_batches_do_not_mix(self, make: Make) -> None:
        """A group is the rows that share its name in one batch."""
        referee = make(judge=RANK)
        first, second = grouped(20, 2), [replace(sample, id=f"second {n}") for n, sample in enumerate(grouped(20, 2))]
        tickets = [referee.submit(given) for given in (first, second)]
        for given, ticket in zip((first, second), tickets, strict=True):
            check_ranks(given, ticket.result(PATIENCE))

    def test_judges_of_samples_and_of_groups_side_by_side(self, make: Make) -> None:
        """Each is a term of the same reward."""
        given = grouped(30, 3)
        rewards = make(judge=[{"name": "quality", "kind": "score"}, RANK]).score(given)
        check_ranks(given, rewards, judge=1)
        for reward in rewards:
            quality, rank = (term.settled.verdict for term in reward.terms)
            assert isinstance(quality, Verdict)
            assert isinstance(rank, Verdict)
            assert reward.judge == pytest.approx(quality.value + rank.value)

    def test_what_a_group_cost_is_in_the_record_once(self, make: Make) -> None:
        """Two questions for each sample, and the sum of all shares is their price."""
        given = grouped(28, 2)
        referee = make(judge=RANK, endpoint={**BASE["endpoint"], "price_in": 1.0, "price_out": 1.0})
        rewards = referee.score(given)
        metrics = referee.metrics()
        assert metrics["samples"] == 28
        assert metrics["requests"] == 56
        assert sum(reward.settled.cost for reward in rewards) == pytest.approx(metrics["budget_spent_usd"])

    def test_the_deadline_in_the_middle_of_a_group_ends_each_sample_once(self, make: Make) -> None:
        """Half of the answers never come: who has none is unscored, and who has one is ranked among the others."""
        given = grouped(40, 4)
        spec = ProviderSpec(faults={"hang": 0.2})
        limits = {"deadline": 1.0, "attempt_timeout": 30.0}
        rewards = make(spec, judge=RANK, limits=limits, missing={"abort_above": 1.0}).score(given)
        assert [reward.index for reward in rewards] == list(range(40))
        assert any(not reward.scored for reward in rewards)
        for index, reward in enumerate(rewards):
            if isinstance(reward.verdict, Verdict):
                assert reward.verdict.reason == siblings(given, index)
            else:
                assert reward.verdict.reason in ("deadline", "timeout")


class LossContract(GroupContract):
    """What those promise as well whose workers may die."""

    def lose(self, referee: Referee) -> None:
        """End a worker of this Referee without a word."""
        raise NotImplementedError

    @pytest.mark.parametrize("judges", [1, 2])
    def test_a_group_whose_worker_is_lost_is_judged_again_as_a_whole(self, make: Make, judges: int) -> None:
        """With the same verdicts, also where results of siblings had come before."""
        given = grouped(240, 12)
        settings = [{"name": "quality", "kind": "yes_no"}, RANK][-judges:]
        referee = make(ProviderSpec(latency_median=0.05), judge=settings, limits={"concurrency": 16})
        ticket = referee.submit(given)
        until(lambda: 0 < ticket.landed() < 200)
        self.lose(referee)
        check_ranks(given, ticket.result(PATIENCE), judge=judges - 1)


def until(found: Callable[[], object]) -> None:
    """Wait for something to become true."""
    end = clock.monotonic() + PATIENCE
    while not found():
        assert clock.monotonic() < end, "it did not happen"
        clock.pause(0.005)
