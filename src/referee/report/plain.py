"""Untrusted text for a terminal: nothing in it can move the cursor, change colours or hide. Pure."""

from __future__ import annotations


def plain(text: str, limit: int = 200) -> str:
    """One line: white space as single blanks, what does not print as its escape, cut at `limit` characters."""
    # Far more than can be shown, so that a text of megabytes costs nothing.
    words = " ".join(text[: 8 * limit].split())
    shown = "".join(c if c.isprintable() else escaped(c) for c in words[: limit + 1])
    return shown if len(shown) <= limit and len(text) <= 8 * limit else shown[: limit - 1] + "…"


def escaped(character: str) -> str:
    """How a character that does not print is written: \\x1b, \\u202e, \\ud800."""
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
