"""Which samples are siblings, whatever the order of their lines."""

from __future__ import annotations

from typing import Any

from referee.ledger import RunLine, VerdictLine
from referee.ledger.groups import Groups, of_a_file

FILE = {"ledger": {"dir": "rewards.run"}}


def numbers(*lines: RunLine | VerdictLine, source: str = "", groups: Groups | None = None) -> list[int]:
    """The group of each verdict line."""
    groups = groups or Groups()
    found = []
    for line in lines:
        if isinstance(line, RunLine):
            groups.start(line, source)
        else:
            found.append(groups.number(line, source))
    return found


def member(group: str, wall: float = 1.0, **more: Any) -> VerdictLine:
    """One sample of a group."""
    return VerdictLine(wall=wall, group=group, **more)


def test_name_step_and_prompt_make_a_group() -> None:
    """Batches and order do not matter; a sample without a name is in no group."""
    lines = [member("a", batch="1"), member("b"), member("a", batch="2"), member(""), member("b")]
    assert numbers(*lines) == [1, 2, 1, 0, 2]
    assert numbers(member("a", step=1), member("a", step=2), member("a", step=1)) == [1, 2, 1]
    assert numbers(member("a", prompt="p"), member("a", prompt="q"), member("a", prompt="p")) == [1, 2, 1]


def test_in_a_file_the_name_is_the_users() -> None:
    """Prompts of one group may differ there, and a second start goes on with the groups of the first."""
    start, later = RunLine(wall=0.5, config=FILE), RunLine(wall=10.0, config=FILE)
    assert of_a_file(FILE)
    assert not of_a_file({"ledger": {"dir": "run"}})
    assert numbers(start, member("a", prompt="p"), member("a", prompt="q"), later, member("a", 11.0)) == [1, 1, 1]
    assert numbers(start, member("a", step=3), later, member("a", 11.0, step=3)) == [1, 1]
    assert numbers(start, member("0", step=3, prompt="p"), member("0", step=3, prompt="q")) == [1, 2], "two ranks"


def test_steps_that_a_trainer_repeats_are_other_groups() -> None:
    """It began again from a checkpoint: new answers under the old names. Processes side by side share theirs."""
    again = [RunLine(wall=0.5), member("a", 1.0, step=3), RunLine(wall=10.0), member("a", 11.0, step=3)]
    assert numbers(*again) == [1, 2]
    groups = Groups()
    for source in ("one", "two"):
        assert numbers(RunLine(wall=0.5), member("a", 1.0, step=3), source=source, groups=groups) == [1]


def test_lines_without_a_time_are_of_the_latest_start() -> None:
    """What is counted while it happens needs no clock."""
    assert numbers(RunLine(wall=5.0), member("a", 0.0, step=1), member("a", 0.0, step=1)) == [1, 1]


def test_memory_is_bounded() -> None:
    """The group that has been idle longest is closed first."""
    groups = Groups(most=2)
    assert [groups.number(member(name)) for name in "abacab"] == [1, 2, 1, 3, 1, 4]
