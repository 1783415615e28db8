"""What lines about a run itself say: its settings, and what answered at an endpoint. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from referee.ledger.groups import of_a_file
from referee.ledger.lines import ChangeLine, RunLine, judges_in
from referee.report.plain import plain
from referee.report.shape import RunInfo

LARGEST = 2**53
"""Whole numbers up to here survive JSON in a browser. A step or a length beyond it is a mistake, and left out."""
CLUSTER = "ray"
"""The runtime whose processes share engines."""


def run_info(line: RunLine) -> RunInfo:
    """What a reader wants to know of a run's configuration."""
    config = line.config
    listed = config.get("endpoint")
    endpoints = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return RunInfo(
        began=line.wall,
        version=line.version,
        digest=line.digest,
        kind=_kinds(judges_in(config)),
        models=[str(item.get("model", "")) for item in endpoints],
        priced=any(item.get("price_in") is not None or item.get("price_out") is not None for item in endpoints),
        file=of_a_file(config),
    )


def on_a_cluster(line: RunLine) -> bool:
    """Whether this run's judge calls are made by engines on a Ray cluster, which several processes share."""
    return line.config.get("runtime") == CLUSTER


def change_text(line: ChangeLine) -> str:
    """When the judge changed, from what to what. Names come from a server: shown plainly."""

    def named(model: str, provider: str, fingerprint: str) -> str:
        by, mark = f" by {provider}" if provider else "", f" (fingerprint {fingerprint})" if fingerprint else ""
        return plain(f"{model or 'an unnamed model'}{by}{mark}", 120)

    when = "" if line.step is None or abs(line.step) > LARGEST else f" at step {line.step}"
    before = named(line.before_model, line.before_provider, line.before_fingerprint)
    return (
        f"The judge at {plain(line.endpoint, 60)} changed{when} from {before} to "
        f"{named(line.model, line.provider, line.fingerprint)}: scores before and after may not be on one scale."
    )


def _kinds(judges: Sequence[Mapping[str, Any]]) -> str:
    if len(judges) == 1:
        return str(judges[0].get("kind", ""))
    return ", ".join(f"{judge.get('name', '')} ({judge.get('kind', '')})" for judge in judges)
