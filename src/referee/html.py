"""What notebooks show of our values, as HTML. All text is escaped: a policy or a judge may have written it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Protocol

LONGEST = 600
"""Characters of a text that are shown."""
MOST_PARTS = 20
ALWAYS = ("reward", "score", "value")
HIDDEN = frozenset(("parts", "judges", "key", "fingerprint", "median_length"))


class _HasFields(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


def reward_html(reward: _HasFields) -> str:
    """A reward as a table: its fields that say something, what each of several judges said, and the parts."""
    row = reward.to_dict()
    given = {"reward": None, **row}
    facts = {name: value for name, value in given.items() if name in ALWAYS or (name not in HIDDEN and value)}
    judges = [(f"judge {name}", _verdict(one)) for name, one in row["judges"].items()]
    parts = [
        (": ".join(filter(None, (part["name"], part["text"]))), _verdict(part)) for part in row["parts"][:MOST_PARTS]
    ]
    return _table([*facts.items(), *judges, *parts])


def progress_html(done: int, total: int, words: str) -> str:
    """A bar and what to say beside it."""
    return f'<progress value="{done}" max="{max(1, total)}"></progress> {escape(words)}'


def _verdict(said: Mapping[str, Any]) -> str:
    found = said.get("verdict") or said.get("score", said.get("value"))
    return f"{said.get('unscored') or found}: {said.get('why') or said.get('detail') or ''}".rstrip(": ")


def _table(rows: Iterable[tuple[str, Any]]) -> str:
    style = 'style="text-align:left;white-space:pre-wrap"'
    cells = (f"<tr><th {style}>{_cell(name)}</th><td {style}>{_cell(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return escape(text if len(text) <= LONGEST else text[:LONGEST] + "…")
