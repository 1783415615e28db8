"""Text from a server made safe to show: nothing that looks like a key, one line, bounded length."""

from __future__ import annotations

import re

LONGEST = 200
"""Characters of foreign text a detail may hold."""

_READ = 1000
"""Characters looked at; the rest of a body is never shown."""

HIDDEN = "***"

_STARTS = ("AIza", "AKIA", "ASIA", "eyJ", "ya29.")

# Providers echo keys, whole or partly starred ("Incorrect API key provided: sk-ab****wxyz"), and gateways echo headers.
# Named fields first, whatever the value looks like, then shapes. A rule runs only if one of its signs is in the
# lower-case text: a throttled endpoint sends many errors, and these patterns are the largest cost of reading one.
_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("://",), re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@]+@"), rf"\1{HIDDEN}@"),
    (("?",), re.compile(r"(?i)(\bhttps?://[^\s?\"'<>]+\?)[^\s\"'<>]+"), rf"\1{HIDDEN}"),
    (("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;<>]+"), rf"\1 {HIDDEN}"),
    (
        ("key", "token", "secret", "passw", "authorization"),
        re.compile(
            r"(?i)((?:key|token|secret|password|passwd|authorization)(?:\s+(?:provided|given|is|was))?[\"']?"
            r"\s*[:=]\s*[\"'`]?)(?!\*\*\*|bearer|basic)[^\s\"'`,;<>)\]}]+"
        ),
        rf"\1{HIDDEN}",
    ),
    (("key ",), re.compile(r"(?i)(\bkey\s+[\"'`])[^\s\"'`]+"), rf"\1{HIDDEN}"),
    (
        ("***", "•••", "......", "xxxxxx"),
        re.compile(r"(?<![^\s\"'<>])[^\s\"'<>]*(?:\*{3,}|•{3,}|\.{6,}|[xX]{6,})[^\s\"'<>]*"),
        HIDDEN,
    ),
    (
        ("sk-", "sk_", "pk-", "pk_", "key-", "key_", "hf_", "xai-", "nvapi-", "bce-v3/"),
        re.compile(r"(?i)\b(?:[a-z]{0,2}sk|pk|key|hf|xai|nvapi|bce-v3)[-_/][a-z0-9_./+=-]{6,}"),
        HIDDEN,
    ),
    (
        tuple(start.lower() for start in _STARTS),
        re.compile(rf"\b(?:{'|'.join(map(re.escape, _STARTS))})[A-Za-z0-9_.+/=-]{{8,}}"),
        HIDDEN,
    ),
)

# A long run with a digit in it, or a very long one of letters alone: not a word, a parameter or most model names.
_RUN = re.compile(r"[A-Za-z0-9_+=-]{16}")
_RUNS = (
    re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,}"),
    re.compile(r"[A-Za-z0-9]{32,}"),
    re.compile(r"(?<![A-Za-z0-9_+=-])(?=[A-Za-z_+=-]*[0-9])[A-Za-z0-9_+=-]{32,}"),
)


def scrub(text: str) -> str:
    """The beginning of `text` on one line, with everything key-like replaced by ***."""
    cut = len(text) > _READ
    text = text[:_READ]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    if cut:
        # The word at the cut may be half a key, which no rule would match.
        text = text.rpartition(" ")[0]
    low = text.lower()
    for signs, pattern, instead in _RULES:
        if any(sign in low for sign in signs):
            text = pattern.sub(instead, text)
    if _RUN.search(text):
        for pattern in _RUNS:
            text = pattern.sub(HIDDEN, text)
    text = " ".join(text.split())
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return text


def label(text: str, longest: int = 64) -> str:
    """A server's code or id, if it is a short printable word; otherwise empty."""
    text = text.strip()
    if not text or len(text) > longest or not text.isascii() or not text.isprintable() or " " in text:
        return ""
    return text
