"""The page of a comparison as a file, and in a browser: complete, silent, and hostile answers stay text."""

from __future__ import annotations

import base64
import json
import re
import stat
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import Visit
from tests.report.comparisons import ABOUT, SCORED, asked, scored, unscored
from tests.report.ledgers import HOSTILE
from tests.report.test_page import SINKS, policy_of

from referee.errors import ConfigError
from referee.report.page import asset
from referee.report.versus import versus
from referee.report.versus_page import SCRIPTS, versus_page, write_versus
from referee.report.versus_pair import Comparison


def some() -> list[Comparison]:
    """Every outcome, with hostile texts."""
    rows = [asked(n, "bb", {"topic": "code"}, b=HOSTILE[n % len(HOSTILE)]) for n in range(60)]
    rows += [asked(60 + n, "aa", {"topic": HOSTILE[2]}, a=HOSTILE[n % len(HOSTILE)]) for n in range(20)]
    return [*rows, asked(90, "ab", {"topic": "code"}), unscored(91)]


def write(path: Path) -> None:
    write_versus(path, versus(some(), ABOUT, ["topic"]), some())


def packed(text: str, name: str) -> Any:
    match = re.search(rf'id="{name}">([^<]*)<', text)
    assert match
    return json.loads(zlib.decompress(base64.b64decode(match[1])))


def test_the_page_holds_everything_and_lets_one_script_run(tmp_path: Path) -> None:
    """Readable by its owner only, data as base64, scripts by digest, nothing from outside."""
    path = tmp_path / "page.html"
    write(path)
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "<title>tuned against base</title>" in text
    assert re.search(r"script-src 'sha256-[^ ]*';", policy_of(text))
    assert "ALARM" not in re.sub(r'<script type="text/plain".*?</script>', "", text)
    assert packed(text, "versus")["result"]["wins"] == 60
    outcomes = [pair["outcome"] for pair in packed(text, "pairs")]
    assert outcomes == [0.0] * 20 + [None] + [0.5] + [1.0] * 60


def test_a_page_replaces_only_pages(tmp_path: Path) -> None:
    """A file that is none is not lost."""
    precious = tmp_path / "answers.jsonl"
    precious.write_text("{}\n")
    with pytest.raises(ConfigError, match="not overwritten"):
        write(precious)


def test_names_are_text() -> None:
    """They come from the command line."""
    found = versus([scored(0, 0.1, 0.2)], SCORED.__class__(names=("<b>", "{{data}}"), judge="j", kind="k", by="score"))
    assert "<title>{{data}} against &lt;b&gt;</title>" in "".join(versus_page(found, []))


def test_long_texts_are_cut_where_a_page_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones, which are the worst losses, stay whole."""
    monkeypatch.setattr("referee.report.versus_page.MOST_TEXT", 1500)
    rows = [asked(0, "aa", a="x" * 1000), asked(1, "bb", a="y" * 1000)]
    text = "".join(versus_page(versus(rows, ABOUT), rows))
    assert packed(text, "versus")["cut"] == 1
    assert [len(pair["a"]["text"]) for pair in packed(text, "pairs")] == [1000, 301]


def test_its_script_has_no_way_to_make_text_run() -> None:
    """As the scripts of the report's page."""
    code = re.sub(r"//.*", "", asset(SCRIPTS[-1]))
    assert not SINKS.findall(code)
    assert "textContent = source" not in code
    assert re.findall(r'(?:src|href)="([^#"][^"]*)"', asset("frame.html") + asset("versus.html")) == ["data:,"]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(600)
def test_the_page_in_a_browser(tmp_path: Path, browser: Any) -> None:
    """Numbers, slices and pairs are there; filters work; an opened pair shows both answers and the judge's words; a
    phone shows it without scrolling sideways."""
    path = tmp_path / "page.html"
    write(path)
    visit = Visit(browser, path.as_uri(), viewport={"width": 390, "height": 800})
    visit.loaded()
    page = visit.page
    assert "74.7 %" in page.locator("#tiles").inner_text()
    assert "60 wins" in page.locator(".key").inner_text()
    assert page.locator("#panels .panel").count() == 2
    assert page.locator("#panels .panel").first.locator(".rate").count() == 5
    assert page.locator("#compared > details").count() == 50
    page.locator("#more").click()
    assert page.locator("#compared > details").count() == 82
    page.locator("#outcome").select_option("none")
    assert page.locator("#count").inner_text().startswith("1 of 82")
    page.locator("#outcome").select_option("lost")
    page.locator("#compared > details summary").first.click()
    visit.there("#compared .inside")
    inside = page.locator("#compared .inside").inner_text()
    assert "base (line 61" in inside
    assert "tuned shown first: base. tuned is clearer than base" in inside
    page.locator("#query").fill("prompt 77")
    assert page.locator("#count").inner_text().startswith("1 of 82")
    assert page.locator("#compared img, #compared script").count() == 0
    assert visit.wide() <= 0
    visit.close()
