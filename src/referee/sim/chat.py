"""A chat-completions request as a judge model understands it: which verdict, in which form, about which text.

Reads only what it needs and tolerates any prompt. The verdict itself is decided in `judge`.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

from msgspec import Struct, field

from referee.sim.comparisons import Shown, shown_in, wants_list
from referee.sim.statements import Statement, statements_in

Form = Literal["schema", "tag", "word"]
"""A JSON object; text and then a tag; one word or number."""


class ImageUrl(Struct, frozen=True):
    """Where an image is, or its data as a URL."""

    url: str


class Part(Struct, frozen=True):
    """A content part of a message."""

    text: str = ""
    image_url: ImageUrl | None = None


class ChatMessage(Struct, frozen=True):
    """One message of a request."""

    role: str
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        """The text of either form of content."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    @property
    def images(self) -> list[str]:
        """Its images, as URLs."""
        parts = self.content if isinstance(self.content, list) else []
        return [part.image_url.url for part in parts if part.image_url is not None]


class JsonSchema(Struct, frozen=True):
    """The `json_schema` part of response_format."""

    schema: dict[str, Any] = field(default_factory=dict)


class ResponseFormat(Struct, frozen=True):
    """The requested form of the reply."""

    type: str = "text"
    json_schema: JsonSchema | None = None
    tool: str = ""
    """If the reply must be the input of a tool, its name."""


class ChatRequest(Struct, frozen=True):
    """The fields of a chat-completions body that matter here; others are ignored."""

    messages: list[ChatMessage]
    model: str = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    service_tier: str | None = None
    cached_until: int | None = None
    """How many characters of the messages' texts stand before the last place that it marks for the prompt cache. None:
    the API has no such marks."""


class Question(Struct, frozen=True):
    """Which verdict is wanted, and how."""

    form: Form
    texts: dict[str, str]
    """Fenced texts by name; without fences, the user messages as the response."""
    properties: tuple[str, ...] = ()
    """For schema: the object's keys, in order."""
    key: str = "score"
    """For schema: the key that holds the verdict."""
    tag: str = ""
    """For tag: the name of the tag, nonce and all."""
    labels: tuple[str, ...] = ()
    """The offered words, best first; empty where a number is wanted."""
    low: int = 1
    high: int = 10
    messages: tuple[ChatMessage, ...] = ()
    """All of the request's."""
    statements: tuple[Statement, ...] = ()
    """Of a rubric: what is to be decided instead."""
    shown: tuple[Shown, ...] = ()
    """Of a group: what is to be compared instead, in the order of the request."""
    listed: bool = False
    """Of a group: a score for each is wanted, not the better of two."""

    @property
    def candidate(self) -> str:
        """The text to judge."""
        return self.texts.get("response", "")

    @property
    def data(self) -> str:
        """All untrusted text."""
        return "\n".join(self.texts.values())


TAG = re.compile(r"<(verdict(?:-([0-9A-Za-z]+))?)>")
RANGE = re.compile(r"(-?\d+)\s*(?:to|and|through|-|–)\s*(-?\d+)")
LABELS = re.compile(r"\b(yes) or (no)\b|\b(correct) or (incorrect)\b", re.IGNORECASE)
OBJECT = re.compile(r'\{"reason":.*"(score|verdict)":')
VERDICT_KEYS = ("score", "verdict", "label", "grade", "rating", "answer")


def ask(request: ChatRequest) -> Question:
    """Read from a request which verdict it wants, in what form, about which text."""
    user = "\n".join([message.text for message in request.messages if message.role == "user"])
    told, pairs = _unfenced(user)
    texts = dict(pairs) or {"response": user}
    messages = tuple(request.messages)
    wanted = request.response_format
    shown = shown_in(told, pairs)
    if shown:
        return _about_group(shown, told[-1], wanted, texts, messages)
    statements = statements_in(told[-1])
    if statements:
        found = TAG.search(told[-1]) if wanted is None or wanted.json_schema is None else None
        form: Form = "tag" if found else "schema"
        tag = found[1] if found else ""
        return Question(form, texts, tag=tag, labels=("yes", "no"), messages=messages, statements=statements)
    if wanted is not None and wanted.json_schema is not None:
        return _from_schema(wanted.json_schema.schema, texts, messages)
    # What stands after the data says how to reply; the rest helps where that is silent.
    tail = told[-1]
    head = "\n".join([message.text for message in request.messages if message.role != "user"])
    found = TAG.match(tail, max(0, tail.rfind("<verdict")))
    tag, nonce = (found[1], found[2]) if found else ("", "")
    asked = _asked(head, tail.replace(nonce, "") if nonce else tail)
    form = "tag" if tag else "schema" if asked.key else "word"
    properties = ("reason", asked.key) if asked.key else ()
    return Question(form, texts, properties, asked.key, tag, asked.labels, asked.low, asked.high, messages)


def _about_group(
    shown: tuple[Shown, ...],
    tail: str,
    wanted: ResponseFormat | None,
    texts: dict[str, str],
    messages: tuple[ChatMessage, ...],
) -> Question:
    """A question about several responses."""
    schema = None if wanted is None or wanted.json_schema is None else wanted.json_schema.schema
    properties = () if schema is None else tuple(schema.get("properties", ()))
    listed = wants_list(tail, properties)
    low, high = (_scale(tail) or (1, 10)) if listed else (1, 10)
    tag = TAG.search(tail) if schema is None else None
    return Question(
        "tag" if tag else "schema",
        texts,
        () if listed else ("reason", "verdict"),
        "verdict",
        tag[1] if tag else "",
        low=low,
        high=high,
        messages=messages,
        shown=shown,
        listed=listed,
    )


def unfence(text: str) -> tuple[list[str], dict[str, str]]:
    """The text around the fences of a prompt (`<<<name code … code name>>>`), and the fenced texts by name."""
    told, fenced = _unfenced(text)
    return told, dict(fenced)


def _unfenced(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    told: list[str] = []
    fenced: list[tuple[str, str]] = []
    at = 0
    while (start := text.find("<<<", at)) >= 0:
        line = text.find("\n", start)
        name, _, code = text[start + 3 : line].partition(" ")
        close = f"\n{code} {name}>>>"
        end = text.find(close, line) if line >= 0 and code else -1
        if end < 0:
            break
        told.append(text[at:start])
        fenced.append((name, text[line + 1 : end]))
        at = end + len(close)
    told.append(text[at:])
    return told, fenced


class _Asked(Struct, frozen=True):
    labels: tuple[str, ...]
    low: int
    high: int
    key: str


@functools.lru_cache(maxsize=256)
def _asked(head: str, tail: str) -> _Asked:
    """Labels, scale and JSON key named in the instructions, which all requests of a judge share."""
    words = LABELS.search(tail)
    labels = tuple(word.lower() for word in words.groups() if word) if words else ()
    shown = OBJECT.search(tail)
    ends = _scale(tail) or _scale(head) or (1, 10)
    return _Asked(labels, *ends, shown[1] if shown else "")


def _scale(text: str) -> tuple[int, int] | None:
    for match in RANGE.finditer(text):
        low, high = int(match[1]), int(match[2])
        if low < high:
            return low, high
    return None


def _from_schema(schema: dict[str, Any], texts: dict[str, str], messages: tuple[ChatMessage, ...]) -> Question:
    properties: dict[str, Any] = schema.get("properties", {})
    key = next((name for name in VERDICT_KEYS if name in properties), next(reversed(properties), "score"))
    wanted = properties.get(key, {})
    options = wanted.get("enum", ())
    low, high = wanted.get("minimum", 1), wanted.get("maximum", 10)
    labels: tuple[str, ...] = ()
    if options and all(isinstance(option, int) for option in options):
        low, high = min(options), max(options)
    else:
        labels = tuple(str(option) for option in options)
    return Question("schema", texts, tuple(properties), key, "", labels, low, high, messages)
