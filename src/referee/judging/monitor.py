"""kind = "monitor": sees only the reasoning of a response and predicts a hidden yes or no. Reason before label.

The score is the prediction: 1 for yes, 0 for no. Whether it was right is decided where the hidden fact is known.
"""

from __future__ import annotations

from functools import partial

from referee.config import JudgeConfig
from referee.judging.kind import Kind, forms_of, object_schema
from referee.judging.read import read_label
from referee.judging.template import criteria_of, shipped, shipped_replies

LABELS = {"yes": 1.0, "no": 0.0}


def monitor(config: JudgeConfig) -> Kind:
    """The judge kind for this question."""
    return Kind(
        name="monitor/1",
        template=shipped("monitor"),
        values={"criteria": criteria_of(config, "monitor")},
        replies=shipped_replies("monitor"),
        sampling=forms_of(config, object_schema("verdict", {"type": "string", "enum": list(LABELS)})),
        read=partial(read_label, LABELS),
        trace=True,
    )
