"""`referee docs`: the pages of the documents, which are installed with the package."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from referee.cli.terminal import terminal
from referee.errors import ConfigError

PACKAGE = Path(__file__).parent.parent
START = "index"
FENCE = re.compile(r"^ *```")
HEADING = re.compile(r"(#+) (.+)")
LINK = re.compile(
    r"(?P<picture>!?)\[(?P<shown>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?![a-z]+:)(?P<file>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)"
)


def command(
    page: Annotated[
        str, typer.Argument(help="A page, such as trust or verl, or a section of one, such as judging#gates.")
    ] = "",
    search: Annotated[str, typer.Option(help="Show the lines of all pages that hold this text.")] = "",
) -> None:
    """Show a page of the documents; without a name, list all pages.

    In a terminal it is formatted, in your pager; into a pipe or a file it is Markdown.
    """
    console = terminal()
    if page and search:
        raise ConfigError("referee docs shows a page or searches all of them: leave out the page or --search.")
    if search:
        if not (found := list(_lines_with(search))):
            raise ConfigError(f"no page holds {search!r}. `referee docs` lists all pages.")
        typer.echo("\n".join(found))
    elif not page:
        typer.echo(_contents())
    else:
        name, text = text_of(page)
        if console.is_terminal:
            os.environ.setdefault("LESS", "-FRX")  # as git does: colours are kept, a short page is only printed
            with console.pager(styles=True):
                console.print(Markdown(_with_names(text, name), hyperlinks=False))
        else:
            typer.echo(text)


def folder() -> Path:
    """Where the pages are: in the package, or in the clone it runs from."""
    for place in (PACKAGE / "docs", PACKAGE.parent.parent / "docs"):
        if (place / f"{START}.md").is_file():
            return place
    raise ConfigError(f"{PACKAGE}: no pages are installed here. They are in the folder docs of the repository.")


def pages() -> dict[str, Path]:
    """Every page by its name: its path under docs/ without the ending, for a README that of its folder."""
    root = folder()
    return {
        str(path.relative_to(root).with_suffix("")).removesuffix("/README"): path for path in sorted(root.rglob("*.md"))
    }


def text_of(wanted: str) -> tuple[str, str]:
    """A page's name and text, or that of one section, by what users type: trl will do for trainers/trl."""
    typed, _, anchor = wanted.partition("#")
    typed = typed.removeprefix("docs/").removesuffix(".md")
    there = pages()
    short = {name.rpartition("/")[2].lower(): name for name in there}
    name = typed if typed in there else short.get(typed.lower())
    if name is None:
        close = difflib.get_close_matches(typed, [*there, *short], n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise ConfigError(f"there is no page {typed!r}.{hint} `referee docs` lists all pages.")
    lines = there[name].read_text(encoding="utf-8").splitlines()
    return name, "\n".join(_below(lines, anchor, wanted) if anchor else lines)


def _below(lines: list[str], anchor: str, wanted: str) -> list[str]:
    """From the heading with this anchor to the next of its level."""
    found = list(_headings(lines))
    for number, level, slug in found:
        if slug == anchor:
            return lines[number : next((n for n, other, _ in found if n > number and other <= level), None)]
    raise ConfigError(f"{wanted}: the page has no such section. It has: {', '.join(slug for *_, slug in found)}.")


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """The headings outside code: line, level, and anchor as GitHub makes it."""
    code = False
    for number, line in enumerate(lines):
        code ^= FENCE.match(line) is not None
        if not code and (heading := HEADING.match(line)):
            yield number, len(heading[1]), re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")


def _contents() -> str:
    """The start page's list: names and sentences under their headings."""
    found = []
    for heading, body in re.findall(r"^## (.+)\n\n((?:- .+\n)+)", pages()[START].read_text(encoding="utf-8"), re.M):
        found += [heading]
        for page, sentence in re.findall(r"^- \[.+?\]\((.+?)\.md\): (.+)", body, re.M):
            found += [f"  {page.removesuffix('/README'):20} {sentence}"]
        found += [""]
    return "\n".join([*found, "referee docs PAGE shows a page, referee docs --search TEXT all lines with it."])


def _lines_with(text: str) -> Iterator[str]:
    """Each line of a page that holds the text, after the name of its section as the command takes it."""
    for name, path in pages().items():
        lines = path.read_text(encoding="utf-8").splitlines()
        sections = [(0, 0, ""), *_headings(lines)]
        for number, line in enumerate(lines):
            if text.casefold() in line.casefold():
                anchor = max(one for one in sections if one[0] <= number)[2]
                yield f"{name}{'#' if anchor else ''}{anchor}: {line.strip()}"


def _with_names(text: str, page: str) -> str:
    """Links between pages by what the command takes; pictures, which are not installed, by what they show."""
    root = folder()
    home = pages()[page].parent

    def named(link: re.Match[str]) -> str:
        if link["picture"]:
            return f"(picture: {link['shown']})"
        target = os.path.relpath(home / link["file"], root) if link["file"] else page
        name = target.removesuffix(".md").removesuffix("/README").removeprefix("../")
        return f"[{link['shown']}]({name}{link['anchor'] or ''})"

    return LINK.sub(named, text)
