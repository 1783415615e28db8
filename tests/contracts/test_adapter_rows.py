"""Hooks and rows that are not as expected: answers that cannot be found, columns that are missing, groups."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts import test_adapters
from tests.contracts.adapter_suite import UNSCORED, VALUE, Write, answers, fair, sim_url, write_config
from tests.contracts.test_adapters import NUMBER, PROMPT, SLIME, ArtGroup, ArtTrajectory, SlimeSample

from referee.errors import ConfigError, UnscoredError
from referee.trainers import areal, art, nemo_gym, openrlhf, skyrl, slime, swift, tinker, verifiers
from referee.trainers.openrlhf import answer_in
from referee.trainers.shared import Judged

__all__ = ["sim_url", "write_config"]

swift_columns = test_adapters.TestSwift.columns
TEMPLATE = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("query", "prompt", "answer"),
    [
        ("What?yes", "What?", "yes"),
        ("What? yes</s>", "What?", " yes"),
        ("<s>What?yes<|im_end|>", "What?", "yes"),
        ("<s> What?yes", "What?", "yes"),
        (TEMPLATE.format("What?") + "yes<|im_end|>", TEMPLATE.format("What?"), "yes"),
        ("<|begin_of_text|>" + TEMPLATE.format("What?") + "yes", TEMPLATE.format("What?"), "yes"),
        (TEMPLATE.format("What ? ") + "yes", TEMPLATE.format("What?"), "yes"),  # white space is all that may differ
        (TEMPLATE.format("What?") + "What?no", TEMPLATE.format("What?"), "What?no"),  # the first one is the prompt
        ("What?", "What?", ""),
        ("all of it", "", "all of it"),
        ("at?yes", "What?", None),  # cut from the left, as OpenRLHF does
        ("at?What?yes", "What?", None),  # a quotation further on is not the prompt
        ("I say What?", "What?", None),
        ("Wh", "What?", None),
        ("", "What?", None),
    ],
)
def test_an_answer_is_found_behind_its_prompt_or_not_at_all(query: str, prompt: str, answer: str | None) -> None:
    """Anchored at the start; no place is guessed."""
    assert answer_in(query, prompt) == answer


def test_openrlhf_does_not_judge_an_answer_it_cannot_find(
    write_config: Write, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A prompt cut by OpenRLHF, a short answer and a long one: the policy's number, no request, said once."""
    write_config(NUMBER, ledger={"dir": str(tmp_path / "ledger")})
    prompt = "Once upon a time " * 10 + PROMPT
    for text in [answers(9)[0], answers(9)[0] * 30]:
        result = openrlhf.reward_func([prompt[40:] + text], [prompt], ["label"])
        assert float(result["rewards"].item()) == VALUE
        assert float(result["extra_logs"]["judge_scored"].item()) == 0.0
    assert float(openrlhf.reward_func([prompt + answers(9)[0]], [prompt], ["x"])["rewards"].item()) == fair(9)[0]
    openrlhf.reward_func([prompt[40:] + "again"], [prompt], ["label"])
    assert sum("agent" in record.getMessage() for record in caplog.records) == 1
    judged = openrlhf.from_environment()
    assert judged.referee.metrics()["requests"] == 1


def test_openrlhf_raises_where_that_is_the_policy(write_config: Write) -> None:
    """Unknown is unscored, also under `raise`."""
    write_config({"policy": "raise"})
    with pytest.raises(UnscoredError, match="does not start with its prompt"):
        openrlhf.reward_func(["at?yes"], ["What?"], ["label"])


def test_openrlhf_stops_where_no_answer_is_ever_found(write_config: Write) -> None:
    """`abort_above` holds for them as for an outage."""
    write_config(NUMBER)
    for _ in range(128):
        openrlhf.reward_func(["at?yes"], ["What?"], ["label"])
    with pytest.raises(UnscoredError, match="max_len"):
        openrlhf.reward_func(["at?yes"], ["What?"], ["label"])


def test_rows_of_one_call_keep_their_places(write_config: Write) -> None:
    """Found and not found, in one call."""
    write_config(NUMBER)
    queries = ["Q" + answers(4)[0], "x" + answers(5)[0], "Q" + answers(6)[0]]
    found = openrlhf.reward_func(queries, ["Q"] * 3, ["l"] * 3)["rewards"]
    assert [float(one) for one in found] == [fair(4)[0], VALUE, fair(6)[0]]


def compares(write_config: Write, missing: dict[str, Any]) -> Path:
    path = write_config({**missing, "abort_above": 1.0})
    path.write_text(path.read_text().replace("[judge]", '[judge]\nkind = "reference"'))
    return path


def body_of(text: str = "yes", **more: Any) -> Any:
    message = SimpleNamespace(type="message", role="assistant", content=text)
    return SimpleNamespace(
        responses_create_params=SimpleNamespace(input=PROMPT), response=SimpleNamespace(output=[message]), **more
    )


def without_reference(path: Path) -> dict[str, Callable[[], Any]]:
    """Every hook, called with a row that holds no known answer."""
    group = ArtGroup([ArtTrajectory("yes"), ArtTrajectory("no")])
    columns = swift_columns(["yes"])
    columns.pop("solution")
    return {
        "areal": lambda: asyncio.run(areal.judge_episode(Judged(path), PROMPT, "yes", row={"messages": []})),
        "art": lambda: asyncio.run(art.after_each(path)(group)),  # type: ignore[arg-type]
        "nemo_gym": lambda: asyncio.run(nemo_gym.judge_body(body_of())),
        "openrlhf": lambda: openrlhf.reward_func([PROMPT + "yes"], [PROMPT], [""]),
        "openrlhf agent": lambda: asyncio.run(
            openrlhf.JudgedAgent().step({"observation_text": PROMPT, "action_text": "yes", "label": ""})
        ),
        "skyrl": lambda: skyrl.judge_answer(PROMPT, "yes"),
        "slime": lambda: asyncio.run(slime.custom_rm(SLIME, SlimeSample("yes"))),
        "slime group": lambda: asyncio.run(slime.custom_rm(SLIME, [SlimeSample("yes"), SlimeSample("no")])),
        "swift": lambda: swift.RefereeORM(args=None)(["yes"], **columns),
        "tinker": lambda: asyncio.run(tinker.Grader(path).grade(PROMPT, "yes")),
        "tinker group": lambda: asyncio.run(tinker.Grader(path).group(PROMPT, ["yes", "no"])),
        "verifiers": lambda: asyncio.run(verifiers.judge_answer(PROMPT, "yes")),
    }


@pytest.mark.parametrize("hook", sorted(without_reference(Path("x"))))
def test_a_judge_that_compares_is_an_error_without_a_known_answer(write_config: Write, hook: str) -> None:
    """At the first call, with what to add, instead of nothing but missing rewards."""
    path = compares(write_config, NUMBER)
    with pytest.raises(ConfigError, match="known answer") as caught:
        without_reference(path)[hook]()
    assert any(word in str(caught.value) for word in ("reference=", "answer", "label", "ground_truth"))


def test_one_row_without_a_known_answer_is_that_rows_matter(write_config: Write) -> None:
    """Where others have one, it is unscored as it was, and the run goes on."""
    compares(write_config, NUMBER)
    skyrl.judge_answer(PROMPT, "yes", "yes")
    reward, metadata = skyrl.judge_answer(PROMPT, "yes")
    assert (reward, metadata["unscored"]) == (VALUE, "config")


FANS_OUT = SimpleNamespace(**{**vars(SLIME), "group_rm": False})


def test_slime_segments_of_a_rollout_are_not_siblings(write_config: Write) -> None:
    """Without --group-rm a list is one rollout in segments: each has its own reward, and no mean of the others."""
    write_config({"policy": "abstain"})
    segments = [SlimeSample(text) for text in [*answers(10, 4), UNSCORED]]
    good, fair_enough, missing = asyncio.run(slime.custom_rm(FANS_OUT, segments))
    assert [good, fair_enough] == fair(10, 4)
    assert math.isnan(missing)
    assert [segment.remove_sample for segment in segments] == [False, False, True]
    assert asyncio.run(slime.custom_rm(FANS_OUT, [])) == []


def test_slime_segments_have_no_group_of_their_own(write_config: Write) -> None:
    """A length penalty among the segments of one rollout, or their mean, is refused as for a single answer."""
    path = write_config(NUMBER)
    path.write_text(path.read_text() + "[shaping.length]\nenable = true\n")
    with pytest.raises(ConfigError, match="one answer at a time"):
        asyncio.run(slime.custom_rm(FANS_OUT, [SlimeSample("a"), SlimeSample("b")]))


def test_slime_groups_of_segments_are_refused_in_words(write_config: Write) -> None:
    """With --group-rm slime itself cannot take a reward for a list."""
    write_config({"policy": "abstain"})
    args = SimpleNamespace(**{**vars(SLIME), "group_rm": True})
    with pytest.raises(ConfigError, match="--group-rm"):
        asyncio.run(slime.custom_rm(args, [[SlimeSample("a"), SlimeSample("b")], [SlimeSample("c")]]))


def test_slime_filter_and_baseline_know_segments() -> None:
    """A rollout counts once in the filter, and is scored if one of its segments is."""
    scored, not_scored = SlimeSample("a", reward=1.0), SlimeSample("b", reward=math.nan)
    not_scored.metadata[slime.MARK] = "timeout"
    assert slime.keep_scored(SLIME, [[scored, not_scored], [scored]])
    assert not slime.keep_scored(SLIME, [[scored, scored], [not_scored]])
    raw, final = slime.post_process(SLIME, [[scored, not_scored], [SlimeSample("c", reward=0.0)]])
    assert raw == [1.0, 0.5, 0.0]
    assert final[1] == 0.0


def ledger_groups(folder: Path) -> list[set[str]]:
    """The group names of each batch in a ledger."""
    found: dict[str, set[str]] = {}
    for file in folder.rglob("*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            if line.get("group"):
                found.setdefault(str(line.get("batch")), set()).add(line["group"])
    return list(found.values())


@pytest.mark.parametrize("hook", ["art", "tinker", "swift"])
def test_groups_have_names_of_their_own(write_config: Write, tmp_path: Path, hook: str) -> None:
    """Two groups judged one after the other are two groups in the record."""
    path = write_config({"policy": "group_mean"}, ledger={"dir": str(tmp_path / "ledger")})
    for texts in (answers(4, 5), answers(6, 7)):
        if hook == "art":
            asyncio.run(art.after_each(path)(ArtGroup([ArtTrajectory(text) for text in texts])))  # type: ignore[arg-type]
        elif hook == "tinker":
            asyncio.run(tinker.Grader(path).group(PROMPT, texts))
        else:
            swift.RefereeORM(args=None)(texts, **swift_columns(texts))
    Judged(path).close()
    first, second = ledger_groups(tmp_path / "ledger")
    assert len(first) == len(second) == 1
    assert first != second


def test_swift_uses_its_trainers_groups_and_marks(write_config: Write) -> None:
    """`num_generations` rows are a group also where prompts repeat; tokens come by turns; cut answers are marked."""
    path = write_config({"policy": "group_mean"})
    path.write_text(path.read_text() + "[shaping.length]\nenable = true\npeak_ratio = 0.1\nouter_ratio = 0.2\n")
    texts = answers(10, 10, 10, 10, 10, 10)
    columns = swift_columns(texts)
    columns["response_token_ids"] = [[[5] * 5, [5] * 5]] * 2 + [[[5] * 50]] * 2 + [[[5] * 50]] * 2
    columns["is_truncated"] = [False] * 5 + [True]
    found = swift.RefereeORM(args=SimpleNamespace(num_generations=2))(texts, **columns)
    assert found == [1.0] * 5 + [0.0]
    asked = [[{"role": "user", "content": word}] for word in ("q", "q", "r", "r", "r", "r")]
    found = swift.RefereeORM(args=SimpleNamespace(num_generations=3))(texts, **{**columns, "messages": asked})
    assert found == [1.0] * 5 + [0.0], "blocks that cannot be groups: prompts decide"


def test_swift_refuses_groups_that_are_spread_over_ranks(
    write_config: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What depends on siblings would go by a part of them. After a batch of whole groups it may be an evaluation."""
    write_config({"policy": "group_mean"})
    monkeypatch.setenv("WORLD_SIZE", "2")
    reward = swift.RefereeORM(args=SimpleNamespace(num_generations=2))
    asked = [[{"role": "user", "content": word}] for word in ("q", "q", "r")]
    with pytest.raises(ConfigError, match=r"group_mean.*steps_per_generation a multiple of num_generations"):
        reward(answers(4, 5, 6), messages=asked)
    assert reward(answers(4, 5), messages=asked[:2]) == fair(4, 5)
    assert reward(answers(4, 5, 6), messages=asked) == fair(4, 5, 6)
    assert sum("spread over ranks" in record.getMessage() for record in caplog.records) == 1
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert swift.RefereeORM(args=SimpleNamespace(num_generations=2))(answers(4, 5, 6), messages=asked) == fair(4, 5, 6)


def test_answers_cut_at_the_limit_are_known_to_hooks_that_can_see_it(write_config: Write) -> None:
    """AReaL, ART and NeMo-Gym say why an answer ended."""
    path = write_config({"policy": "abstain"})
    judged = Judged(path)
    text = answers(9)[0]
    assert asyncio.run(areal.judge_episode(judged, PROMPT, text, truncated=True)) == 0.0
    body = body_of(text)
    assert asyncio.run(nemo_gym.judge_body(body)) == fair(9)[0]
    body.response.incomplete_details = SimpleNamespace(reason="max_output_tokens")
    assert asyncio.run(nemo_gym.judge_body(body)) == 0.0
    whole, cut = ArtTrajectory(text), ArtCut(text)
    judged_group = asyncio.run(art.after_each(path)(ArtGroup([whole, cut])))  # type: ignore[arg-type]
    assert [one.reward for one in judged_group.trajectories] == [fair(9)[0], 0.0]


class ArtCut(ArtTrajectory):
    """A trajectory whose last message stopped at the token limit."""

    @property
    def messages_and_choices(self) -> list[Any]:
        asked, said = super().messages_and_choices
        return [asked, SimpleNamespace(message=said.message, finish_reason="length")]
