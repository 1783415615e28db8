"""judge.expected: the mean of a scale's levels by their log-probabilities, and when there is none."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.config import JudgeConfig
from referee.judging import Form, Judge, make_judge
from referee.judging.probability import AROUND_LEVEL, answer_token
from referee.records import Ask, Criterion, Reason, Reply, Sample, TokenChoice, Unscored, Verdict

SECRET = b"0123456789abcdef"
SAMPLE = Sample(prompt="p", response="r")


def judge(**more: Any) -> Judge:
    return make_judge(JudgeConfig(**{"low": 1, "high": 5, "expected": True, "ask_again": 0, **more}), SECRET)


def asked(judge: Judge, form: Form = "schema", sample: Sample = SAMPLE) -> Ask:
    [request] = next(judge.deliberate((sample,), form))
    return request


def token(text: str, **shares: float) -> TokenChoice:
    top = {name.lstrip("_"): share for name, share in shares.items()} or {text: 1.0}
    return TokenChoice(text, tuple((name, math.log(share)) for name, share in top.items()))


def said(request: Ask, level: TokenChoice, *after: str) -> Verdict | Unscored:
    """The reading of a reply with this token as its level."""
    if request.sampling.schema is not None:
        before, end = ['{"', "reason", '":"', "4 of 5", '","', "score", '":', " "], after or ("}",)
    else:
        before = ["So", " 4", ".\n", "<", "verdict", "-", request.nonce, ">"]
        end = after or ("</", "verdict", "-", request.nonce, ">")
    choices = (*map(token, before), level, *map(token, end), token("<|im_end|>"))
    text = "".join(choice.token for choice in choices[:-1])
    return request.read(request, Reply(text=text, finish="stop", choices=choices))


@pytest.mark.parametrize("form", ["schema", "text"])
def test_the_score_is_the_mean_of_the_levels(form: Form) -> None:
    """By their probabilities at the token of the level; the standard deviation of the value is the uncertainty."""
    request = asked(judge(), form)
    assert request.sampling.top_logprobs == 20
    verdict = said(request, token("4", _3=0.2, _4=0.6, _5=0.2))
    assert isinstance(verdict, Verdict)
    assert (verdict.score, verdict.value, verdict.how) == (pytest.approx(4.0), pytest.approx(0.75), "logprob")
    assert verdict.uncertainty == pytest.approx(math.sqrt(0.4) / 4)


def test_the_named_level_does_not_overrule_the_distribution() -> None:
    """Spellings count together, and what is left to other tokens is left out of the mean."""
    place = TokenChoice(
        "5", (("5", math.log(0.3)), (" 1", math.log(0.35)), ("1", math.log(0.3)), ("x", math.log(0.05)))
    )
    verdict = said(asked(judge()), place)
    assert isinstance(verdict, Verdict)
    assert verdict.score == pytest.approx((0.3 * 5 + 0.65 * 1) / 0.95)


def test_too_little_probability_on_the_levels_is_ambiguous() -> None:
    """The coverage that P(yes) must have."""
    verdict = said(asked(judge()), token("4", _4=0.8, x=0.2))
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.AMBIGUOUS


@pytest.mark.parametrize(
    "after",
    [("}",), ("\n", "}", "\n"), ("\n}\n",), ("}", "</s>")],
)
def test_only_the_end_of_the_object_may_follow(after: tuple[str, ...]) -> None:
    """White space and end-of-turn tokens aside."""
    place = token("4", _4=1.0)
    choices = (token("4", _4=1.0), place, *map(token, after))
    assert answer_token(choices, "4", AROUND_LEVEL, "}") is place


def test_an_earlier_number_is_not_taken_for_the_level() -> None:
    """Of a reply with the level first, or in two tokens, there is no distribution to read."""
    assert answer_token((token("4"), token(',"reason":"x"'), token("}")), "4", AROUND_LEVEL, "}") is None
    assert answer_token((token("1"), token("0"), token("}")), "10", AROUND_LEVEL, "}") is None
    assert answer_token((token("4"), token("."), token("0"), token("}")), "4", AROUND_LEVEL, "}") is None


def test_digits_of_the_nonce_are_not_taken_for_the_level() -> None:
    """The closing tag must be whole."""
    place = token("4", _4=1.0)
    choices = (place, token("</verdict-"), token("4"), token("f>"))
    assert answer_token(choices, "4", AROUND_LEVEL, "</verdict-4f>") is place


def lacking(request: Ask) -> Verdict | Unscored:
    text = '{"reason": "so", "score": 4}'
    return request.read(request, Reply(text=text, finish="stop"))


def test_a_level_never_stands_beside_a_mean() -> None:
    """After one reply with log-probabilities, one without them is asked again, however often."""
    request = asked(judge(ask_again=2))
    assert isinstance(said(request, token("4", _4=1.0)), Verdict)
    for _ in range(10):
        verdict = lacking(request)
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.SCHEMA


def test_an_endpoint_without_log_probabilities_is_recognised_by_its_first_replies() -> None:
    """From then on the level counts, also where a reply has them after all."""
    request = asked(judge(ask_again=1))
    assert isinstance(lacking(request), Unscored)
    assert lacking(request) == Verdict(score=4.0, value=0.75, reason="so", how="schema")
    later = said(request, token("4", _3=0.5, _4=0.5))
    assert isinstance(later, Verdict)
    assert (later.score, later.how) == (4.0, "schema")


@given(st.lists(st.floats(0.01, 1), min_size=5, max_size=5), st.floats(0.9, 1))
def test_the_mean_is_that_of_the_shares(weights: list[float], coverage: float) -> None:
    """For any distribution with enough coverage, within the scale."""
    shares = [weight / sum(weights) * coverage for weight in weights]
    place = TokenChoice("3", tuple((str(level), math.log(share)) for level, share in enumerate(shares, 1)))
    verdict = said(asked(judge()), place)
    if isinstance(verdict, Unscored):
        assert sum(shares) < 0.9 + 1e-9
    else:
        mean = sum(level * share for level, share in enumerate(shares, 1)) / sum(shares)
        assert verdict.score == pytest.approx(mean)
        assert 1 <= verdict.score <= 5


def test_its_verdicts_are_not_those_of_a_judge_that_names_a_level() -> None:
    """The cache must not mix them."""
    plain = make_judge(JudgeConfig(low=1, high=5), SECRET)
    assert asked(judge()).facets != asked(plain).facets


CHOICES = Criterion("How clear is it?", name="clear", choices=("muddled", "so-so", "clear"), values=(0.0, 0.2, 1.0))


def rubric(**more: Any) -> Judge:
    return judge(kind="rubric", criterion=(CHOICES,), criteria_per_call=1, **more)


def choice(request: Ask, place: TokenChoice) -> Verdict | Unscored:
    before = ['{"c1": {"', "reason", '": "', "so", '", "', "verdict", '":', " "]
    choices = (*map(token, before), place, token("}"), token("}"))
    return request.read(request, Reply(text="".join(one.token for one in choices), finish="stop", choices=choices))


def test_of_a_criterion_with_choices_it_is_the_mean_of_what_they_are_worth() -> None:
    """The rubric's own uncertainty is the mean of its criteria's."""
    deliberation = rubric().deliberate((SAMPLE,), "schema")
    [request] = next(deliberation)
    with pytest.raises(StopIteration) as stop:
        deliberation.send([choice(request, token("2", _1=0.5, _2=0.5))])
    [verdict] = stop.value.value
    assert verdict.value == pytest.approx(0.6)
    assert verdict.uncertainty == pytest.approx(0.4)
    assert (verdict.parts[0].label, verdict.parts[0].verdict.how) == ("clear", "logprob")


def test_the_cache_tells_apart_what_choices_are_worth() -> None:
    """A mean is of these values alone."""
    other = Criterion(CHOICES.text, choices=CHOICES.choices, values=(0.0, 0.9, 1.0))
    first = asked(rubric())
    assert first.facets != asked(judge(kind="rubric", criterion=(other,), criteria_per_call=1)).facets


def test_more_choices_than_digits_are_read_by_name() -> None:
    """Of ten and more the first digit may be a choice of its own."""
    many = Criterion("How good?", choices=tuple(f"level {number}" for number in range(11)))
    request = asked(judge(kind="rubric", criterion=(many,), criteria_per_call=1))
    assert request.sampling.top_logprobs == 0


def test_an_implicit_rubric_is_a_score() -> None:
    """With the same mean, on one scale for all its samples."""
    both = judge(kind="rubric", criterion=(CHOICES,), combine="implicit", ask_again=2)
    verdict = said(asked(both), token("4", _3=0.5, _4=0.5))
    assert isinstance(verdict, Verdict)
    assert verdict.score == pytest.approx(3.5)
    assert isinstance(lacking(asked(both, sample=Sample(prompt="q", response="s"))), Unscored)
