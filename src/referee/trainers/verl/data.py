"""verl's DataProto to rows and back: decode, find the last valid token, call the rule.

Nothing of the caller's is changed: `extra_info` reaches the rule as a copy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from referee.errors import InputError
from referee.records import Message, Sample, Text
from referee.trainers.rows import field, holds, split, text_of, to_sample, with_reference
from referee.trainers.shared import Judged

RuleFunction = Callable[..., Any]
Scored = tuple[float, dict[str, Any]]
"""A rule's score, and what else it said."""
MESSAGES = "messages"
"""Where a rollout's conversation stands, if it was passed on."""
ADD = "each row its known answer as reward_model.ground_truth"
ONE_TURN = 2
"""verl's count of turns for one question and one answer."""

log = logging.getLogger("referee.trainers")
_warned: set[str] = set()


class Row(Struct, frozen=True):
    """One rollout, decoded."""

    uid: str
    data_source: Any
    ground_truth: Any
    extra_info: dict[str, Any]
    prompt: Text
    response: str
    """Decoded, as rules are given it."""
    length: int
    """Valid response tokens."""
    messages: Text | None = None
    """The response as messages, where verl gives them."""
    columns: dict[str, Any] = {}
    """What the dataset and the agent loop put beside it."""
    session: str = ""
    """Which of its siblings it is, where verl says so."""
    step: int | None = None
    truncated: bool = False
    """Generation stopped at the token limit."""

    def sample(self, judged: Judged | None, rule: float, id: str = "") -> Sample:
        """The row for the judge; without one, for the length penalty alone."""
        response = self.response if self.messages is None else self.messages
        more: dict[str, Any] = {
            "id": id,
            "group": self.uid,
            "rule_score": rule,
            "length": self.length,
            "step": self.step,
            "truncated": self.truncated,
        }
        if judged is None:
            return to_sample(self.prompt, response, **more)
        return judged.sample(self.prompt, response, with_reference(self.columns, self.ground_truth), ADD, **more)

    def arguments(self) -> dict[str, Any]:
        """What verl's managers call a rule with."""
        return {
            "data_source": self.data_source,
            "solution_str": self.response,
            "ground_truth": self.ground_truth,
            "extra_info": self.extra_info,
        }


def rows_of(data: Any, tokenizer: Any, key: str = "data_source", window: int | None = None) -> list[Row]:
    """The rows of a DataProto, in its order. `key`: the column that names the data source. `window`: the most tokens a
    response may have; None if that is not known, and with it whether a response was truncated."""
    responses = data.batch["responses"]
    lengths = lengths_of(data, getattr(tokenizer, "pad_token_id", None))
    texts = [
        tokenizer.decode(ids[:length], skip_special_tokens=True) for ids, length in zip(responses, lengths, strict=True)
    ]
    prompts = _prompts(data, tokenizer)
    columns = data.non_tensor_batch
    shared_step = data.meta_info.get("global_steps") if data.meta_info else None
    rows = []
    for index, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        row = {name: values[index] for name, values in columns.items()}
        step = row.get("global_steps", shared_step)
        prompt, messages = _conversation(row, prompts[index])
        rows.append(
            Row(
                uid=str(row["uid"]) if row.get("uid") is not None else "",
                data_source=row.get(key),
                ground_truth=field(row.get("reward_model"), "ground_truth"),
                extra_info=_extra_info(row),
                prompt=prompt,
                response=text,
                length=length,
                messages=messages,
                columns=_columns(row),
                session="" if row.get("session_id") is None else str(row["session_id"]),
                step=None if step is None else int(step),
                truncated=window is not None and length >= window and _is_cut(responses[index], length, tokenizer),
            )
        )
    return rows


def last_of(rows: Sequence[Row]) -> Row:
    """The row verl rewards of a rollout with several outputs: the last one, with what came before it for the judge."""
    last = rows[-1]
    if len(rows) == 1:
        return last
    said = [row.response if row.messages is None else row.messages for row in rows]
    parts = [(Message("assistant", text),) if isinstance(text, str) else text for text in said]
    return replace(last, messages=tuple([message for part in parts for message in part]))


def lengths_of(data: Any, pad: int | None = None) -> list[int]:
    """Valid response tokens per row.

    Several outputs of one trajectory are padded together so that the mask no longer fits the responses; verl gives
    their lengths by name then. Without a mask, padding tokens at the end are not counted.
    """
    responses = data.batch["responses"]
    width = int(responses.shape[-1])
    named = data.non_tensor_batch.get("response_len")
    if named is not None:
        return [min(int(length), width) for length in named]
    if "attention_mask" in data.batch.keys():  # noqa: SIM118  # a TensorDict is no dict
        mask = data.batch["attention_mask"]
        return [int(length) for length in mask[:, int(mask.shape[-1]) - width :].sum(dim=-1).tolist()]
    if pad is None:
        return [width] * len(responses)
    return [_without_padding(ids, pad) for ids in responses.tolist()]


def fingerprints(data: Any, lengths: Sequence[int]) -> list[tuple[str, int]]:
    """What tells rows and their order apart: the uid, and a checksum of the valid response tokens."""
    tokens = data.batch["responses"].cpu().long().numpy()
    uids = data.non_tensor_batch.get("uid")
    names = [""] * len(lengths) if uids is None else [str(uid) for uid in uids]
    return [
        (name, zlib.crc32(row[:length].tobytes())) for name, row, length in zip(names, tokens, lengths, strict=True)
    ]


def place(values: Sequence[float], lengths: Sequence[int], responses: Any) -> Any:
    """A tensor like the responses, with each value on the last valid token; on the first where there is none."""
    import torch

    tensor = torch.zeros_like(responses, dtype=torch.float32)
    if tensor.shape[-1]:
        for row, (value, length) in enumerate(zip(values, lengths, strict=True)):
            tensor[row, max(length - 1, 0)] = value
    return tensor


def existing_scores(data: Any, return_dict: bool) -> Any:
    """Rewards that are in the batch already, in the shape a manager returns; None if there are none."""
    if "rm_scores" not in data.batch.keys():  # noqa: SIM118
        return None
    scores = data.batch["rm_scores"]
    if not return_dict:
        return scores
    names = data.meta_info.get("reward_extra_keys", []) if data.meta_info else []
    return {"reward_tensor": scores, "reward_extra_info": {name: data.non_tensor_batch[name] for name in names}}


def number_of(result: Any) -> Scored:
    """What a rule returned."""
    extra: dict[str, Any] = {}
    if isinstance(result, Mapping):
        if "score" not in result:
            raise InputError(
                f"compute_score returned a mapping without `score` (it has {', '.join(map(str, result))}). Nothing was "
                "judged.",
                field="score",
            )
        extra = {str(name): value for name, value in result.items() if name != "score"}
        result = result["score"]
    if isinstance(result, tuple | list) and result:
        result = result[0]
    try:
        return float(result), extra
    except (TypeError, ValueError):
        raise InputError(
            f"compute_score returned {type(result).__name__}, not a number or a mapping with `score`. Nothing was "
            "judged.",
            field="score",
        ) from None


def scores_of(rule: RuleFunction, calls: Sequence[Mapping[str, Any]]) -> list[Scored]:
    """The rule's score for each of these arguments, one after another; a coroutine function is run for all together."""
    if not is_async(rule):
        return [number_of(rule(**arguments)) for arguments in calls]

    async def together() -> list[Any]:
        return await asyncio.gather(*(rule(**arguments) for arguments in calls))

    return [number_of(result) for result in _run(together)]


def is_async(rule: RuleFunction) -> bool:
    """True if calling it gives a coroutine, also through functools.partial."""
    return inspect.iscoroutinefunction(_inner(rule))


def default_rule() -> RuleFunction:
    """verl's own rules, by data source."""
    from verl.utils.reward_score import default_compute_score

    found: RuleFunction = default_compute_score
    return found


def verl_loaded() -> bool:
    """True where verl is imported already; importing it takes seconds."""
    return "verl" in sys.modules


def _inner(rule: Any) -> Any:
    """verl wraps functions in partials whose first argument may be the function."""
    while hasattr(rule, "func"):
        rule = rule.func
    return rule if inspect.isroutine(rule) else getattr(rule, "__call__", rule)  # noqa: B004


def _run(work: Callable[[], Any]) -> Any:
    """Run a coroutine to its end, whether or not this thread is inside an event loop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def _is_cut(ids: Any, length: int, tokenizer: Any) -> bool:
    """True of a response that fills its window and does not end in a token that ends responses.

    Models may end a turn with another token than the tokenizer's eos; those are special tokens too. verl itself counts
    every full window as clipped (`response_length/clip_ratio`), also one whose last token is the end.
    """
    eos = getattr(tokenizer, "eos_token_id", None)
    if eos is None or not length:
        return False
    ends = {*(eos if isinstance(eos, list | tuple) else [eos]), *(getattr(tokenizer, "all_special_ids", None) or ())}
    return int(ids[length - 1]) not in ends


def _prompts(data: Any, tokenizer: Any) -> list[Text]:
    """Prompts as messages; else decoded from their tokens."""
    raw = data.non_tensor_batch.get("raw_prompt")
    if raw is not None:
        return [text_of(prompt, f"raw_prompt[{row}]") for row, prompt in enumerate(raw)]
    if "prompts" not in data.batch.keys():  # noqa: SIM118
        return [""] * len(data)
    decoded: dict[bytes, str] = {}  # siblings have the same one, and decoding it holds up the first request
    found: list[Text] = []
    for ids in data.batch["prompts"]:
        key = ids.cpu().numpy().tobytes()
        if key not in decoded:
            decoded[key] = tokenizer.decode(ids, skip_special_tokens=True)
        found.append(decoded[key])
    return found


def _conversation(row: Mapping[str, Any], prompt: Text) -> tuple[Text, Text | None]:
    """Prompt and response of a rollout whose conversation was passed on.

    An agent loop does so under `messages` in its extra_fields; the multi-turn rollout of releases up to 0.6 in a column
    of that name, as a mapping. A list in that column is the dataset's own.
    """
    fields, column = row.get("tool_extra_fields"), row.get(MESSAGES)
    found = fields.get(MESSAGES) if isinstance(fields, Mapping) else None
    if found is None and isinstance(column, Mapping):
        found = column.get(MESSAGES)
    if holds(found):
        return split(found, prompt, MESSAGES)
    if (row.get("__num_turns__") or 0) > ONE_TURN and MESSAGES not in _warned:
        _warned.add(MESSAGES)
        log.warning(
            "verl passes no messages of a rollout with several turns: the judge is shown the decoded text, tool calls "
            "and results included, as one answer. JudgedToolAgentLoop passes them (`referee docs verl`), or an agent "
            'loop of your own that puts them into extra_fields["messages"]'
        )
    return prompt, None


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns by name. Of two with one name, that of the agent loop goes before that of extra_info, and both before
    the dataset's own."""
    parts = (row, row.get("extra_info"), row.get("tool_extra_fields"))
    return {str(name): value for part in parts if isinstance(part, Mapping) for name, value in part.items()}


def _extra_info(row: Mapping[str, Any]) -> dict[str, Any]:
    """A copy, with what verl's own managers add."""
    given = row.get("extra_info")
    extra = dict(given) if isinstance(given, Mapping) else {}
    tools = row.get("tool_extra_fields")
    if isinstance(tools, Mapping):
        extra.update(tools)
    extra["num_turns"] = row.get("__num_turns__")
    extra["rollout_reward_scores"] = row.get("reward_scores", {})
    return extra


def _without_padding(ids: list[int], pad: int) -> int:
    length = len(ids)
    while length and ids[length - 1] == pad:
        length -= 1
    return length
