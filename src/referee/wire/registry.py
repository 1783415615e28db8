"""Dialects by name: the shipped ones, and those of other packages (entry points in the group `referee.dialects`)."""

from __future__ import annotations

from referee import plugins
from referee.errors import ConfigError
from referee.wire.anthropic import ANTHROPIC
from referee.wire.chat import CHAT
from referee.wire.decision import DECISION
from referee.wire.dialect import Dialect
from referee.wire.gemini import GEMINI
from referee.wire.numbers import CLASSIFY, POOLING, SCORE
from referee.wire.responses import RESPONSES

SETTING = "endpoint.api"
SHIPPED: dict[str, Dialect] = {
    "anthropic": ANTHROPIC,
    "chat": CHAT,
    "classify": CLASSIFY,
    "decision": DECISION,
    "gemini": GEMINI,
    "pooling": POOLING,
    "responses": RESPONSES,
    "score": SCORE,
}


def find_dialect(name: str) -> Dialect:
    """The dialect of this name, or a ConfigError that lists those there are."""
    shipped = SHIPPED.get(name)
    if shipped is not None:
        return shipped
    found = plugins.load(plugins.DIALECTS, name, SETTING, tuple(SHIPPED))
    dialect = found.value
    if isinstance(dialect, type) or not isinstance(dialect, Dialect):
        raise ConfigError(
            f"{SETTING}: the entry point {name!r} of the package {found.package} must name an object that is a "
            f"referee.wire.Dialect, not {dialect!r:.100}.",
            setting=SETTING,
        )
    return dialect
