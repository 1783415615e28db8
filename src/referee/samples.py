"""What is judged: messages, tools, criteria, samples; and questions about them. Data only, as in `records`, which
exports them too."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ToolCall(Struct, frozen=True, gc=False):
    """A tool the policy called."""

    name: str
    arguments: str = ""
    """As the policy wrote them; JSON, mostly."""


class Media(Struct, frozen=True, gc=False):
    """A piece of a message that is not text."""

    type: str
    """What it is, in the format's own word: image_url, input_audio, document."""
    source: str = ""
    """Its URL or data, if it stands in the message."""
    at: int = 0
    """Where in the message's content it stood, in characters."""


class Message(Struct, frozen=True, gc=False):
    """One chat message: of a rollout, or of a request to a judge."""

    role: str
    content: str = ""
    name: str = ""
    """Who wrote it, where the role does not say that: of a tool's result, the tool."""
    reasoning: str = ""
    """What the model thought before it wrote this, where the format keeps that apart."""
    tool_calls: tuple[ToolCall, ...] = ()
    media: tuple[Media, ...] = ()


Text = str | tuple[Message, ...]
"""A prompt or a response. `rollouts.read_text` makes it of every common format of messages."""


class Tool(Struct, frozen=True, gc=False):
    """A tool the policy was offered."""

    name: str
    description: str = ""
    parameters: str = ""
    """Its JSON schema."""


class Criterion(Struct, frozen=True, gc=False):
    """One sentence of a rubric that is true of a response or not, and what that is worth."""

    text: str
    weight: float = 1.0
    """How much it counts; at least 0."""
    name: str = ""
    """Empty: its place in the rubric."""
    true_is: Literal["good", "bad"] = "good"
    """What it means for the response if the sentence is true of it. The judge is only asked whether it is."""
    choices: tuple[str, ...] = ()
    """Labels from worst to best, instead of no and yes."""
    values: tuple[float, ...] = ()
    """What each choice is worth, in [0, 1]. Empty: evenly spaced."""
    may_not_apply: bool = False
    """The judge may answer that it does not apply; then it does not count."""
    check: str = ""
    """A rule instead of a question: a shipped one, or `package.module:function`."""
    parameters: str = ""
    """What the rule is given, as JSON."""


class Query(Struct, frozen=True, gc=False):
    """One question to a model that answers with probabilities instead of text."""

    id: str
    text: str
    levels: tuple[str, ...] = ()
    """What the answers mean, from worst to best; they are called 0, 1, 2… Empty: they are yes and no."""
    may_not_apply: bool = False
    """One more answer: na."""


class Sample(Struct, frozen=True, kw_only=True, gc=False):
    """One rollout to be judged."""

    prompt: Text
    """What the policy was asked: text, or the messages before its response."""
    response: Text
    """What it answered, decoded, without padding: text, or messages with tool calls, their results and reasoning."""
    id: str = ""
    """The caller's name for it, echoed back. Need not be unique."""
    group: str = ""
    """Rollouts of one prompt share it (verl: uid). Empty: a group of its own."""
    reference: str | None = None
    """The known right answer, for judges that compare."""
    tools: tuple[Tool, ...] = ()
    """What the policy could call."""
    rubric: tuple[Criterion, ...] = ()
    """What makes a response to this prompt good, for judges of kind rubric."""
    columns: dict[str, str] = {}
    """More of the row, for templates that use {{columns.name}}."""
    rule_score: float = 0.0
    """What a rule already said of it; the judge's share is added."""
    length: int | None = None
    """Response length in tokens. None: counted from the text (words and punctuation marks)."""
    truncated: bool = False
    """True if generation stopped at its token limit."""
    step: int | None = None
    """Training step, for records."""
