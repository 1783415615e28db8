"""The page of a comparison: one file with numbers, intervals and every pair. As the report's page, without charts that
need a library."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from referee.report.page import element, framed, write_pieces
from referee.report.rows import Packed, encode
from referee.report.versus import Versus, worst_first
from referee.report.versus_pair import Answer, Comparison

SCRIPTS = ("codec.js", "text.js", "versus.js")
MOST_TEXT = 32_000_000
"""Characters of prompts and answers on a page; of what comes after, only beginnings."""
BEGINNING = 300


def write_versus(path: Path, found: Versus, comparisons: Sequence[Comparison]) -> int:
    """Write the page, readable by its owner only, and say how many bytes it has."""
    return write_pieces(path, versus_page(found, comparisons))


def versus_page(found: Versus, comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The page in pieces."""
    title = f"{found.about.names[1]} against {found.about.names[0]}"
    kept, cut = _within(_in_order(comparisons), MOST_TEXT)
    data = (
        element(Packed("versus", zlib.compress(encode({"result": replace(found, worst=()), "cut": cut}), 6))),
        element(Packed("pairs", zlib.compress(encode(kept), 6))),
    )
    yield from framed("versus", title, SCRIPTS, data)


def _in_order(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The worst losses first, then what has no verdict, ties, wins."""
    ranks: dict[float | None, int] = {None: 0, 0.5: 1, 1.0: 2}
    others = sorted((each for each in comparisons if each.outcome != 0.0), key=lambda each: ranks[each.outcome])
    return [*worst_first(comparisons), *others]


def _within(comparisons: Iterable[Comparison], most: int) -> tuple[list[Comparison], int]:
    """The same with texts up to `most` characters together, and how many have only beginnings of theirs."""
    kept, cut = list[Comparison](), 0
    for each in comparisons:
        size = len(each.prompt) + len(each.a.text) + len(each.b.text)
        if size > most:
            cut += 1
            each = replace(each, prompt=_start(each.prompt), a=_shortened(each.a), b=_shortened(each.b))
        else:
            most -= size
        kept.append(each)
    return kept, cut


def _shortened(answer: Answer) -> Answer:
    return replace(answer, text=_start(answer.text))


def _start(text: str) -> str:
    return text if len(text) <= BEGINNING else text[:BEGINNING] + "…"
