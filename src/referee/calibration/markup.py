"""Untrusted text in HTML. Pure."""

from __future__ import annotations

import html

from referee.report.plain import escaped


def shown(text: str) -> str:
    """The text as text: nothing in it is markup, and characters that do not print are written out."""
    return "".join(
        html.escape(c) if c.isprintable() or c in "\n\t" else f'<span class="unseen">{html.escape(escaped(c))}</span>'
        for c in text
    )
