"""Whose turn is next: callers by what they have had, what one caller sends by how it sorts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from referee.limits import FairQueue
from referee.limits.fair_queue import REMEMBERED


def turns(line: FairQueue[tuple[int, str]], count: int, each: int = 1) -> str:
    """The callers of the next turns, of whom each takes so many and stands in line again."""
    found = ""
    for _ in range(count):
        item = line.pop()
        found += item[1]
        for _ in range(each):
            line.had(item[1])
        line.push(item[1], item)
    return found


def test_of_one_caller_what_sorts_first_goes_first() -> None:
    """The order of a single caller is the order of his items, whenever they came."""
    line: FairQueue[int] = FairQueue()
    for item in (3, 1, 2):
        line.push("", item)
        line.had("")
    assert [line.pop() for _ in range(3)] == [1, 2, 3]
    assert not line


def test_callers_take_turns_however_much_they_bring() -> None:
    """A hundred items of one caller, all of them first by their own order, do not go before the other's one."""
    line: FairQueue[tuple[int, str]] = FairQueue()
    for number in range(100):
        line.push("a", (number, "a"))
    line.push("b", (999, "b"))
    assert turns(line, 8) == "abababab"


def test_turns_are_counted_by_what_is_had_in_them() -> None:
    """Who takes one a turn has as many turns as make up for the other's thirty-two."""
    line: FairQueue[tuple[int, str]] = FairQueue()
    had = {"a": 0, "b": 0}
    for name in "ab":
        line.push(name, (0, name))
    for _ in range(660):
        item = line.pop()
        for _ in range(32 if item[1] == "a" else 1):
            line.had(item[1])
            had[item[1]] += 1
        line.push(item[1], item)
    assert abs(had["a"] - had["b"]) <= 32


def test_who_comes_late_starts_level() -> None:
    """Neither the time somebody was alone nor the time he was away counts for or against him."""
    line: FairQueue[tuple[int, str]] = FairQueue()
    for _ in range(5000):
        line.had("a")  # without ever having to wait
    line.push("a", (0, "a"))
    line.push("b", (0, "b"))
    assert turns(line, 6) == "ababab"
    for _ in range(1000):
        item = line.pop()
        line.had(item[1])
        line.push(item[1], item)
    line.push("c", (0, "c"))
    assert sorted(turns(line, 6)) == list("aabbcc")


def test_callers_that_are_gone_are_forgotten() -> None:
    """However many names come and go, a bounded number is kept."""
    line: FairQueue[int] = FairQueue()
    for number in range(10 * REMEMBERED):
        line.push(str(number), 1)
        line.pop()
        line.had(str(number))
    assert len(line._had) <= REMEMBERED + 1


@given(st.lists(st.sampled_from("abc"), max_size=50))
def test_everybody_who_waits_has_his_turn(callers: list[str]) -> None:
    """What was pushed comes out, once."""
    line: FairQueue[int] = FairQueue()
    for number, caller in enumerate(callers):
        line.push(caller, number)
    assert sorted(line.pop() for _ in callers) == list(range(len(callers)))
    assert not line


def test_who_came_long_ago_is_not_behind_a_newcomer() -> None:
    """Thousands had while nobody waited give whoever waits first no right to as many."""
    line: FairQueue[tuple[int, str]] = FairQueue()
    for _ in range(20_000):
        line.had("steady")
    line.push("new", (0, "n"))
    line.push("steady", (0, "s"))
    found = ""
    for _ in range(6):
        item = line.pop()
        found += item[1]
        name = "new" if item[1] == "n" else "steady"
        for _ in range(32):
            line.had(name)
        line.push(name, item)
    assert sorted(found) == list("nnnsss")
