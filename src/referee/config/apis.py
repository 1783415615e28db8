"""Endpoints that generate no text (`endpoint.api`): which judges can ask them, and which settings they would read past.

Each message names the key, the value and the line to write instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from referee.config.judge_schema import SHIPPED_KINDS, JudgeConfig
from referee.config.schema import EndpointConfig
from referee.errors import Refuse

REWARD = ("classify", "score", "pooling")
"""APIs of reward models and cross-encoders: numbers."""
DECISION = "decision"
"""The API of decision models: probabilities of the answers to given questions."""
TEXTLESS = (*REWARD, DECISION)
DECIDED_KINDS = ("score", "yes_no", "rubric")
"""Kinds whose question a decision model can be asked."""
MOST_LEVELS = 10
"""Of one question to a decision model."""
UNSCORED = '"unscored"'


def with_free_replies(endpoint: EndpointConfig) -> EndpointConfig:
    """The same, with a price for the replies of a model that writes none: nothing."""
    if endpoint.api in REWARD and endpoint.price_in is not None and endpoint.price_out is None:
        return replace(endpoint, price_out=0.0)
    return endpoint


def check_api(judge: JudgeConfig, where: str, endpoints: Sequence[EndpointConfig], refuse: Refuse) -> None:
    """Whether a judge can ask its endpoints, of which there is one or more."""
    apis = {endpoint.api: endpoint.label for endpoint in reversed(endpoints)}
    if len(apis) > 1 and any(api in TEXTLESS for api in apis):
        said = " and ".join(f'{label} (api = "{api}")' for api, label in reversed(apis.items()))
        raise refuse(
            f"{where}.endpoint",
            f"its endpoints speak different APIs, whose verdicts do not compare: {said}. Name endpoints of one API.",
        )
    [(api, label)] = apis.items()
    if judge.kind == "reward_model":
        if api not in REWARD:
            raise refuse(
                f"{where}.kind",
                f'"reward_model" reads numbers, and the endpoint {label} (api = "{api}") does not give them. Write '
                'api = "classify" into its [[endpoint]] (or "score", "pooling"), or kind = "score" into the judge.',
            )
        _check_reward_model(judge, where, api, endpoints, refuse)
    elif api in REWARD:
        raise refuse(
            f"{where}.kind",
            f'"{judge.kind}" reads generated text, and the endpoint {label} (api = "{api}") gives numbers. Write '
            'kind = "reward_model" into the judge, or name another endpoint in judge.endpoint.',
        )
    elif api == DECISION:
        _check_decided(judge, where, label, refuse)


def _check_reward_model(
    judge: JudgeConfig, where: str, api: str, endpoints: Sequence[EndpointConfig], refuse: Refuse
) -> None:
    if judge.view == "reasoning":
        raise refuse(f"{where}.view", 'a reward model scores answers. Write view = "answer", or "full".')
    if judge.output is not None and judge.output < 0:
        raise refuse(f"{where}.output", f"must be at least 0, not {judge.output}.")
    sglang = any(endpoint.provider == "sglang" for endpoint in endpoints)
    if sglang and judge.activation == "server":
        raise refuse(f"{where}.activation", 'SGLang gives raw numbers. Write "sigmoid" or "raw".')
    if api != "score" and not judge.prompt_file and sglang:
        raise refuse(
            f"{where}.prompt_file",
            "SGLang takes a reward model's input as text. Write prompt_file, a file with {{prompt}} and {{response}} "
            "in the chat format of the model.",
        )
    if judge.activation != "raw":
        return
    if judge.lowest is not None and not math.isfinite(judge.lowest):
        raise refuse(f"{where}.lowest", f"must be a finite number, not {judge.lowest}: it becomes a reward.")
    if judge.ask_above is not None and judge.lowest is None:
        raise refuse(
            f"{where}.lowest",
            "raw numbers may be below 0, and then samples that ask_above leaves out would get more than those that are "
            "asked about. Write lowest = -20.0, or a number that fits the model: it is what they get.",
        )
    if judge.steps == "product":
        raise refuse(f"{where}.steps", '"product" is for probabilities, not for activation = "raw".')
    gated = [name for name in judge.gates.__struct_fields__ if getattr(judge.gates, name) == "lowest"]
    if gated and judge.lowest is None:
        raise refuse(
            f"{where}.lowest",
            f"the gate {gated[0]} gives the lowest score, and raw numbers have none. Write lowest = -20.0, or a number "
            f"that fits the model; or gates = {{{', '.join(f'{name} = {UNSCORED}' for name in gated)}}}.",
        )


def _check_decided(judge: JudgeConfig, where: str, label: str, refuse: Refuse) -> None:
    if judge.kind not in DECIDED_KINDS:
        kinds = "a judge of another package" if judge.kind not in SHIPPED_KINDS else f'"{judge.kind}"'
        raise refuse(
            f"{where}.kind",
            f"{kinds} reads generated text, and the endpoint {label} is a decision model. Write kind = "
            f"{' or '.join(f'{chr(34)}{kind}{chr(34)}' for kind in DECIDED_KINDS)}, or name another endpoint.",
        )
    if judge.combined_by == "implicit":
        raise refuse(f"{where}.combine", '"implicit" needs generated text. A decision model answers each criterion.')
    if judge.kind == "score" and judge.high - judge.low >= MOST_LEVELS:
        raise refuse(
            f"{where}.high",
            f"a decision model takes {MOST_LEVELS} levels at most, and the scale is {judge.low} to {judge.high}.",
        )
