"""What a judge reads of a prompt or a response, by its `view`: text as it is, messages as turns under headings.

A heading carries the fence's code, so that a message cannot make up another message. The code depends on the text, so
it is not known yet: `CODE` stands in its place, a character the guard removes from all untrusted text, and `fence`
puts the code in. Everything here is a function of the sample and the settings: equal samples give equal requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from referee.judging.digest import tokens_in
from referee.judging.guard import CODE, clean, show
from referee.judging.reasoning import reasoning_of, strip_reasoning, trace_of
from referee.records import Message, Text, Tool
from referee.rollouts import Turn, own_words, turns_of
from referee.rollouts.turns import tool_text

LONGEST_NAME = 80
"""Characters of a heading: a policy may call a tool by any name."""


class Seen(NamedTuple):
    """A text as a judge may see it, the guard having been over it."""

    text: str
    answer: str
    """What the gates look at: the policy's last words and calls."""


def prompt_text(prompt: Text, tools: Sequence[Tool], full: bool, most: int | None, images: bool = False) -> str:
    """The prompt. Reasoning in earlier turns, and the tools' descriptions, are part of the full view only. Images are
    named with `images`, else described."""
    if isinstance(prompt, str) and not tools:
        return _bounded(show(prompt), most)
    messages = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    turns = list(turns_of(messages, full, images))
    if tools:
        listed = Turn("tools that the model can call", tool_text(tools), -1)
        count = "1 tool" if len(tools) == 1 else f"{len(tools)} tools"
        turns.insert(0, listed if full else Turn(f"not shown: {count} that the model can call", "", -1))
    return _written(turns, most)


def response_text(response: Text, full: bool, most: int | None, images: bool = False) -> Seen:
    """The response: everything in the full view, else the last assistant message without its reasoning."""
    if isinstance(response, str):
        answer = show(response, reasoning=False)
        shown = show(response) if full and answer is not response else answer
        return Seen(shown if most is None else _bounded(shown, most), answer)
    last = _last(response)
    spoken = turns_of(response[last : last + 1], False, images)
    final = [
        turn._replace(body=show(turn.body, reasoning=False))
        for turn in spoken
        if turn.body or turn.called or len(response) == 1
    ]
    answer = "\n".join([f"{show(turn.called)} {turn.body}" if turn.called else turn.body for turn in final])
    if full:
        return Seen(_written(list(turns_of(response, True, images)), most), answer)
    left_out = [_omitted(last, "before"), *final, _omitted(len(response) - last - 1, "after")]
    turns = [turn for turn in left_out if turn is not None]
    if len(turns) == 1 and turns[0].heading == "assistant":
        return Seen(_bounded(show(turns[0].body), most), answer)
    return Seen(_written(turns, most), answer)


def continued(before: Sequence[Message], shown: str, most: int | None) -> str:
    """A response as `response_text` or `reasoning_text` shows it, after messages of its own prompt."""
    response = shown if shown.startswith(CODE) else f"{CODE} response:\n{shown}"
    return _joined([*(_turn(turn) for turn in turns_of(before, False)), response], most)


def reasoning_text(response: Text, most: int | None) -> str:
    """What the policy thought, for a judge that sees nothing else. Of messages that keep no reasoning apart: as of
    text."""
    thoughts = _thoughts(response)
    if isinstance(response, str):
        return _bounded(show(thoughts[0]), most)
    turns = [Turn("assistant, reasoning", thought, number) for number, thought in enumerate(thoughts) if thought]
    if len(turns) == 1:
        return _bounded(show(thoughts[turns[0].message]), most)
    return _written(turns, most)


def checked_text(response: Text, view: Literal["answer", "full", "reasoning"]) -> str:
    """What rules look at, by the judge's view: the final answer, all that the policy wrote, or what it thought. No
    headings, no results of tools, and nothing broken up: a rule may count words or parse it."""
    if view == "reasoning":
        return "\n".join(_thoughts(response))
    if view == "full":
        return clean(own_words(response))
    final = response if isinstance(response, str) else response[_last(response)].content if response else ""
    return strip_reasoning(clean(final))


def _thoughts(response: Text) -> list[str]:
    """What the policy thought: one entry for each assistant message, which may be empty."""
    if isinstance(response, str):
        return [trace_of(clean(response))]
    said = [message for message in response if message.role == "assistant"]
    kept = [(message.reasoning, reasoning_of(clean(message.content))) for message in said]
    found = ["\n".join(filter(None, dict.fromkeys(both))) for both in kept]
    return found if any(found) else [trace_of(clean(message.content)) for message in said]


def _last(response: Sequence[Message]) -> int:
    """The place of the last assistant message; of the last message where there is none."""
    places = [number for number, message in enumerate(response) if message.role == "assistant"]
    return places[-1] if places else len(response) - 1


def _omitted(count: int, where: str) -> Turn | None:
    if not count:
        return None
    return Turn(f"not shown: {count} {'message' if count == 1 else 'messages'} {where} this one", "", -1)


def _written(turns: Sequence[Turn], most: int | None) -> str:
    return _joined([_turn(turn) for turn in turns], most)


def _joined(texts: list[str], most: int | None) -> str:
    """Turns as one text. More than `most` tokens: the middle is left out, whole turns stay at both ends."""
    sizes = [tokens_in(text) for text in texts]
    if most is None or sum(sizes) <= most:
        return "\n\n".join(texts)
    head, tail = _ends(sizes, most)
    if head + tail == 0:  # not even the last one fits: its own middle goes
        texts[-1] = _bounded(texts[-1], most)
        sizes[-1], tail = 0, 1
    cut = len(texts) - head - tail
    if not cut:
        return "\n\n".join(texts)
    note = f"{CODE} cut here: {cut} {'turn' if cut == 1 else 'turns'}, about {sum(sizes[head : head + cut])} tokens"
    return "\n\n".join([*texts[:head], note, *texts[head + cut :]])


def _ends(sizes: Sequence[int], most: int) -> tuple[int, int]:
    """How many fit at the start and at the end, taken in turn from the end on."""
    head = tail = 0
    for number in range(len(sizes)):
        at_end = number % 2 == 0
        size = sizes[len(sizes) - 1 - tail] if at_end else sizes[head]
        if size > most:
            break
        most -= size
        head, tail = (head, tail + 1) if at_end else (head + 1, tail)
    return head, tail


def _turn(turn: Turn) -> str:
    heading = " ".join(show(turn.heading).split())[:LONGEST_NAME]
    body = show(turn.body)
    return f"{CODE} {heading}:\n{body}" if body else f"{CODE} {heading}"


def _bounded(text: str, most: int | None) -> str:
    """The text, or its two ends where it is longer than `most` tokens."""
    if most is None or (size := tokens_in(text)) <= most:
        return text
    half = max(1, len(text) * most // size // 2)
    return f"{text[:half]}\n{CODE} cut here: about {size - most} tokens\n{text[-half:]}"
