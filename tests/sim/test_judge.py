"""The simulated judges answer what the real prompts ask, in the form they ask for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from referee.config import EndpointConfig, JudgeConfig
from referee.judging import Form, Judge, make_judge
from referee.records import Ask, Reply, Sample, TokenChoice, Verdict
from referee.sim.chat import ChatRequest, ask, unfence
from referee.sim.judge import HonestJudge
from referee.sim.judge import Judge as SimJudge
from referee.sim.replies import completion, prompt_tokens
from referee.wire import CHAT

SECRET = b"0123456789abcdef"


def verdict(judge: Judge, form: Form, response: str, sim: SimJudge) -> Any:
    """Ask the real judge's question of a simulated one, over the real encoding, and read the reply."""
    request = judge.plan(Sample(prompt="What is it?", response=response, reference="four"), form)
    assert isinstance(request, Ask)
    chat = msgspec.json.decode(CHAT.encoder(EndpointConfig()).encode(request), type=ChatRequest)
    question = ask(chat)
    answer = sim.answer(question)
    body, _ = completion(chat, answer, question, asked=prompt_tokens(chat), serial=1, created=1)
    return judge.read(request, _reply(body))


def _reply(body: bytes) -> Reply:
    choice = json.loads(body)["choices"][0]
    choices = tuple(
        TokenChoice(place["token"], tuple((top["token"], top["logprob"]) for top in place["top_logprobs"]))
        for place in (choice["logprobs"] or {"content": []})["content"]
    )
    return Reply(text=choice["message"]["content"], finish=choice["finish_reason"], choices=choices)


@pytest.mark.parametrize("form", ["schema", "text"])
@pytest.mark.parametrize(("low", "high"), [(1, 10), (0, 1), (-5, 5), (0, 250)])
def test_a_marked_candidate_gets_its_score(form: Form, low: int, high: int) -> None:
    """Known answers for tests: every score of the scale can be asked for, in both forms."""
    judge = make_judge(JudgeConfig(low=low, high=high), SECRET)
    for score in (low, (low + high) // 2, high):
        found = verdict(judge, form, f"An answer. [[quality={score}]]", HonestJudge())
        assert isinstance(found, Verdict)
        assert found.score == score


@pytest.mark.parametrize("form", ["schema", "text"])
def test_an_unmarked_candidate_gets_a_score_of_its_own(form: Form) -> None:
    """Scores spread over the whole scale, and the same text always gets the same one, whatever the nonces are."""
    one, other = (make_judge(JudgeConfig(), secret) for secret in (SECRET, b"another secret!!"))
    scores = [verdict(one, form, f"Answer number {n}.", HonestJudge()).score for n in range(120)]
    assert set(scores) == set(range(1, 11))
    assert scores[:20] == [verdict(other, form, f"Answer number {n}.", HonestJudge()).score for n in range(20)]


@pytest.mark.parametrize("form", ["schema", "text"])
def test_reference_judges_get_labels(form: Form) -> None:
    """Correct or incorrect, by the marker's word or by its degree."""
    judge = make_judge(JudgeConfig(kind="reference"), SECRET)
    for mark, score in (("correct", 1.0), ("incorrect", 0.0), ("9", 1.0), ("2", 0.0)):
        assert verdict(judge, form, f"four [[quality={mark}]]", HonestJudge()).score == score


def test_yes_no_judges_get_probabilities() -> None:
    """One word, with log-probabilities that say how sure it is."""
    judge = make_judge(JudgeConfig(kind="yes_no"), SECRET)
    found = [verdict(judge, "text", f"Well. [[quality={n}]]", HonestJudge()) for n in (1, 4, 6, 9)]
    assert [item.how for item in found] == ["logprob"] * 4
    assert [item.score for item in found] == pytest.approx([0.1, 0.4, 0.6, 0.9])


@pytest.mark.parametrize("form", ["schema", "text"])
def test_a_marker_off_the_scale_is_said_as_it_is(form: Form) -> None:
    """A judge that answers 11 of 10 can be had too."""
    found = verdict(make_judge(JudgeConfig(), SECRET), form, "x [[quality=11]]", HonestJudge())
    assert found.reason == "out_of_range"


def test_prompts_of_other_making_get_an_answer() -> None:
    """A bare question without fences, tags or schema gets one word or number."""
    for text, answers in (
        ("Rate this from 0 to 5: hello", {"0", "1", "2", "3", "4", "5"}),
        ("Is the sky blue? Answer yes or no.", {"yes", "no"}),
        ("", {str(n) for n in range(1, 11)}),
    ):
        body = msgspec.json.encode({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]})
        assert HonestJudge().answer(ask(msgspec.json.decode(body, type=ChatRequest))).text in answers


def test_fences_are_read_by_their_code() -> None:
    """Only the line with the same code ends a fenced text."""
    told, fenced = unfence("a <<<prompt 12\nhi\n12 prompt>>> b <<<response 34\nx\n12 response>>>\n34 response>>> c")
    assert told == ["a ", " b ", " c"]
    assert fenced == {"prompt": "hi", "response": "x\n12 response>>>"}
    assert unfence("<<<open for ever\n") == (["<<<open for ever\n"], {})
