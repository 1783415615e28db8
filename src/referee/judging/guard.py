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

_REASONING = "think|thinking|reasoning|thought|seed[:：]think"
_TURN = "start_of_turn|end_of_turn|start_of_image|end_of_image|start_header_id|end_header_id|eot_id"
_SEED = "seed[:：](?:bos|eos|cot_budget_reflect)"
_MISTRAL = (
    "inst|system_prompt|available_tools|tool_calls|tool_results|tool_content|args|call_id|think|img|prefix|suffix"
)
_FENCED = "|".join(FIELDS)

# One pattern per first character: a search for a fixed first character skips through text at the speed of memchr.
# Written in lower case, because the quick look is at lower-cased text; the replacement is in any case.
_PATTERNS = (
    "<(?:"
    r"[|｜][^\s<>|｜]{1,64}[|｜]>"  # <|im_start|>, <|eot_id|>, DeepSeek's <｜User｜>
    r"|[|｜][a-z_]{1,32}>|[a-z_]{1,32}[|｜]>"  # Gemma 4: <|turn>, <turn|>
    r"|</?sys>>"  # Llama 2
    r"|/?(?-i:s)>"  # in any case it would be half of all type parameters: Box<S>
    rf"|/?(?:bos|eos|eot|pad|unk|mask|sop|eop|{_TURN}|{_SEED}|{_REASONING})>"
    r"|/?verdict"  # our verdict tag
    rf"|<<\s*(?:{_FENCED})"  # our fence, opening
    ")",
    rf"\[/?(?:{_MISTRAL}|gmask|bos|eos|eot|pad|unk)\]",
    f">>>(?:{'|'.join(f'(?<={name}>>>)' for name in FIELDS)})",  # our fence, closing
    "◁/?think▷",  # Kimi
)
_RESERVED = tuple(
    (re.compile(pattern, re.ASCII), re.compile(pattern, re.ASCII | re.IGNORECASE)) for pattern in _PATTERNS
)

# Letters that Unicode compatibility folding turns into plain ones, and brackets it turns into < or [. A reader that
# folds (some tokenizers do) would see a reserved sequence in <𝐬>, ＜|im_end|＞ or ［INST］.
# Digits and the wide colon are not listed: Chinese text is full of them, and no reserved sequence needs them.
_FOLDABLE = (
    "ªºĲĳǇ-ǌǱ-ǳ\u017f\u02b0-\u02b8\u02e1-\u02e3\u1d2c-\u1d6a\u1d9c-\u1dbb\u2071\u207f\u2090-\u209c\u20a8\u2100-\u214f"
    "\u2160-\u217f\u249c-\u24e9\u2c7c\u2c7d\u3250\u32cc-\u32cf\u3371-\u33ff\ua7f2-\ua7f4\ufb00-\ufb06\ufe33\ufe34"
    "\ufe13\ufe48\ufe55\ufe4d-\ufe4f\ufe65\uff0d\uff0f\uff1e\uff21-\uff3a\uff3d\uff3f\uff41-\uff5a\uff5c"
    "\U000107a5\U0001d400-\U0001d7ff\U0001f110-\U0001f190"
)
_WIDE_BRACKETS = "＜﹤＞﹥［﹇◁"
_FOLDING_BRACKETS = (*_WIDE_BRACKETS, ">>>")
_FOLDING_TAIL = rf"[^\s<>\[\]]{{0,64}}?[{_FOLDABLE}]"
_FOLDING = (re.compile("<" + _FOLDING_TAIL), re.compile(r"\[" + _FOLDING_TAIL))

_ANGLE_TAG = rf"<(/?)({_REASONING})>"
_ANGLE_TAGS = re.compile(_ANGLE_TAG, re.ASCII | re.IGNORECASE)
_ALL_TAGS = re.compile(rf"{_ANGLE_TAG}|\[(/?)(THINK)\]|◁(/?)(think)▷", re.ASCII | re.IGNORECASE)
_BROKEN_TAGS = re.compile(rf"< /?(?:{_REASONING})>", re.ASCII | re.IGNORECASE)
_RARE_TAGS = ("[THINK]", "[/THINK]", "◁")


def show(text: str, reasoning: bool = True) -> str:
    """The text as a judge may see it. `reasoning=False` leaves out what the model thought before it answered."""
    if _has_unseen(text):
        text = scrub(text)
    narrow = "<" in text or "[" in text or (">" in text and ">>>" in text)
    if not narrow and (text.isascii() or not any(bracket in text for bracket in _WIDE_BRACKETS)):
        return text
    if _has_reserved(text):
        # Scrubbed again: a joiner that stood between letters may stand alone now.
        text = _break(text if reasoning else scrub(strip_reasoning(text)))
    if _may_hide(text):
        folded = scrub(unicodedata.normalize("NFKC", text))
        if _has_reserved(folded):
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
    tags = _ALL_TAGS if any(tag in text for tag in _RARE_TAGS) else _ANGLE_TAGS
    for tag in tags.finditer(text):
        closing, name = (part.lower() for part in tag.groups() if part is not None)
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


def reasoning_of(text: str) -> str | None:
    """What `strip_reasoning` would take out, without the tags; None if there is no such tag."""
    blocks: list[str] = []
    start, inside, seen = 0, "", False
    for tag in _ALL_TAGS.finditer(text):
        closing, name = (part.lower() for part in tag.groups() if part is not None)
        if closing and inside in ("", name):
            if not inside:
                blocks.clear()
            blocks.append(text[start if inside else 0 : tag.start()].strip())
            inside, seen = "", True
        elif not closing and not inside:
            start, inside, seen = tag.end(), name, True
    if inside:
        blocks.append(text[start:].strip())
    return "\n".join(block for block in blocks if block) if seen else None


def with_reasoning_tags(text: str) -> str:
    """A shown text with its reasoning tags whole again, where the judge's own instructions speak of them."""
    return _BROKEN_TAGS.sub(lambda match: f"<{match[0][2:]}", text) if "< " in text else text


def fence(name: str, text: str, code: str) -> str:
    """The text between two lines that only the holder of the code can write."""
    return f"<<<{name} {code}\n{text}\n{code} {name}>>>"


def _has_unseen(text: str) -> bool:
    """True if there is something to scrub. Asked of every text, so each kind is searched in its fastest way."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return True
    if text.isascii():
        return len(data.translate(None, _CONTROL_BYTES)) != len(data)
    return _TAG_LEAD in data or _UNSEEN.search(text) is not None


def _may_hide(text: str) -> bool:
    """True if folding could bring a reserved sequence to light."""
    if text.isascii():
        return False
    return any(bracket in text for bracket in _FOLDING_BRACKETS) or any(p.search(text) for p in _FOLDING)


def _in_mid_line(text: str, at: int) -> bool:
    """Looks back 200 characters at most, so that a line of nothing but tags is not read once for each."""
    return bool(text[max(0, at - 200) : at].rpartition("\n")[2].strip())


def _has_reserved(text: str) -> bool:
    lowered = text.lower()
    return any(quick.search(lowered) for quick, _ in _RESERVED)


def _break(text: str) -> str:
    """With one space inside every reserved sequence."""
    for _, exact in _RESERVED:
        text = exact.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


def _unseen(run: re.Match[str]) -> str:
    """Nothing, but a single joiner between two non-ASCII characters stays: Persian and emoji are spelled with it."""
    if len(run[0]) == 1 and run[0] in _JOINERS:
        before, after = run.string[run.start() - 1 : run.start()], run.string[run.end() : run.end() + 1]
        if before and after and not before.isascii() and not after.isascii():
            return run[0]
    return ""
