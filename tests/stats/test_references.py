"""The same numbers as scikit-learn and SciPy, which `make test-local` installs, and as ppi-python where a developer has
it. None of them is a dependency."""

from __future__ import annotations

import random
from typing import Any

import pytest

from referee import stats
from referee.stats.quantiles import student

pytestmark = pytest.mark.local


def drawn(seed: int, count: int = 120, levels: int = 5) -> tuple[list[int], list[int]]:
    """Two columns of levels that agree somewhat, with many ties, every level present."""
    chance = random.Random(seed)
    human = [*range(levels), *(chance.randrange(levels) for _ in range(count - levels))]
    return human, [*range(levels), *(max(0, min(levels - 1, x + chance.randint(-1, 2))) for x in human[levels:])]


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_that_of_scikit_learn(seed: int) -> None:
    """Confusion matrix, two kappas, area under the curve."""
    metrics: Any = pytest.importorskip("sklearn.metrics")
    human, judged = drawn(seed)
    assert [list(row) for row in stats.confusion(human, judged).counts] == metrics.confusion_matrix(
        human, judged
    ).tolist()
    assert stats.kappa(human, judged) == pytest.approx(metrics.cohen_kappa_score(human, judged))
    theirs = metrics.cohen_kappa_score(human, judged, weights="quadratic")
    assert stats.weighted_kappa(human, judged) == pytest.approx(theirs)
    yes = [label > 2 for label in human]
    assert stats.roc_auc_interval(yes, judged).value == pytest.approx(metrics.roc_auc_score(yes, judged))


@pytest.mark.parametrize("seed", range(5))
def test_correlations_are_those_of_scipy(seed: int) -> None:
    """Pearson, Spearman and Kendall's tau-b, with ties and without."""
    theirs: Any = pytest.importorskip("scipy.stats")
    chance = random.Random(seed)
    human, judged = drawn(seed)
    for a, b in ((human, judged), ([x + chance.random() for x in human], [chance.gauss(y, 1) for y in judged])):
        assert stats.pearson(a, b) == pytest.approx(theirs.pearsonr(a, b)[0])
        assert stats.spearman(a, b) == pytest.approx(theirs.spearmanr(a, b)[0])
        assert stats.kendall(a, b) == pytest.approx(theirs.kendalltau(a, b)[0])


def test_intervals_are_those_of_scipy() -> None:
    """Student's t at every number of degrees of freedom, Wilson's interval, the mean's."""
    theirs: Any = pytest.importorskip("scipy.stats")
    for df in (*range(1, 250, 7), 1000):
        for level in (0.8, 0.95, 0.999):
            assert student(level, df) == pytest.approx(theirs.t.ppf((1 + level) / 2, df), rel=1e-5)
    for hits, count in ((0, 10), (3, 10), (97, 100)):
        wilson = theirs.binomtest(hits, count).proportion_ci(method="wilson")
        found = stats.proportion([place < hits for place in range(count)])
        assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=1e-9)
    chance = random.Random(1)
    values = [chance.gauss(0, 1) for _ in range(20)]
    low, high = theirs.ttest_1samp(values, 0).confidence_interval()
    found = stats.mean_interval(values)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_the_bootstrap_is_close_to_scipys() -> None:
    """The percentile interval of Spearman at 300 rows, where few groups no longer matter."""
    theirs: Any = pytest.importorskip("scipy.stats")
    numpy: Any = pytest.importorskip("numpy")
    chance = random.Random(1)
    human = [chance.gauss(0, 1) for _ in range(300)]
    judged = [x + chance.gauss(0, 1) for x in human]
    other = theirs.bootstrap(
        (human, judged),
        lambda a, b: theirs.spearmanr(a, b)[0],
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=numpy.random.default_rng(1),
    ).confidence_interval
    found = stats.bootstrap(stats.spearman, (human, judged), random.Random(1), resamples=2000)
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=0.01)


@pytest.mark.parametrize("tuned", [False, True])
def test_corrected_means_are_those_of_ppi_python(tuned: bool) -> None:
    """The estimate to the digit; the interval to what t and n - 1 add to z and n at 200 labels."""
    ppi: Any = pytest.importorskip("ppi_py")
    numpy: Any = pytest.importorskip("numpy")
    chance = random.Random(4)
    human = [chance.betavariate(3, 2) for _ in range(1200)]
    judged = [y + 0.1 + chance.gauss(0, 0.15) for y in human]
    given = [numpy.array(column) for column in (human[:200], judged[:200], judged[200:])]
    weight = None if tuned else 1.0
    found = stats.prediction_powered(human[:200], judged[:200], judged[200:], weight)
    theirs = ppi.ppi_mean_pointestimate(*given, lam=weight)
    low, high = ppi.ppi_mean_ci(*given, alpha=0.05, lam=weight)
    assert found.value == pytest.approx(theirs.item(), abs=1e-3 if tuned else 1e-12)
    assert found.high - found.low == pytest.approx((high - low).item(), rel=0.02)  # type: ignore[operator]
