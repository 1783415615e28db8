"""Several judges as verifiers and NeMo-Gym take them: named numbers that add up to the reward."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.adapter_suite import UNSCORED, Write, answers, sim_url, write_config
from tests.contracts.test_adapters import ArtGroup, ArtTrajectory

from referee.config import load
from referee.errors import UnscoredError
from referee.records import Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.shaping import shape_group
from referee.trainers import art, nemo_gym, openrlhf, skyrl, tinker
from referee.trainers.nemo_gym import fields_of
from referee.trainers.verifiers import named

__all__ = ["sim_url", "write_config"]

ENDPOINT = {"url": "http://a.test/v1", "model": "m", "key_env": ""}
GONE = None
JUDGES = [{"name": "taste", "weight": 0.8}, {"name": "safe", "weight": -0.5}, {"name": "watched", "weight": 0.0}]


def reward(*values: float | None, optional: bool = False, **missing: Any) -> Reward:
    """The reward of a sample of which the judges said this."""
    judges = [{**judge, "optional": optional} for judge in JUDGES[: len(values)]]
    config = load({"endpoint": ENDPOINT, "judge": judges, "shaping": {"coefficient": 2.0}, "missing": missing})
    gone = Unscored(reason=Reason.TIMEOUT)
    ends = tuple([Settled(verdict=gone if one is None else Verdict(score=one, value=one)) for one in values])
    (found,) = shape_group([(0, Sample(prompt="p", response="r"), ends)], config)
    return found


def test_verifiers_gets_what_each_judge_adds() -> None:
    """Weights included, so that the sum is the reward; a watched judge adds nothing and is left out."""
    found = named(reward(0.5, 0.2, 0.9))
    assert found == pytest.approx({"taste": 0.8, "safe": -0.2})
    assert isinstance(found, dict)
    assert sum(found.values()) == pytest.approx(reward(0.5, 0.2, 0.9).value)


def test_verifiers_gets_one_number_of_one_judge_and_of_the_policy() -> None:
    """A filled-in reward is nobody's term."""
    assert named(reward(0.5)) == pytest.approx(0.8)
    assert named(reward(GONE, 0.2, policy="value", value=-3.0)) == -3.0


def test_verifiers_unscored_is_an_error_and_an_optional_term_is_absent() -> None:
    """Never a 0 under a judge's name."""
    with pytest.raises(UnscoredError):
        named(reward(GONE, 0.2))
    assert named(reward(GONE, 0.2, optional=True)) == pytest.approx({"safe": -0.2})


@pytest.mark.parametrize(
    ("values", "more", "components"),
    [
        ((0.5, 0.2, 0.9), {}, {"taste": 0.8, "safe": -0.2}),
        ((GONE, 0.2, 0.9), {"optional": True}, {"taste": 0.0, "safe": -0.2}),
        ((GONE, 0.2, 0.9), {"policy": "value", "value": 1.0}, {"taste": 1.2, "safe": -0.2}),
        ((GONE, GONE, GONE), {"policy": "value", "value": 1.0}, {"taste": 0.5, "safe": 0.5}),
    ],
)
def test_nemo_gym_components_add_up(values: Any, more: Any, components: dict[str, float]) -> None:
    """The same keys on every row, their sum is the reward, and a mark says which had a verdict."""
    found = fields_of(reward(*values, **more))
    assert found["reward_components"] == pytest.approx(components)
    assert sum(found["reward_components"].values()) == pytest.approx(found["reward"])
    assert [found["judge_taste"], found["judge_safe"]] == pytest.approx([*components.values()])
    assert found["judge_taste_scored"] == float(values[0] is not None)
    assert len(found) == 6


def test_nemo_gym_one_judge_has_no_components() -> None:
    """The fields of a single reward stay what they were."""
    assert fields_of(reward(0.5)) == {"reward": pytest.approx(0.8)}


class Model:
    """What the server uses of NeMo-Gym's classes."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def model_dump(self) -> dict[str, Any]:
        return dict(self.__dict__)


def test_nemo_gym_rows_have_the_same_components_scored_or_not(
    write_config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NeMo-Gym's failsafe hands on the row that was asked about: it has the keys then, marked as not scored."""
    base = SimpleNamespace(BaseVerifyRequest=Model, BaseVerifyResponse=Model, SimpleResourcesServer=Model)
    monkeypatch.setitem(sys.modules, "nemo_gym.base_resources_server", base)
    path = write_config({"policy": "abstain"})
    judges = '[[judge]]\nname = "taste"\nask_again = 0\n[[judge]]\nname = "safe"\nkind = "yes_no"\n'
    path.write_text(path.read_text().replace("[judge]\nask_again = 0\n", judges))
    server = nemo_gym._server()()

    def body(text: str) -> Any:
        part = SimpleNamespace(type="output_text", text=text)
        message = SimpleNamespace(type="message", role="assistant", content=[part])
        asked = SimpleNamespace(input=[{"role": "user", "content": "q"}])
        return Model(responses_create_params=asked, response=SimpleNamespace(output=[message]))

    good = asyncio.run(server.verify(body(answers(4)[0]))).model_dump()
    assert good["reward"] == pytest.approx(sum(good["reward_components"].values()))
    bad = body(UNSCORED)
    with pytest.raises(UnscoredError):
        asyncio.run(server.verify(bad))
    left = bad.model_dump()
    assert set(left["reward_components"]) == set(good["reward_components"])
    assert left["instance_config"] == {"mask_sample": True}
    assert (left["judge_safe_scored"], good["judge_safe_scored"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    "log",
    [
        lambda path, text: openrlhf.reward_func([f"q{text}"], ["q"], [None])["extra_logs"],
        lambda path, text: skyrl.judge_answer("q", text)[1]["judges"],
        lambda path, text: asyncio.run(tinker.Grader(path).group("q", [text]))[0][1],
        lambda path, text: asyncio.run(art.after_each(path)(ArtGroup([ArtTrajectory(text)]))).trajectories[0].metrics,
    ],
    ids=["openrlhf", "skyrl", "tinker", "art"],
)
def test_each_judge_has_numbers_of_its_own_in_a_trainers_log(write_config: Write, log: Any) -> None:
    """judge_<name> is what the judge said, in [0, 1], without its weight."""
    path = write_config({"policy": "value", "value": 0.0})
    judges = '[[judge]]\nname = "taste"\nweight = 0.5\n[[judge]]\nname = "safe"\nkind = "yes_no"\n'
    path.write_text(path.read_text().replace("[judge]\nask_again = 0\n", judges))
    numbers = log(path, answers(4)[0])
    found = {name: float(one.item() if hasattr(one, "item") else one) for name, one in numbers.items()}
    assert found["judge_taste"] == pytest.approx(1 / 3)
    assert 0 < found["judge_safe"] <= 1
    assert found["judge_taste_scored"] == found["judge_safe_scored"] == 1.0
