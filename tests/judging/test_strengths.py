"""Strengths from comparisons: cases by hand, properties, and the same numbers as choix."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.judging.strengths import PRIOR, Comparison, strengths

Tournament = tuple[int, list[Comparison]]


def bradley_terry(count: int, comparisons: Sequence[Comparison], prior: float = PRIOR) -> list[float]:
    """The mean probability of each item to beat one of the others; 0.5 for an item alone."""
    thetas = strengths(count, comparisons, prior)
    chances = [[(1 + math.tanh((own - other) / 2)) / 2 for other in thetas] for own in thetas]
    return [(sum(row) - 0.5) / (count - 1) if count > 1 else 0.5 for row in chances]


@st.composite
def tournaments(draw: st.DrawFn) -> Tournament:
    """Some items, and comparisons among them: any number, also several of one pair, and items without any."""
    count = draw(st.integers(2, 9))
    pairs = st.permutations(range(count)).map(lambda order: (order[0], order[1]))
    made = draw(st.lists(st.tuples(pairs, st.sampled_from([0.0, 0.5, 1.0])), max_size=24))
    return count, [Comparison(*pair, outcome) for pair, outcome in made]


def sigmoid(difference: float) -> float:
    return 1 / (1 + math.exp(-difference))


def test_one_win() -> None:
    """Two items, one win: the strengths solve 1 - sigmoid(2t) = 2 * prior * t."""
    theta, other = strengths(2, [Comparison(0, 1, 1)])
    assert theta == -other > 0
    assert 1 - sigmoid(2 * theta) == pytest.approx(2 * PRIOR * theta, abs=1e-10)
    assert bradley_terry(2, [Comparison(0, 1, 1)]) == pytest.approx(
        [sigmoid(2 * theta), sigmoid(-2 * theta)], abs=1e-12
    )


def test_a_chain_by_hand() -> None:
    """Three items, 0 beats 1 beats 2: the middle one is at zero, the ends solve 1 - sigmoid(t) = 2 * prior * t."""
    top, middle, bottom = strengths(3, [Comparison(0, 1, 1), Comparison(2, 1, 0)])
    assert middle == pytest.approx(0, abs=1e-10)
    assert top == pytest.approx(-bottom, abs=1e-10)
    assert 1 - sigmoid(top) == pytest.approx(2 * PRIOR * top, abs=1e-10)
    best = (sigmoid(top) + sigmoid(2 * top)) / 2
    assert bradley_terry(3, [Comparison(0, 1, 1), Comparison(2, 1, 0)]) == pytest.approx(
        [best, 0.5, 1 - best], abs=1e-9
    )


def test_two_wins_out_of_three() -> None:
    """With hardly any prior, two wins of three comparisons are a probability of two thirds."""
    comparisons = [Comparison(0, 1, 1), Comparison(1, 0, 0), Comparison(0, 1, 0)]
    assert bradley_terry(2, comparisons, prior=1e-9) == pytest.approx([2 / 3, 1 / 3], abs=1e-6)


def test_a_circle_of_eight_in_order_of_strength() -> None:
    """Two comparisons each: two wins, one and none are far apart, a win over a winner is worth more, and no value is
    near 0 or 1."""
    true = [0, 3, 5, 1, 7, 2, 6, 4]
    circle = [Comparison(i, (i + 1) % 8, float(true[i] > true[(i + 1) % 8])) for i in range(8)]
    values = bradley_terry(8, circle)
    assert min(values[i] for i in (2, 4, 6)) > 0.65 > max(values[i] for i in (1, 7))
    assert min(values[i] for i in (1, 7)) > 0.35 > max(values[i] for i in (0, 3, 5))
    assert values[2] > values[4]
    assert all(0.1 < value < 0.9 for value in values)


def test_one_that_beats_all_others_among_ties() -> None:
    """A clear winner stands out, and the others share one value."""
    comparisons = [Comparison(i, j, 1.0 if i == 0 else 0.5) for i, j in combinations(range(6), 2)]
    winner, *others = bradley_terry(6, comparisons)
    assert winner > 0.8
    assert others == pytest.approx([others[0]] * 5, abs=1e-9)
    assert others[0] < 0.5


@pytest.mark.parametrize("count", [0, 1])
def test_without_an_opponent(count: int) -> None:
    """An item alone is at one half."""
    assert bradley_terry(count, []) == [0.5] * count


@pytest.mark.parametrize(
    "comparisons",
    [
        [],
        [Comparison(0, 1, 0.5), Comparison(2, 3, 0.5)],
        [Comparison(0, 1, 1), Comparison(1, 2, 1), Comparison(2, 3, 1), Comparison(3, 0, 1)],
        [Comparison(0, 1, 1), Comparison(0, 1, 0)],
    ],
    ids=["none", "ties", "a circle of wins", "one win each"],
)
def test_what_is_symmetric_is_exactly_one_half(comparisons: list[Comparison]) -> None:
    """As many wins as losses for everyone: exactly 0.5 for all, so that a group without differences has none."""
    assert bradley_terry(4, comparisons) == [0.5] * 4
    assert strengths(4, comparisons) == [0.0] * 4


@pytest.mark.parametrize("prior", [1e-4, 1e-2, PRIOR, 1.0, 100.0])
def test_long_one_sided_records_stay_finite(prior: float) -> None:
    """A thousand wins and no loss: a Newton step would overshoot; the order is right and every number finite."""
    comparisons = [Comparison(i, i + 1, 1) for i in range(7)] * 1000
    values = bradley_terry(8, comparisons, prior)
    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= 1 for value in values)


@given(tournaments())
def test_values_are_probabilities_around_one_half(tournament: Tournament) -> None:
    """Each in [0, 1], one half on average; strengths have zero mean; the gradient at the result is zero."""
    count, comparisons = tournament
    values, thetas = bradley_terry(*tournament), strengths(*tournament)
    assert all(0 <= value <= 1 for value in values)
    assert sum(values) / count == pytest.approx(0.5, abs=1e-12)
    assert sum(thetas) == pytest.approx(0, abs=1e-12)
    slopes = [-2 * PRIOR * theta for theta in thetas]
    for first, second, outcome in comparisons:
        surprise = outcome - sigmoid(thetas[first] - thetas[second])
        slopes[first] += surprise
        slopes[second] -= surprise
    assert slopes == pytest.approx([0] * count, abs=1e-10)


@given(tournaments(), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(tournament: Tournament, rng: random.Random) -> None:
    """Comparisons in another order, or turned around, give the same numbers to the last bit; renamed items to 1e-9."""
    count, comparisons = tournament
    turned = [
        Comparison(second, first, 1 - outcome) for first, second, outcome in rng.sample(comparisons, len(comparisons))
    ]
    assert bradley_terry(count, turned) == bradley_terry(count, comparisons)
    names = rng.sample(range(count), count)
    renamed = [Comparison(names[first], names[second], outcome) for first, second, outcome in comparisons]
    values = bradley_terry(count, renamed)
    assert [values[name] for name in names] == pytest.approx(bradley_terry(count, comparisons), abs=1e-9)


@given(tournaments(), st.data())
def test_a_better_outcome_never_harms(tournament: Tournament, data: st.DataObject) -> None:
    """One more win, or a better outcome of a comparison, raises the item and lowers its opponent."""
    count, comparisons = tournament
    first, second = data.draw(st.permutations(range(count)))[:2]
    lost, tied, won = (bradley_terry(count, [*comparisons, Comparison(first, second, out)]) for out in (0.0, 0.5, 1.0))
    assert lost[first] < tied[first] < won[first]
    assert lost[second] > tied[second] > won[second]
    before = bradley_terry(count, comparisons)
    assert lost[first] < before[first] < won[first]


@pytest.mark.local
@pytest.mark.parametrize("prior", [0.01, PRIOR, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_same_strengths_as_choix(seed: int, prior: float) -> None:
    """choix's penalised likelihood, which knows no ties: every comparison is given twice, a tie once each way, and the
    prior doubled."""
    choix = pytest.importorskip("choix")
    rng = random.Random(seed)
    count = rng.randrange(2, 12)
    made: list[Comparison] = []
    for _ in range(rng.randrange(40)):
        first, second = rng.sample(range(count), 2)
        made.append(Comparison(first, second, rng.choice([0.0, 0.5, 1.0])))
    wins: list[tuple[int, int]] = []
    for first, second, outcome in made:
        wins += [(first, second)] * int(2 * outcome) + [(second, first)] * int(2 - 2 * outcome)
    theirs = choix.opt_pairwise(count, wins, alpha=2 * prior, tol=1e-12)
    assert strengths(count, made, prior) == pytest.approx(list(theirs), abs=1e-6)
