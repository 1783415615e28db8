"""Which worker gets which sample: state only, no loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

import pytest
from msgspec.structs import replace
from tests.engine.harness import samples

from referee.config import load
from referee.judging import seen_by
from referee.records import Reason, Sample, Settled, Unscored
from referee.runtime import routing
from referee.runtime.routing import BACKLOG, OWN_ROOM, ROUTE_STEP, Routed, Router, WorkerQueue, route_key
from referee.scoring.batch import Batch
from referee.scoring.messages import Gauge, Update
from referee.scoring.tracker import OpenBatch

CONFIG = load({"endpoint": {"url": "http://a.test/v1", "model": "m", "key_env": ""}})
WHY = Unscored(reason=Reason.CANCELLED)


class Table:
    """A router, its workers, and what was sent to each."""

    def __init__(self, workers: int, alone: bool = True, limit: int = 0, whole: bool = False) -> None:
        self.whole = whole
        self.shards = [WorkerQueue() for _ in range(workers)]
        for shard in self.shards:
            shard.up = True
        self.outs: dict[int, Routed] = {}
        self.router = Router(self.shards, limit=limit, balanced=alone, key_of=lambda sample: route_key(sample, str))
        self.sent: list[list[Sample]] = [[] for _ in self.shards]
        self.messages: list[tuple[int, int, list[int]]] = []
        """Worker, ticket and indexes of each message."""
        self._numbers = count(1)

    def add(self, given: Sequence[Sample], caller: str = "", seconds: float = 60.0) -> Routed:
        batch = Batch("b", given, CONFIG, seconds, lambda rewards, error, done: None)
        batch.caller = caller
        ticket = next(self._numbers)
        out = self.outs[ticket] = Routed(OpenBatch(batch, ticket, seconds), self.whole)
        self.router.add(out)
        return out

    def send(self, most: int = 10**9) -> int:
        """Send as much as there is room for, at most so many to each; how many there were."""
        before = sum(map(len, self.sent))
        for shard in self.shards:
            self.router.fill(shard)
        for number, shard in enumerate(self.shards):
            left = most
            while shard.queue and left > 0 and (room := self.router.room(shard)) > 0:
                out, indexes = self.router.take(shard, min(room, left))
                left -= len(indexes)
                self.messages.append((number, out.open.ticket, indexes))
                self.sent[number] += [out.open.batch.samples[index] for index in indexes]
        return sum(map(len, self.sent)) - before

    def end(self, number: int) -> None:
        """Everything that is out at one worker ends."""
        shard = self.shards[number]
        for ticket, marks in list(shard.out.items()):
            for index in marks:
                self.outs[ticket].open.batch.land(index, (Settled(verdict=WHY),))
            self.router.ended(shard, ticket, list(marks))
        assert shard.count == 0
        assert not shard.out

    def left(self) -> int:
        """Samples that are waiting or out, as the router remembers them."""
        return sum(sum(shard.keys.values()) for shard in self.shards)

    def texts(self) -> list[str]:
        return [sample.response for part in self.sent for sample in part]

    def of(self, name: str) -> int:
        """How many of the samples made under this name were sent."""
        return sum(f" {name} " in text for text in self.texts())


def test_the_first_are_sent_before_the_last_are_looked_at() -> None:
    """However large the batch, no more is dealt than there is room for, give or take a hand."""
    table = Table(2)
    out = table.add(samples(50_000))
    assert table.send() >= 2 * OWN_ROOM
    assert out.routed <= 2 * OWN_ROOM + 4 * ROUTE_STEP


@pytest.mark.parametrize("alone", [True, False])
def test_equal_samples_meet(alone: bool) -> None:
    """In one batch or in several, whether or not one worker helps another."""
    table = Table(4, alone=alone)
    for part in range(3):
        table.add(samples(2000, distinct=50), seconds=60.0 + part)
    while table.send(37):
        for number in (0, 1, 3):
            table.end(number)
    for number in range(4):
        table.end(number)
        table.send()
    places: dict[str, set[int]] = {}
    for number, part in enumerate(table.sent):
        for sample in part:
            places.setdefault(sample.response, set()).add(number)
    assert len(places) == 50
    assert all(len(where) == 1 for where in places.values())
    assert len(table.texts()) == 6000


def test_callers_take_turns() -> None:
    """Who comes with little is not behind everything of who came first with much."""
    table = Table(2)
    table.add(samples(20_000, "much"), caller="much")
    table.send()
    table.add(samples(64, "little"), caller="little")
    for number in (0, 1):
        table.end(number)
    table.send()
    assert table.of("little") == 64


def test_little_of_another_caller_does_not_wait_behind_what_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of a large batch is routed than there is room for: the rest would stand before the small one."""
    monkeypatch.setattr(routing, "OWN_ROOM", 4)
    table = Table(1)
    for _ in range(3):
        table.add(samples(1000, "much"), caller="much")
    table.send()
    table.add(samples(10, "little"), caller="little")
    for _ in range(6):
        table.end(0)
        table.send()
    assert table.of("little") == 10


def test_turns_are_counted_in_samples() -> None:
    """One who has had much by the time another comes has neither more nor less than the other from then on."""
    table = Table(2)
    table.add(samples(40_000, "first"), caller="first")
    for _ in range(8):
        table.send()
        table.end(0)
        table.end(1)
    before = table.of("first")
    table.add(samples(40_000, "second"), caller="second")
    for _ in range(8):
        table.send()
        table.end(0)
        table.end(1)
    assert abs(table.of("second") - (table.of("first") - before)) <= 4 * ROUTE_STEP + 2 * OWN_ROOM


def test_what_is_due_first_is_dealt_first() -> None:
    """Of one caller's batches."""
    table = Table(2)
    table.add(samples(5000, "late"), seconds=600.0)
    table.add(samples(100, "soon"), seconds=6.0)
    table.send(1)
    assert table.of("soon") == 2
    table.send()
    assert table.of("soon") == 100


def test_what_one_has_no_room_for_goes_to_another() -> None:
    """All of it belongs to one of four: the three others have what it cannot have yet."""
    table = Table(4)
    mine = [sample for sample in samples(20_000) if route_key(sample, str) % 4 == 2]
    table.add(mine)
    table.send()
    assert len(table.sent[2]) == OWN_ROOM
    assert table.shards[2].queued == BACKLOG
    assert all(len(table.sent[number]) > 400 for number in (0, 1, 3))
    for _ in range(20):
        for number in (0, 1, 3):
            table.end(number)
        table.send()
    assert len(table.sent[2]) == OWN_ROOM
    table.end(2)
    table.send()
    table.end(2)
    assert sorted(table.texts()) == sorted(sample.response for sample in mine)
    assert table.left() == 0
    assert not table.router._moved


def test_no_help_where_there_is_room() -> None:
    """A sample goes where its equals went, even if others have nothing to do."""
    table = Table(3)
    for sample in samples(50):
        table.add([sample])
        table.send()
    assert [{route_key(sample, str) % 3 for sample in part} for part in table.sent] == [{0}, {1}, {2}]


def test_no_help_among_those_who_work_for_others_too() -> None:
    """Elsewhere somebody else's equal samples go by the same rule."""
    table = Table(4, alone=False)
    table.add([sample for sample in samples(40_000) if route_key(sample, str) % 4 == 2])
    table.send()
    assert [len(part) for part in table.sent] == [0, 0, routing.SHARED_ROOM, 0]


def test_long_references_are_not_sent_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one message holds is bounded by its text, whichever field that is in."""
    monkeypatch.setattr(routing, "MESSAGE_TEXT", 1000)
    table = Table(1)
    table.add([replace(sample, reference="long " * 50) for sample in samples(20)])
    table.router.fill(table.shards[0])
    assert len(table.router.take(table.shards[0], 20)[1]) < 5


@pytest.mark.parametrize(
    ("kind", "equal", "other"),
    [
        ("score", "<think>one</think>same", "<think>two</think>same"),
        ("score", "same", "<think>two</think>same"),
        ("monitor", "<think>same</think>one", "<think>same</think>two"),
    ],
)
def test_equal_requests_have_equal_marks(kind: str, equal: str, other: str) -> None:
    """By what the judge sees."""
    judge = load({"endpoint": {"url": "http://a.test/v1", "model": "m", "key_env": ""}, "judge": {"kind": kind}}).judge
    one, two = (route_key(Sample(prompt="p", response=text), seen_by(judge)) for text in (equal, other))
    assert one == two
    assert one != route_key(Sample(prompt="p", response="<think>else</think>else"), seen_by(judge))


def test_equals_of_what_another_has_follow_it() -> None:
    """As long as it is there; then they go where they belong, and it is found in the cache."""
    table = Table(2)
    mine = [sample for sample in samples(8000) if route_key(sample, str) % 2 == 1]
    table.add(mine)
    table.send()
    moved = table.sent[0][-1]
    table.end(1)
    table.add([moved], seconds=1.0)
    table.send(1)
    assert not any(out.open.ticket == 2 for out, _, _ in table.shards[1].queue)
    for number in (0, 1) * 10:
        table.end(number)
        table.send()
    assert table.sent[0].count(moved) == 2
    assert moved not in table.sent[1]
    table.add([moved])
    table.send()
    assert table.sent[1].count(moved) == 1


def test_what_is_there_already_stays_there() -> None:
    """Its equal waits behind it and goes to nobody else, though all around it does."""
    table = Table(2)
    mine = [sample for sample in samples(6000) if route_key(sample, str) % 2 == 1]
    table.add(mine[:OWN_ROOM])
    table.send()
    table.add([*mine[OWN_ROOM:], mine[7]], seconds=90.0)
    table.send()
    assert len(table.sent[0]) > 500
    assert mine[7] not in table.sent[0]


def test_what_belongs_to_one_that_is_down_goes_to_others() -> None:
    """But for a little that waits for it to come back."""
    table = Table(2)
    table.shards[1].up = False
    table.add(samples(4000))
    for _ in range(12):
        table.send()
        table.end(0)
    assert len(table.sent[0]) == 4000 - BACKLOG
    assert table.shards[1].queued == BACKLOG


def test_what_was_lost_is_sent_again_first() -> None:
    """In its old order; what has landed or is given up is forgotten."""
    table = Table(2)
    out = table.add([sample for sample in samples(8000) if route_key(sample, str) % 2 == 1])
    table.send()
    shard = table.shards[1]
    sent = sorted(shard.out[out.open.ticket])
    again = [(out, (index,)) for index in sent if index % 3]
    before = table.left()
    table.router.lost(shard, again)
    assert (shard.count, shard.out) == (0, {})
    assert [unit for _, unit, _ in shard.queue][: len(again)] == [unit for _, unit in again]
    assert table.left() == before - (len(sent) - len(again))


def test_an_end_that_is_not_awaited_changes_nothing() -> None:
    """Of another batch, or of a sample that has ended before."""
    table = Table(1)
    out = table.add(samples(10))
    table.send()
    shard = table.shards[0]
    table.router.ended(shard, 99, [1, 2])
    table.router.ended(shard, out.open.ticket, [1, 2])
    table.router.ended(shard, out.open.ticket, [2, 3])
    assert shard.count == len(shard.out[out.open.ticket]) == table.left() == 7


def test_room_is_what_the_limit_needs_and_some_more() -> None:
    """As configured at first, then as the worker tells; none where nobody is."""
    table = Table(2, limit=100)
    shard = table.shards[0]
    assert table.router.room(shard) == 100 + OWN_ROOM
    shard.count = 30
    assert table.router.room(shard) == 70 + OWN_ROOM
    shard.last = Update(gauges=(Gauge("a", 7, 0, 0, 0), Gauge("b", 5, 0, 0, 0)))
    assert table.router.room(shard) == 12 + OWN_ROOM - 30
    shard.count = 9000
    assert table.router.room(shard) == 0
    shard.count, shard.up = 0, False
    assert table.router.room(shard) == 0


def test_nothing_is_sent_before_somebody_is_there() -> None:
    """A worker is down until it says that it is up."""
    assert Table(1).router.room(WorkerQueue()) == 0


def test_what_has_landed_meanwhile_is_not_sent() -> None:
    """Its end came late, from a worker that was given up."""
    table = Table(1)
    table.shards[0].up = False
    out = table.add(samples(10))
    table.send()
    table.shards[0].up = True
    table.router.fill(table.shards[0])
    out.open.batch.land(3, (Settled(verdict=WHY),))
    table.send()
    assert [sample.id for sample in table.sent[0]] == [str(n) for n in range(10) if n != 3]


def test_a_message_holds_no_more_text_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And at least one sample, however long."""
    monkeypatch.setattr(routing, "MESSAGE_TEXT", 100)
    table = Table(1)
    table.add([Sample(prompt="p" * 10, response=str(n) * 40) for n in range(5)])
    table.add([Sample(prompt="p", response="long" * 1000)], seconds=99.0)
    shard = table.shards[0]
    table.router.fill(shard)
    sizes = []
    while shard.queue:
        sizes.append(len(table.router.take(shard, 1000)[1]))
    assert sizes == [2, 2, 1, 1]


def test_a_batch_that_is_over_is_not_dealt() -> None:
    """Stopped while it waited, or after it was dealt."""
    table = Table(2)
    first, second = table.add(samples(3000, "one")), table.add(samples(3000, "two"), seconds=90.0)
    table.send()
    first.open.stopping = WHY
    sent = table.of("one")
    for _ in range(10):
        for number in (0, 1):
            table.end(number)
        table.send()
    assert 0 < table.of("one") == sent < 3000
    assert table.of("two") == 3000
    assert second.routed == 3000


def test_every_sample_is_sent_once_whatever_happens() -> None:
    """Random sizes, callers, speeds."""
    for seed in range(30):
        rng = random.Random(seed)
        table = Table(rng.randint(1, 4), alone=rng.random() < 0.8, limit=rng.randint(0, 50))
        wanted = 0
        for part in range(rng.randint(1, 6)):
            size = rng.choice((1, 7, 300, 4000))
            wanted += size
            table.add(samples(size, str(part)), caller=rng.choice("ab"), seconds=rng.uniform(1, 99))
            table.send()
        for _ in range(1000):
            table.end(rng.randrange(len(table.shards)))
            table.send()
            if len(table.texts()) == wanted:
                break
        assert len(table.texts()) == len(set(table.texts())) == wanted
        for number in range(len(table.shards)):
            table.end(number)
        assert table.left() == 0
        assert not table.router._moved


def grouped(count: int, groups: int, name: str = "n") -> list[Sample]:
    """Groups take turns; every fifth sample has none."""
    return [replace(s, group="" if n % 5 == 4 else f"g{n % groups}") for n, s in enumerate(samples(count, name))]


def check_whole(table: Table) -> None:
    """No message holds a part of a group, and each lists it in the caller's order."""
    for _, ticket, indexes in table.messages:
        given = table.outs[ticket].open.batch.samples
        for index in indexes:
            name = given[index].group
            members = [n for n, s in enumerate(given) if s.group == name] if name else [index]
            assert [n for n in indexes if n in members] == members


def test_a_group_is_never_divided_among_messages_or_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small messages, steps and room are; balanced or not."""
    monkeypatch.setattr(routing, "MESSAGE_SAMPLES", 5)
    monkeypatch.setattr(routing, "MESSAGE_TEXT", 200)
    monkeypatch.setattr(routing, "ROUTE_STEP", 3)
    monkeypatch.setattr(routing, "OWN_ROOM", 20)
    monkeypatch.setattr(routing, "BACKLOG", 10)
    for seed in range(20):
        rng = random.Random(seed)
        table = Table(rng.randint(1, 4), alone=rng.random() < 0.7, limit=rng.randint(0, 9), whole=True)
        wanted = 0
        for part in range(rng.randint(1, 4)):
            size = rng.choice((1, 7, 60, 300))
            wanted += size
            table.add(grouped(size, rng.randint(1, 20), str(part)), caller=rng.choice("ab"), seconds=rng.uniform(1, 99))
            table.send()
        for _ in range(1000):
            table.end(rng.randrange(len(table.shards)))
            table.send()
            if len(table.texts()) == wanted:
                break
        assert len(table.texts()) == len(set(table.texts())) == wanted
        check_whole(table)
        for number in range(len(table.shards)):
            table.end(number)
        assert table.left() == 0
        assert not any(shard.keys or shard.queued for shard in table.shards)
        assert not table.router._moved


def test_a_lost_group_is_sent_again_with_siblings_that_have_landed() -> None:
    """Those that are landed all are not."""
    table = Table(2, whole=True)
    out = table.add(grouped(200, 10))
    table.send()
    number = max(range(2), key=lambda at: table.shards[at].count)
    shard = table.shards[number]
    groups = out.units_of(shard.out[out.open.ticket])
    done, partly = [unit for unit in groups if len(unit) > 1][:2]
    for index in [*done, *partly[1:]]:
        out.open.batch.land(index, (Settled(verdict=WHY),))
        table.router.ended(shard, out.open.ticket, [index])
    table.messages.clear()
    table.router.lost(shard, [(out, unit) for unit in groups if unit is not done])
    table.send()
    sent = [index for at, _, indexes in table.messages for index in indexes if at == number]
    assert set(partly) <= set(sent)
    assert not set(done) & set(sent)
    assert len(sent) == sum(len(unit) for unit in groups) - len(done)
    check_whole(table)
    table.end(0)
    table.end(1)
    assert table.left() == 0
    assert not any(shard.keys or shard.queued for shard in table.shards)


def test_equal_groups_go_to_one_worker() -> None:
    """So that what they ask is asked once; without groups each sample goes by itself."""
    table = Table(4, alone=False, whole=True)
    for _ in range(3):
        table.add(grouped(100, 10))
    table.send()
    places: dict[str, set[int]] = {}
    for number, part in enumerate(table.sent):
        for sample in part:
            places.setdefault(sample.response, set()).add(number)
    assert all(len(found) == 1 for found in places.values())
    assert len({number for found in places.values() for number in found}) > 1
