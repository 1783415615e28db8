"""A calibration as plain data, for `--json`: flat names, `x` and beside it `x_interval`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from referee.calibration.measures import Measures
from referee.calibration.shape import Calibrated, Calibration
from referee.stats import Estimate

HIGHER_IS_BETTER = (
    *("accuracy", "kappa", "spearman", "kendall", "roc_auc"),
    *("sensitivity", "specificity", "within_one", "order", "best"),
)
RENAMED = {"kind": "labels", "reasons": "unscored_reasons", "mean_human": "mean_people"}
LEFT = ("curve", "confusion", "ece_floor")
"""Of measures, what is written by itself."""


def as_data(found: Calibration) -> dict[str, Any]:
    """Everything `--json` prints."""
    data = _flat(found, left=("preferences", "judges", "comparison"))
    comparison = found.comparison
    data["judges"] = [_judge(judge) for judge in found.judges]
    data["comparison"] = comparison and {
        "best": comparison.best,
        "cheapest_within_noise": comparison.cheapest or None,
        "by": comparison.by,
        "others": [
            {
                "name": one.name,
                **_estimate(f"{comparison.by}_difference", one.difference),
                "within_noise": one.within_noise,
            }
            for one in comparison.others
        ],
    }
    return data


def _judge(judge: Calibrated) -> dict[str, Any]:
    parts: dict[str, Any] = {"criteria": {}, "jurors": {}, "by": {}}
    for part in judge.parts:
        data = _measures(part.measures)
        if part.what == "by":
            parts["by"].setdefault(part.column, {})[part.name] = data
        else:
            parts["criteria" if part.what == "criterion" else "jurors"][part.name] = data
    return {
        **_flat(judge, left=("measures", "parts", "corrected", "findings")),
        **_measures(judge.measures),
        "ece_floor": judge.measures.ece_floor,
        "curve": [
            {"rows": bin_.count, "judge": bin_.said, "people": bin_.true, "people_interval": [bin_.low, bin_.high]}
            for bin_ in judge.measures.curve
        ],
        "corrected": judge.corrected and _flat(judge.corrected),
        "findings": [_flat(finding, {"estimate": "value"}) for finding in judge.findings],
        **parts,
    }


def _measures(measures: Measures) -> dict[str, Any]:
    table = measures.confusion
    confusion = table and {"labels": table.labels, "people_by_judge": table.counts}
    return {**_flat(measures, RENAMED, LEFT), "confusion": confusion}


def _flat(
    given: Struct, renamed: Mapping[str, str] = MappingProxyType({}), left: Collection[str] = ()
) -> dict[str, Any]:
    """Its fields by name; of an estimate, its interval beside it."""
    found: dict[str, Any] = {}
    for field in given.__struct_fields__:
        if field not in left:
            name, value = renamed.get(field, field), getattr(given, field)
            found |= _estimate(name, value) if isinstance(value, Estimate) else {name: value}
    return found


def _estimate(name: str, found: Estimate) -> dict[str, Any]:
    interval = None if found.low is None or found.high is None else [found.low, found.high]
    data: dict[str, Any] = {name: found.value, f"{name}_interval": interval}
    return data | ({} if interval or not found.reason else {f"{name}_missing": found.reason})
