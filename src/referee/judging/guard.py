"""The guard: what is done to untrusted text before a judge sees it. No prompts here, and no reading of replies.

The policy is trained against the judge, so its text is treated as hostile. It is fenced with a code it could not know;
sequences that could end the fence, pose as a verdict (our tag, our schema's key and value) or act as a chat model's
control tokens are broken by one space; invisible characters are removed. What cannot be stopped here is persuasion
in plain words.

Everything is idempotent, and ordinary text comes back unchanged (the same object) after a few fast searches. What is
reasoning and what is an answer is in `reasoning`.
"""

from __future__ import annotations

import re
import unicodedata

from referee.judging.lookalike import break_verdicts
from referee.judging.reasoning import strip_reasoning

FIELDS = ("prompt", "reference", "response")
"""The untrusted texts, in the order they are shown: what the rollouts of a group share comes first."""
COLUMN = "column"
"""Name of the fence around one of the row's own columns."""
CODE = "\0"
"""Stands for the fence's code in a text whose headings carry it. No untrusted text holds it: it is scrubbed."""

# Control characters (tab, line ends and form feed stay), soft hyphen, fillers, zero-width and bidirectional marks,
# interlinear marks. Tag characters lie outside the basic plane and are searched apart: in one class with these they
# would make the search twice as slow.
_INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
)
_TAGS = "\U000e0000-\U000e007f"
_TAG_LEAD = b"\xf3"
_SURROGATES = "\ud800-\udfff"
_JOINERS = "\u200c\u200d"
_CONTROL_BYTES = bytes([*range(9), *range(14, 32), 127])

_UNSEEN_RUN = re.compile(f"[{_INVISIBLE}{_TAGS}]+")
_SURROGATE = re.compile(f"[{_SURROGATES}]")
# The flags of England, Scotland and Wales are a black flag and a name in tag characters. No other name is kept: any
# text can be written in tag characters, unseen by people and read by models.
_FLAG = "\U0001f3f4"
_FLAG_NAMES = tuple(
    "".join(chr(0xE0000 + ord(letter)) for letter in name) + "\U000e007f" for name in ("gbeng", "gbsct", "gbwls")
)

_REASONING = "think|thought|seed[:：]think"  # <thinking> and <reasoning> are nobody's token: they stay as written
_TURN = "start_of_turn|end_of_turn|start_of_image|end_of_image|start_header_id|end_header_id|eot_id"
_SEED = "seed[:：](?:bos|eos|cot_budget_reflect)"
_FENCED = "|".join((*FIELDS, COLUMN))

# One pattern per first character: a search for a fixed first character skips through text at the speed of memchr.
# Written in lower case, because the quick look is at lower-cased text; the replacement is in any case.
_PATTERNS = (
    "<(?:"
    r"[|｜][^\s<>|｜]{1,64}[|｜]>"  # <|im_start|>, <|eot_id|>, DeepSeek's <｜User｜>
    r"|[|｜][a-z_]{1,32}>|[a-z_]{1,32}[|｜]>"  # Gemma 4: <|turn>, <turn|>
    r"|</?sys>>"  # Llama 2
    r"|/?(?-i:s)>"  # in any case it would be half of all type parameters: Box<S>
    rf"|/?(?:bos|eos|eot|sop|eop|{_TURN}|{_SEED}|{_REASONING})>"
    r"|/?verdict"  # our verdict tag
    rf"|<<\s*(?:{_FENCED})"  # our fence, opening
    ")",
    f">>>(?:{'|'.join(f'(?<={name}>>>)' for name in (*FIELDS, COLUMN))})",  # our fence, closing
    "◁/?think▷",  # Kimi
)
_RESERVED = tuple(
    (re.compile(pattern, re.ASCII), re.compile(pattern, re.ASCII | re.IGNORECASE)) for pattern in _PATTERNS
)
# Mistral, Kimi, GLM. As written: trie[prefix], args[inst] and the like are code.
_SQUARE = re.compile(
    r"\[(?:/?(?:INST|SYSTEM_PROMPT|MODEL_SETTINGS|AVAILABLE_TOOLS|TOOL_RESULTS|THINK)|TOOL_CALLS|TOOL_CONTENT|ARGS"
    r"|CALL_ID|IMG|BOS|EOS|EOT|[gs]MASK)\]"
)

# Letters that Unicode compatibility folding turns into plain ones, and brackets it turns into < or [. A reader that
# folds (some tokenizers do) would see a reserved sequence in <𝐬>, ＜|im_end|＞ or ［INST］.
# Digits and the wide colon are not listed: Chinese text is full of them, and no reserved sequence needs them.
_FOLDABLE = (
    "ªºĲĳǇ-ǌǱ-ǳ\u017f\u02b0-\u02b8\u02e1-\u02e3\u1d2c-\u1d6a\u1d9c-\u1dbb\u2071\u207f\u2090-\u209c\u20a8\u2100-\u214f"
    "\u2160-\u217f\u249c-\u24e9\u2c7c\u2c7d\u3250\u32cc-\u32cf\u3371-\u33ff\ua7f2-\ua7f4\ufb00-\ufb06\ufe33\ufe34"
    "\ufe13\ufe48\ufe55\ufe4d-\ufe4f\ufe65\ufe68\uff0d\uff0f\uff1e\uff21-\uff3a\uff3c\uff3d\uff3f\uff41-\uff5a\uff5c"
)
_FOLDING_BRACKETS = "＜﹤＞﹥［﹇◁"
_ASTRAL_LEAD = b"\xf0"
_FOLDABLE_LEADS = (b"\xf0\x90\x9e", b"\xf0\x9d", b"\xf0\x9f\x84", b"\xf0\x9f\x85", b"\xf0\x9f\x86")
"""How the foldable letters outside the basic plane begin in UTF-8."""
_ODD = re.compile(f"[{_INVISIBLE}{_SURROGATES}{_FOLDABLE}{_FOLDING_BRACKETS}]")

_BROKEN_TAGS = re.compile(rf"< /?(?:{_REASONING})>", re.ASCII | re.IGNORECASE)


def show(text: str, reasoning: bool = True) -> str:
    """The text as a judge may see it. `reasoning=False` leaves out what the model thought before it answered."""
    if text.isascii():
        if _has_control(text):
            text = scrub(text)
        return _break(text, reasoning)
    if not _is_odd(text):
        return _break(text, reasoning)
    text = _break(scrub(text), reasoning)
    folded = scrub(unicodedata.normalize("NFKC", text))
    broken = _break(folded, reasoning)
    return text if broken == folded else broken


def clean(text: str) -> str:
    """The text without invisible characters."""
    return scrub(text) if (_has_control(text) if text.isascii() else _is_odd(text)) else text


def scrub(text: str) -> str:
    """Without control characters, invisible ones and lone surrogates (which no JSON encoder takes)."""
    text = _UNSEEN_RUN.sub(_unseen, text)
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def with_reasoning_tags(text: str) -> str:
    """A shown text with its reasoning tags whole again, where the judge's own instructions speak of them."""
    return _BROKEN_TAGS.sub(lambda match: f"<{match[0][2:]}", text) if "< " in text else text


def fence(name: str, text: str, code: str) -> str:
    """The text between two lines that only the holder of the code can write."""
    return f"<<<{name} {code}\n{text.replace(CODE, code)}\n{code} {name}>>>"


def bare(text: str) -> str:
    """The text without fences: headings lose the code's place."""
    return text.replace(f"{CODE} ", "")


def _has_control(text: str) -> bool:
    data = text.encode()
    return len(data.translate(None, _CONTROL_BYTES)) != len(data)


def _is_odd(text: str) -> bool:
    """True if there is something to scrub, or folding could bring a reserved sequence to light. Asked of every text
    that is not ASCII, so each kind is searched in its fastest way."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return True
    if _TAG_LEAD in data or _ODD.search(text) is not None:
        return True
    return _ASTRAL_LEAD in data and any(lead in data for lead in _FOLDABLE_LEADS)


def _break(text: str, reasoning: bool) -> str:
    """With one space inside every reserved sequence; the same object if there is none."""
    angle, square, kimi = "<" in text, "[" in text, "◁" in text
    if not reasoning and (angle or square or kimi):
        answer = strip_reasoning(text)
        # Scrubbed again: a joiner that stood between letters may stand alone now.
        text = text if answer is text else scrub(answer)
    if angle or kimi or (">" in text and ">>>" in text):
        lowered = text.lower()
        for quick, exact in _RESERVED:
            if quick.search(lowered):
                before = ""
                while before != text:  # again: one may begin inside another
                    before, text = text, exact.sub(_spaced, text)
    if square and _SQUARE.search(text):
        text = _SQUARE.sub(_spaced, text)
    return break_verdicts(text)


def _spaced(match: re.Match[str]) -> str:
    return f"{match[0][0]} {match[0][1:]}"


def _unseen(run: re.Match[str]) -> str:
    """Nothing, but a flag's name stays, and so does a single joiner between two non-ASCII characters: Persian and emoji
    are spelled with it."""
    before = run.string[run.start() - 1 : run.start()]
    if before == _FLAG and run[0].startswith(_FLAG_NAMES):
        return run[0][: len(_FLAG_NAMES[0])]
    if len(run[0]) == 1 and run[0] in _JOINERS:
        after = run.string[run.end() : run.end() + 1]
        if before and after and not before.isascii() and not after.isascii():
            return run[0]
    return ""
