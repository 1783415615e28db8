"""`referee prices`: the providers that have a name, and what their models cost by the shipped table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

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
    rows = [("provider", "api", "key from", "flex", "batch", "url")]
    for name, known in PROVIDERS.items():
        url = "(this machine)" if name == "local" else known.url or f"yours: {known.example_url}"
        rows.append((name, known.api, known.key_env or "-", _share(known.flex), _share(known.batch), url))
    _show(rows, "<<<<<<")
    terminal().print(
        '\nflex, batch: factor on the price with endpoint.tier = "flex" and `referee score --batch`; -: not there.\n'
    )


def _show_prices(found: dict[str, dict[str, Price]]) -> None:
    listed = price_table()
    if not found:
        return
    rows: list[Sequence[str]] = [("provider", "in", "out", "cached", "write", "up to", "model")]
    for name, models in found.items():
        for model, price in models.items():
            longest = "-" if price.up_to is None else f"{price.up_to / 1000:g}k"
            rows.append((name, *map(_number, (price.input, price.out, price.cached, price.write)), longest, model))
    _show(rows, "<>>>>><")
    screen = terminal()
    screen.print(
        f"\nUS dollars per million tokens, compared with its sources on {listed.date}. cached, write: tokens out of "
        "the provider's prompt cache, and into it; -: as `in`. up to: a prompt of more tokens costs more than this.\n"
    )
    for name in found:
        one = listed.providers[name]
        screen.print(f"{name}: {one.source}{f' ({one.note})' if one.note else ''}")


def _show(rows: Sequence[Sequence[str]], sides: str) -> None:
    """A line for each row. If the terminal is too narrow for the last column, all of it goes to lines of its own: an
    address or a name that is broken in two cannot be copied."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first = [
        " ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)) for row in rows
    ]
    narrow = max(map(len, first)) > terminal().width
    for row, line in zip(rows, first, strict=True):
        typer.echo(f"{line[: len(line) - widths[-1]].rstrip()}\n  {row[-1]}" if narrow else line.rstrip())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"x {value:g}"
