"""kind = "reference": does the response agree with the known answer. A label of two, reason before label."""

from __future__ import annotations

from functools import partial

from referee.config import JudgeConfig
from referee.judging.kind import Kind, forms_of, object_schema
from referee.judging.read import read_label
from referee.judging.template import criteria_of, shipped, shipped_replies

LABELS = {"correct": 1.0, "incorrect": 0.0}


def reference(config: JudgeConfig) -> Kind:
    """The judge kind that compares with a reference."""
    return Kind(
        name="reference/1",
        template=shipped("reference"),
        needs=("reference", "response"),
        values={"criteria": criteria_of(config, "reference")},
        replies=shipped_replies("reference"),
        sampling=forms_of(config, object_schema("verdict", {"type": "string", "enum": list(LABELS)})),
        read=partial(read_label, LABELS),
    )
