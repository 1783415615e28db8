"""A whole Referee without a network: scripted replies, the simulated provider's faults, another transport."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from referee import Reason, Sample, Unscored
from referee.engine import Response
from referee.testing import ProviderSpec, Question, fake_referee, write

SAMPLES = [Sample(prompt="2 + 2?", response="It is 4."), Sample(prompt="2 + 2?", response="Five.")]


def right(question: Question) -> str:
    """Ten for the right answer."""
    assert [message.role for message in question.messages] == ["system", "user"]
    assert question.texts["prompt"] == "2 + 2?"
    return write(question, 10 if "4" in question.candidate else 1)


@pytest.mark.parametrize("reply", ["schema", "text"])
@pytest.mark.parametrize("runtime", ["thread", "inline", "processes"])
def test_replies_are_scripted(reply: str, runtime: str) -> None:
    """In the form that is asked for; without a key, wherever the configuration would have sent it."""
    with fake_referee({"judge": {"reply": reply}, "runtime": runtime}, right) as referee:
        assert [reward.value for reward in referee.score(SAMPLES)] == [1.0, 0.0]


def test_yes_and_no_come_with_their_probabilities() -> None:
    """A word is a reply; the simulated provider adds what endpoints add."""
    with fake_referee({"judge": {"kind": "yes_no"}}, lambda question: "yes") as referee:
        (reward,) = referee.score(SAMPLES[:1])
    assert reward.value is not None
    assert 0.5 < reward.value < 1.0


def test_any_text_can_be_the_reply() -> None:
    """One that holds no verdict is unscored, as it would be in training."""
    with fake_referee({"judge": {"ask_again": 0}}, lambda question: "Hard to say.") as referee:
        verdict = referee.score(SAMPLES[:1])[0].verdict
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.NO_VERDICT


def test_the_provider_can_refuse() -> None:
    """What a ProviderSpec says happens on the way."""
    with fake_referee({}, right, spec=ProviderSpec(unsupported=("response_format",))) as referee:
        assert [reward.value for reward in referee.score(SAMPLES)] == [1.0, 0.0]


class Canned:
    """Gives every request the same answer."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        return Response(200, {}, b'{"choices": [{"message": {"content": "{\\"reason\\": \\"\\", \\"score\\": 10}"}}]}')

    async def close(self) -> None:
        """Nothing to close."""


def test_a_transport_takes_the_providers_place() -> None:
    """For dialects the simulated provider does not speak."""
    with fake_referee({}, transport=Canned) as referee:
        assert referee.score(SAMPLES[:1])[0].value == 1.0
