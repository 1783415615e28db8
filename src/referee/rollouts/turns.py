"""Messages as turns, each with a heading: what the judge's transcript, the ledger and the report show.

The judge's copy goes through the guard (`judging.transcript`); this one is as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from referee.records import Message, Sample, Text, Tool
from referee.rollouts.images import read_image

# Names of tools, and of roles where a chat template is parsed, are the policy's text. In a heading, which is believed,
# stand only those that cannot say anything; others are in the body.
_NAME = re.compile(r"[\w.:/-]{1,64}")
_ROLE = re.compile(r"(?=.{1,64}\Z)(?:not shown: )?[\w-]+(?: [\w-]+)*")


class Turn(NamedTuple):
    """One thing that was said or done."""

    heading: str
    """What it is: `user`, `assistant`, `assistant, reasoning`, `assistant calls search`, `result of search`."""
    body: str
    message: int
    """The number of its message."""
    called: str = ""
    """The tool that is called, if the heading names it."""


def turns_of(messages: Sequence[Message], reasoning: bool = True, images: bool = False) -> Iterator[Turn]:
    """Everything the messages hold, in order. `reasoning=False` leaves out what was thought; with `images` those that
    can be shown stand there by their names."""
    for number, message in enumerate(messages):
        role, lead = (message.role, "") if _ROLE.fullmatch(message.role) else ("another role", f"{message.role}\n")
        if message.reasoning and reasoning:
            yield Turn(f"{role}, reasoning", lead + message.reasoning, number)
        if message.content or message.media or not (message.reasoning or message.tool_calls):
            heading, name = _heading(message, role)
            yield Turn(heading, lead + name + described(message, images), number)
        for call in message.tool_calls:
            if not call.name or _NAME.fullmatch(call.name):
                yield Turn(f"{role} calls {call.name or 'a tool'}", lead + call.arguments, number, call.name)
            else:
                body = f"{lead}{call.name}\n{call.arguments}"
                yield Turn(f"{role} calls a tool, named below", body, number)


def described(message: Message, images: bool = False) -> str:
    """A message's text; what is not text is a line that says what stood there, or an image's name."""
    if not message.media:
        return message.content
    text, start = "", 0
    for piece in message.media:
        lead = text + message.content[start : piece.at]
        image = read_image(piece) if images else None
        what = f"[{piece.type}, not shown]" if image is None else f"[{image.name}]"
        text = f"{lead}{'' if not lead or lead.endswith(chr(10)) else chr(10)}{what}\n"
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


def _heading(message: Message, role: str) -> tuple[str, str]:
    """The heading of what a message says, and a name that must not stand in it."""
    plain_name = message.name if _NAME.fullmatch(message.name) else ""
    if message.role == "tool":
        return f"result of {plain_name or 'a tool'}", ""
    if plain_name or not message.name:
        return f"{role} ({plain_name})" if plain_name else role, ""
    return f"{role}, named below", f"{message.name}\n"
