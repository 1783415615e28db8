"""A real TRL trainer whose policy calls a tool: TRL parses the call, runs it and hands all of it to the judge."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from tests.contracts.adapter_suite import sim_url, write_config
from tests.contracts.trajectory_suite import (
    ANSWER,
    ASIDE,
    QUERY,
    RESULT,
    TEMPLATE,
    THOUGHT,
    TOPIC,
    Listening,
    listening,
)
from tests.trainers.trl_tiny import PROMPTS, make_trainer, quietly, tokenizer

from referee.trainers import trl as adapter

__all__ = ["listening", "sim_url", "write_config"]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

CALLS = f'<think>{THOUGHT}</think>{ASIDE}<tool_call>{{"name": "search", "arguments": {{"q": "{QUERY}"}}}}</tool_call>'
SCHEMA = {
    "x-regex": r"^(?:<think>(?P<reasoning_content>.*?)</think>)?(?P<content>(?:(?!<tool_call>).)*)"
    r"(?P<tool_calls><tool_call>.*</tool_call>)?",
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "reasoning_content": {"type": "string"},
        "content": {"type": "string"},
        "tool_calls": {
            "type": "array",
            "x-regex-iterator": r"<tool_call>(.*?)</tool_call>",
            "items": {
                "type": "object",
                "properties": {"type": {"const": "function"}, "function": {"type": "object", "x-parser": "json"}},
            },
        },
    },
}
"""How transformers reads a response of this policy; TRL knows it for the chat templates of real models."""


def search(q: str) -> str:
    """looks-it-up

    Args:
        q: what to look up
    """
    return RESULT


@pytest.mark.parametrize("attached", [False, True], ids=["plain", "attached"])
def test_the_judge_sees_what_the_policy_did(
    tmp_path: Path,
    write_config: Any,
    listening: Listening,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    attached: bool,
) -> None:
    """Reasoning, call, result, answer, the tool's description and a column of the dataset; judged once in any case."""
    if (adapter.trl_version() or (0, 0)) < (1, 0):
        pytest.skip("this TRL shows a reward function nothing of its trainer")
    caplog.set_level(logging.INFO, "referee.trainers")
    # Only TRL's own schemas need jmespath.
    monkeypatch.setattr(quietly("trl.trainer.grpo_trainer"), "is_jmespath_available", lambda: True)
    (tmp_path / "judge.txt").write_text(TEMPLATE)
    config = write_config(
        {"policy": "raise"}, listening.url, judge={"view": "full", "prompt_file": str(tmp_path / "judge.txt")}
    )
    tokens = tokenizer()
    tokens.response_schema = SCHEMA
    trainer = make_trainer(
        tmp_path,
        [adapter.reward_func(config)],
        chat=True,
        steps=1,
        parts={"tools": [search], "processing_class": tokens},
        columns={"topic": TOPIC, "rubric": "1. Right."},
        max_completion_length=300,
    )

    def generate(prompt_ids: Any, *_: Any, **__: Any) -> Any:
        said = [
            f"{ANSWER} [[quality={n % 10 + 1}]]" if RESULT in tokens.decode(ids) else CALLS
            for n, ids in enumerate(prompt_ids)
        ]
        return [[*tokens(text)["input_ids"], tokens.eos_token_id] for text in said], None

    trainer._generate_single_turn = generate
    if attached:
        adapter.attach(trainer)
    trainer.train()
    assert len(listening.judge.texts) == 8
    for texts in listening.judge.texts:
        words = (THOUGHT, ASIDE, "assistant calls search", QUERY, "result of search", RESULT, ANSWER)
        places = [texts["response"].index(word) for word in words]
        assert places == sorted(places)
        assert "looks-it-up" in texts["prompt"]
        assert any(text in texts["prompt"] for text in PROMPTS)
        assert TOPIC in texts["column"]
    assert list(trainer._logs["rewards"]["referee"]) == pytest.approx([n / 9 for n in range(8)])
    said = [(one.levelname, one.getMessage()) for one in caplog.records if "not read" in one.getMessage()]
    assert [(level, text.partition(".")[0]) for level, text in said] == [("WARNING", "not read: rubric")]
