"""How `--help` is laid out: long lists of options under headings, defaults in one piece, at any width."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
import typer.core

Run = TypeVar("Run", bound=Callable[..., Any])
HEADINGS: dict[str, dict[str, str]] = {
    "plan": {
        "The work": "samples steps asked tokens_in tokens_out work",
        "The provider": "latency latency_p95 concurrency rpm tpm budget price_in price_out",
    },
    "compare": {"Rows": "names key by skip_unmatched", "Output": "worst output ledger as_json quiet"},
    "calibrate": {
        "Labels": "label yes by unlabelled verdicts",
        "Checks": "check check_rows cascade fail_below seed",
        "Output": "output examples as_json quiet",
    },
    "sim": {
        "Speed": "latency sigma speed seed",
        "Limits": "capacity mode rpm tpm",
        "What it serves": "api model key_env batch",
    },
}
"""Of commands with many options: which stand together. The others stand under Options."""
_BREAKS = {ord(" "): "\N{NO-BREAK SPACE}"}


class Command(typer.core.TyperCommand):
    """A command that lists its options under their headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options, and options under their headings."""
        titles = {name: title for title, names in HEADINGS.get(self.name or "", {}).items() for name in names.split()}
        listed: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], **{t: [] for t in titles.values()}}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                title = "Arguments" if param.param_type_name == "argument" else titles.get(param.name or "", "Options")
                extra = re.compile(r"\[[^]]*\]$")  # such as [default: 5; x>=0]
                listed[title].append((record[0], extra.sub(lambda found: found[0].translate(_BREAKS), record[1])))
        for title, records in listed.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def get_help(self, ctx: Any) -> str:
        """The help, with ordinary spaces."""
        return super().get_help(ctx).replace("\N{NO-BREAK SPACE}", " ")


class App(typer.Typer):
    """Commands that list their options under headings."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Run], Run]:
        """As of typer."""
        return super().command(name, cls=Command, **settings)
