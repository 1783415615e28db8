"""The shapes of OpenRLHF, slime and LLaMA-Factory, and what "not scored" is in each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contracts.group_judges import KIND, registered
from tests.server.harness import serving, until

from referee.records import Reason, Reward, Settled, Unscored
from referee.server.refusals import Refusal
from referee.server.schemas import cut
from referee.server.trainer_routes import numbers
from referee.sim import ProviderSpec

REFUSING = ProviderSpec(faults={"refusal": 1.0})
ONE_OF_EACH = [
    ("/get_reward", {"query": ["Q?[[quality=5]] a"], "prompts": ["Q?"], "labels": [None]}),
    ("/slime", {"prompt": "Q?", "response": "[[quality=5]] a", "label": None}),
    ("/llamafactory", {"model": "model", "messages": ["Q? [[quality=5]] a"]}),
]


def test_openrlhf_gets_rewards_scores_and_logs() -> None:
    """Lists in the order of the request; scores are the judge's value, whatever the coefficient."""

    async def main() -> None:
        async with serving(shaping={"coefficient": 0.5}) as served:
            queries = [f"<s>Q{n}?[[quality={n}]] a</s>" for n in (1, 10, 4)]
            body = {"query": queries, "prompts": ["Q1?", "Q10?", "Q4?"], "labels": ["1", 10, None]}
            answer = await served.post("/get_reward", body)
            assert answer.status_code == 200
            found = answer.json()
            assert set(found) == {"rewards", "scores", "extra_logs"}
            assert found["scores"] == pytest.approx([0.0, 1.0, 1 / 3])
            assert found["rewards"] == pytest.approx([0.0, 0.5, 1 / 6])
            assert all(isinstance(number, float) for number in found["extra_logs"].values())

    asyncio.run(main())


def test_slime_gets_a_bare_number() -> None:
    """The reply is used verbatim as the reward; a prompt may be chat messages."""

    async def main() -> None:
        async with serving() as served:
            body: dict[str, Any] = {"prompt": "Q?", "response": "[[quality=10]] a", "label": "4"}
            assert (await served.post("/slime", body)).json() == 1.0
            body["prompt"] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q?"}]
            assert (await served.post("/slime", body)).json() == 1.0

    asyncio.run(main())


def test_llama_factory_gets_scores() -> None:
    """One number for each text; the model it names is not read."""

    async def main() -> None:
        async with serving() as served:
            body = {"model": "anything", "messages": ["a [[quality=10]]", "b [[quality=1]]"]}
            assert (await served.post("/llamafactory", body)).json() == {"scores": [1.0, 0.0]}

    asyncio.run(main())


def test_the_answer_is_cut_out_of_one_text() -> None:
    """With answer_after only what follows it is the answer; a verdict in the prompt is no answer."""

    async def main() -> None:
        async with serving(serve={"answer_after": "<assistant>"}) as served:
            text = "<user>[[quality=10]]?<assistant>"
            empty = await served.post("/llamafactory", {"messages": [text]})
            assert empty.json() == {"scores": [0.0]}
            full = await served.post("/llamafactory", {"messages": [text + "[[quality=10]] yes"]})
            assert full.json() == {"scores": [1.0]}

    asyncio.run(main())


@pytest.mark.parametrize(
    "text", ["<user>Q?<assistant>[[quality=1]]<assistant>[[quality=10]]", "<user>Q? [[quality=10]]"]
)
def test_a_candidate_does_not_choose_where_its_answer_begins(text: str) -> None:
    """answer_after twice (one may be the candidate's own) or not at all is refused; nothing is judged."""

    async def main() -> None:
        async with serving(serve={"answer_after": "<assistant>"}) as served:
            for path, body in (("/llamafactory", {"messages": [text]}), ("/get_reward", {"query": [text]})):
                answer = await served.post(path, body)
                assert (answer.status_code, answer.json()["error"]) == (422, "no_answer")
                assert "answer_after" in answer.json()["message"]
            assert served.held.asked == 0

    asyncio.run(main())


CUTS = [
    ("Q?A", "Q?", "", ("Q?", "A")),
    ("Q?A Q?B", "Q?", "", ("Q?", "A Q?B")),  # the candidate repeats the question
    ("<s> Q?A", "Q?", "", ("Q?", "A")),
    ("<pad><pad><|begin_of_text|>Q?A", "Q?", "", ("Q?", "A")),
    ("Q?A", " Q?", "", (" Q?", "A")),
    ("[gMASK]<sop><|user|>Q?A", "<|user|>Q?", "", ("<|user|>Q?", "A")),
    ("<s>sA", "s", "", ("s", "A")),
    ("Solve 12 + 2.A", "2", "", None),  # a short prompt stands in many places, and not at the beginning
    ("Q? cut sh Q?A", "Q? cut short", "", None),  # the candidate supplies the prompt that is not there
    ("q:A", "Q", ":", ("Q", "A")),
    ("q:A:B", "Q", ":", None),
    ("u:a:u:A", "U:a:U:", ":", ("U:a:U:", "A")),
    ("u:a:u:A:B", "U:a:U:", ":", None),  # one mark more than the prompt has
    ("q:A", "", ":", ("q", "A")),
    ("qA", "", "", ("", "qA")),
]


@pytest.mark.parametrize(("text", "prompt", "mark", "parts"), CUTS)
def test_the_answer_begins_where_the_prompt_ends(
    text: str, prompt: str, mark: str, parts: tuple[str, str] | None
) -> None:
    """By the prompt the text begins with, else by a mark that is there as often as in the prompt; else 422."""
    if parts is not None:
        assert cut(text, prompt, mark, "query[0]") == parts
        return
    with pytest.raises(Refusal, match=r"query\[0\]"):
        cut(text, prompt, mark, "query[0]")


def test_openrlhf_queries_must_tell_where_the_response_begins() -> None:
    """A query that does not begin with its prompt is refused, unless answer_after can stand in; lists must fit."""

    async def main() -> None:
        body = {"query": ["q <assistant>[[quality=10]] a"], "prompts": ["Q"], "labels": [None]}
        async with serving() as served:
            answer = await served.post("/get_reward", body)
            assert answer.status_code == 422
            assert "answer_after" in answer.json()["message"]
            wrongs: list[dict[str, Any]] = [{"prompts": []}, {"labels": [None, None]}]
            for wrong in wrongs:
                short = await served.post("/get_reward", {**body, **wrong})
                assert short.status_code == 422
                assert "length" in short.json()["message"]
        async with serving(serve={"answer_after": "<assistant>"}) as served:
            assert (await served.post("/get_reward", body)).json()["rewards"] == [1.0]

    asyncio.run(main())


def test_labels_reach_the_judge() -> None:
    """They are the reference that a comparing judge needs."""

    async def main() -> None:
        async with serving(judge={"kind": "reference"}) as served:
            body = {"prompt": "2 + 2?", "response": "It is 4.", "label": 4}
            assert (await served.post("/slime", body)).status_code == 200
            # Without a reference such a judge cannot compare: not scored, and said so.
            assert (await served.post("/slime", {**body, "label": None})).status_code == 503

    asyncio.run(main())


@pytest.mark.parametrize(("path", "body"), ONE_OF_EACH)
def test_not_scored_is_an_error_and_never_a_number(path: str, body: Any) -> None:
    """Without a policy that supplies a number it is 503 with Retry-After, and nothing a client could read as one."""

    async def main() -> None:
        async with serving(REFUSING, missing={"abort_above": 1.0}) as served:
            answer = await served.post(path, body)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
            assert set(answer.json()) == {"error", "message"}
            assert "refused" in answer.json()["message"]
            assert "[missing] policy" in answer.json()["message"]

    asyncio.run(main())


@pytest.mark.parametrize(("path", "body"), ONE_OF_EACH)
def test_the_policy_value_supplies_the_number(path: str, body: Any) -> None:
    """With [missing] policy = "value" the configured number is the reward."""

    async def main() -> None:
        async with serving(REFUSING, missing={"policy": "value", "value": -0.25, "abort_above": 1.0}) as served:
            answer = await served.post(path, body)
            assert answer.status_code == 200
            found = answer.json()
            if path == "/get_reward":
                assert found["rewards"] == found["scores"] == [-0.25]
                assert found["extra_logs"]["judge_scored"] == 0.0
            else:
                assert found in (-0.25, {"scores": [-0.25]})

    asyncio.run(main())


def test_group_mean_needs_siblings_in_the_request() -> None:
    """Rows of one request with one prompt are a group; a row alone has no mean and is 503."""

    async def main() -> None:
        spec = ProviderSpec()
        gates = {"gates": {"empty": "unscored"}}
        async with serving(spec, missing={"policy": "group_mean", "abort_above": 1.0}, judge=gates) as served:
            body = {"query": ["Q?[[quality=10]] a", "Q?", "Q?[[quality=1]] b"], "prompts": ["Q?"] * 3}
            assert (await served.post("/get_reward", body)).json()["rewards"] == [1.0, 0.5, 0.0]
            alone = {"query": ["Q?"], "prompts": ["Q?"]}
            assert (await served.post("/get_reward", alone)).status_code == 503

    asyncio.run(main())


def test_a_judge_of_groups_needs_requests_that_hold_groups() -> None:
    """Trainers that send one sample for each request are told so; rows of a request with one prompt are a group."""

    async def main() -> None:
        async with serving(ProviderSpec(), judge={"kind": KIND, "name": "rank"}) as served:
            for path, one in ONE_OF_EACH:
                refused = await served.post(path, one)
                assert refused.status_code == 500
                assert "one answer at a time" in refused.json()["message"]
                assert ("--group-rm" if path == "/slime" else "/v1/score") in refused.json()["message"]
            body = {"query": ["Q?[[quality=9]] a", "Q?[[quality=2]] b"], "prompts": ["Q?"] * 2}
            assert (await served.post("/get_reward", body)).json()["rewards"] == [0.5, 0.0]

    with registered():
        asyncio.run(main())


def test_cancelled_work_is_never_filled() -> None:
    """When the service goes away a caller is told to come back, also where a policy has a number at hand."""
    reward = Reward(
        index=0,
        id="",
        group="",
        value=0.0,
        filled="value",
        settled=Settled(verdict=Unscored(reason=Reason.CANCELLED)),
    )
    with pytest.raises(Refusal) as refusal:
        numbers([reward])
    assert refusal.value.status == 503


def test_a_caller_that_comes_back_joins_its_own_work() -> None:
    """A client that gave up and asks again does not pay twice."""

    async def main() -> None:
        async with serving(held=True) as served:
            path, body = ONE_OF_EACH[1]
            first = asyncio.create_task(served.post(path, body))
            await until(lambda: served.held.asked == 1)
            second = asyncio.create_task(served.post(path, body))
            await until(lambda: served.service.pending == 2)
            served.held.release()
            assert (await first).json() == (await second).json()
            assert served.held.asked == 1

    asyncio.run(main())


@pytest.mark.parametrize(("path", "body"), ONE_OF_EACH)
def test_unknown_fields_are_refused(path: str, body: Any) -> None:
    """Nobody chooses an endpoint or a prompt from outside, and a misspelt field is not passed over."""

    async def main() -> None:
        async with serving() as served:
            answer = await served.post(path, {**body, "endpoint": "http://evil.test"})
            assert answer.status_code == 422
            assert "endpoint" in answer.json()["message"]

    asyncio.run(main())


def test_a_label_may_bring_a_rubric() -> None:
    """It is read, not dropped; what no judge would see of a label is refused with its place."""

    async def main() -> None:
        rubric = [{"criterion": "Says 4.", "check": "contains", "parameters": "4", "points": 1}]
        async with serving(judge={"kind": "rubric"}) as served:
            body = {"prompt": "2 + 2?", "response": "It is 4.", "label": {"rubric": rubric, "reference": None}}
            assert (await served.post("/slime", body)).json() == 1.0
            body = {"query": ["Q?It is 5."], "prompts": ["Q?"], "labels": [{"rubric": rubric}]}
            assert (await served.post("/get_reward", body)).json()["rewards"] == [0.0]
            for label, place in (({"topic": "sums"}, "labels[0].topic"), ({"rubric": [{}]}, "labels[0].rubric[0]")):
                answer = await served.post("/get_reward", {**body, "labels": [label]})
                assert answer.status_code == 422
                assert place in answer.json()["message"]

    asyncio.run(main())
