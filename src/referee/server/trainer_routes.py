"""The paths of trainers that bring their own shape: OpenRLHF, slime (and miles), LLaMA-Factory.

They all need a number for every sample. Where there is none they get 503, which they repeat or fail on; a number
without a verdict is only ever the one that `[missing] policy` says. A caller that leaves does not stop the work: these
clients ask again, and then join what is under way or find it in the cache.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from referee.errors import ConfigError
from referee.judging import refuse_groups
from referee.records import Reason, Reward, Sample, Unscored, Verdict
from referee.rollouts import Polarity
from referee.scoring.batch import groups_of
from referee.server.gate import Bodies, caller_of
from referee.server.openapi import OF_BODIES, gives, ref, takes
from referee.server.refusals import LATER, Refusal, refusal_of
from referee.server.routes import json
from referee.server.schemas import (
    LlamaFactoryReply,
    LlamaFactoryRequest,
    OpenRLHFReply,
    OpenRLHFRequest,
    SlimeRequest,
    columns_of,
    cut,
    decode,
    encode,
    labelled,
    text_of,
)
from referee.server.service import Service

SLIME_GROUPS = "--custom-rm-path referee.trainers.slime.custom_rm with --group-rm"

_openrlhf = msgspec.json.Decoder(OpenRLHFRequest)
_slime = msgspec.json.Decoder(SlimeRequest)
_llama_factory = msgspec.json.Decoder(LlamaFactoryRequest)


def add_trainer_routes(app: FastAPI, service: Service, bodies: Bodies) -> None:
    """Add other projects' paths."""

    def refuse(request: Request, where: str, instead: str) -> None:
        try:
            refuse_groups(service.teams.reads(caller_of(request)).judges, where, instead)
        except ConfigError as error:
            raise refusal_of(error) from None

    async def judge(request: Request, samples: list[Sample]) -> list[tuple[float, Reward]]:
        if len(groups_of(samples)) == len(samples):
            same = "a request in which no two rows have the same prompt"
            refuse(request, same, "/v1/score, with a `group` for each sample")
        caller = caller_of(request)
        async with service.judging(samples, caller=caller) as ticket:
            return numbers(await service.rewards(ticket, caller, whole=True))

    @app.post(
        "/get_reward",
        summary="OpenRLHF's remote reward model",
        responses=gives(ref(OpenRLHFReply), *OF_BODIES),
        openapi_extra=takes(OpenRLHFRequest),
        response_model=None,
    )
    async def openrlhf(request: Request) -> Response:
        """Rewards, judge values in [0, 1] as scores, and means of what they are made of."""
        reads = service.teams.reads(caller_of(request))
        samples = openrlhf_samples(
            decode(_openrlhf, await bodies.read(request)), service.config.answer_after, reads.columns, reads.polarity
        )
        found = await judge(request, samples)
        return json(encode(openrlhf_reply(found)))

    @app.post(
        "/slime",
        summary="slime's and miles' remote_rm",
        responses=gives({"type": "number"}, *OF_BODIES),
        openapi_extra=takes(SlimeRequest),
        response_model=None,
    )
    async def slime(request: Request) -> Response:
        """One sample, one bare number."""
        refuse(request, "slime's remote_rm", SLIME_GROUPS)
        wanted = decode(_slime, await bodies.read(request))
        reads = service.teams.reads(caller_of(request))
        told = labelled(wanted.label, reads.columns, reads.polarity, "label")
        sample = Sample(prompt=text_of(wanted.prompt, "prompt"), response=wanted.response, **told)
        [(number, _)] = await judge(request, [sample])
        return json(encode(number))

    @app.post(
        "/llamafactory",
        summary="LLaMA-Factory's reward server",
        responses=gives(ref(LlamaFactoryReply), *OF_BODIES),
        openapi_extra=takes(LlamaFactoryRequest),
        response_model=None,
    )
    async def llama_factory(request: Request) -> Response:
        """One number per conversation."""
        wanted = decode(_llama_factory, await bodies.read(request))
        columns_of({}, service.teams.reads(caller_of(request)).columns, "messages")  # there is no place for columns
        mark = service.config.answer_after
        parts = [cut(text, "", mark, f"messages[{index}]") for index, text in enumerate(wanted.messages)]
        samples = [Sample(prompt=prompt, response=answer, group=group_of(prompt)) for prompt, answer in parts]
        return json(encode(LlamaFactoryReply(scores=[number for number, _ in await judge(request, samples)])))


def openrlhf_samples(
    wanted: OpenRLHFRequest, mark: str, shown: Sequence[str], polarity: Polarity | None = None
) -> list[Sample]:
    """The samples of a request: the response is what follows the prompt in the query. `shown`: columns that labels
    must hold. `polarity`: how rubrics in labels are read."""
    count = len(wanted.query)
    for name, given in (("prompts", wanted.prompts), ("labels", wanted.labels)):
        if given is not None and len(given) != count:
            raise Refusal(
                422, "bad_request", f"{name} has length {len(given)}, query has length {count}. Nothing was judged."
            )
    prompts: Sequence[str] = wanted.prompts if wanted.prompts is not None else [""] * count
    labels = wanted.labels if wanted.labels is not None else [None] * count
    samples = []
    for index, (query, prompt, label) in enumerate(zip(wanted.query, prompts, labels, strict=True)):
        asked, answer = cut(query, prompt, mark, f"query[{index}]")
        told = labelled(label, shown, polarity, f"labels[{index}]")
        samples.append(Sample(prompt=asked, response=answer, group=group_of(asked), **told))
    return samples


def group_of(prompt: str) -> str:
    """Rows of one request with one prompt are a group. A digest, because records name groups also without content."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:16] if prompt else ""


def openrlhf_reply(found: Sequence[tuple[float, Reward]]) -> OpenRLHFReply:
    """Rewards, scores and means. A number that the missing policy supplied is its own score."""
    verdicts = [reward.verdict for _, reward in found]
    count = len(found)
    return OpenRLHFReply(
        rewards=[number for number, _ in found],
        scores=[v.value if isinstance(v, Verdict) else number for v, (number, _) in zip(verdicts, found, strict=True)],
        extra_logs={
            "judge_scored": sum(isinstance(v, Verdict) for v in verdicts) / count,
            "judge_cached": sum(reward.settled.origin == "cache" for _, reward in found) / count,
            "judge_penalty": math.fsum(reward.penalty for _, reward in found) / count,
        },
    )


def numbers(rewards: Sequence[Reward]) -> list[tuple[float, Reward]]:
    """A number for each sample, or a refusal if one has none. Cancelled ones have none, whatever the policy."""
    found: list[tuple[float, Reward]] = []
    missing: list[Unscored] = []
    for reward in rewards:
        verdict = reward.verdict
        cancelled = isinstance(verdict, Unscored) and verdict.reason is Reason.CANCELLED
        if reward.value is not None and not cancelled:
            found.append((reward.value, reward))
        elif isinstance(verdict, Unscored):
            missing.append(verdict)
    if len(found) < len(rewards):
        raise Refusal(503, "unscored", _complaint(missing, len(rewards)), LATER)
    return found


def _complaint(missing: Sequence[Unscored], count: int) -> str:
    words = ", ".join(f"{reason} {times}" for reason, times in Counter(m.reason for m in missing).most_common())
    detail = next((m.detail for m in missing if m.detail), "")
    return (
        f"Not scored: {len(missing)} of {count} ({words}{': ' if detail else ''}{detail.rstrip('.')}), and "
        "this caller needs a number for each. Try again: what was judged is cached. To train on a number instead, set "
        '[missing] policy = "value", or "group_mean" where a request holds whole groups.'
    )
