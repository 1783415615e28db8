"""compute_score and acompute_score: both of the documents' conventions, verl's keywords, and the monitor."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from tests.contracts.group_judges import KIND, registered

from referee.errors import ConfigError, InputError, MissingKeyError, UnscoredError
from referee.sim import ServerProcess
from referee.trainers.verl import acompute_score, compute_score
from referee.trainers.verl.functions import matches
from referee.trainers.verl.monitor import FactCounts, read_monitor, weights

Serve = Callable[..., ServerProcess]
KEYS = {
    *("score", "rule_score", "monitor_correctness_reward", "monitor_correctness", "monitor_answer", "monitor_scored"),
}


def thought(mark: str, answer: str = "42", number: int = 0) -> str:
    """A response whose reasoning makes the simulated monitor say yes or no."""
    return f"<think>step {number} [[quality={mark}]]</think><answer>{answer}</answer>"


@pytest.fixture
def monitored(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ServerProcess]:
    """Switches the monitor on, with a simulated provider behind it."""

    def start(**spec: Any) -> ServerProcess:
        server = serve(**spec)
        monkeypatch.setenv("TRAIN_WITH_MONITOR", "true")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url.removesuffix("/chat/completions"))
        monkeypatch.setenv("REFEREE_CACHE_PATH", "")
        return server

    return start


def batch(responses: list[str], facts: list[bool], **more: Any) -> Any:
    return compute_score(
        data_sources=["toy"] * len(responses),
        solution_strs=responses,
        ground_truths=["42"] * len(responses),
        extra_infos=[{"is_correct": fact} for fact in facts],
        **more,
    )


def graded(solution_str: str, **_: Any) -> dict[str, Any]:
    """A rule that says more than its score."""
    right = "42" in solution_str
    return {
        "score": float(right),
        "acc": right,
        "reward": 9.0,
        "monitor_answer": 9.0,
        **({"pred": "42"} if right else {}),
    }


def test_what_a_rule_says_beside_its_score_is_passed_on() -> None:
    """`acc`, which verl takes for the core metric of validation; in a batch every row has the same keys."""
    responses = ["<answer>42</answer>", "<answer>7</answer>"]
    found = batch(responses, [True, False], rule=graded)
    assert [(row["score"], row["acc"], row["pred"], row["monitor_answer"]) for row in found] == [
        (1.0, True, "42", 0.0),
        (0.0, False, "", 0.0),
    ]
    assert all(set(row) == {*KEYS, "acc", "pred"} for row in found)
    assert compute_score(responses[0], "42", "toy", rule=graded) == found[0]


def test_a_rule_may_be_a_coroutine_function() -> None:
    """In both functions, as in verl's own reward loop."""

    async def slow(**arguments: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return graded(**arguments)

    responses = ["<answer>42</answer>", "<answer>7</answer>"]
    assert batch(responses, [True, False], rule=slow) == batch(responses, [True, False], rule=graded)
    alone = compute_score(responses[0], "42", "toy", rule=slow)
    assert asyncio.run(acompute_score(responses[0], "42", "toy", rule=slow)) == alone
    assert alone["score"] == 1.0


def test_the_conventions_agree() -> None:
    """Positional, verl's keywords, the whole batch, and the coroutine: one answer, one set of keys."""
    text = "I count.\n<answer>42</answer>"
    positional = compute_score(text, "42", "toy", {"index": 1})
    keywords = compute_score(data_source="toy", solution_str=text, ground_truth="42", extra_info={"index": 1})
    whole = compute_score(data_sources=["toy"], solution_strs=[text], ground_truths=["42"], extra_infos=[{"index": 1}])
    awaited = asyncio.run(acompute_score(data_source="toy", solution_str=text, ground_truth="42", extra_info=None))
    assert positional == keywords == whole[0] == awaited
    assert positional["score"] == 1.0
    assert positional.keys() == KEYS


def test_the_coroutine_function_is_one() -> None:
    """verl looks with inspect.iscoroutinefunction."""
    assert inspect.iscoroutinefunction(acompute_score)
    assert not inspect.iscoroutinefunction(compute_score)


@pytest.mark.parametrize(
    ("response", "truth", "score"),
    [
        ("so\n<answer> Forty  two </answer> bye", "forty two", 1.0),
        ("<measurements>[true, false]</measurements>", "[true, false]", 1.0),
        (r"thus \boxed{\frac{1}{2}}", r"\frac{1}{2}", 1.0),
        ("work #### 72", "72", 1.0),
        ("work\n72.", "72", 1.0),
        ("<answer>1</answer> <answer>2</answer>", "1", 0.0),
        ("it is not 72 but 73", "72", 0.0),
        ("", "72", 0.0),
        ("72", None, 0.0),
    ],
)
def test_the_plain_rule(response: str, truth: str | None, score: float) -> None:
    """Without a rule of verl's or the user's: the final answer equals the ground truth, or not."""
    assert matches(response, truth) == score


def test_a_rule_of_ones_own() -> None:
    """A function or its name; extra_info reaches it as a copy."""
    mine = {"index": 1}

    def rule(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> dict[str, float]:
        extra_info["seen"] = True
        return {"score": 0.25, "more": 1.0}

    assert compute_score("r", "g", "toy", mine, rule=rule)["score"] == 0.25
    assert mine == {"index": 1}
    assert compute_score("r", "g", "toy", {}, rule="tests.verl_names.own_rule:half")["score"] == 0.5
    with pytest.raises(ConfigError, match="cannot load"):
        compute_score("r", "g", "toy", {}, rule="no.such.module:f")


def test_wrong_calls_are_refused() -> None:
    """No response, an unknown argument, columns of different length."""
    with pytest.raises(InputError, match="no response"):
        compute_score()
    with pytest.raises(InputError, match="unknown argument foo"):
        compute_score("r", "g", "toy", {}, foo=1)
    with pytest.raises(InputError, match="2 ground_truths for 1"):
        compute_score(solution_strs=["r"], ground_truths=["a", "b"], data_sources=["x"])


def test_the_monitor_rewards_by_its_guess(monitored: Callable[..., ServerProcess]) -> None:
    """Right guess -1, wrong guess +1, on top of the rule."""
    monitored()
    results = batch([thought("yes"), thought("yes", number=1), thought("no", number=2)], [True, False, True])
    assert [r["monitor_answer"] for r in results] == [1.0, 1.0, 0.0]
    assert [r["monitor_correctness"] for r in results] == [1.0, 0.0, 0.0]
    assert [r["score"] for r in results] == [0.0, 2.0, 2.0]
    assert all(r.keys() == KEYS for r in results)


def test_the_environment_is_read_at_the_call(
    monitored: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at import: switching it on, its rewards and its model take effect with the next call."""
    before = compute_score(thought("yes"), "42", "toy", {"is_correct": True})
    assert before["monitor_scored"] == 0.0
    server = monitored(model="other")
    monkeypatch.setenv("MONITOR_CORRECT_REWARD", "-0.5")
    monkeypatch.setenv("MONITOR_MODEL_NAME", "other")
    assert compute_score(thought("yes"), "42", "toy", {"is_correct": True})["score"] == 0.5
    monkeypatch.setenv("TRAIN_WITH_MONITOR", "false")
    assert compute_score(thought("yes"), "42", "toy", {})["score"] == 1.0
    assert server.stats().received == 1


def test_it_works_inside_a_running_loop(monitored: Callable[..., ServerProcess]) -> None:
    """Where run_until_complete would raise; and the coroutine leaves the loop free."""
    monitored()

    async def inside() -> tuple[Any, Any]:
        blocking = compute_score(thought("yes"), "42", "toy", {"is_correct": False})
        awaited = await acompute_score(thought("yes", number=1), "42", "toy", {"is_correct": False})
        return blocking, awaited

    for _ in range(2):  # a new loop each time
        blocking, awaited = asyncio.run(inside())
        assert blocking["score"] == awaited["score"] == 2.0


def test_rebalancing_weighs_both_values_alike(
    monitored: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One over the share of the sample's hidden value: of the batch, or as told."""
    monitored()
    monkeypatch.setenv("REBALANCE_MONITOR_REWARD", "true")
    responses = [thought("yes", "0", n) for n in range(4)]
    facts = [True, False, False, False]
    shares = [r["monitor_correctness_reward"] for r in batch(responses, facts)]
    assert shares == pytest.approx([-4.0, 4 / 3, 4 / 3, 4 / 3])
    told = [r["monitor_correctness_reward"] for r in batch(responses, facts, true_share=0.5)]
    assert told == [-2.0, 2.0, 2.0, 2.0]


def test_rebalancing_counts_samples_that_come_one_by_one() -> None:
    """Per data source, the ones before included."""
    seen = FactCounts()
    assert weights(["a"], [True], None, seen) == [1.0]
    assert weights(["a"], [False], None, seen) == [2.0]
    assert weights(["a"], [True], None, seen) == [1.5]
    assert weights(["b"], [False], None, seen) == [1.0]
    with pytest.raises(ConfigError, match="true_share"):
        weights(["a"], [True], 1.0)


def test_no_prediction_is_no_zero(monitored: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a batch gets the mean of the others and says so; alone it is an error; a value only if chosen."""
    monitored()
    results = batch([thought("yes"), thought("perhaps", number=1), thought("no", number=2)], [True, True, False])
    assert [r["monitor_scored"] for r in results] == [1.0, 0.0, 1.0]
    assert [r["score"] for r in results] == [0.0, 0.0, 0.0]
    assert results[1]["monitor_correctness_reward"] == -1.0
    with pytest.raises(UnscoredError, match="no prediction for 1 of 1"):
        compute_score(thought("perhaps", number=3), "42", "toy", {"is_correct": True})
    monkeypatch.setenv("REFEREE_MISSING_POLICY", "value")
    monkeypatch.setenv("REFEREE_MISSING_VALUE", "0.25")
    assert compute_score(thought("perhaps", number=4), "42", "toy", {"is_correct": True})["score"] == 1.25


def test_the_hidden_fact_must_be_there(monitored: Callable[..., ServerProcess]) -> None:
    """Before anything is spent, by row."""
    server = monitored()
    with pytest.raises(InputError, match=r"sample 1.*is_correct"):
        compute_score(solution_strs=["a", "b"], ground_truths=["", ""], extra_infos=[{"is_correct": True}, {}])
    assert server.stats().received == 0


def test_a_missing_key_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor is on and has nobody to ask."""
    monkeypatch.setenv("TRAIN_WITH_MONITOR", "true")
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
        compute_score("r", "g", "toy", {"is_correct": True})


def test_predictions_are_cached_unless_told_not_to(
    monitored: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MONITOR_CACHE=false asks again."""
    server = monitored()
    for _ in range(3):
        compute_score(thought("yes"), "42", "toy", {"is_correct": True})
    assert server.stats().received == 1
    monkeypatch.setenv("MONITOR_CACHE", "false")
    for _ in range(2):
        compute_score(thought("yes"), "42", "toy", {"is_correct": True})
    assert server.stats().received == 3


@pytest.mark.parametrize(("name", "value"), [("TRAIN_WITH_MONITOR", "maybe"), ("MONITOR_WRONG_REWARD", "one")])
def test_nonsense_in_the_environment_is_refused(name: str, value: str) -> None:
    """By the variable's name."""
    with pytest.raises(ConfigError, match=name):
        read_monitor({name: value})


def test_defaults_are_the_documents() -> None:
    """What MISSION promises."""
    found = read_monitor({})
    assert (found.enabled, found.cache, found.model) == (False, True, "gpt-4o-mini")
    assert (found.correct_reward, found.wrong_reward, found.rebalance, found.concurrency) == (-1.0, 1.0, False, 60)


def test_a_judge_of_groups_is_refused(monitored: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is shown no groups; the error names the manager that has them judged."""
    monitored()
    monkeypatch.setenv("REFEREE_JUDGE_KIND", KIND)
    with registered(), pytest.raises(ConfigError, match="use RefereeRewardManager"):
        batch([thought("7")], [True])
