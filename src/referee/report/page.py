"""One self-contained page from report data and rows: no network, no build step, a strict content security policy.

Nothing of a ledger is ever written as HTML: data travels as base64 of compressed JSON, and scripts show text as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path

from referee.errors import ConfigError, install
from referee.report.rows import Packed, Rows, encode
from referee.report.shape import Report

SCRIPTS = (
    "codec.js",
    "text.js",
    "charts.js",
    "panels.js",
    "criteria.js",
    "groups.js",
    "judges.js",
    "audit.js",
    "store.js",
    "list.js",
    "conversation.js",
    "detail.js",
    "main.js",
)
"""In this order they become the page's one script."""
DOCTYPE = b"<!doctype html>"


def asset(name: str) -> str:
    """One of the page's own files."""
    return resources.files("referee.report").joinpath("assets", name).read_text(encoding="utf-8")


def script(names: tuple[str, ...] = SCRIPTS) -> str:
    """The page's own script: plain files one after the other."""
    return '"use strict";\n' + "\n".join(asset(name) for name in names)


def plotly_source() -> str:
    """plotly.js out of the plotly package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError(
            f"the charts of the page come from plotly, which is not installed: {install('report')}. "
            "The ledger is untouched."
        ) from None
    return str(get_plotlyjs())


def source_hash(text: str) -> str:
    """How a content security policy names a script or style by what it says."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy(*scripts: str) -> str:
    """Only these scripts run, nothing is loaded from anywhere. plotly styles what it draws, so styles may be inline."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(source_hash(text) for text in scripts)}",
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def page(report: Report, rows: Rows, title: str = "referee report") -> Iterator[str]:
    """The page in pieces, in order; together they may be large."""
    charts = plotly_source()
    yield from framed("page", title, SCRIPTS, _data(report, rows, charts), charts)


def framed(name: str, title: str, scripts: tuple[str, ...], data: Iterable[str], charts: str = "") -> Iterator[str]:
    """A page by its name: its navigation and main part in the frame that all share, with its own scripts and style.
    `charts`: the source of plotly, if it draws any."""
    nav, _, main = asset(f"{name}.html").partition("\n")
    own = script(scripts)
    fill = {
        "title": html.escape(title),
        "policy": html.escape(policy(own, *filter(None, [charts])), quote=True),
        "style": asset("page.css") + ("" if name == "page" else asset(f"{name}.css")),
        "nav": nav,
        "main": main,
        "script": own,
    }
    first, *rest = asset("frame.html").split("{{")
    yield first
    for part in rest:  # what is put in is not looked at again
        field, _, text = part.partition("}}")
        yield from data if field == "data" else (fill[field],)
        yield text


def write_page(path: Path, report: Report, rows: Rows, title: str = "referee report") -> int:
    """Write the page, readable by its owner only, and say how many bytes it has. The old page stays until then."""
    return write_pieces(path, page(report, rows, title))


def check_page(path: Path) -> None:
    """Refuse a place where no page can be written, or where one would replace something else."""
    if path.exists() and not _is_page(path):
        raise ConfigError(f"{path} exists and is no page; it is not overwritten. Give -o another name.")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist.")


def write_pieces(path: Path, pieces: Iterable[str]) -> int:
    """The same for the pieces of any page."""
    check_page(path)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            for piece in pieces:
                stream.write(piece.encode())
            size = stream.tell()
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the page ({error.strerror or error}).") from None
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    return size


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(DOCTYPE)).lower() == DOCTYPE
    except OSError:
        return False


def _data(report: Report, rows: Rows, charts: str) -> Iterator[str]:
    # The small parts that the first paint needs stand before the large ones.
    yield element(Packed("report", zlib.compress(encode(report), 6)))
    yield element(Packed("meta", zlib.compress(encode(rows.meta()), 6)))
    parts = rows.parts()
    for part in parts:
        yield element(part)
        if part.name == "systems":
            break
    yield element(Packed("plotly", zlib.compress(charts.encode(), 9)))
    for part in parts:
        yield element(part)


def element(part: Packed) -> str:
    """Packed data as an element of a page, by its name."""
    return f'<script type="text/plain" id="{part.name}">{as_text(part)}</script>\n'


def as_text(part: Packed) -> str:
    """Packed data as a page's script reads it."""
    return base64.b64encode(part.data).decode()
