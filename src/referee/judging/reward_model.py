"""kind = "reward_model": a model that answers with numbers. It is sent the conversation as it is, or prompt and
response as two texts (api = "score"): no question, no fences, no text to read. Control tokens of chat formats are
broken up all the same, or a response could write turns of its own.

A number that is missing, not finite, or one of several of which no setting says that it counts, is no verdict. Nothing
is clamped: the value is a sigmoid of the number, or the number itself, which then must be from 0 to 1.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from referee.config import JudgeConfig, pool_of
from referee.errors import ConfigError
from referee.judging.conversation import prompt_messages, response_messages
from referee.judging.digest import digest, tokens_in
from referee.judging.gates import settle
from referee.judging.guard import bare, show, with_reasoning_tags
from referee.judging.kind import Deliberation, Form
from referee.judging.prompt_builder import MESSAGE_TOKENS
from referee.judging.template import REPLY, Pieces, fill, parse
from referee.judging.transcript import prompt_text, response_text
from referee.records import Ask, Message, Reason, Reply, Sample, Sampling, Text, Tool, Unscored, Verdict
from referee.rollouts import last_user

READER = "reward_model/1"
TEXT = "text"
"""Role of a message that is the whole input, in the model's own chat format."""
SAMPLING = Sampling(max_tokens=0, temperature=None)
PROMPTS = 128
"""Prompts that are remembered: the rollouts of one come together, or a few at a time in turn."""

_REDUCED: dict[str, Callable[[Sequence[float]], float]] = {
    "one": lambda numbers: numbers[0],
    "last": lambda numbers: numbers[-1],
    "mean": lambda numbers: math.fsum([number / len(numbers) for number in numbers]),
    "min": min,
    "product": math.prod,
}


class RewardModelJudge:
    """Judges a sample by the number that a reward model gives it."""

    unit: Literal["sample"] = "sample"
    columns: tuple[str, ...] = ()

    def __init__(self, config: JudgeConfig, template: str | None) -> None:
        """`template`: the text of judge.prompt_file."""
        self._config = config
        self._full = config.view == "full"
        self._pair = config.api == "score"
        self._pool = pool_of(config)
        self._lowest = config.lowest if config.activation == "raw" and config.lowest is not None else 0.0
        self._pieces = None if template is None else _parsed(template)
        self._facets = (
            ("judge", READER),
            ("reading", f"{config.activation} {config.output} {config.steps}"),
            *(() if template is None else (("template", digest(template)),)),
        )
        self._before = functools.lru_cache(maxsize=PROMPTS)(self._prompt)
        self._read = self.read

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """One request, unless a gate settles the sample."""
        planned = self.plan(samples[0])
        if isinstance(planned, Ask):
            answers = yield (planned,)
            return answers
        return (planned,)

    def plan(self, sample: Sample) -> Ask | Verdict | Unscored:
        """The request about a sample, or what a gate made of it without one."""
        config = self._config
        if config.ask_above is not None and not sample.rule_score > config.ask_above:
            words = f"not asked: the rule score ({sample.rule_score:g}) is not above {config.ask_above:g}"
            return Verdict(score=self._lowest, value=0.0, how="gate", reason=words)
        seen = response_text(sample.response, self._full, None)
        settled = settle(sample, seen.answer, show(last_user(sample.prompt)), config.gates, self._lowest)
        if settled is not None:
            return settled
        if config.compare_with == "reference":
            if not (sample.reference or "").strip():
                detail = "the sample has no `reference`, and this judge compares with one"
                return Unscored(reason=Reason.CONFIG, detail=detail)
            before: tuple[Message, ...] = (Message("user", show(sample.reference or "")),)
        else:
            before = self._before(sample.prompt, sample.tools)
        response: tuple[Message, ...]
        if self._pair or self._pieces is not None:
            response = (Message("assistant", with_reasoning_tags(bare(seen.text))),)
        else:
            response = response_messages(sample.response, self._full)
        named = (("prompt", _digest(before)), ("response", _digest(response)))
        messages = (*before, *response)
        if self._pieces is not None:
            filled = {"prompt": before[0].content, "response": response[0].content, "": ""}
            messages = (Message(TEXT, "".join([text + filled[slot] for text, slot in self._pieces])),)
        return Ask(
            messages=messages,
            sampling=SAMPLING,
            facets=(*self._facets, *named),
            nonce="",
            prompt_tokens=sum([tokens_in(message.content) + MESSAGE_TOKENS for message in messages]),
            read=self._read,
            again=config.ask_again,
            pool=self._pool,
            raw=config.activation != "server",
        )

    def _prompt(self, prompt: Text, tools: tuple[Tool, ...]) -> tuple[Message, ...]:
        if self._pair or self._pieces is not None:
            return (Message("user", bare(prompt_text(prompt, tools, self._full, None))),)
        return prompt_messages(prompt, tools, self._full)

    def read(self, request: Ask, reply: Reply) -> Verdict | Unscored:
        """The verdict in a list of numbers, or in a list of such lists, one for each token or step. Never raises."""
        try:
            given = json.loads(reply.text or "[]")
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, list):
            return Unscored(reason=Reason.SCHEMA, detail="the reply is not a list of numbers")
        rows = given if given and all(isinstance(row, list) for row in given) else [given]
        if len(rows) > 1 and self._config.steps == "one":
            detail = (
                f"the reply has {len(rows)} results, one for each token or step; judge.steps says what they come to"
            )
            return Unscored(reason=Reason.SCHEMA, detail=detail)
        numbers = []
        for row in rows:
            number = self._number(row)
            if isinstance(number, Unscored):
                return number
            numbers.append(number)
        raw = self._config.activation == "raw"
        score = _REDUCED[self._config.steps](numbers)
        return Verdict(score=score, value=sigmoid(score) if raw else score, how="reward_model")

    def _number(self, row: list[Any]) -> float | Unscored:
        """The number of one result that counts."""
        place, activation = self._config.output, self._config.activation
        if not row:
            return Unscored(reason=Reason.EMPTY, detail="the reply holds no number")
        if place is None and len(row) > 1:
            detail = f"the reply is a vector of {len(row)} numbers; judge.output says which of them counts"
            return Unscored(reason=Reason.SCHEMA, detail=detail)
        if place is not None and place >= len(row):
            detail = f"judge.output is {place}, and the reply is a vector of {len(row)}, counted from 0"
            return Unscored(reason=Reason.SCHEMA, detail=detail)
        number = row[place or 0]
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= sys.float_info.max:
            return Unscored(reason=Reason.SCHEMA, detail="the model's number is not a finite number")
        if activation == "sigmoid":
            return sigmoid(number)
        if activation == "server" and not 0 <= number <= 1:
            detail = f'{number:g} is outside 0 to 1, though activation = "server"; write "sigmoid" or "raw"'
            return Unscored(reason=Reason.OUT_OF_RANGE, detail=detail)
        return float(number)


def sigmoid(number: float) -> float:
    """1 / (1 + exp(-number)), for numbers of any size."""
    if number >= 0:
        return 1 / (1 + math.exp(-number))
    small = math.exp(number)
    return small / (1 + small)


def _digest(messages: Sequence[Message]) -> str:
    """Of roles and texts, each in quotes, so that no two lists of messages look alike."""
    return digest(json.dumps([(message.role, message.content) for message in messages]))


def _parsed(text: str) -> Pieces:
    template = parse(text, frozenset({"prompt", "response"}), ("prompt", "response"))
    pieces = fill(template.user, {REPLY: ""})
    if template.system or {slot for _, slot in pieces} != {"prompt", "response", ""}:
        raise ConfigError(
            "judge.prompt_file: for a reward model it is one text with {{prompt}} and {{response}}, without headings.",
            setting="judge.prompt_file",
        )
    return (*pieces[:-1], (pieces[-1][0].rstrip(), ""))
