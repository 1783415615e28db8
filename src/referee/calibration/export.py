"""A calibration as plain data, for `--json`: flat names, `x` and beside it `x_interval`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from referee.calibration.measures import Measures
from referee.calibration.shape import Calibrated, Calibration, Corrected, Finding
from referee.stats import Estimate

MEASURES = (
    "accuracy",
    "kappa",
    "spearman",
    "kendall",
    "roc_auc",
    "ece",
    "bias",
    "sensitivity",
    "specificity",
    "within_one",
    "order",
    "best",
)
HIGHER_IS_BETTER = tuple(name for name in MEASURES if name not in ("ece", "bias"))


def as_data(found: Calibration) -> dict[str, Any]:
    """Everything `--json` prints."""
    comparison = None
    if found.comparison is not None:
        comparison = {
            "best": found.comparison.best,
            "cheapest_within_noise": found.comparison.cheapest or None,
            "by": found.comparison.by,
            "others": [
                {
                    "name": one.name,
                    **_estimate(f"{found.comparison.by}_difference", one.difference),
                    "within_noise": one.within_noise,
                }
                for one in found.comparison.others
            ],
        }
    return {
        "rows": found.rows,
        "labelled": found.labelled,
        "unlabelled": found.unlabelled,
        "prompts": found.prompts,
        "seed": found.seed,
        "judges": [_judge(judge) for judge in found.judges],
        "comparison": comparison,
    }


def _judge(judge: Calibrated) -> dict[str, Any]:
    parts: dict[str, Any] = {"criteria": {}, "jurors": {}, "by": {}}
    for part in judge.parts:
        data = _measures(part.measures)
        if part.what == "by":
            parts["by"].setdefault(part.column, {})[part.name] = data
        else:
            parts["criteria" if part.what == "criterion" else "jurors"][part.name] = data
    return {
        "name": judge.name,
        "kind": judge.kind,
        "models": list(judge.models),
        **_measures(judge.measures),
        "ece_floor": judge.measures.ece_floor,
        "curve": [
            {"rows": bin_.count, "judge": bin_.said, "people": bin_.true, "people_interval": [bin_.low, bin_.high]}
            for bin_ in judge.measures.curve
        ],
        "corrected": _corrected(judge.corrected),
        "cost_per_1000": judge.cost_per_1000,
        "seconds": judge.seconds,
        "findings": [_finding(finding) for finding in judge.findings],
        "disagreements": list(judge.disagreements),
        **parts,
    }


def _measures(measures: Measures) -> dict[str, Any]:
    table = measures.confusion
    return {
        "labels": measures.kind,
        "n": measures.n,
        "prompts": measures.prompts,
        "labelled": measures.labelled,
        "unscored": measures.unscored,
        "unscored_reasons": measures.reasons,
        "accuracy_of": measures.accuracy_of,
        "kappa_of": measures.kappa_of,
        **_each({name: getattr(measures, name) for name in MEASURES}),
        "mean_people": measures.mean_human,
        "mean_judge": measures.mean_judge,
        "confusion": None if table is None else {"labels": table.labels, "people_by_judge": table.counts},
    }


def _each(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, estimate in estimates.items():
        found |= _estimate(name, estimate)
    return found


def _estimate(name: str, found: Estimate) -> dict[str, Any]:
    interval = None if found.low is None or found.high is None else [found.low, found.high]
    data: dict[str, Any] = {name: found.value, f"{name}_interval": interval}
    return data | ({} if interval or not found.reason else {f"{name}_missing": found.reason})


def _corrected(found: Corrected | None) -> dict[str, Any] | None:
    if found is None:
        return None
    share = {} if found.rogan_gladen is None else _estimate("rogan_gladen", found.rogan_gladen)
    return {
        "labelled": found.labelled,
        "unlabelled": found.unlabelled,
        "judge_mean": found.judge_mean,
        **_estimate("prediction_powered", found.prediction_powered),
        "judge_share": found.judge_share,
        **share,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    number = {} if finding.estimate is None else _estimate("value", finding.estimate)
    return {
        "check": finding.check,
        "level": finding.level,
        "text": finding.text,
        "advice": finding.advice,
        **number,
    }
