"""`referee prices`: the providers that have a name, and what their models cost by the shipped table."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from referee.cli.terminal import terminal
from referee.config import PROVIDERS, find_price, price_table
from referee.config.prices import Price


def command(
    model: Annotated[str, typer.Argument(help="Only models with this in their name, or this one with its date.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Plain data instead of tables.")] = False,
) -> None:
    """List providers by name, and what their models cost.

    endpoint.provider takes these names; prices are filled in where you give none. US dollars per million tokens of the
    standard tier, as of the table's date: the provider's own page decides.
    """
    found = _found(model)
    if as_json:
        providers = msgspec.to_builtins(PROVIDERS)
        data = {"date": price_table().date, "providers": providers, "prices": msgspec.to_builtins(found)}
        typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    else:
        if not model:
            _show_providers()
        _show_prices(found)
    if model and not found:
        typer.echo(
            f"no price is known for {model!r}. Set endpoint.price_in and price_out, or the cost stays unknown.",
            err=True,
        )
        raise typer.Exit(1)


def _found(model: str) -> dict[str, dict[str, Price]]:
    """Models by provider: that one, where there is one of the name, else all whose name holds it."""
    listed = price_table().providers
    exact = {name: {model: price} for name in listed if (price := find_price(name, model)) is not None}
    if exact:
        return exact
    some = {
        name: {known: price for known, price in one.models.items() if model.lower() in known.lower()}
        for name, one in listed.items()
    }
    return {name: models for name, models in some.items() if models}


def _show_providers() -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("provider", "url", "api", "key from", "flex", "batch"):
        table.add_column(title, overflow="fold")
    for name, known in PROVIDERS.items():
        url = "(this machine)" if name == "local" else known.url or f"yours: {known.example_url}"
        table.add_row(name, url, known.api, known.key_env or "-", _share(known.flex), _share(known.batch))
    terminal().print(table, end="\n\n")


def _show_prices(found: dict[str, dict[str, Price]]) -> None:
    listed = price_table()
    if not found:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("provider", "model"):
        table.add_column(title, overflow="fold")
    for title in ("in", "out", "cached", "cache write", "prompts up to"):
        table.add_column(title, justify="right")
    for name, models in found.items():
        for model, price in models.items():
            numbers = [_number(value) for value in (price.input, price.out, price.cached, price.write, price.up_to)]
            table.add_row(name, model, *numbers)
    screen = terminal()
    screen.print(table)
    screen.print(f"\nUS dollars per million tokens, compared with its sources on {listed.date}.", soft_wrap=True)
    for name in found:
        one = listed.providers[name]
        screen.print(f"{name}: {one.source}{f' ({one.note})' if one.note else ''}", soft_wrap=True)


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else f"{value:,}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"x {value:g}"
