"""Several judges on the same rows: the best, those that are as good within noise, and the cheapest of them. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from referee.calibration.measures import Common, contests, headline, less, right
from referee.calibration.ratings import Rater
from referee.calibration.shape import Calibrated, Compared, Comparison
from referee.calibration.truth import Kind, pairs
from referee.stats import Estimate

Units = Mapping[Hashable, tuple[float, float, Hashable]]
"""By key: what people say, what the judge says, and the prompt."""


def compare(judges: Sequence[Calibrated], whole: Sequence[Rater], common: Common, seed: int) -> Comparison | None:
    """Each judge against the best one by a paired bootstrap of the difference of their kappas; where labels are of
    different kinds to them, of the shares of answers they put in the right order."""
    kinds = {rater.truth.kind for rater in whole}
    mixed = len(kinds) > 1
    kind: Kind = "preference" if mixed else next(iter(kinds), "binary")
    units = {rater.name: _units(rater, common, kind) for rater in whole}
    known = {name: found for name, found in units.items() if found}
    if len(known) < 2:
        return None
    statistic = headline(kind)

    def agreement(name: str) -> float:
        human, said, _ = zip(*known[name].values(), strict=True)
        found = statistic(human, said)
        return -1.0 if found is None else found

    best = max(known, key=agreement)
    others = [
        Compared(name=name, difference=_difference(known[name], known[best], kind, seed, mixed))
        for name in known
        if name != best
    ]
    cheapest = _cheapest(judges, best, others)
    return Comparison(best=best, cheapest=cheapest, others=tuple(others), by="order" if mixed else "kappa")


def _units(rater: Rater, common: Common, kind: Kind) -> Units:
    found: dict[Hashable, tuple[float, float, Hashable]] = {}
    if kind == "preference":
        for pair in pairs(rater.truth.values, contests(rater, common)):
            hit = right(rater, pair)
            if hit is not None:
                keys = rater.keys[pair[0]], rater.keys[pair[1]]
                found[keys] = 1.0, hit, common.prompts[keys[0][0]]
        return found
    for key, human, said in zip(rater.keys, rater.truth.values, rater.said, strict=True):
        if human is not None and said.value is not None:
            found[key] = human, said.value, common.prompts[key[0]]
    return found


def _difference(one: Units, best: Units, kind: Kind, seed: int, mixed: bool) -> Estimate:
    shared = [key for key in best if key in one]
    if not shared:
        return Estimate(None, reason="no row has a verdict of both")
    people, one_said, best_said = zip(*((best[key][0], one[key][1], best[key][1]) for key in shared), strict=True)
    found = less(people, one_said, best_said, [best[key][2] for key in shared], kind, seed)
    # 2 * share - 1 has no meaning beside another judge's kappa; the share does.
    return found.line(0.5) if mixed else found


def _cheapest(judges: Sequence[Calibrated], best: str, others: Sequence[Compared]) -> str:
    good = {best, *(other.name for other in others if other.within_noise)}
    prices = {judge.name: judge.cost_per_1000 for judge in judges if judge.name in good}
    known = {name: price for name, price in prices.items() if price is not None}
    if len(known) < len(good) or len(good) < 2:
        return "" if len(good) > 1 else best
    least = min(known.values())
    return best if known[best] == least else min(known, key=lambda name: known[name])
