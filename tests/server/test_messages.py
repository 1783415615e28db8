"""Rollouts as messages, tools and own columns over HTTP: shown to the judge, or refused with the place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.trajectory_suite import (
    ANSWER,
    ASIDE,
    QUERY,
    RESULT,
    RULES,
    TASK,
    TEMPLATE,
    THOUGHT,
    TOPIC,
    Rollout,
)
from tests.server.harness import serving


def given(rollout: Rollout, **more: Any) -> dict[str, Any]:
    return {"prompt": rollout.prompt, "response": rollout.response, "tools": rollout.tools, **more}


def asked(path: str, body: dict[str, Any], **sections: Any) -> tuple[int, Any, list[str]]:
    """Status and body of the answer, and what the judge was shown."""

    async def main() -> tuple[int, Any, list[str]]:
        async with serving(**sections) as served:
            answer = await served.post(path, body)
            return answer.status_code, answer.json(), served.held.shown

    return asyncio.run(main())


def test_the_judge_sees_the_whole_rollout() -> None:
    """Under view = "full": reasoning, call, result, answer, the prompt's roles and the tools."""
    status, found, (shown,) = asked("/v1/score", {"samples": [given(Rollout())]}, judge={"view": "full"})
    assert status == 200
    assert found["results"][0]["score"] == 7
    words = ("looks-it-up", RULES, TASK, THOUGHT, ASIDE, "assistant calls search", QUERY, RESULT, ANSWER)
    places = [shown.index(word) for word in words]
    assert places == sorted(places)


def test_views_are_the_configurations() -> None:
    """The answer alone, or the reasoning alone: a caller chooses neither."""
    _, _, (answer,) = asked("/v1/score", {"samples": [given(Rollout())]})
    assert ANSWER in answer
    assert THOUGHT not in answer
    _, _, (thoughts,) = asked("/v1/score", {"samples": [given(Rollout())]}, judge={"kind": "monitor"})
    assert THOUGHT in thoughts
    assert ANSWER not in thoughts


@pytest.mark.parametrize(
    ("sample", "place"),
    [
        ({"prompt": "p", "response": [{"content": "no role"}]}, "samples[0].response[0].role"),
        ({"prompt": [{"role": "user", "content": 5}], "response": "r"}, "samples[0].prompt[0].content"),
        ({"prompt": "p", "response": "r", "tools": [{"description": "x"}]}, "samples[0].tools[0].name"),
        ({"prompt": "p", "response": "r", "columns": {"topic": "sea"}}, "samples[0].columns.topic"),
        (given(Rollout.with_picture()), "prompt[1]"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_its_place(sample: dict[str, Any], place: str) -> None:
    """422, and no judge is asked: messages of another shape, images, columns that no template shows."""
    status, found, shown = asked("/v1/score", {"samples": [sample]})
    assert status == 422
    assert place in found["message"]
    assert not shown


def test_images_can_be_described() -> None:
    """A line in the text says what stood there."""
    body = {"samples": [given(Rollout.with_picture())]}
    status, _, (shown,) = asked("/v1/score", body, judge={"parts": "describe"})
    assert status == 200
    assert "[image_url, not shown]" in shown


@pytest.fixture
def topical(tmp_path: Path) -> dict[str, Any]:
    """A judge whose template shows a column."""
    (tmp_path / "judge.txt").write_text(TEMPLATE)
    return {"prompt_file": str(tmp_path / "judge.txt")}


QUESTION = {"prompt": "Q?", "response": "[[quality=7]] a"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", {"samples": [{**QUESTION, "columns": {"topic": TOPIC}}]}),
        ("/v1/score", {"samples": [{**QUESTION, "columns": {"topic": {"name": TOPIC}}}]}),
        ("/slime", {**QUESTION, "label": {"topic": TOPIC, "reference": "4"}}),
        ("/get_reward", {"query": ["Q? a"], "prompts": ["Q?"], "labels": [{"topic": TOPIC}]}),
    ],
)
def test_templates_show_columns(topical: dict[str, Any], path: str, body: dict[str, Any]) -> None:
    """By name on our own paths; where a trainer sends one label only, it may be an object that holds them."""
    status, _, (shown,) = asked(path, body, judge=topical)
    assert status == 200
    assert TOPIC in shown


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/v1/score", {"samples": [QUESTION]}, "samples[0].columns.topic"),
        ("/slime", QUESTION, "label.topic"),
        ("/get_reward", {"query": ["Q? a"], "prompts": ["Q?"], "labels": ["4"]}, "labels[0].topic"),
        ("/llamafactory", {"messages": ["Q? a"]}, "messages.topic"),
    ],
)
def test_a_column_that_is_missing_is_refused(topical: dict[str, Any], path: str, body: Any, place: str) -> None:
    """Not scored and asked again for ever would be the alternative."""
    status, found, shown = asked(path, body, judge=topical)
    assert status == 422
    assert f"{place}: missing" in found["message"]
    assert not shown
