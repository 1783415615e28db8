"""verl's own tool agent and its own way to a reward: what a judge is shown of a rollout with a tool."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("verl")

from hydra.utils import get_class
from omegaconf import OmegaConf
from tests.contracts.adapter_suite import sim_url, write_config
from tests.contracts.trajectory_suite import (
    ANSWER,
    ASIDE,
    QUERY,
    RESULT,
    RULES,
    TASK,
    THOUGHT,
    Listening,
    listening,
)
from tests.trainers.verl_batches import make_tokenizer

from referee.trainers.shared import close_all
from referee.trainers.verl import RefereeRewardManager, data

for missing in ("uvicorn", "fastapi"):  # verl imports its rollout servers with the agent loop; none is started here
    if importlib.util.find_spec(missing) is None:
        sys.modules[missing] = MagicMock()

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, DictConfigWrap, ToolListWrap
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
    from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY, function_tool
    from verl.workers.rollout.replica import TokenOutput

    from referee.trainers.verl.agent_loop import JudgedToolAgentLoop

__all__ = ["listening", "sim_url", "write_config"]

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

CHAT = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% if m.get('tool_calls') %}{{ m['tool_calls'] }}"
    "{% endif %}<eos>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
SAID = [
    f'<think>{THOUGHT}</think>{ASIDE}<tool_call>{{"name": "search", "arguments": {{"q": "{QUERY}"}}}}</tool_call><eos>',
    f"{ANSWER} [[quality=7]]<eos>",
]


@function_tool
def search(q: str) -> str:
    """looks-it-up

    Args:
        q: what to look up
    """
    return RESULT


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """What was opened is closed; what is said once is said again."""
    data._warned.clear()
    yield
    close_all()


class Rollouts:
    """verl's agent loop with a model that says SAID, and verl's own path from its output to our manager."""

    def __init__(self, loop: type[ToolAgentLoop], referee: Path, **multi_turn: Any) -> None:
        self.tokenizer = make_tokenizer()
        self.tokenizer.chat_template = CHAT
        turns = {"max_user_turns": None, "max_assistant_turns": None, "max_parallel_calls": 1, "format": "hermes"}
        cut = {"max_tool_response_length": 256, "tool_response_truncate_side": "middle"}
        lengths = {"prompt_length": 4000, "response_length": 4000, "full_determinism": False}
        rollout = {"multi_turn": {**turns, **cut, **multi_turn}, "n": 1, **lengths}
        self.config = OmegaConf.create(
            {
                "actor_rollout_ref": {"rollout": rollout},
                "data": {},
                "trainer": {"use_v1": True},
                "reward": {"referee": {"config": str(referee), "rule": False}},
            }
        )
        self.loop = loop
        self.said = iter(SAID)

    async def generate(self, **_: Any) -> Any:
        ids = self.tokenizer(next(self.said), add_special_tokens=False)["input_ids"]
        return TokenOutput(token_ids=ids, log_probs=None, num_preempted=0, extra_fields={"max_global_steps": 1})

    async def rewarded(self) -> Any:
        loop = self.loop(
            trainer_config=DictConfigWrap(self.config),
            server_manager=self,
            tokenizer=self.tokenizer,
            processor=None,
            dataset_cls=None,
            data_config=DictConfigWrap(self.config.data),
            tools=ToolListWrap([FUNCTION_TOOL_REGISTRY["search"]]),
        )
        row = {
            "raw_prompt": [{"role": "system", "content": RULES}, {"role": "user", "content": TASK}],
            "uid": "u",
            "data_source": "toy",
            "reward_model": {"ground_truth": "two"},
            "extra_info": {"index": 1, "split": "train"},
        }
        output = await loop.run({}, **row)
        manager = RefereeRewardManager(config=self.config, tokenizer=self.tokenizer)
        handle = SimpleNamespace(compute_score=SimpleNamespace(remote=manager.run_single))
        worker = object.__new__(AgentLoopWorker)
        worker.reward_loop_worker_handles, worker.processor = [handle], None
        worker.config, worker.mm_processor_kwargs = self.config, {}
        await worker._compute_score([output], row)
        return output


def test_the_judge_sees_what_the_agent_did(write_config: Any, listening: Listening) -> None:
    """Reasoning, call, result and answer as messages, and the tools: through verl's own code, without Ray actors."""
    config = write_config({"policy": "raise"}, listening.url, judge={"view": "full"})
    output = asyncio.run(Rollouts(JudgedToolAgentLoop, config).rewarded())
    assert output.reward_score == pytest.approx(6 / 9)
    assert output.num_turns == 4
    texts = listening.heard()
    places = [
        texts["response"].index(word) for word in (THOUGHT, ASIDE, "assistant calls search", QUERY, RESULT, ANSWER)
    ]
    assert places == sorted(places)
    assert "<eos>" not in texts["response"]
    assert texts["prompt"].index("looks-it-up") < texts["prompt"].index(RULES) < texts["prompt"].index(TASK)


def test_the_page_names_it_as_verl_finds_it() -> None:
    """The agent loop configuration of docs/verl.md."""
    page = (Path(__file__).parents[2] / "docs" / "verl.md").read_text(encoding="utf-8")
    (written,) = OmegaConf.create(page.partition("```yaml\n")[2].partition("```")[0])
    assert written.name in page.partition("default_agent_loop=")[2].splitlines()[0]
    assert get_class(written._target_) is JudgedToolAgentLoop


def test_an_agent_stopped_at_a_limit_keeps_its_last_words(write_config: Any, listening: Listening) -> None:
    """verl takes them for no message; the judge sees them."""
    config = write_config({"policy": "raise"}, listening.url, judge={"view": "full"})
    asyncio.run(Rollouts(JudgedToolAgentLoop, config, max_assistant_turns=1).rewarded())
    assert QUERY in listening.heard()["response"]


def test_without_messages_the_text_is_judged_and_that_is_said(
    write_config: Any, listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    """verl's own agent passes tokens alone."""
    caplog.set_level(logging.INFO, "referee.trainers")
    config = write_config({"policy": "raise"}, listening.url, judge={"view": "full"})
    asyncio.run(Rollouts(ToolAgentLoop, config).rewarded())
    seen = listening.heard()["response"]
    assert all(word in seen for word in (QUERY, RESULT, ANSWER))
    assert "result of" not in seen
    (warning,) = [one.getMessage() for one in caplog.records if "several turns" in one.getMessage()]
    assert "JudgedToolAgentLoop" in warning
    assert not any("not read" in one.getMessage() for one in caplog.records)
