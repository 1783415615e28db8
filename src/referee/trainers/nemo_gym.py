"""NeMo-Gym: a resources server whose `verify` asks the judge, and a helper for servers of your own.

Not scored: JudgeError, NeMo-Gym's own signal, and `mask_sample` for NeMo-RL. Evaluation leaves such rows out, training
takes them out of the loss; the 0.0 that NeMo-Gym's failsafe hands on still counts in the baseline of the siblings.
"""

from __future__ import annotations

import importlib
from typing import Any

from referee.errors import UnscoredError
from referee.trainers.rows import text_of, to_sample
from referee.trainers.shared import Judged, from_environment, why

ANSWERS = ("expected_answer", "answer", "ground_truth", "reference", "solution", "label")


async def judge_body(body: Any, judged: Judged | None = None) -> float:
    """The reward for a verify request; raises JudgeError where there is none."""
    judged = (judged or from_environment()).needs("NeMo-Gym", none=True, groups=False)
    asked = body.responses_create_params
    prompt = asked.get("input") if isinstance(asked, dict) else asked.input
    reference = _reference(body)
    judged.expects_reference(reference is not None, f"the row one of {', '.join(ANSWERS)}")
    cut = _get(_get(body.response, "incomplete_details"), "reason") == "max_output_tokens"
    sample = to_sample(_plain(prompt), answer_of(body.response), reference=reference, truncated=cut)
    (reward,) = await judged.ascore([sample])
    if reward.value is None:
        raise _judge_error()(f"not scored ({why(reward)})")
    return reward.value


def answer_of(response: Any) -> str:
    """The text of the last assistant message in a Responses-API response."""
    for item in reversed(_get(response, "output") or []):
        if _get(item, "type") == "message" and _get(item, "role") == "assistant":
            return text_of([{"role": "assistant", "content": _plain_parts(_get(item, "content"))}])
    return ""


def __getattr__(name: str) -> Any:
    """`JudgedResourcesServer`, made when it is first asked for: only then is nemo_gym there to inherit from."""
    if name != "JudgedResourcesServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
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
    JudgedResourcesServer.__module__, JudgedResourcesServer.__qualname__ = __name__, name
    globals()[name] = JudgedResourcesServer
    return JudgedResourcesServer


def _judge_error() -> type[Exception]:
    try:
        found: type[Exception] = importlib.import_module("nemo_gym.judge").JudgeError
    except ImportError:
        return UnscoredError
    return found


def _reference(body: Any) -> str | None:
    """Datasets put the known answer beside the request, or in its metadata."""
    extra = {name: _get(body, name) for name in ANSWERS}
    metadata = _get(body, "metadata") or {}
    for name in ANSWERS:
        found = extra[name] if extra[name] is not None else _get(metadata, name)
        if found is not None:
            return text_of(found)
    return None


def _plain(prompt: Any) -> Any:
    """Responses-API input: text, or messages whose parts carry text."""
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    return [
        {"role": _get(item, "role") or _get(item, "type"), "content": _plain_parts(_get(item, "content"))}
        for item in prompt
    ]


def _plain_parts(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    return [{"type": _get(part, "type"), "text": _get(part, "text")} for part in content]


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
