"""NeMo-Gym: a resources server whose `verify` asks the judge, and a helper for servers of your own.

Not scored: JudgeError, NeMo-Gym's own signal, and `mask_sample` for NeMo-RL. Evaluation leaves such rows out, training
takes them out of the loss; the 0.0 that NeMo-Gym's failsafe hands on still counts in the baseline of the siblings.
"""

from __future__ import annotations

import importlib
from typing import Any

from referee.errors import UnscoredError
from referee.trainers.on_demand import on_demand
from referee.trainers.outcome import why
from referee.trainers.rows import REFERENCES, field, holds
from referee.trainers.shared import Judged, from_environment

NAMES = ("responses_create_params.input", "response.output")


async def judge_body(body: Any, judged: Judged | None = None) -> float:
    """The reward for a verify request: all items of the response are messages for the judge. Raises JudgeError where
    there is none."""
    judged = (judged or from_environment()).needs("NeMo-Gym", none=True, groups=False)
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
    return reward.value


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
                reward = await judge_body(body)
            except _judge_error():
                # NeMo-Gym's failsafe hands the row on with reward 0.0; NeMo-RL takes a row with this out of the loss.
                known = getattr(body, "instance_config", None)
                body.instance_config = {**(known if isinstance(known, dict) else {}), "mask_sample": True}
                raise
            return VerifyResponse(**body.model_dump(), reward=reward)

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
