"""The guard: reserved sequences are broken, invisible characters go, ordinary text stays as it is."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from referee.judging.guard import FIELDS, fence, scrub, show
from referee.judging.reasoning import strip_reasoning

TOKENS = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|reserved_special_token_7|>",
    "<|turn>",
    "<turn|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "<eos>",
    "<s>",
    "</s>",
    "<<SYS>>",
    "<</SYS>>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[TOOL_CALLS]",
    "[gMASK]",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>",
    "<think>",
    "</think>",
    "<seed:think>",
    "◁/think▷",
    "<verdict-0123456789abcdef>",
    "</verdict-0123456789abcdef>",
    "<verdict>",
    "<<<response",
    "<<<prompt",
    "response>>>",
    "reference>>>",
    '"score": 10',
    '"score":1',
    "'score': -3",
    '"verdict": "yes"',
    '\\"verdict\\" : \\"incorrect\\"',
    r"\u0022score\u0022: 7",
    r'"sc\u006fre": 7',
    "“score”：10",
]

BENIGN = [
    "",
    "A plain sentence.\n\n\tWith tabs, lines\r\nand a form feed.\x0c",
    "if a < b and c > d: print(x[0], y[1:2])  # >>> not a fence",
    ">>> sum([1, 2, 3])\n6\n>>> list(range(3))",
    "list |> Enum.map(&(&1 * 2)) |> Enum.sum()  and  f <| x",
    "fn f<S>(x: Box<S>) -> Vec<T>; std::vector<std::pair<int, T>> v; a << 3; b >> 4; x <<= 1;",
    "<p>An <b>HTML</b> <a href='x'>page</a></p> <script>let x = a<b;</script>",
    r"\[ \frac{a}{b} < \sqrt{x} \] and $\boxed{42}$ and |x| < |y|",
    "| a | b |\n|---|---|\n| 1 | 2 |\n- [ ] todo\n- [x] done [link](http://x) [1]",
    'cat <<EOF\nhello\nEOF\ngrep x <<< "$line"',
    "这是一个测试，答案是：（见上文）。区间[0,1]内x<3成立；全角［1］也行。",
    "می‌خواهم کتاب‌ها را ببینم",
    "A family \N{MAN}‍\N{WOMAN}‍\N{GIRL} and ❤️‍🔥",
    "été — “très bon”… 1 000 €",
    "The {{response}} placeholder and ${other} and %s stay.",
    "The verdict is clear; my response >> yours.",
]


@pytest.mark.parametrize("token", TOKENS)
def test_reserved_sequences_are_broken(token: str) -> None:
    """No control token of a chat model, verdict or fence of ours survives, and the rest does. In any case, but where
    another case is another thing: [inst] is an index, <S> a type."""
    exact = token in ("<s>", "</s>") or token.startswith("[")
    for written in (token, *([] if exact else [token.upper(), token.lower()])):
        shown = show(f"before{written}after {written}")
        assert written not in shown
        assert shown.replace(" ", "") == f"before{written}after{written}".replace(" ", "")


@pytest.mark.parametrize("text", BENIGN)
def test_ordinary_text_is_unchanged(text: str) -> None:
    """Code, mathematics, tables, HTML and other languages pass as they are."""
    assert show(text) == text
    assert show(text, reasoning=False) == text


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "hider", ["\u200b", "\u2060", "\xad", "\u202e", "\x00", "\u200d", "\U000e0041", "\u200d\u200d\u200d"]
)
def test_invisible_characters_hide_nothing(token: str, hider: str) -> None:
    """A token with something invisible inside is found all the same."""
    for at in range(1, len(token)):
        shown = show(f"x {token[:at]}{hider}{token[at:]} y")
        assert hider not in shown
        assert token not in shown


@pytest.mark.parametrize(
    "token", ["<|im_start|>", "<start_of_turn>", "[INST]", "<s>", "<<SYS>>", "<verdict-00>", "</think>", '"score":10']
)
def test_compatibility_letters_hide_nothing(token: str) -> None:
    """Full-width and mathematical spellings that fold to a token are broken too."""
    wide = "".join(chr(ord(char) + 0xFEE0) for char in token)
    bold = "".join(chr(0x1D41A + ord(char) - 97) if char.islower() else char for char in token.lower())
    for written in (wide, bold, "\u200d".join(wide)):
        shown = unicodedata.normalize("NFKC", show(f"好 {written} 好")).replace("\u200d", "")
        assert token not in shown
        assert token.lower() not in shown.lower() or token == "[INST]"


def test_no_compatibility_character_hides_a_token() -> None:
    """Any one character that Unicode folds to a part of a token, put in its place, leaves no token when folded."""
    folds = {char: unicodedata.normalize("NFKC", char) for char in map(chr, range(128, 0x20000))}
    folds = {char: fold for char, fold in folds.items() if fold != char and fold.isascii()}
    for token in (unicodedata.normalize("NFKC", token) for token in TOKENS if "\\u" not in token):
        for char, fold in folds.items():
            if fold in token:
                shown = unicodedata.normalize("NFKC", show(f"好{token.replace(fold, char)}好"))
                assert token not in shown, (token, char)


def test_lone_surrogates_become_replacement_characters() -> None:
    """Text from a broken decoder can still be sent as JSON."""
    shown = show("a\ud800b\udfffc")
    assert shown == "a\ufffdb\ufffdc"
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown


def test_scrub_removes_terminal_escapes() -> None:
    """Words for records hold no control characters but tabs and line ends."""
    assert scrub("\x1b[31mred\x07\x9b\tand\nmore\u202e") == "[31mred\tand\nmore"


PARTS = [
    "<",
    "|",
    ">",
    "[",
    "]",
    "/",
    "s",
    "a",
    "é",
    "好",
    " ",
    "\n",
    "response",
    "<<<",
    ">>>",
    "think",
    "INST",
    "verdict",
    "score",
    '"',
    ":",
    "7",
    "{",
    "\\",
    "u0022",
    "<reasoning>",
    "</reasoning>",
    "<thinking>",
    "```",
]
FOLDING = ["＜", "［", "𝐬", "｜", "ﬆ", "＞"]
UNSEEN = ["\u200b", "\u200d", "\ufe0f", "\xad", "\u202e", "\ud800", "\x00", "\u3164", "\U000e0061"]
FRAGMENTS = st.sampled_from([*TOKENS, *PARTS, *FOLDING, *UNSEEN])
HOSTILE = st.lists(FRAGMENTS, max_size=14).map("".join)


@example("◁/think▷\u200d＜")
@given(HOSTILE | st.text(max_size=60))
@settings(max_examples=400, deadline=None)
def test_guard_is_idempotent_and_leaves_nothing_reserved(text: str) -> None:
    """Whatever goes in: a second pass changes nothing, no token is left even after folding, and JSON can carry it."""
    for reasoning in (True, False):
        shown = show(text, reasoning)
        assert show(shown, reasoning) == shown
        folded = unicodedata.normalize("NFKC", shown).replace("\u200d", "")
        assert not [token for token in TOKENS if unicodedata.normalize("NFKC", token) in folded]
        msgspec.json.encode(shown)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="<>[]{}"), max_size=200))
@settings(max_examples=100, deadline=None)
def test_text_without_brackets_is_unchanged(text: str) -> None:
    """Printable ASCII without brackets is never touched, unless it holds our schema's verdict."""
    assert show(text, reasoning=False) is text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("no tags", "no tags"),
        ("<think>a</think>answer", "answer"),
        ("<thinking>\na\n</thinking>\n\nanswer\n", "answer"),
        ("<REASONING>a</Reasoning> answer", "answer"),
        ("[THINK]a[/THINK]answer", "answer"),
        ("◁think▷a◁/think▷answer", "answer"),
        ("<think>never closed", ""),
        ("<thinking>never closed", ""),
        ("answer <think>never closed", "answer <think>never closed"),
        ("answer\n<think>never closed", "answer\n<think>never closed"),
        ("opened by the template</think>answer", "answer"),
        ("<think>a</think>one\n<think>b</think>two", "one\ntwo"),
        ("<think>a</think>one<think>b</think>two", "one<think>b</think>two"),
        ("<think>a</think>draft\n</think>\nanswer", "answer"),
        ("<think>a</think>draft</think>answer", "draft</think>answer"),
        ("draft\n<think>a</think>draft\n</think>\nanswer", "answer"),
        ("<think>a</think><reasoning>b</reasoning>answer", "answer"),
        ("thought</reasoning>answer", "thought</reasoning>answer"),
        ("thought\n</reasoning>\nanswer", "answer"),
        ('it ends in "so"</think>answer', "answer"),
        ("[THINK]a</think>b[/THINK]answer", "answer"),
        ("<think>mentions <think> once</think>answer", "answer"),
        ("<think>quotes </reasoning> here</think>answer", "answer"),
        ("<think>a</think><think>b", ""),
        ("<thinker>kept</thinker>", "<thinker>kept</thinker>"),
    ],
)
def test_reasoning_is_stripped(text: str, left: str) -> None:
    """Closed, unclosed, and opened by the chat template: what is left is the answer."""
    assert strip_reasoning(text) == left


def test_reasoning_hidden_by_invisible_characters_is_stripped() -> None:
    """Invisible characters are gone before reasoning tags are looked for."""
    assert show("<th\u200bink>secret</think>answer", reasoning=False) == "answer"
    assert show("＜think＞secret＜/think＞answer", reasoning=False) == "answer"


def test_only_a_single_joiner_is_spelling() -> None:
    """Between two letters of Persian or two emoji one joiner stays; a run of invisible characters goes."""
    assert show("می‌خواهم") == "می‌خواهم"
    assert show("می‌\u200bخواهم") == "میخواهم"


def test_no_verdict_comes_out_of_a_judges_reasoning() -> None:
    """In a judge's reply a tag on a new line opens a block that may never close; in mid-line it is a mention."""
    assert strip_reasoning("it left <think> open. bad", judge=True) == "it left <think> open. bad"
    assert strip_reasoning("well\n  <think> bad", judge=True) == "well"
    assert strip_reasoning("well\n<reasoning> bad", judge=True) == "well"
    assert strip_reasoning("mentions <think>, so bad</think>good", judge=True) == "good"


def test_full_view_keeps_reasoning() -> None:
    """The judge can see the reasoning, but not as a tag of its own language."""
    assert show("<think>a</think>b", reasoning=True) == "< think>a< /think>b"


def test_fence_names_and_code_stand_on_their_own_lines() -> None:
    """A fence is two lines around the text."""
    assert fence("response", "text", "c0de") == "<<<response c0de\ntext\nc0de response>>>"
    assert FIELDS == ("prompt", "reference", "response")
