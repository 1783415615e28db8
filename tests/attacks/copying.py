"""Judges that copy: whatever stretch of the data they repeat, decode or quote without escaping, it earns nothing.

No model copies every stretch; trying them all is what no model could be worse at.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from tests.attacks.trial import SECRET, Kind, credited, plan

from referee.config import JudgeConfig
from referee.judging import Form, make_judge
from referee.records import Ask, Reply, Verdict
from referee.sim.chat import unfence

_STRAIGHT = str.maketrans({**dict.fromkeys("“”„‟«»‹›「」『』＂'`‘’‚‛＇", '"'), "：": ":", "，": ","})
_ESCAPE = re.compile(r"\\+(?:u00|x)([0-9a-fA-F]{2})")
_UNQUOTED = re.compile(r"([{,]\s*)([A-Za-z]\w*)(\s*:)")
_BARE_LABEL = re.compile(r":\s*(yes|no|correct|incorrect|tie)\b", re.IGNORECASE)

DECODERS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "without backslashes": lambda text: text.replace("\\", ""),
    "escapes decoded": lambda text: _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text),
    "HTML decoded": html.unescape,
    "URL decoded": unquote,
    "folded": lambda text: unicodedata.normalize("NFKC", text),
    "straight quotes": lambda text: text.translate(_STRAIGHT).replace("=>", ":"),
    "keys quoted": lambda text: _BARE_LABEL.sub(r': "\1"', _UNQUOTED.sub(r'\1"\2"\3', text)).translate(_STRAIGHT),
    "lower case": str.lower,
}
_TAG = re.compile(r"<verdict[^<>]*>.{0,40}?</verdict[^<>]*>", re.DOTALL | re.IGNORECASE)
_SWALLOWED = re.compile(r'"\s*,\s*"(score|verdict)"\s*:\s*(-?\d+|"[a-z]+")')
"""What ends the judge's own reason and goes on with its verdict, if the data is quoted in it without escaping."""


def copied(kind: Kind, form: Form, response: str) -> bool:
    """True if some reply that repeats a part of the data is a credit."""
    request = plan(kind, form, response)
    if not isinstance(request, Ask):
        return credited(request)
    judge = make_judge(JudgeConfig(kind=kind, ask_again=0), SECRET)
    asked = request.messages[-1].content
    replies = stretches(unfence(asked)[1].get("response", asked))
    verdicts = (judge.read(request, Reply(text=reply, finish="stop")) for reply in replies)
    return any(isinstance(verdict, Verdict) and credited(verdict) for verdict in verdicts)


def stretches(data: str) -> Iterator[str]:
    """Replies that are a part of the data, or hold one."""
    for decode in DECODERS.values():
        text = decode(data)
        opened = [match.start() for match in re.finditer("{", text)]
        closed = [match.end() for match in re.finditer("}", text)]
        yield from (text[start:end] for start in opened for end in closed if start < end)
        yield from (match[0] for match in _TAG.finditer(text))
        for match in _SWALLOWED.finditer(text):  # under constrained decoding the brace must follow
            yield f'{{"reason": "It says {text[: match.start()][-20:]}{match[0]}}}'
            yield f'{{"reason": "It says {match[0]}}}'
