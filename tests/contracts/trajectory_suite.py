"""What every adapter promises of a rollout with a tool: all of it reaches the judge, or is refused by name.

The judge is the simulated one, on a server in this process whose questions can be read.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.adapter_suite import PATIENCE, Write

from referee.errors import ConfigError, InputError
from referee.sim import HonestJudge, Provider, ProviderSpec, serve_http

THOUGHT, ASIDE, QUERY, RESULT, ANSWER = "so-I-think", "let-me-look", "tides-query", "two-a-day", "final-words"
"""What a rollout with a tool holds, each in words that stand nowhere else."""
TASK, RULES, TOPIC = "how-many-tides", "be-brief", "oceanography"
TOOL = {"type": "function", "function": {"name": "search", "description": "looks-it-up", "parameters": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": json.dumps({"q": QUERY})}}
PICTURE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/cat.png"}}
TEMPLATE = "Topic: {{columns.topic}}\n\n{{prompt}}\n\n{{response}}\n\n{{criteria}}"


@dataclass
class Rollout:
    """A rollout in OpenAI's format, which every adapter's test turns into its framework's own."""

    prompt: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "system", "content": RULES}, {"role": "user", "content": TASK}]
    )
    response: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"role": "assistant", "content": ASIDE, "reasoning_content": THOUGHT, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": RESULT},
            {"role": "assistant", "content": f"{ANSWER} [[quality=7]]"},
        ]
    )
    tools: list[dict[str, Any]] = field(default_factory=lambda: [TOOL])
    row: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def with_picture(cls) -> Rollout:
        """One whose question holds an image."""
        asked = [{"type": "text", "text": TASK}, PICTURE]
        return cls([{"role": "system", "content": RULES}, {"role": "user", "content": asked}])


class Listener(HonestJudge):
    """A judge that keeps what it was asked about: fenced texts by name."""

    def __init__(self) -> None:
        self.texts: list[dict[str, str]] = []

    def answer(self, question: Any) -> Any:
        self.texts.append(question.texts)
        return super().answer(question)


class Listening:
    """That judge as an HTTP server on a thread of its own."""

    def __init__(self) -> None:
        self.judge = Listener()
        self.url = ""
        self._ready = threading.Event()
        self._stop: Callable[[], Any] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    async def _serve(self) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        server = await serve_http(Provider(ProviderSpec(), 1, self.judge))
        self.url, self._stop = server.url, functools.partial(loop.call_soon_threadsafe, end.set)
        self._ready.set()
        await end.wait()
        await server.close()

    def stop(self) -> None:
        """End the server and its thread."""
        self._stop()
        self._thread.join(PATIENCE)

    def heard(self) -> dict[str, str]:
        """The texts of the one question there was."""
        (texts,) = self.judge.texts
        return texts


@pytest.fixture
def listening() -> Iterator[Listening]:
    """A judge whose questions can be read."""
    started = Listening()
    yield started
    started.stop()


class TrajectoryContract:
    """Inherit, and give `judge`: what a rollout holds reaches the judge, whatever the framework makes of it."""

    missing: dict[str, Any] = {"policy": "abstain"}  # noqa: RUF012

    def judge(self, config: Path, rollout: Rollout) -> None:
        """Have the adapter judge it, as its framework would."""
        raise NotImplementedError

    def heard(self, write: Write, listening: Listening, rollout: Rollout, **judge: Any) -> dict[str, str]:
        """What the judge was shown."""
        self.judge(write(self.missing, listening.url, judge={"ask_again": 0, **judge}), rollout)
        return listening.heard()

    def test_everything_is_in_the_full_view(self, write_config: Write, listening: Listening) -> None:
        """Reasoning, words, the call, its result and the answer, in order; the prompt with its roles; the tools."""
        texts = self.heard(write_config, listening, Rollout(), view="full")
        places = [texts["response"].index(word) for word in (THOUGHT, ASIDE, QUERY, RESULT, ANSWER)]
        assert places == sorted(places)
        assert "search" in texts["response"]
        assert texts["prompt"].index(RULES) < texts["prompt"].index(TASK)
        assert "looks-it-up" in texts["prompt"]

    def test_the_answer_is_the_last_message(self, write_config: Write, listening: Listening) -> None:
        """Without reasoning and without what came before, which is mentioned."""
        seen = self.heard(write_config, listening, Rollout())["response"]
        assert ANSWER in seen
        assert not any(word in seen for word in (THOUGHT, ASIDE, QUERY, RESULT))
        assert "not shown: 2 messages before" in seen

    def test_a_monitor_sees_the_reasoning_alone(self, write_config: Write, listening: Listening) -> None:
        """And neither the answer nor what a tool said."""
        seen = self.heard(write_config, listening, Rollout(), kind="monitor")["response"]
        assert THOUGHT in seen
        assert not any(word in seen for word in (ANSWER, ASIDE, RESULT))

    def test_images_are_refused_by_name(self, write_config: Write, listening: Listening) -> None:
        """Before anything is spent; with parts = "describe" a line takes their place."""
        with pytest.raises(InputError, match="image"):
            self.judge(write_config(self.missing, listening.url), Rollout.with_picture())
        assert not listening.judge.texts
        texts = self.heard(write_config, listening, Rollout.with_picture(), parts="describe")
        assert "not shown]" in texts["prompt"]
        assert TASK in texts["prompt"]

    def test_a_template_shows_own_columns(self, write_config: Write, listening: Listening, tmp_path: Path) -> None:
        """{{columns.topic}} is the row's; a dataset that has none is an error in the first step."""
        (tmp_path / "judge.txt").write_text(TEMPLATE)
        template = {"prompt_file": str(tmp_path / "judge.txt")}
        with pytest.raises(ConfigError, match=r"columns\.topic"):
            self.judge(write_config(self.missing, listening.url, judge=template), Rollout())
        rollout = Rollout(row={"topic": TOPIC, "level": 3})
        texts = self.heard(write_config, listening, rollout, **template)
        assert TOPIC in texts["column"]

    def test_columns_that_no_judge_sees_are_named_once(
        self, write_config: Write, listening: Listening, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A warning for one that was probably meant for a judge, a note for others, nothing for the framework's own."""
        caplog.set_level(logging.INFO, "referee.trainers")
        config = write_config(self.missing, listening.url)
        for _ in range(2):
            self.judge(config, Rollout(row={"rubric": "1. Right.", "level": 3, "answer": "two"}))
        said = [(one.levelname, one.getMessage()) for one in caplog.records if "not read" in one.getMessage()]
        assert [(level, message.partition(". ")[0]) for level, message in said] == [
            ("WARNING", "not read: rubric"),
            ("INFO", "not read: level"),
        ]
