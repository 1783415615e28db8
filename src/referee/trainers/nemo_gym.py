"""NeMo-Gym: a resources server whose `verify` asks the judge, and a helper for servers of your own.

Not scored: JudgeError, NeMo-Gym's own signal, and `mask_sample` for NeMo-RL. Evaluation leaves such rows out, training
takes them out of the loss; the 0.0 that NeMo-Gym's failsafe hands on still counts in the baseline of the siblings.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import Any

from referee.errors import UnscoredError
from referee.records import Reward
from referee.trainers.on_demand import on_demand
from referee.trainers.outcome import terms_of, why
from referee.trainers.rows import REFERENCES, field, holds
from referee.trainers.shared import Judged, from_environment

NAMES = ("responses_create_params.input", "response.output")


async def judge_body(body: Any, judged: Judged | None = None) -> float:
    """The reward for a verify request: all items of the response are messages for the judge. Raises JudgeError where
    there is none."""
    value = (await _judged(body, judged)).value
    assert value is not None
    return value


async def judge_fields(body: Any, judged: Judged | None = None) -> dict[str, Any]:
    """The reward as fields of a verify response: `reward`, and with several judges `reward_components`, whose sum it
    is, with judge_<name> (the same number, for NeMo-Gym's metrics) and judge_<name>_scored. Raises as `judge_body`."""
    return fields_of(await _judged(body, judged))


def fields_of(reward: Reward) -> dict[str, Any]:
    """A reward as fields of a verify response, the same ones for all rows of a configuration.

    A component without a verdict is what the reward has in its place: 0 of an optional judge, and where the missing
    policy gave the reward, an equal share of what the others leave of it.
    """
    assert reward.value is not None
    if len(reward.terms) == 1:
        return {"reward": reward.value}
    counted = [term for term in reward.terms if term.weight != 0]
    given, lacking = terms_of(reward), sum(term.value is None for term in counted)
    rest = (reward.value - sum(given.values())) / max(1, lacking) if reward.filled else 0.0
    components = {term.judge: given.get(term.judge, rest) for term in counted}
    return {"reward": reward.value, **_component_fields(components, given)}


def _component_fields(components: Mapping[str, float], scored: Collection[str]) -> dict[str, Any]:
    numbers = {f"judge_{name}": number for name, number in components.items()}
    marks = {f"judge_{name}_scored": float(name in scored) for name in components}
    return {"reward_components": dict(components), **numbers, **marks} if components else {}


async def _judged(body: Any, judged: Judged | None) -> Reward:
    judged = (judged or from_environment()).needs("NeMo-Gym", can_abstain=True, sees_groups=False)
    asked = body.responses_create_params
    sample = judged.sample(
        _prompt(asked),
        field(body.response, "output"),
        {"tools": field(asked, "tools"), **_row(body)},
        f"the row one of {', '.join(REFERENCES)}",
        names=NAMES,
        truncated=field(field(body.response, "incomplete_details"), "reason") == "max_output_tokens",
    )
    (reward,) = await judged.ascore([sample])
    if reward.value is None:
        raise _judge_error()(f"not scored ({why(reward)})")
    return reward


def _server() -> type:
    base = importlib.import_module("nemo_gym.base_resources_server")

    # The known answer stands beside the request; NeMo-Gym's own classes would drop it.
    class VerifyRequest(base.BaseVerifyRequest, extra="allow"):  # type: ignore[call-arg, misc, name-defined]
        """A row with all its fields."""

    class VerifyResponse(base.BaseVerifyResponse, extra="allow"):  # type: ignore[call-arg, misc, name-defined]
        """The row with its reward."""

    class JudgedResourcesServer(base.SimpleResourcesServer):  # type: ignore[misc, name-defined]
        """verify = the judge that REFEREE_CONFIG names."""

        async def verify(self, body: Any) -> Any:
            try:
                fields = await judge_fields(body)
            except _judge_error():
                # NeMo-Gym's failsafe hands the row on with reward 0.0; NeMo-RL takes a row with this out of the loss.
                known = getattr(body, "instance_config", None)
                body.instance_config = {**(known if isinstance(known, dict) else {}), "mask_sample": True}
                judges = from_environment().config.judge
                names = [judge.name for judge in judges if judge.weight != 0] if len(judges) > 1 else []
                for name, value in _component_fields(dict.fromkeys(names, 0.0), ()).items():
                    setattr(body, name, value)
                raise
            return VerifyResponse(**{**body.model_dump(), **fields})

    JudgedResourcesServer.verify.__annotations__.update({"body": VerifyRequest, "return": VerifyResponse})
    return JudgedResourcesServer


__getattr__ = on_demand(globals(), JudgedResourcesServer=_server)


def _judge_error() -> type[Exception]:
    try:
        found: type[Exception] = importlib.import_module("nemo_gym.judge").JudgeError
    except ImportError:
        return UnscoredError
    return found


def _prompt(asked: Any) -> Any:
    """The request's input, after its instructions."""
    given, instructions = field(asked, "input"), field(asked, "instructions")
    if not instructions:
        return given
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    return [{"role": "system", "content": instructions}, *items]


def _row(body: Any) -> dict[str, Any]:
    """What a dataset put beside the request, or in its metadata."""
    extra = getattr(body, "model_extra", None)
    fields = {**(extra if extra is not None else {}), **getattr(body, "__dict__", {})}
    row = {name: value for name, value in fields.items() if name not in ("responses_create_params", "response")}
    metadata = row.pop("metadata", None)
    return {
        **(metadata if isinstance(metadata, dict) else {}),
        **{n: value for n, value in row.items() if holds(value)},
    }
