"""The guard: what is done to untrusted text before a judge sees it. No prompts here, and no reading of replies.

The policy is trained against the judge, so its text is treated as hostile. It is fenced with a code it could not know;
sequences that could end the fence, pose as a verdict or act as a chat model's control tokens are broken by one space;
characters nobody can see are removed. What cannot be stopped here is persuasion in plain words.

Everything is idempotent, and ordinary text comes back unchanged (the same object) after a few fast searches.
"""

from __future__ import annotations

import re
import unicodedata

FIELDS = ("prompt", "reference", "response")
"""The untrusted texts, in the order they are shown: what the rollouts of a group share comes first."""

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

_UNSEEN = re.compile(f"[{_INVISIBLE}{_SURROGATES}]")
_UNSEEN_RUN = re.compile(f"[{_INVISIBLE}{_TAGS}]+")
_SURROGATE = re.compile(f"[{_SURROGATES}]")

_REASONING = "think|thinking|reasoning|thought|seed:think"
_TURN = "start_of_turn|end_of_turn|start_of_image|end_of_image|start_header_id|end_header_id|eot_id"
_SEED = "seed:bos|seed:eos|seed:cot_budget_reflect"
_MISTRAL = (
    "inst|system_prompt|available_tools|tool_calls|tool_results|tool_content|args|call_id|think|img|prefix|suffix"
)
_FENCED = "|".join(FIELDS)

# One pattern per first character: a search for a fixed first character skips through text at the speed of memchr.
# Written in lower case, because the quick look is on lower-cased text; `_RESERVED` matches any case.
_PATTERNS = (
    "<(?:"
    r"[|｜][^\s<>|｜]{1,64}[|｜]>"  # <|im_start|>, <|eot_id|>, DeepSeek's <｜User｜>
    r"|[|｜][a-z_]{1,32}>|[a-z_]{1,32}[|｜]>"  # Gemma 4: <|turn>, <turn|>
    r"|</?sys>>"  # Llama 2
    rf"|/?(?:s|bos|eos|eot|pad|unk|mask|sop|eop|{_TURN}|{_SEED}|{_REASONING})>"
    r"|/?verdict"  # our verdict tag
    rf"|<<\s*(?:{_FENCED})"  # our fence, opening
    ")",
    rf"\[/?(?:{_MISTRAL}|gmask|bos|eos|eot|pad|unk)\]",
    f">>>(?:{'|'.join(f'(?<={name}>>>)' for name in FIELDS)})",  # our fence, closing
    "◁/?think▷",  # Kimi
)
_QUICK = tuple(re.compile(pattern, re.ASCII) for pattern in _PATTERNS)
_RESERVED = re.compile("|".join(_PATTERNS), re.ASCII | re.IGNORECASE)

# Letters that Unicode compatibility folding turns into plain ones, and brackets it turns into < or [. A reader that
# folds (some tokenizers do) would see a reserved sequence in <𝐬>, ＜|im_end|＞ or ［INST］.
_FOLDABLE = (
    "ªº\u017f\u02b0-\u02b8\u1d2c-\u1d6a\u2070-\u209c\u2100-\u214f\u2460-\u24ff\ufb00-\ufb06\ufe33\ufe34\ufe4d-\ufe4f"
    "\uff0f\uff21-\uff3a\uff3f\uff41-\uff5a\uff5c\uff1e\ufe65\uff3d\U0001d400-\U0001d7ff\U0001f110-\U0001f16f"
)
_FOLDING_BRACKETS = "＜﹤［﹇"
_FOLDING_TAIL = rf"[^\s<>\[\]]{{0,64}}?[{_FOLDABLE}]"
_FOLDING = (re.compile("<" + _FOLDING_TAIL), re.compile(r"\[" + _FOLDING_TAIL))
_BRACKETS = (*"<[◁", *_FOLDING_BRACKETS, ">>>")

_REASONING_TAG = re.compile(
    rf"<(?P<close>/?)(?P<name>{_REASONING})>|\[(?P<close2>/?)(?P<name2>think)\]|◁(?P<close3>/?)(?P<name3>think)▷",
    re.ASCII | re.IGNORECASE,
)


def show(text: str, reasoning: bool = True) -> str:
    """The text as a judge may see it. `reasoning=False` leaves out what the model thought before it answered."""
    if _ordinary(text):
        return text
    text = scrub(text)
    if not reasoning:
        text = strip_reasoning(text)
    text = _break(text)
    if _may_hide(text):
        folded = unicodedata.normalize("NFKC", text)
        if _RESERVED.search(folded):
            text = _break(folded)
    return text


def scrub(text: str) -> str:
    """Without control characters, invisible ones and lone surrogates (which no JSON encoder takes)."""
    text = _UNSEEN_RUN.sub(_unseen, text)
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def strip_reasoning(text: str, mentions: bool = False) -> str:
    """Without reasoning blocks: closed ones, one that never closes, and all before a close that has no open.

    The last is what models leave whose chat template opens the block for them. `mentions=True` takes an opening tag in
    the middle of a line for a mention: a judge may well write that the response left <think> open.
    """
    kept: list[str] = []
    start, inside = 0, ""
    for tag in _REASONING_TAG.finditer(text):
        name = (tag["name"] or tag["name2"] or tag["name3"]).lower()
        closing = tag["close"] or tag["close2"] or tag["close3"]
        if closing and inside in ("", name):
            if not inside:
                kept.clear()
            start, inside = tag.end(), ""
        elif not closing and not inside and not (mentions and _in_mid_line(text, tag.start())):
            kept.append(text[start : tag.start()])
            inside = name
    if not inside:
        if start == 0:
            return text
        kept.append(text[start:])
    return "".join(kept).strip()


def fence(name: str, text: str, code: str) -> str:
    """The text between two lines that only the holder of the code can write."""
    return f"<<<{name} {code}\n{text}\n{code} {name}>>>"


def _ordinary(text: str) -> bool:
    """True if `show` has nothing to do. Most text is, so this is what the guard costs."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return False
    if text.isascii():
        if len(data.translate(None, _CONTROL_BYTES)) != len(data):
            return False
    elif _UNSEEN.search(text) or _TAG_LEAD in data:
        return False
    if not any(bracket in text for bracket in _BRACKETS):
        return True
    if _may_hide(text):
        return False
    lowered = text.lower()
    return not any(pattern.search(lowered) for pattern in _QUICK)


def _may_hide(text: str) -> bool:
    """True if folding could bring a reserved sequence to light."""
    if text.isascii():
        return False
    return any(bracket in text for bracket in _FOLDING_BRACKETS) or any(p.search(text) for p in _FOLDING)


def _in_mid_line(text: str, at: int) -> bool:
    return bool(text[text.rfind("\n", 0, at) + 1 : at].strip())


def _break(text: str) -> str:
    return _RESERVED.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def _unseen(run: re.Match[str]) -> str:
    """Nothing, but a single joiner between two non-ASCII characters stays: Persian and emoji are spelled with it."""
    if len(run[0]) == 1 and run[0] in _JOINERS:
        before, after = run.string[run.start() - 1 : run.start()], run.string[run.end() : run.end() + 1]
        if before and after and not before.isascii() and not after.isascii():
            return run[0]
    return ""
