"""Prepares the documents for the site generator, in build/site: `make docs` builds site/ from there.

The pages under docs/ also have to work on GitHub, so what only a site needs is added to a copy: files of the repository
that a page links to, a page of API reference for each public module, and a navigation in the order of docs/index.md.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "site"
PAGES = OUT / "pages"
API = {
    "referee": "referee",
    "judging": "referee.judging",
    "wire": "referee.wire",
    "testing": "referee.testing",
    "sim": "referee.sim",
}
FIRST = ("Referee", "Sample", "Ticket", "Reward", "Verdict", "Unscored", "score_table", "Config")
"""Of the API reference; the rest follows by name."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]*)(#[^)\s]*)?(?=\))")
LANGUAGE = re.compile(r"^( *```+\w+)[^\S\n]+\S.*$", re.M)
"""More words on a fence than its language, such as `no-run`."""


def prepare() -> None:
    """Write the copy anew."""
    shutil.rmtree(OUT, ignore_errors=True)
    copied: set[Path] = set()
    wanted = sorted((ROOT / "docs").rglob("*.md"))
    while wanted:
        page = wanted.pop()
        if page not in copied:
            copied.add(page)
            wanted += _copy(page)
    shutil.copytree(ROOT / "docs" / "images", PAGES / "images")
    for name, module in API.items():
        _write(PAGES / "api" / f"{name}.md", _reference(module))
    look = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    _write(OUT / "mkdocs.yml", look + "nav:\n" + "".join(f"{line}\n" for line in _navigation()))


def _copy(source: Path) -> list[Path]:
    """Copy a page; code becomes a page that shows it. Returns the files outside docs/ that it links to."""
    text, found = source.read_text(encoding="utf-8"), []
    if source.suffix != ".md":
        text = f"# {source.relative_to(ROOT)}\n\n~~~~ {source.suffix[1:]}\n{text}~~~~\n"
    else:

        def aim(link: re.Match[str]) -> str:
            target = (source.parent / link[1]).resolve()
            if target.is_dir():
                target /= "README.md"
            if target.is_relative_to(ROOT / "docs") and target.suffix != ".json":
                place = target if source.is_relative_to(ROOT / "docs") else None
            elif not target.is_file() or target.suffix == ".svg":
                place = None
            else:
                found.append(target)
                place = target
            shown = _place(place or target)
            return os.path.relpath(shown, _place(source).parent) + (link[2] or "")

        text = LINK.sub(aim, LANGUAGE.sub(r"\1", text))
    _write(_place(source), text)
    return found


def _place(source: Path) -> Path:
    """Where a file of the repository is in the copy."""
    if source.is_relative_to(ROOT / "docs") and source.suffix != ".json":
        return PAGES / source.relative_to(ROOT / "docs")
    shown = source if source.suffix == ".md" else source.with_name(f"{source.name}.md")
    return PAGES / "repository" / shown.relative_to(ROOT)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _reference(module: str) -> str:
    """The public names of a module, for mkdocstrings to fill in."""
    source = ROOT / "src" / module.replace(".", "/") / "__init__.py"
    [names] = [
        ast.literal_eval(node.value)
        for node in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    names = [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]
    public = "".join(f"\n::: {module}.{name}\n" for name in names if not name.startswith("_"))
    return f"# {module}\n{public}"


def _navigation() -> Iterator[str]:
    """The headings and links of docs/index.md, as YAML."""
    yield "  - referee: index.md"
    for heading, body in re.findall(
        r"^## (.+)\n\n((?:- .+\n)+)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.M
    ):
        yield f"  - {heading}:"
        yield from (f'    - "{title}": {page}' for title, page in re.findall(r"^- \[(.+)\]\((.+?)\)", body, re.M))
        if heading == "Reference":
            yield from (f'    - "Python: {module}": api/{name}.md' for name, module in API.items())


if __name__ == "__main__":
    prepare()
