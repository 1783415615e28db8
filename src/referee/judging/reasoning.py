"""What of a text is reasoning and what is the answer. Nothing is broken up or made visible here: that is the guard's.

A tag is a block's only where a block can be. Elsewhere it is a mention, and nothing of the text is lost: prose about
<think>, a regex with (?P<think>…), an XML answer that has a <reasoning> of its own. What counts, outside code fences:

- at the start of the text: any opening tag, closed or not (generation may have been cut)
- later, on a new line: <think> and its kin, if they are closed; models think again after a tool call or a draft
- a close without an open ends reasoning that the chat template opened: alone on its line, or as the first tag of all
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKENS = "think|thought|seed[:：]think"
"""Names that models have tokens for. The others are as likely the answer's own XML, so they count at its start only."""
_ANGLE_TAG = rf"<(/?)({_TOKENS}|thinking|reasoning)>"
_ANGLE_TAGS = re.compile(_ANGLE_TAG, re.ASCII | re.IGNORECASE)
_ALL_TAGS = re.compile(rf"{_ANGLE_TAG}|\[(/?)((?-i:THINK))\]|◁(/?)(think)▷", re.ASCII | re.IGNORECASE)
_XML = frozenset({"<thinking>", "<reasoning>"})
_FENCE = re.compile(r"^[ \t>]*(?:```|~~~)", re.MULTILINE)
_LINE_END = re.compile(r"[ \t\r]*(?:\n|\Z)")
_QUOTES = "`\"'“”‘’「」"
_ANSWER = re.compile(r"<(?:answer|final_answer|measurements|solution)>", re.ASCII | re.IGNORECASE)
_LINE = 200
"""Characters looked back for the start of a line, so that a line of nothing but tags is not read once for each."""


class _Block(NamedTuple):
    start: int
    inner: int
    inner_end: int
    end: int


def strip_reasoning(text: str, judge: bool = False) -> str:
    """The text without its reasoning.

    `judge=True` is for a judge's reply, where no verdict may come out of reasoning: any tag on a new line opens a block
    that may never close, and any close without an open ends one.
    """
    blocks = _blocks(text, judge)
    if not blocks:
        return text
    kept, at = [], 0
    for block in blocks:
        kept.append(text[at : block.start])
        at = block.end
    return "".join([*kept, text[at:]]).strip()


def reasoning_of(text: str) -> str | None:
    """What `strip_reasoning` takes out, without the tags; None if there is nothing of the kind."""
    blocks = _blocks(text, judge=False)
    inside = (text[block.inner : block.inner_end].strip() for block in blocks)
    return "\n".join(part for part in inside if part) if blocks else None


def trace_of(text: str) -> str:
    """The reasoning in a response: its thinking blocks; without any, all before the answer's tag; else all of it."""
    thought = reasoning_of(text)
    return _ANSWER.split(text, maxsplit=1)[0].strip() if thought is None else thought


def _blocks(text: str, judge: bool) -> list[_Block]:
    rare = ("[" in text and "THINK]" in text) or "◁" in text
    tags = list((_ALL_TAGS if rare else _ANGLE_TAGS).finditer(text))
    last_close = {_name(tag): tag.start() for tag in tags if tag[0][1] == "/"}
    walk = _Walk(text)
    opened: re.Match[str] | None = None
    for tag in tags:
        closes = tag[0][1] == "/"
        if opened is not None:
            if closes and _name(tag) == _name(opened):
                walk.take(_Block(opened.start(), opened.end(), tag.start(), tag.end()))
                opened = None
        elif closes:
            if judge or walk.ends_reasoning(tag):
                walk.take_all_before(tag)
        elif walk.on_new_line(tag) if judge else walk.opens(tag, last_close.get(_name(tag), -1)):
            opened = tag
    if opened is not None:
        walk.take(_Block(opened.start(), opened.end(), len(text), len(text)))
    return walk.blocks


class _Walk:
    """Goes through a text from tag to tag and remembers what was taken out and what the answer has so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.blocks: list[_Block] = []
        self._restart(0)

    def _restart(self, at: int) -> None:
        self._at = at  # where the answer goes on
        self._blank = True  # nothing of it yet
        self._mentions: dict[str, int] = {}  # opening tags in it whose close is still to come
        self._mentioned = False
        self._looked, self._fenced = at, False

    def take(self, block: _Block) -> None:
        """This is reasoning."""
        self._blank = self._nothing_before(block.start)
        self._in_fence(block.start)
        self.blocks.append(block)
        self._at = self._looked = block.end

    def take_all_before(self, close: re.Match[str]) -> None:
        """All so far is reasoning."""
        self.blocks = [_Block(0, 0, close.start(), close.end())]
        self._restart(close.end())

    def opens(self, tag: re.Match[str], last_close: int) -> bool:
        """Whether an opening tag begins a block; if not, it is a mention from now on."""
        if self._nothing_before(tag.start()):
            return True
        closed = last_close > tag.start() and _name(tag) not in _XML
        if closed and self.on_new_line(tag) and not self._in_fence(tag.start()):
            return True
        self._mentions[_name(tag)] = self._mentions.get(_name(tag), 0) + 1
        self._mentioned, self._blank = True, False
        return False

    def ends_reasoning(self, tag: re.Match[str]) -> bool:
        """Whether a close that has no open ends reasoning; if not, it is a mention."""
        name, start, end = _name(tag), tag.start(), tag.end()
        first = not self.blocks and not self._mentioned and name not in _XML
        alone = self.on_new_line(tag) and _LINE_END.match(self._text, end) is not None
        quoted = start > 0 and self._text[start - 1] in _QUOTES and self._text[end : end + 1] in tuple(_QUOTES)
        if not self._mentions.get(name) and (first or alone) and not quoted and not self._in_fence(start):
            return True
        self._mentions[name] = max(0, self._mentions.get(name, 0) - 1)
        self._mentioned, self._blank = True, False
        return False

    def on_new_line(self, tag: re.Match[str]) -> bool:
        """Whether only white space, or what was taken out, stands before it on its line."""
        before = self._text[max(self._at, tag.start() - _LINE) : tag.start()]
        return not before.rpartition("\n")[2].strip()

    def _nothing_before(self, at: int) -> bool:
        return self._blank and not self._text[self._at : at].strip()

    def _in_fence(self, at: int) -> bool:
        """Whether a code fence of the answer is open there. Asked from front to back."""
        for _ in _FENCE.finditer(self._text, self._looked, at):
            self._fenced = not self._fenced
        self._looked = max(self._looked, at)
        return self._fenced


def _name(tag: re.Match[str]) -> str:
    """With its brackets: [/THINK] does not close <think>."""
    return tag[0].lower().replace("/", "", 1)
