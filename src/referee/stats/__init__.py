"""Statistics of judges: agreement with people, calibration, corrected means, biases, self-consistency. Pure."""

from referee.stats.agreement import (
    Confusion,
    confusion,
    kappa,
    weighted_kappa,
)
from referee.stats.agreement_interval import kappa_interval, roc_auc_interval
from referee.stats.bootstrap import Chance, bootstrap
from referee.stats.calibration import Bin, ece, ece_floor, ece_interval, reliability
from referee.stats.corrected import prediction_powered, rogan_gladen, tuned_weight
from referee.stats.interval import Estimate, mean_interval, proportion
from referee.stats.ranks import kendall, pearson, ranks, spearman
from referee.stats.slopes import length_slope, place_slope, position_bias
from referee.stats.spread import flips, within_sd

__all__ = [
    "Bin",
    "Chance",
    "Confusion",
    "Estimate",
    "bootstrap",
    "confusion",
    "ece",
    "ece_floor",
    "ece_interval",
    "flips",
    "kappa",
    "kappa_interval",
    "kendall",
    "length_slope",
    "mean_interval",
    "pearson",
    "place_slope",
    "position_bias",
    "prediction_powered",
    "proportion",
    "ranks",
    "reliability",
    "roc_auc_interval",
    "rogan_gladen",
    "spearman",
    "tuned_weight",
    "weighted_kappa",
    "within_sd",
]
