"""A rollout as the chat messages of a reward model: roles are kept, and what its chat template might drop (tool calls,
names, tools, reasoning in the full view) stands in the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from referee.judging.guard import show, with_reasoning_tags
from referee.records import Message, Text, Tool
from referee.rollouts.turns import tool_text, turns_of

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
"""Those that chat templates know. A message of another one is a user's, which says so."""
_REASONING = ", reasoning"


def prompt_messages(prompt: Text, tools: Sequence[Tool], full: bool) -> tuple[Message, ...]:
    """The messages before the response; what the model could call stands in the system message."""
    messages = (Message("user", show(prompt)),) if isinstance(prompt, str) else _messages(prompt, full)
    if not tools:
        return messages
    listed = f"Tools that the model can call:\n{show(tool_text(tools))}"
    if messages and messages[0].role in ("system", "developer"):
        return (Message(messages[0].role, f"{messages[0].content}\n\n{listed}"), *messages[1:])
    return (Message("system", listed), *messages)


def response_messages(response: Text, full: bool) -> tuple[Message, ...]:
    """The response: all of its messages, with what was thought in the full view only."""
    if isinstance(response, str):
        return (Message("assistant", _words(response, "assistant", full)),)
    return _messages(response, full)


def _messages(messages: Sequence[Message], full: bool) -> tuple[Message, ...]:
    return tuple([_message(message, full) for message in messages])


def _message(message: Message, full: bool) -> Message:
    role = message.role if message.role in ROLES else "user"
    pieces = []
    for turn in turns_of((message,), full):
        words = _words(turn.body, message.role, full)
        if turn.heading.endswith(_REASONING):
            words = f"<think>\n{words}\n</think>"
        elif turn.heading != role:
            words = f"[{show(turn.heading)}]\n{words}".rstrip("\n")
        pieces.append(words)
    return Message(role, "\n\n".join(pieces))


def _words(text: str, role: str, full: bool) -> str:
    if full:
        return with_reasoning_tags(show(text))
    return show(text, reasoning=role != "assistant")
