"""Specs: read from JSON, refused with the name of what is wrong."""

from __future__ import annotations

import msgspec
import pytest

from referee.errors import ConfigError
from referee.sim.comparisons import Perception
from referee.sim.replies import BODIES, IMMEDIATE, WIRES
from referee.sim.spec import FAULTS, ProviderSpec, read_spec


def test_a_spec_survives_json() -> None:
    """What is sent to a child process arrives as it was."""
    spec = ProviderSpec(
        latency_median=2.0,
        capacity=60,
        mode="queue",
        schedule=((5.0, 3), (9.5, 0)),
        outages=((1.0, 2.0),),
        faults={"hang": 0.25, "reset": 0.5},
        unsupported=("temperature",),
        compares=Perception(noise=0.1, position_bias=0.2),
    )
    assert read_spec(msgspec.json.encode(spec)) == spec


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"latncy": 1}', "latncy"),
        ('{"capacity": "many"}', "capacity"),
        ('{"faults": {"hung": 0.1}}', "faults"),
        ('{"faults": {"hang": 0.7, "reset": 0.7}}', "faults"),
        ('{"faults": {"hang": -0.5}}', "faults"),
        ('{"time_scale": 0}', "time_scale"),
        ('{"latency_median": -1}', "latency_median"),
        ('{"schedule": [[5, 1], [2, 1]]}', "schedule"),
        ('{"outages": [[5, 5]]}', "outages"),
        ('{"judge": "constant", "rpm": 5}', "judge"),
        ('{"compares": {"noise": -1}}', "noise"),
        ("{", "spec"),
    ],
)
def test_a_bad_spec_is_refused_by_name(text: str, named: str) -> None:
    """The error names the field."""
    with pytest.raises(ConfigError, match=named):
        read_spec(text)


def test_an_unknown_fault_hints_at_the_nearest() -> None:
    """A slip of the pen gets the right name."""
    with pytest.raises(ConfigError, match="'throttle_date'"):
        ProviderSpec(faults={"throttle_dat": 0.1})  # type: ignore[dict-item]


def test_every_fault_has_its_implementation() -> None:
    """No name in the list falls through to an ordinary answer; `test_provider` looks at each."""
    corrupted = {"malformed", "nan_json", "duplicate_keys", "no_choices", "refusal", "content_filter", "length"}
    corrupted |= {"empty_content", "tool_call", "two_verdicts", "no_verdict", "out_of_range", "nan_score"}
    labels = {"label_missing", "label_twice", "label_unknown"}
    assert set(FAULTS) <= IMMEDIATE | WIRES.keys() | BODIES.keys() | corrupted | {"duplicate_score"} | labels
