"""Messages as turns, each with a heading: what the judge's transcript, the ledger and the report show.

The judge's copy goes through the guard (`judging.transcript`); this one is as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from referee.records import Message, Sample, Text, Tool


class Turn(NamedTuple):
    """One thing that was said or done."""

    heading: str
    """What it is: `user`, `assistant`, `assistant, reasoning`, `assistant calls search`, `result of search`."""
    body: str
    message: int
    """The number of its message."""


def turns_of(messages: Sequence[Message], reasoning: bool = True) -> Iterator[Turn]:
    """Everything the messages hold, in order. `reasoning=False` leaves out what was thought."""
    for number, message in enumerate(messages):
        role = message.role
        if message.reasoning and reasoning:
            yield Turn(f"{role}, reasoning", message.reasoning, number)
        if message.content or message.media or not (message.reasoning or message.tool_calls):
            yield Turn(_heading(message), described(message), number)
        for call in message.tool_calls:
            yield Turn(f"{role} calls {call.name}" if call.name else f"{role} calls a tool", call.arguments, number)


def described(message: Message) -> str:
    """A message's text; what is not text is a line that says what stood there."""
    if not message.media:
        return message.content
    text, start = "", 0
    for piece in message.media:
        lead = text + message.content[start : piece.at]
        text = f"{lead}{'' if not lead or lead.endswith(chr(10)) else chr(10)}[{piece.type}, not shown]\n"
        start = piece.at
    return f"{text}{message.content[start:].lstrip(chr(10))}".rstrip("\n")


def tool_text(tools: Sequence[Tool]) -> str:
    """What the policy could call, a line each."""
    return "\n".join([f"{tool.name}: {tool.description} {tool.parameters}".rstrip(": ") for tool in tools])


def plain(text: Text) -> str:
    """All of it as one readable text, for records and people."""
    if isinstance(text, str):
        return text
    return "\n\n".join([f"{turn.heading}:\n{turn.body}" for turn in turns_of(text)])


def own_words(text: Text) -> str:
    """What the policy itself wrote: no tool results."""
    if isinstance(text, str):
        return text
    own = [message for message in text if message.role == "assistant"] or text
    return "\n".join([turn.body for turn in turns_of(own)])


def last_user(prompt: Text) -> str:
    """The last thing a user said; the whole text where there are no roles."""
    if isinstance(prompt, str):
        return prompt
    said = [message.content for message in prompt if message.role == "user"]
    return said[-1] if said else plain(prompt)


def media_in(sample: Sample) -> tuple[str, str] | None:
    """Place and type of the first piece of a sample that is not text."""
    for name, text in (("prompt", sample.prompt), ("response", sample.response)):
        for number, message in enumerate(() if isinstance(text, str) else text):
            if message.media:
                return f"{name}[{number}]", message.media[0].type
    return None


def _heading(message: Message) -> str:
    if message.role == "tool":
        return f"result of {message.name}" if message.name else "result of a tool"
    return f"{message.role} ({message.name})" if message.name else message.role
