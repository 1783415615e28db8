"""yes_no: P(yes) from log-probabilities, with coverage; the bare word where there are none; never both in one judge."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import JudgeConfig
from referee.judging import Judge, make_judge
from referee.records import Ask, Reason, Reply, Sample, TokenChoice, Unscored, Verdict

SECRET = b"0123456789abcdef"
JUDGE = make_judge(JudgeConfig(kind="yes_no"), SECRET)
REQUEST = JUDGE.plan(Sample(prompt="p", response="r"), "text")
assert isinstance(REQUEST, Ask)


def token(text: str, **mass: float) -> TokenChoice:
    return TokenChoice(text, tuple((name.replace("_", " "), math.log(p)) for name, p in mass.items()))


def read(text: str, *choices: TokenChoice, judge: Judge | None = None) -> Verdict | Unscored:
    """As a judge reads it that nothing was read by before, unless one is given."""
    assert isinstance(REQUEST, Ask)
    reader = judge or make_judge(JudgeConfig(kind="yes_no"), SECRET)
    return reader.read(REQUEST, Reply(text=text, finish="stop", choices=choices))


def on_words() -> Judge:
    """A judge whose first reply had no log-probabilities, and who was to ask only once."""
    judge = make_judge(JudgeConfig(kind="yes_no", ask_again=0), SECRET)
    assert isinstance(read("no", judge=judge), Verdict)
    return judge


def probability(verdict: Verdict | Unscored) -> float:
    assert isinstance(verdict, Verdict), verdict
    assert verdict.how == "logprob"
    assert verdict.value == verdict.score
    return verdict.value


def test_the_request_asks_for_log_probabilities_and_one_word() -> None:
    """Both forms are the same request: twenty alternatives, few tokens, no schema."""
    assert isinstance(REQUEST, Ask)
    assert JUDGE.plan(Sample(prompt="p", response="r"), "schema") == REQUEST
    assert (REQUEST.sampling.top_logprobs, REQUEST.sampling.max_tokens, REQUEST.sampling.schema) == (20, 16, None)
    assert dict(REQUEST.facets)["form"] == "text"
    assert REQUEST.messages[1].content.endswith("exactly one word, yes or no, and nothing else.")


def test_mass_is_summed_over_spellings() -> None:
    """Case, leading space and raw tokenizer marks all count."""
    top = (("Yes", 0.4), (" yes", 0.2), ("ĠYES", 0.1), ("▁No", 0.2), ("no", 0.08), ("Maybe", 0.01))
    choice = TokenChoice("Yes", tuple((name, math.log(p)) for name, p in top))
    assert probability(read("Yes", choice)) == pytest.approx(0.7 / 0.98)


def test_uncertainty_is_the_entropy() -> None:
    """Even odds are ln 2 nats; certainty is none."""
    even = read("yes", token("yes", yes=0.5, no=0.5))
    sure = read("no", token("no", no=1.0))
    assert isinstance(even, Verdict)
    assert isinstance(sure, Verdict)
    assert even.uncertainty == pytest.approx(math.log(2))
    assert (sure.value, sure.uncertainty) == (0.0, 0.0)


def test_the_sampled_word_does_not_overrule_the_distribution() -> None:
    """At a temperature above 0 the judge may say the rarer word; the score is the probability."""
    assert probability(read("no", token("no", yes=0.7, no=0.3))) == pytest.approx(0.7)


def test_low_coverage_is_ambiguous() -> None:
    """When other words hold more than a tenth, the two labels do not speak for the judge."""
    verdict = read("yes", token("yes", yes=0.5, no=0.1, maybe=0.4))
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.AMBIGUOUS
    assert "0.60" in verdict.detail


def test_the_answer_token_is_the_last_one() -> None:
    """Reasoning may say yes many times; marks and end tokens may follow the answer."""
    early, late = token("yes", yes=0.95, no=0.05), token(" no", yes=0.1, _no=0.9)
    end = (token(".", **{".": 1.0}), token("<|im_end|>", x=1.0), token("</s>", x=1.0))
    assert probability(read("<think>yes</think> no.", early, late, *end)) == pytest.approx(0.1)


def test_a_word_in_two_tokens_is_a_bare_word() -> None:
    """Without one token for the answer there is no distribution to read, least of all an earlier one."""
    tokens = token("no", yes=0.95, no=0.05), token("N", N=1.0), token("o", o=1.0)
    text = "<think>no</think>No"
    assert isinstance(read(text, *tokens), Unscored)
    assert read(text, *tokens, judge=on_words()) == Verdict(score=0.0, value=0.0, reason="no", how="tag")


@pytest.mark.parametrize(("word", "value"), [("yes", 1.0), ("no", 0.0)])
def test_on_the_scale_of_words_the_word_counts(word: str, value: float) -> None:
    """1 or 0, and the record says which path it was; also where a reply has log-probabilities after all."""
    judge, expected = on_words(), Verdict(score=value, value=value, reason=word, how="tag")
    for choices in ((), (TokenChoice(word, ()),), (token(word, yes=0.6, no=0.4),)):
        assert read(word, *choices, judge=judge) == expected


LACKING: dict[str, tuple[TokenChoice, ...]] = {
    "none": (),
    "empty": (TokenChoice("yes", ()),),
    "not a number": (TokenChoice("yes", (("yes", math.nan), ("no", math.nan))),),
    "not of the word": (TokenChoice("yes", (("no", -0.05),)),),
}


@pytest.mark.parametrize("choices", LACKING.values(), ids=LACKING)
def test_a_bare_word_never_stands_beside_probabilities(choices: tuple[TokenChoice, ...]) -> None:
    """After one reply with log-probabilities a reply without them is asked again, however often that happens."""
    judge = make_judge(JudgeConfig(kind="yes_no"), SECRET)
    assert probability(read("yes", token("yes", yes=0.6, no=0.4), judge=judge)) == pytest.approx(0.6)
    for _ in range(20):
        verdict = read("yes", *choices, judge=judge)
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.SCHEMA
    assert probability(read("no", token("no", yes=0.3, no=0.7), judge=judge)) == pytest.approx(0.3)


@pytest.mark.parametrize("ask_again", [0, 1, 2, 5])
def test_an_endpoint_without_log_probabilities_is_recognised_by_its_first_replies(ask_again: int) -> None:
    """As many as one sample is asked for: the last of them is read as a word already, so no sample is lost."""
    judge = make_judge(JudgeConfig(kind="yes_no", ask_again=ask_again), SECRET)
    first = [read("yes", judge=judge) for _ in range(1 + ask_again)]
    assert [isinstance(verdict, Verdict) for verdict in first] == [False] * ask_again + [True]


@pytest.mark.parametrize("logprob", [math.nan, math.inf, 0.5])
def test_log_probabilities_that_are_none_are_refused(logprob: float) -> None:
    """A broken server does not become a number."""
    verdict = read("yes", TokenChoice("yes", (("yes", logprob), ("no", -0.1))))
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.SCHEMA


def test_probabilities_above_one_are_refused() -> None:
    """Two spellings that add up to more than 1 are no distribution."""
    verdict = read("yes", token("yes", yes=0.9, Yes=0.9))
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.SCHEMA


def test_a_token_listed_twice_counts_once() -> None:
    """Some servers repeat the chosen token among its alternatives."""
    choice = TokenChoice("yes", (("yes", math.log(0.6)), ("yes", math.log(0.6)), ("no", math.log(0.35))))
    assert probability(read("yes", choice)) == pytest.approx(0.6 / 0.95)


@given(st.floats(0, 1), st.floats(0.9, 1))
@settings(max_examples=100, deadline=None)
def test_p_yes_is_the_share_of_yes(share: float, coverage: float) -> None:
    """For any split and enough coverage the score is yes / (yes + no)."""
    masses = [("yes", share * coverage), ("no", (1 - share) * coverage)]
    top = tuple((name, math.log(p)) for name, p in masses if p > 0)
    word = "yes" if share >= 0.5 else "no"
    verdict = read(word, TokenChoice(word, top))
    if isinstance(verdict, Unscored):
        assert sum(p for _, p in masses) < 0.9 + 1e-9
    else:
        assert probability(verdict) == pytest.approx(share)


def test_the_cap_of_the_configuration_holds() -> None:
    """A smaller judge.max_tokens is kept; no temperature is sent when it is to be left out."""
    judge = make_judge(JudgeConfig(kind="yes_no", max_tokens=4, temperature="default"), b"0123456789abcdef")
    request = judge.plan(Sample(prompt="p", response="r"), "text")
    assert isinstance(request, Ask)
    assert (request.sampling.max_tokens, request.sampling.temperature) == (4, None)
