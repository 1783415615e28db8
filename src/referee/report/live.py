"""The live page of a run: its files by name, for any server. Scripts only from itself, text only as text.

Panels, words and colours are the report page's; the data is a Snapshot, asked for every two seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.util import find_spec

import msgspec
from msgspec import Struct

from referee import clock
from referee.errors import install
from referee.report.page import asset, plotly_source, script
from referee.report.watch import Watch

SCRIPTS = (
    *("codec.js", "text.js", "charts.js", "panels.js", "criteria.js", "groups.js", "judges.js", "audit.js"),
    *("store.js", "conversation.js", "detail.js", "live.js"),
)
HEADERS = {
    # plotly styles what it draws, so styles may be inline; nothing else comes from anywhere but the page's own server.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
FRESH = 0.5
"""Seconds a state is given out again, so that many open pages cost little more than one."""
PAUSE_RATIO = 4.0
"""A state is given out for at least this many times as long as it took to make, so that a very long run does not take a
core from training."""
NO_CHARTS = (
    '<p class="finding warn">No charts: they come from plotly, which is not installed where this page is served. '
    f"{install('report')}</p>"
)


class File(Struct, frozen=True):
    """One file of the page: what to serve it as, and how to get it. Getting it may read files of the ledger."""

    media_type: str
    body: Callable[[], bytes]


def live_files(watch: Watch) -> dict[str, File]:
    """The page's files. The one named "" is the page itself; it refers to the others by their names."""
    charts = find_spec("plotly") is not None
    state = _State(watch)
    files = {
        "": File("text/html; charset=utf-8", lambda: _page(charts)),
        "script.js": File("text/javascript; charset=utf-8", lambda: script(SCRIPTS).encode()),
        "style.css": File("text/css; charset=utf-8", lambda: (asset("page.css") + asset("live.css")).encode()),
        "data.json": File("application/json", state.body),
        "samples.json": File("application/json", lambda: msgspec.json.encode(watch.opened())),
    }
    if charts:
        files["plotly.js"] = File("text/javascript; charset=utf-8", lambda: plotly_source().encode())
    return files


class _State:
    """The run's state as JSON, read at most every half second however many ask."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._lock = threading.Lock()
        self._body = b""
        self._until = float("-inf")

    def body(self) -> bytes:
        with self._lock:
            started = clock.monotonic()
            if started >= self._until:
                self._watch.update()
                self._body = msgspec.json.encode(self._watch.snapshot(clock.wall()))
                ended = clock.monotonic()
                self._until = ended + max(FRESH, PAUSE_RATIO * (ended - started))
            return self._body


def _page(charts: bool) -> bytes:
    frame = asset("live.html")
    frame = frame.replace("{{charts}}", '<script src="plotly.js" defer></script>\n' if charts else "")
    return frame.replace("{{nocharts}}", "" if charts else NO_CHARTS).encode()
