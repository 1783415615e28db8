"""The index, juries and cascades in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import Open, Visit
from tests.report.ledgers import CONFIG, HOSTILE, RUN, START, audited, pair, shuffled, small
from tests.report.test_index import make, write
from tests.report.test_members import part

from referee.ledger import Line, RunLine

pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs: with steps, without, and one in whose every text an attacker had a hand."""
    for name, lines in (("steps", small()), ("file", shuffled()), ("gamed", audited())):
        write(tmp_path / "runs" / name, lines)
    evil: dict[str, Any] = {**CONFIG, "judge": {"kind": HOSTILE[2], "criteria": HOSTILE[1], "high": 10, "low": 1}}
    write(tmp_path / "runs" / "<img src=x onerror=window.ALARM=1>", [RunLine(wall=START, config=evil), *small()[1:]])
    return tmp_path / "runs"


def opened(browser: Any, page: Path, **options: Any) -> Visit:
    """The index, when it is drawn."""
    seen = Visit(browser, page.as_uri(), **options)
    seen.there("body[data-charts]:not([data-busy]), #trouble:not([hidden])")
    assert seen.page.locator("#trouble").is_hidden()
    return seen


def names(seen: Visit) -> list[str]:
    """Runs in the order of the table."""
    found: list[str] = seen.page.eval_on_selector_all("#list tr", "rows => rows.map(row => row.dataset.run)")
    return found


def test_runs_are_listed_sorted_and_filtered(runs: Path, tmp_path: Path, browser: Any) -> None:
    """A row each; headings sort, words and choices filter; nothing of a ledger acts."""
    make(runs, "-o", tmp_path / "index.html")
    seen = opened(browser, tmp_path / "index.html")
    page = seen.page
    assert len(names(seen)) == 4
    page.click("#head button:text-is('Samples')")
    assert names(seen)[0] == "file"
    page.click("#head button:text-is('Samples')")
    assert names(seen)[-1] == "file"
    page.fill("#query", "canaries")
    assert page.locator("#count").inner_text() == "0 of 4 runs."
    page.fill("#query", "credits empty")
    assert names(seen) == ["gamed"]
    assert "2 alarms" in page.locator("#list").inner_text()
    page.fill("#query", "")
    page.select_option("#kind", HOSTILE[2])
    assert names(seen) == ["<img src=x onerror=window.ALARM=1>"]
    assert page.evaluate("typeof window.ALARM") == "undefined"
    assert page.locator("#list polyline").count() == 1
    assert "no page yet" in page.locator("#list").inner_text()
    seen.close()


def test_two_runs_are_laid_over_each_other(runs: Path, tmp_path: Path, browser: Any) -> None:
    """Numbers, settings that differ and curves of both; of a file without steps, how often each score was given."""
    make(runs, "-o", tmp_path / "index.html")
    seen = opened(browser, tmp_path / "index.html")
    page = seen.page
    assert "Tick two runs" in page.locator("#picked").inner_text()
    page.click("tr[data-run='steps'] input")
    page.click("tr[data-run='gamed'] input")
    seen.there("body[data-charts='drawn']")
    assert page.locator("#picked").inner_text() == "A is steps, B is gamed."
    differ = page.locator("#panels .panel:has(h2:text-is('Settings that differ')) tbody tr")
    assert differ.all_inner_texts() == ["audit.enable\t–\ttrue"]
    titles = page.locator("#panels h2").all_text_contents()
    assert titles[2:4] == ["Mean score", "Mean reward"]
    legend = page.locator("#panels .panel:has(h2:text-is('Mean score')) .legendtext").all_text_contents()
    assert legend == ["A: steps", "B: gamed"]
    page.click("tr[data-run='file'] input")
    seen.there("#picked:text-is('A is gamed, B is file.')")
    seen.there("body[data-charts='drawn']")
    assert page.locator("#panels h2").all_text_contents()[2:] == ["How often was each score given?"]
    seen.close()


def test_a_phone_shows_it(runs: Path, tmp_path: Path, browser: Any) -> None:
    """No scrolling sideways, in the dark too; a run's own page is a click away."""
    make(runs, "-o", tmp_path / "index.html", "--pages")
    seen = opened(browser, tmp_path / "index.html", viewport={"width": 390, "height": 844}, color_scheme="dark")
    for name in ("steps", "file"):
        seen.page.click(f"tr[data-run='{name}'] input")
    seen.there("body[data-charts='drawn']")
    assert seen.wide() <= 0
    link = seen.page.locator("tr[data-run='steps'] a").get_attribute("href")
    assert (tmp_path / link).is_file()
    seen.close()


def cascade() -> list[Line]:
    """Eight samples that the cheap member decides, and four that go on to the strong one."""
    lines: list[Line] = [RunLine(wall=START, config={**CONFIG, "judge": {"kind": "cascade"}})]
    for number in range(12):
        parts = (
            [part("cheap", 0.5, "unsure"), part("strong", 0.9, "decided")]
            if number % 3 == 2
            else [part("cheap", 0.8, "decided")]
        )
        lines += pair(None, number, 5, how="cascade", parts=parts, cost=0.002)
    return lines


def jury() -> list[Line]:
    """Two members that agree and one that does not."""
    lines: list[Line] = [replace_kind("jury")]
    for number in range(12):
        parts = [part("a", number / 12), part("b", number / 12), part("c", 1 - number / 12)]
        lines += pair(None, number, 5, how="jury", parts=parts)
    return lines


def replace_kind(kind: str) -> RunLine:
    """The run line of such a judge."""
    return RunLine(wall=START, config={**RUN.config, "judge": {"kind": kind}})


def test_juries_and_cascades_have_a_panel(visit: Open) -> None:
    """Which member decided and at what cost; how far members agree. Other judges have none."""
    table = visit("cascade", cascade).page.locator("#panel-members-0 tbody tr").all_inner_texts()
    assert table[0].split("\t") == ["cheap", "12", "0", "0.7", "8", "67 %", "$0.016", "$0.002"]
    assert table[1].split("\t") == ["strong", "4", "0", "0.9", "4", "33 %", "$0.008", "$0.002"]
    panel = visit("jury", jury).page.locator("#panel-members-0")
    assert panel.locator("thead").inner_text().strip().split("\t")[-3:] == ["with a", "with b", "with c"]
    assert panel.locator("tbody tr >> nth=0").locator("b").all_inner_texts() == ["a", "1", "-1"]
    assert visit("small", small).page.locator("[id^='panel-members']").count() == 0
