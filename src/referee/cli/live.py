"""The live page inside `referee serve`: /live/ shows the service's own ledger as it grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from referee.config import Config
from referee.report.live import HEADERS, File, live_files
from referee.report.watch import Watch

if TYPE_CHECKING:
    from fastapi import FastAPI

PLACE = "/live/"


def add_live_page(app: FastAPI, config: Config) -> None:
    """Add the page, where there is a ledger to show.

    Its texts are shown only behind a token: without one every user of the machine can ask, and may not read the ledger.
    """
    if not config.ledger.dir:
        return
    from referee.server import add_page

    watch = Watch(config.ledger.dir, texts=bool(config.serve.token_env))
    for name, file in live_files(watch).items():
        add_page(app, PLACE + name, _page(file), file.media_type, HEADERS)


def _page(file: File) -> Callable[[Mapping[str, str]], bytes]:
    return lambda query: file.body()
