"""Settings of a team. Data only; rules across settings are in `teams`."""

from __future__ import annotations

from msgspec import Struct


class TeamConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One of several teams that share `referee serve`, each with a token of its own; see `referee docs serve`."""

    name: str = ""
    """Lower-case letters, digits and hyphens: its name in paths, metrics and the ledger."""
    token_env: str = ""
    """Environment variable that holds its token: at least 16 characters, and no other team's."""
    judges: tuple[str, ...] = ()
    """Names of the judges it may use; they alone make its rewards, with their weights. Empty: all of them."""
    budget_usd_day: float | None = None
    """US dollars it may spend in a day, from midnight to midnight UTC. Then its requests are answered from the cache
    only, until the next day. Not set: no bound."""
    budget_usd_month: float | None = None
    """The same in a calendar month (UTC)."""
    rpm: int | None = None
    """Requests a minute that are sent to judges for it; more wait. Not set: no bound but those of `[limits]`."""
