"""How far judges agree with people: labels read, rows judged, agreement measured, findings said, a page written."""

from referee.calibration.checks import CHECKS, Check, Evidence
from referee.calibration.comparison import compare
from referee.calibration.export import HIGHER_IS_BETTER, as_data
from referee.calibration.labels import Format, Row, read_labels
from referee.calibration.ratings import calibration_config, check_labels
from referee.calibration.run import calibrate, common_of
from referee.calibration.shape import Calibrated, Calibration, Comparison, Disagreement, Finding
from referee.calibration.truth import YesRule, yes_rule

__all__ = [
    "CHECKS",
    "HIGHER_IS_BETTER",
    "Calibrated",
    "Calibration",
    "Check",
    "Comparison",
    "Disagreement",
    "Evidence",
    "Finding",
    "Format",
    "Row",
    "YesRule",
    "as_data",
    "calibrate",
    "calibration_config",
    "check_labels",
    "common_of",
    "compare",
    "read_labels",
    "yes_rule",
]
