"""score: the scale in schema and prompt, and its levels."""

from __future__ import annotations

import pytest

from referee.config import JudgeConfig
from referee.errors import ConfigError
from referee.judging import make_judge
from referee.judging.score import levels
from referee.records import Ask, Reply, Sample, Verdict

SECRET = b"0123456789abcdef"


def ask(low: int = 1, high: int = 10) -> Ask:
    request = make_judge(JudgeConfig(low=low, high=high), SECRET).plan(Sample(prompt="p", response="r"), "schema")
    assert isinstance(request, Ask)
    return request


def test_the_schema_is_strict_and_reason_first() -> None:
    """One object, two keys, the reason before the score, nothing else allowed."""
    schema = ask(0, 3).sampling.schema
    assert schema == {
        "type": "object",
        "properties": {"reason": {"type": "string"}, "score": {"type": "integer", "enum": [0, 1, 2, 3]}},
        "required": ["reason", "score"],
        "additionalProperties": False,
    }
    assert list(schema["properties"]) == ["reason", "score"]


def test_long_scales_are_declared_by_their_ends() -> None:
    """Providers limit the length of an enum."""
    schema = ask(0, 1000).sampling.schema
    assert schema is not None
    assert schema["properties"]["score"] == {"type": "integer", "minimum": 0, "maximum": 1000}


def test_all_requests_share_one_schema_object() -> None:
    """The schema does not depend on the sample, so providers compile it once."""
    judge = make_judge(JudgeConfig(), SECRET)
    one, other = (judge.plan(Sample(prompt=p, response="r"), "schema") for p in "ab")
    assert isinstance(one, Ask)
    assert isinstance(other, Ask)
    assert one.sampling is other.sampling


@pytest.mark.parametrize(
    ("low", "high", "steps"),
    [
        (1, 10, [1, 3, 5, 7, 10]),
        (0, 1, [0, 1]),
        (1, 3, [1, 2, 3]),
        (1, 4, [1, 2, 3, 4]),
        (-2, 2, [-2, -1, 0, 1, 2]),
        (0, 100, [0, 25, 50, 75, 100]),
    ],
)
def test_levels_span_the_scale(low: int, high: int, steps: list[int]) -> None:
    """Two to five levels, from worthless at the bottom to excellent at the top."""
    lines = levels(low, high).splitlines()
    assert [int(line.split(":")[0]) for line in lines] == steps
    assert "worthless" in lines[0]
    assert "excellent" in lines[-1]


@pytest.mark.parametrize(("low", "high"), [(1, 10), (0, 1), (-5, 5), (0, 1000)])
def test_the_ends_map_to_zero_and_one(low: int, high: int) -> None:
    """value = (score - low) / (high - low)."""
    judge = make_judge(JudgeConfig(low=low, high=high), SECRET)
    for score, value in ((low, 0.0), (high, 1.0)):
        verdict = judge.read(ask(low, high), Reply(text=f'{{"reason": "", "score": {score}}}'))
        assert verdict == Verdict(score=score, value=value, how="schema")


def test_an_upside_down_scale_is_refused() -> None:
    """low must be below high."""
    with pytest.raises(ConfigError, match="low"):
        make_judge(JudgeConfig(low=3, high=3), SECRET)


def test_the_scale_stands_in_prompt_and_reply() -> None:
    """The judge is told the range twice: with the levels and after the data."""
    system, user = (message.content for message in ask(2, 8).messages)
    assert "integer from 2 to 8" in system
    assert "integer from 2 to 8" in user
