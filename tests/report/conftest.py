"""A browser, and pages opened in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import Open, Visit, launch
from tests.report.ledgers import make_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests here."""
    yield from launch()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pages are written once."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def visit(browser: Any, folder: Path) -> Iterator[Open]:
    """Opens the page of some lines; afterwards it must have been silent and alone."""
    visits: list[Visit] = []

    def open_(name: str, lines: Callable[[], Any], **options: Any) -> Visit:
        path = folder / f"{name}.html"
        if not path.exists():
            make_page(path, lines())
        visits.append(Visit(browser, path.as_uri(), **options))
        visits[-1].loaded()
        return visits[-1]

    yield open_
    for one in visits:
        one.close()
