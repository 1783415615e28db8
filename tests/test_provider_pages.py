"""docs/providers: a page for every provider, whose configuration loads and is what the page says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from referee.config import PROVIDERS, load, provider_of

PAGES = Path(__file__).parent.parent / "docs" / "providers"
MOST_LINES = 10
"""Of a configuration, blank ones not counted."""


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def toml_of(text: str) -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_page_can_be_followed(name: str, tmp_path: Path) -> None:
    """Its TOML loads as it stands and gives this provider's address, API and key variable, which the page names."""
    text = page(name)
    blocks = toml_of(text)
    assert len(blocks) == 1
    assert sum(map(bool, blocks[0].splitlines())) <= MOST_LINES
    file = tmp_path / "referee.toml"
    file.write_text(blocks[0])
    endpoint = load(file).endpoint[0]
    known = PROVIDERS[name]
    assert endpoint.provider == name
    assert provider_of(endpoint) is known
    assert (endpoint.api, endpoint.key_env) == (known.api, known.key_env)
    assert f"`{known.key_env}`" in text if known.key_env else "key: none" in text.lower() or "no key" in text.lower()
    assert re.search(r"\]\(https://", text), "no link to the provider's own pages"


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_page_keeps_what_it_says_of_prices(name: str, tmp_path: Path) -> None:
    """Its model is in the table if it says so, and it has a tier or a batch API if it says so."""
    text = page(name)
    file = tmp_path / "referee.toml"
    file.write_text(toml_of(text)[0])
    endpoint = load(file).endpoint[0]
    from_table = bool(endpoint.filled.prices_date)
    assert ("in the [table](README.md#prices)" in text) == from_table
    assert (PROVIDERS[name].flex is not None) == ("| flex | " in text and "| flex | none" not in text)
    assert (PROVIDERS[name].batch is not None) == ("](../batch.md)" in text)


def test_commented_lines_are_right_too(tmp_path: Path) -> None:
    """What a page offers behind a # can be uncommented."""
    for name in PROVIDERS:
        commented = re.findall(r"^# (\w+ = .*)$", toml_of(page(name))[0], re.M)
        for line in commented:
            file = tmp_path / "referee.toml"
            file.write_text(toml_of(page(name))[0].replace(f"# {line}", line))
            assert load(file)
            assert tomllib.loads(line)


def test_the_index_lists_them_all() -> None:
    """Each once, with its variable; and no page is left over."""
    text = page("README")
    for name, known in PROVIDERS.items():
        row = next(line for line in text.splitlines() if f"[`{name}`]({name}.md)" in line)
        assert (f"`{known.key_env}`" if known.key_env else "none") in row
    assert {file.stem for file in PAGES.glob("*.md")} == {*PROVIDERS, "README"}
    assert load(tomllib.loads(toml_of(text)[0])).endpoint[0].provider == "anthropic"


def test_relative_links_lead_somewhere() -> None:
    """Pages and headings that are linked are there."""
    for file in PAGES.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)", file.read_text(encoding="utf-8")):
            assert not target or (PAGES / target).exists(), f"{file.name}: {target}"
