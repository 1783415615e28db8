"""A simulated judge that likes the first place by 20 % of its scale: how far that moves values, in units of noise."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from referee.config import JudgeConfig
from referee.judging import make_judge
from referee.records import Ask, Reply, Sample, Unscored, Verdict
from referee.sim import Perception
from referee.sim.chat import ChatMessage, ChatRequest
from referee.sim.chat import ask as read
from referee.sim.comparisons import write_list
from referee.sim.judge import write
from referee.testing import deliberate

BIAS = 0.2
GROUPS, DRAWS = 5, 30
STRENGTHS = (0.2, 0.7, 0.35, 0.6, 0.25, 0.45, 0.55, 0.3)
"""Away from the ends of the scale, where a bias would be cut off."""


def answering(strengths: dict[str, float], sees: Perception, seed: int) -> Callable[[Ask], Verdict | Unscored]:
    """Answers, in text, of a judge that sees so."""
    chance = random.Random(seed)

    def answer(ask: Ask) -> Verdict | Unscored:
        question = read(ChatRequest(messages=[ChatMessage(message.role, message.content) for message in ask.messages]))
        labels = [each.label for each in question.shown]
        seen = sees.seen([strengths[each.text] for each in question.shown], chance)
        if question.listed:
            scores = [1 + round(9 * min(max(value, 0.0), 1.0)) for value in seen]
            said = write_list(list(zip(labels, scores, strict=True)), "", question.tag)
        else:
            said = write(question, labels[sees.better(*seen) or 0])
        return ask.read(ask, Reply(text=said, finish="stop"))

    return answer


def largest_shift(noise: float, **settings: Any) -> float:
    """How far the bias moves the value of any response beside its siblings, in units of the noise of values."""
    judge = make_judge(JudgeConfig(**settings), b"0123456789abcdef")
    shifts: list[float] = []
    noises: list[float] = []
    for number in range(GROUPS):
        samples = [Sample(prompt="p", response=f"answer {n} of {number}") for n in range(len(STRENGTHS))]
        strengths = {str(s.response): value for s, value in zip(samples, STRENGTHS, strict=True)}
        means: list[list[float]] = []
        for bias in (0.0, BIAS):
            sees = Perception(noise=noise, position_bias=bias)
            runs = [
                [
                    verdict.value
                    for verdict in deliberate(judge, samples, answering(strengths, sees, seed), "text").verdicts
                ]  # type: ignore[union-attr]
                for seed in range(DRAWS)
            ]
            values = list(zip(*runs, strict=True))
            means.append([statistics.fmean(each) for each in values])
            noises += [] if bias else [statistics.variance(each) for each in values]
        moved = [after - before for before, after in zip(*means, strict=True)]
        shifts += [abs(shift - statistics.fmean(moved)) for shift in moved]
    return max(shifts) / math.sqrt(statistics.fmean(noises))


@pytest.mark.parametrize("noise", [0.05, 0.15])
@pytest.mark.parametrize("permutations", [2, 4])
def test_a_bias_moves_no_score_of_several_orders_by_more_than_its_noise(noise: float, permutations: int) -> None:
    """Not even of a judge that is four times as biased as noisy: an order and its reverse cancel it."""
    assert largest_shift(noise, kind="listwise", permutations=permutations) < 1


@pytest.mark.parametrize("schedule", ["circular", "all"])
def test_a_bias_moves_no_value_of_both_orders_by_more_than_its_noise(schedule: str) -> None:
    """What depends on the order is a tie."""
    assert largest_shift(0.15, kind="pairwise", schedule=schedule) < 1


def test_in_one_order_it_does() -> None:
    """So the above are no empty claims: the same bias, measured in the same way."""
    assert largest_shift(0.05, kind="listwise") > 1.5
    assert largest_shift(0.15, kind="pairwise", schedule="all", both_orders=False) > 1
