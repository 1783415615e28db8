"""What callers send and what they get, as data, and how texts become samples. No I/O.

Bodies are decoded by msgspec straight into these shapes: unknown fields, NaN, infinity, numbers out of range and halves
of characters are refused before anything is judged.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from referee import records
from referee.records import Reward, Sample
from referee.rollouts import ALIASES, Polarity, ReadError, read_rubric, read_text, read_tools
from referee.server.refusals import Refusal

LARGEST = 1e9
"""Numbers a caller may add to a reward: far above any use, far below where sums of them lose meaning."""
EXPLAINED = 1 << 20
"""Bytes of an unreadable body that are read a second time to say what is wrong with it."""

T = TypeVar("T")


def described_elsewhere(name: str) -> Meta:
    """A schema that msgspec does not check: `openapi` describes it, and `rollouts` reads it."""
    return Meta(extra_json_schema={"$ref": f"#/components/schemas/{name}"})


Message = Annotated[dict[str, Any], described_elsewhere("Message")]
Tool = Annotated[dict[str, Any], described_elsewhere("Tool")]
Text = str | Annotated[list[Message], Meta(min_length=1)]
Label = str | int | float | None
RowLabel = Label | dict[str, Any]
"""Of trainers that hand on one value of a row: the reference, or an object with it and with columns."""
LARGEST_WHOLE = 10**15
Step = Annotated[float, Meta(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE, multiple_of=1)]
Count = Annotated[float, Meta(ge=0, le=LARGEST_WHOLE, multiple_of=1)]
"""Whole numbers. Floats to msgspec, because to JSON 11.0 is as whole as 11."""


class SampleIn(Struct, forbid_unknown_fields=True, kw_only=True):
    """One rollout to be judged."""

    prompt: Annotated[Text, Meta(description="What the policy was asked: text, or the messages before its response.")]
    response: Annotated[
        Text,
        Meta(
            description="What it answered: text, or messages with tool calls, their results and reasoning. How much of "
            "it the judge sees is [judge] view: the last message (answer), everything (full), or the reasoning alone."
        ),
    ]
    id: Annotated[str, Meta(description="Your name for it, echoed back.")] = ""
    group: Annotated[str, Meta(description="Rollouts of one prompt share it. Empty: a group of its own.")] = ""
    reference: Annotated[Label, Meta(description="The known right answer, for judges that compare.")] = None
    tools: Annotated[list[Tool], Meta(description="What the policy could call. Shown to judges with view = full.")] = []
    rubric: Annotated[
        str | list[Any] | dict[str, Any] | None,
        Meta(
            description="What makes a response good, for judges of kind rubric: criteria in any of the known formats."
        ),
    ] = None
    columns: Annotated[
        dict[str, Any],
        Meta(
            description="More of the row, for a template with {{columns.name}}: exactly the columns that it shows. "
            "Text as it is, anything else as JSON."
        ),
    ] = {}
    rule_score: Annotated[
        float, Meta(ge=-LARGEST, le=LARGEST, description="What a rule already said; the judge's share is added.")
    ] = 0.0
    length: Annotated[Count | None, Meta(description="Response length in tokens. null: counted from the text.")] = None
    truncated: Annotated[bool, Meta(description="True if generation stopped at its token limit.")] = False
    step: Annotated[Step | None, Meta(description="Training step, for records.")] = None


Samples = Annotated[list[SampleIn], Meta(min_length=1)]
Deadline = Annotated[
    float, Meta(ge=0.001, le=LARGEST, description="Seconds for the batch; never more than limits.deadline.")
]


class ScoreRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch to be judged while the caller waits."""

    samples: Samples
    stream: Annotated[bool, Meta(description="True: results as they land, one JSON object per line.")] = False
    deadline: Deadline | None = None


class TicketRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch to be judged and collected later."""

    samples: Samples
    deadline: Deadline | None = None


class Result(Struct, frozen=True, kw_only=True):
    """What became of one sample. Every result has all of these keys."""

    index: int
    """Position in the request."""
    id: str
    group: str
    reward: float | None
    """null: no reward; it was not scored, and the missing policy supplies no number."""
    score: float | None
    """On the judge's own scale."""
    value: float | None
    """The same in [0, 1]."""
    why: str
    """The judge's words, or which gate settled it."""
    unscored: str
    """Why there is no score; empty when there is one."""
    detail: str
    rule: float
    judge: float | None
    penalty: float
    length: int
    median_length: float
    filled: str
    """The missing policy that supplied the reward, if one did."""
    origin: str
    """call, cache, shared, gate or none."""
    how: str
    uncertainty: float | None
    """How unsure the judge is, where it says so."""
    cost: float
    model: str
    """The model that answered, by its own account."""
    endpoint: str
    provider: str = ""
    """Behind a router, as the last reply says it."""
    fingerprint: str = ""
    """What the server says of its own configuration (OpenAI: system_fingerprint)."""
    key: str
    """Cache key of the request."""
    parts: list[dict[str, Any]]
    """Of a rubric each criterion, of a jury or cascade each member, of repeated questions each answer: name, text,
    weight, true_is, verdict, value, why, unscored, and uncertainty and parts where there are any. Of kind pairwise each
    comparison and order, with name (the other sample), text (shown first, shown second), verdict (won, lost, tied),
    value, why and unscored; of kind listwise in several orders or chunks each order. Else empty."""
    judges: dict[str, dict[str, Any]]
    """With several judges: what each said, by name; the fields above are what they make together. Else empty."""


class ScoreReply(Struct, frozen=True, kw_only=True):
    """Results in the order of the request."""

    results: list[Result]


class StreamEnd(Struct, frozen=True, kw_only=True):
    """The last line of a stream. `error` is empty when every sample has its result."""

    done: bool
    results: int
    error: str = ""
    message: str = ""


class TicketReply(Struct, frozen=True, kw_only=True):
    """The state of a ticket; `results` is null until all are final."""

    id: str
    samples: int
    landed: int
    done: bool
    results: list[Result] | msgspec.Raw | None = None


class Health(Struct, frozen=True, kw_only=True):
    """status: ok, closed (no judge can answer), budget (it is spent) or draining (no new work is taken)."""

    status: str
    why: str = ""
    version: str
    queued: int
    """Samples accepted and not final."""
    spent_teams: list[str] = []
    """Teams whose budget of this day or month is spent: all of them for the operator, for a team itself."""


class OpenRLHFRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """OpenRLHF's remote reward model: `query` is prompt and response in one text."""

    query: Annotated[list[str], Meta(min_length=1)]
    prompts: list[str] | None = None
    labels: list[RowLabel] | None = None


class OpenRLHFReply(Struct, frozen=True, kw_only=True):
    """rewards: for the advantage. scores: the judge's value in [0, 1], for filtering. extra_logs: one number each."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, float]


class SlimeRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """slime's and miles' remote_rm: one sample; the answer is a bare number."""

    prompt: Text
    response: str
    label: RowLabel = None


class LlamaFactoryRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """LLaMA-Factory's reward server: whole conversations as text. `model` is not read: the caller chooses no judge."""

    messages: Annotated[list[str], Meta(min_length=1)]
    model: str = ""


class LlamaFactoryReply(Struct, frozen=True, kw_only=True):
    """One number per conversation."""

    scores: list[float]


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The body as its shape: 400 if it is no JSON, 422 if it is JSON of another shape."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refusal(422, "bad_request", f"{_plain(str(error))}. Nothing was judged.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Refusal(400, "bad_json", f"The body is not JSON: {_flaw(body, error)}. Nothing was judged.") from None


def _flaw(body: bytes, error: Exception) -> str:
    """What is wrong with a body, also where only Python's more lenient reader can tell."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    with contextlib.suppress(ValueError, RecursionError):
        if len(body) <= EXPLAINED and json.loads(body) is not None:
            return "it holds NaN, Infinity or half a character (a lone surrogate), which JSON does not have"
    return str(error)


def _plain(text: str) -> str:
    what, _, path = text.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    return f"{path}: {what}" if path else what


def samples_of(given: Sequence[SampleIn], shown: Sequence[str], polarity: Polarity | None) -> list[Sample]:
    """Our own shape as samples. `shown`: columns that the judges' templates show. `polarity`: as in `rubric_in`."""
    return [
        Sample(
            prompt=text_of(item.prompt, f"samples[{number}].prompt"),
            response=text_of(item.response, f"samples[{number}].response"),
            tools=tools_of(item.tools, f"samples[{number}].tools") if item.tools else (),
            rubric=rubric_in(item.rubric, polarity, f"samples[{number}].rubric") if item.rubric is not None else (),
            columns=columns_of(item.columns, shown, f"samples[{number}].columns") if item.columns or shown else {},
            id=item.id,
            group=item.group,
            reference=label_of(item.reference),
            rule_score=item.rule_score,
            length=None if item.length is None else int(item.length),
            truncated=item.truncated,
            step=None if item.step is None else int(item.step),
        )
        for number, item in enumerate(given)
    ]


def text_of(value: str | list[dict[str, Any]], where: str) -> records.Text:
    """A prompt or response, as rollout files give it."""
    try:
        return read_text(value, where)
    except ReadError as error:
        raise _wrong(error.where, error.problem) from None


def tools_of(value: list[dict[str, Any]], where: str) -> tuple[records.Tool, ...]:
    """The tools a policy was offered."""
    try:
        return read_tools(value, where)
    except ReadError as error:
        raise _wrong(error.where, error.problem) from None


def rubric_in(value: Any, polarity: Polarity | None, where: str) -> tuple[records.Criterion, ...]:
    """A rubric, as rollout files give it. `polarity`: None where no judge has rubrics, and one would be read past."""
    if polarity is None:
        raise _wrong(where, 'no judge is of kind = "rubric"; leave it out')
    try:
        return read_rubric(value, where, polarity)
    except ReadError as error:
        raise _wrong(error.where, error.problem) from None


def columns_of(given: Mapping[str, Any], shown: Sequence[str], where: str) -> dict[str, str]:
    """The columns as text. One that no template shows would be read past, and one that is missing leaves a sample
    unscored: both are refused."""
    for name in given:
        if name not in shown:
            raise _wrong(f"{where}.{name}", f"no judge's template shows it ({{{{columns.{name}}}}}); leave it out")
    for name in shown:
        if given.get(name) is None:
            raise _wrong(f"{where}.{name}", f"missing, and the judge's template shows it ({{{{columns.{name}}}}})")
    return {name: value if isinstance(value, str) else encode(value).decode() for name, value in given.items()}


def labelled(
    label: str | int | float | dict[str, Any] | None, shown: Sequence[str], polarity: Polarity | None, where: str
) -> dict[str, Any]:
    """What a label says of its sample: the reference, or as an object the reference, the rubric, the tools and the
    columns that are shown. An entry that is none of these would be read past, and is refused."""
    row = label if isinstance(label, dict) else {}
    references = ("reference", *ALIASES["reference"])
    for name, value in row.items():
        if value is not None and name not in (*references, "rubric", "tools", *shown):
            raise _wrong(f"{where}.{name}", f"no judge's template shows it ({{{{columns.{name}}}}}); leave it out")
    found = next((row[name] for name in references if row.get(name) is not None), None)
    reference = found if isinstance(label, dict) else label
    columns = columns_of({name: row[name] for name in shown if name in row}, shown, where)
    rubric, tools = row.get("rubric"), row.get("tools")
    return {
        "reference": label_of(reference),
        "columns": columns,
        "rubric": () if rubric is None or "rubric" in shown else rubric_in(rubric, polarity, f"{where}.rubric"),
        "tools": () if tools is None or "tools" in shown else tools_of(tools, f"{where}.tools"),
    }


def _wrong(where: str, problem: str) -> Refusal:
    return Refusal(422, "bad_request", f"{where}: {problem}. Nothing was judged.")


def label_of(label: Any) -> str | None:
    """A reference is text for the judge."""
    if label is None or isinstance(label, str):
        return label
    return str(label) if isinstance(label, int | float) else encode(label).decode()


def cut(text: str, prompt: str, mark: str, where: str) -> tuple[str, str]:
    """Prompt and answer out of one text, by the prompt it begins with, else by `[serve] answer_after`.

    422 where that is not certain. Searching for the prompt or the mark would let a candidate that repeats it in its
    answer choose which part of the answer is judged.
    """
    if not prompt and not mark:
        return "", text
    begun = _behind(text, prompt) if prompt else None
    if begun is not None:
        return prompt, text[begun:]
    parts = text.split(mark) if mark else []
    found, expected = len(parts) - 1, max(1, prompt.count(mark))
    if found == expected:
        return prompt or mark.join(parts[:-1]), parts[-1]
    beginning = f"{where} does not begin with its prompt (does the tokenizer change or cut the text?)" if prompt else ""
    counted = f"{where} holds [serve] answer_after {found} times, not {expected}" if mark else ""
    raise Refusal(
        422,
        "no_answer",
        f"{' and '.join(filter(None, (beginning, counted)))}, so where the answer begins is not known. Set [serve] "
        "answer_after to what your chat template puts before an answer and answers do not hold. Nothing was judged.",
    )


_TOKEN = re.compile(r"\s+|<[|｜]?[\w▁]{1,40}[|｜]?>|\[\w{1,10}\]")
"""What a tokenizer puts before a prompt: spaces and special tokens such as <s> or <|begin_of_text|>."""


def _behind(text: str, prompt: str) -> int | None:
    """Where the prompt ends that the text begins with, after special tokens; None if it begins with another text."""
    prompt = prompt.lstrip()  # some tokenizers drop or add a space there
    place = 0
    while not text.startswith(prompt, place):
        token = _TOKEN.match(text, place)
        if token is None:
            return None
        place = token.end()
    return place + len(prompt)


def result_of(reward: Reward) -> Result:
    """A reward as callers see it."""
    return Result(index=reward.index, **reward.to_dict())


encode = msgspec.json.Encoder().encode
