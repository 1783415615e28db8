"""How much of a run is done: by samples or by steps, resumed, begun anew, by several processes, or not known."""

from __future__ import annotations

import pytest

from referee.ledger import Line, RunLine, TotalLine, VerdictLine
from referee.report.progress import Totals


def start(at: float, *lines: Line) -> list[Line]:
    """A start and what it wrote."""
    return [RunLine(wall=at), *lines]


def verdicts(count: int, at: float, every: float = 1.0) -> list[Line]:
    """So many samples, one after the other."""
    return [VerdictLine(wall=at + every * number, id=str(number)) for number in range(count)]


def told(*files: list[Line]) -> Totals:
    """All that these files hold."""
    totals = Totals()
    for number, lines in enumerate(files):
        for line in lines:
            totals.add(line, f"file-{number}")
    return totals


def test_the_rest_takes_as_long_as_the_pace_says() -> None:
    """Three of ten, one a second: seven seconds; without a pace it is not known; at the end nothing is left."""
    totals = told(start(100.0, TotalLine(wall=100.0, samples=10), *verdicts(3, 100.0)))
    assert (totals.progress(3, 1.0, 103.0).done, totals.progress(3, 1.0, 103.0).left_s) == (3, 7.0)
    assert totals.progress(3, 0.0, 103.0).left_s is None
    done = told(start(100.0, TotalLine(wall=100.0, samples=3), *verdicts(3, 100.0)))
    assert done.progress(3, 0.0, 500.0).left_s == 0.0


def test_a_run_that_counts_its_steps_from_0_ends_at_all_of_them() -> None:
    """As trainers of transformers do: with step 9 all of ten have begun."""
    for first in (0, 1):
        lines = [VerdictLine(wall=100.0 + step, step=step) for step in range(first, first + 10)]
        found = told(start(100.0, TotalLine(wall=100.0, steps=10), *lines)).progress(10, 1.0, lines[-1].wall)
        assert (found.begun, found.steps) == (10, 10)


def test_an_unknown_total_is_no_number() -> None:
    """A run that says nothing of its length has no share and no end."""
    found = told(start(100.0, *verdicts(3, 100.0))).progress(3, 1.0, 103.0)
    assert (found.samples, found.steps, found.left_s) == (0, 0, None)


@pytest.mark.parametrize(("resumed", "done"), [(True, 9), (False, 3)])
def test_what_earlier_starts_judged_counts_if_it_is_part_of_it(resumed: bool, done: int) -> None:
    """A resumed run goes on from there; one that begins anew does not."""
    totals = told(
        start(100.0, TotalLine(wall=100.0, samples=12), *verdicts(6, 100.0)),
        start(200.0, TotalLine(wall=200.0, samples=12, resumed=resumed), *verdicts(3, 200.0)),
    )
    assert totals.progress(9, 1.0, 203.0).done == done


def test_processes_side_by_side_add_up() -> None:
    """Each announces the whole; what all of them have judged is done."""
    files = [start(100.0 + n, TotalLine(wall=101.0, samples=20), *verdicts(5, 101.0)) for n in range(2)]
    assert told(*files).progress(10, 1.0, 106.0).done == 10


def test_steps_are_projected_by_the_latest_ones() -> None:
    """Steps of ten seconds: what is left, less what the present one has taken; a run that stands has no end."""
    steps = [VerdictLine(wall=100.0 + 10 * step, step=step) for step in range(5)]
    totals = told(start(100.0, TotalLine(wall=100.0, steps=20), *steps))
    assert totals.progress(5, 0.0, 140.0).left_s == pytest.approx(160.0)
    assert totals.progress(5, 0.0, 144.0).left_s == pytest.approx(156.0)
    assert totals.progress(5, 0.0, 1000.0).left_s is None
    assert told(start(100.0, TotalLine(steps=20), *steps[:1])).progress(1, 0.0, 101.0).left_s is None
