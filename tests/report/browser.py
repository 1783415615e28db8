"""A real browser for tests of pages: Debian's chromium, driven by playwright. Skips where either is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
TIMEOUT_MS = 120_000
"""Milliseconds to wait for a condition. Only a page that hangs meets it."""


def launch() -> Iterator[Any]:
    """A browser for as long as the generator is held."""
    api = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGS, timeout=TIMEOUT_MS)
        yield browser
        browser.close()


class Visit:
    """One open page, and everything it complained about or asked the network for."""

    def __init__(self, browser: Any, url: str, early: str = "", **options: Any) -> None:
        """`early` is script that runs before the page's own."""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        self.context.set_default_timeout(TIMEOUT_MS)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.complaints.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        if early:
            self.page.add_init_script(early)
        self.page.goto(url, timeout=TIMEOUT_MS)

    def there(self, selector: str) -> Any:
        """Wait until an element is there; its locator. (Waiting for a function needs eval, which the page bars.)"""
        self.page.wait_for_selector(selector, state="attached")
        return self.page.locator(selector)

    def loaded(self) -> None:
        """Wait until everything is drawn, or until the page says that it cannot."""
        self.there("body[data-charts='drawn']:not([data-busy]), #trouble:not([hidden])")
        assert self.page.locator("#trouble").is_hidden(), self.page.locator("#trouble").text_content()

    def act(self, change: Callable[[], object]) -> None:
        """Change a control and wait until what it asks for is shown."""
        before = int(self.attribute("data-revision") or 0)
        change()
        self.there("body:not([data-busy])")
        assert int(self.attribute("data-shown") or 0) > before, "the change was not noticed"
        assert self.attribute("data-shown") == self.attribute("data-revision")

    def attribute(self, name: str) -> str | None:
        """An attribute of the body."""
        found: str | None = self.page.locator("body").get_attribute(name)
        return found

    def count(self) -> int:
        """How many samples the page says pass the filters."""
        text: str = self.page.locator("#count").text_content()
        return int(text.split(" of ")[0].replace(",", ""))

    def drawn(self) -> list[int]:
        """Numbers of the rows that exist as elements."""
        rows: list[str] = self.page.eval_on_selector_all("#spacer > .row", "found => found.map(e => e.dataset.row)")
        return [int(row) for row in rows]

    def wide(self) -> int:
        """How many pixels the page is wider than the screen. (On a phone innerWidth would grow with the page.)"""
        overhang: int = self.page.evaluate("document.documentElement.scrollWidth - screen.width")
        return overhang

    def close(self) -> None:
        """Close it, and hold it to its promise: no complaint, no request but for the page itself."""
        self.context.close()
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith("file:")] == []
        assert len(self.requests) == 1


Open = Callable[..., Visit]
"""Opens the page of some lines under a name."""
