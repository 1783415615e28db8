"""Whose turn is next: callers by what they have had, what one caller sends by how it sorts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from referee.limits import FairQueue
from referee.limits.fair_queue import MAX_IDLE_CALLERS


def turns(queue: FairQueue[tuple[int, str]], count: int, each: int = 1) -> str:
    """The callers of the next turns, of whom each takes so many and stands in queue again."""
    found = ""
    for _ in range(count):
        item = queue.pop()
        found += item[1]
        for _ in range(each):
            queue.charge(item[1])
        queue.push(item[1], item)
    return found


def test_of_one_caller_what_sorts_first_goes_first() -> None:
    """The order of a single caller is the order of his items, whenever they came."""
    queue: FairQueue[int] = FairQueue()
    for item in (3, 1, 2):
        queue.push("", item)
        queue.charge("")
    assert [queue.pop() for _ in range(3)] == [1, 2, 3]
    assert not queue


def test_callers_take_turns_however_much_they_bring() -> None:
    """A hundred items of one caller, all of them first by their own order, do not go before the other's one."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    for number in range(100):
        queue.push("a", (number, "a"))
    queue.push("b", (999, "b"))
    assert turns(queue, 8) == "abababab"


def test_turns_are_counted_by_what_is_had_in_them() -> None:
    """Who takes one a turn has as many turns as make up for the other's thirty-two."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    had = {"a": 0, "b": 0}
    for name in "ab":
        queue.push(name, (0, name))
    for _ in range(660):
        item = queue.pop()
        for _ in range(32 if item[1] == "a" else 1):
            queue.charge(item[1])
            had[item[1]] += 1
        queue.push(item[1], item)
    assert abs(had["a"] - had["b"]) <= 32


def test_who_comes_late_starts_level() -> None:
    """Neither the time somebody was alone nor the time he was away counts for or against him."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    for _ in range(5000):
        queue.charge("a")  # without ever having to wait
    queue.push("a", (0, "a"))
    queue.push("b", (0, "b"))
    assert turns(queue, 6) == "ababab"
    for _ in range(1000):
        item = queue.pop()
        queue.charge(item[1])
        queue.push(item[1], item)
    queue.push("c", (0, "c"))
    assert sorted(turns(queue, 6)) == list("aabbcc")


def test_callers_that_are_gone_are_forgotten() -> None:
    """However many names come and go, a bounded number is kept."""
    queue: FairQueue[int] = FairQueue()
    for number in range(10 * MAX_IDLE_CALLERS):
        queue.push(str(number), 1)
        queue.pop()
        queue.charge(str(number))
    assert len(queue._charged) <= MAX_IDLE_CALLERS + 1


@given(st.lists(st.sampled_from("abc"), max_size=50))
def test_everybody_who_waits_has_his_turn(callers: list[str]) -> None:
    """What was pushed comes out, once."""
    queue: FairQueue[int] = FairQueue()
    for number, caller in enumerate(callers):
        queue.push(caller, number)
    assert sorted(queue.pop() for _ in callers) == list(range(len(callers)))
    assert not queue


def test_who_came_long_ago_is_not_behind_a_newcomer() -> None:
    """Thousands had while nobody waited give whoever waits first no right to as many."""
    queue: FairQueue[tuple[int, str]] = FairQueue()
    for _ in range(20_000):
        queue.charge("steady")
    queue.push("new", (0, "n"))
    queue.push("steady", (0, "s"))
    found = ""
    for _ in range(6):
        item = queue.pop()
        found += item[1]
        name = "new" if item[1] == "n" else "steady"
        for _ in range(32):
            queue.charge(name)
        queue.push(name, item)
    assert sorted(found) == list("nnnsss")
