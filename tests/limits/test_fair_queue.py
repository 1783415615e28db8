"""Fair queueing: callers by what they were charged, items of one caller by their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from referee.limits import FairQueue
from referee.limits.fair_queue import MAX_IDLE_CALLERS


def serve(queue: FairQueue[tuple[int, str]], count: int, each: int = 1) -> str:
    """The callers of the next items, each charged and queued again."""
    found = ""
    for _ in range(count):
        item = queue.pop()
        found += item[1]
        queue.charge(item[1], each)
        queue.push(item[1], item)
    return found


def test_one_callers_items_come_in_their_own_order() -> None:
    """Whenever they were pushed."""
    queue: FairQueue[int] = FairQueue()
    for item in (3, 1, 2):
        queue.push("", item)
        queue.charge("")
    assert [queue.pop() for _ in range(3)] == [1, 2, 3]
    assert not queue


def test_callers_alternate_however_much_they_push() -> None:
    """A hundred items of one caller do not go before the other's one."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    for number in range(100):
        queue.push("a", (number, "a"))
    queue.push("b", (999, "b"))
    assert serve(queue, 8) == "abababab"


def test_turns_are_weighted_by_what_is_charged() -> None:
    """A caller charged 1 a turn gets as many turns as make up for another's 32."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    charged = {"a": 0, "b": 0}
    for name in "ab":
        queue.push(name, (0, name))
    for _ in range(660):
        item = queue.pop()
        amount = 32 if item[1] == "a" else 1
        queue.charge(item[1], amount)
        charged[item[1]] += amount
        queue.push(item[1], item)
    assert abs(charged["a"] - charged["b"]) <= 32


def test_idle_time_earns_no_credit_and_costs_none() -> None:
    """Neither being alone nor being away counts for or against a caller."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    queue.charge("a", 5000)  # without competition
    queue.push("a", (0, "a"))
    queue.push("b", (0, "b"))
    assert serve(queue, 6) == "ababab"
    serve(queue, 1000)
    queue.push("c", (0, "c"))
    assert sorted(serve(queue, 6)) == list("aabbcc")


def test_an_old_caller_is_not_behind_a_new_one() -> None:
    """Thousands served without competition give a new caller no claim to as many."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    queue.charge("s", 20_000)
    queue.push("n", (0, "n"))
    queue.push("s", (0, "s"))
    assert sorted(serve(queue, 6, each=32)) == list("nnnsss")


def test_idle_callers_are_forgotten() -> None:
    """However many names come and go, a bounded number is kept."""
    queue: FairQueue[int] = FairQueue()
    for number in range(10 * MAX_IDLE_CALLERS):
        queue.push(str(number), 1)
        queue.pop()
        queue.charge(str(number))
    assert len(queue._charged) <= MAX_IDLE_CALLERS + 1


@given(st.lists(st.sampled_from("abc"), max_size=50))
def test_every_item_comes_out_once(callers: list[str]) -> None:
    """None is lost or repeated."""
    queue: FairQueue[int] = FairQueue()
    for number, caller in enumerate(callers):
        queue.push(caller, number)
    assert sorted(queue.pop() for _ in callers) == list(range(len(callers)))
    assert not queue
