"""The live page in a real browser: it updates while the ledger grows, without an error, and hostile text stays text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import TIMEOUT_MS
from tests.report.ledgers import rubric, several
from tests.report.test_watch import ledger, lines

from referee.ledger import Ledger, TotalLine, VerdictLine
from referee.report.live import live_files
from referee.report.live_server import LiveServer
from referee.report.watch import Watch

pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(300)]
HOSTILE = "</script><script>window.owned=1</script><img src=x onerror=window.owned=1>\u202e\u0000{{charts}}"


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens a page that collects what goes wrong and where it asks."""
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT_MS)

    def open_(url: str, **more: Any) -> tuple[Any, list[str], list[str]]:
        page = context.new_page()
        if more:
            page.set_viewport_size(more["viewport"])
        wrong: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        return page, wrong, asked

    yield open_
    context.close()


def drawn(page: Any, lines_: int) -> None:
    """Wait until numbers and charts are those of a ledger of so many lines."""
    # By attribute: the page's policy forbids the strings of script that other ways of waiting need.
    page.wait_for_selector(f"body[data-drawn='{lines_}']")


def test_it_updates_while_the_run_goes_on(tmp_path: Path, open_page: Any) -> None:
    """Started before the ledger exists; then steps come, and numbers, charts and samples follow."""
    run = tmp_path / "run"
    with LiveServer(live_files(Watch(run))) as server:
        page, wrong, asked = open_page(server.url)
        drawn(page, 0)
        book = ledger(run)
        for step in range(3):
            for each in lines(step, 1000.0 + 10 * step):
                book.append(each)
            book.flush()
            drawn(page, 11 + 10 * step)
        book.close()
        assert page.locator("#panels h2").count() == 10
        assert page.locator("#panels .panel .js-plotly-plot").count() >= 5
        assert "timeout 3" in page.locator("#panel-unscored p").inner_text()
        assert "step 2" in page.locator("#tiles").inner_text()
        assert page.locator("#newest .sample").count() == 12
        assert page.locator("#samples .heading").inner_text().split() == ["Step", "Score", "Sample", "From", "Response"]
        assert "s2-3" in page.locator("#newest .sample").first.inner_text()
        assert not page.locator("#trouble").is_visible()
        assert wrong == []
        assert all(url.startswith((server.url, "data:")) for url in asked)


def test_a_sample_opens_and_stays_open(tmp_path: Path, open_page: Any) -> None:
    """As on the report page: its terms, texts and facts. New ones come behind it; Previous is the next newer one."""
    told = several(1)
    book = Ledger(tmp_path)
    for line in told:
        book.append(line)
    book.flush()
    with LiveServer(live_files(Watch(tmp_path))) as server:
        page, wrong, _ = open_page(server.url)
        drawn(page, len(told))
        page.locator("#newest .sample").last.click()
        page.wait_for_selector("#detail[open]:not([data-busy]) pre.response")
        assert page.locator("#detail h2").inner_text() == "s1-0"
        assert page.locator("#detail pre.response").inner_text() == "Answer 0 of step 1, about apples."
        assert page.locator("#detail .judges tbody tr").count() == 2
        assert page.locator("#detail .fence").count() > 0
        assert page.locator("#detail .compare, #detail .copy").count() == 0
        for each in lines(1, 1010.0):
            book.append(each)
        book.flush()
        drawn(page, len(told) + 10)
        assert page.locator("#newest .sample").count() == 12
        assert page.locator("#detail[open] h2").inner_text() == "s1-0"
        page.click("#detail .previous")
        page.wait_for_selector("#detail:not([data-busy]) h2:text-is('s1-1')")
        assert wrong == []
    book.close()


def test_a_conversation_is_shown_as_one(tmp_path: Path, open_page: Any) -> None:
    """Messages, with reasoning, tool calls and their results."""
    talk = [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "A table.",
            "tool_calls": [{"function": {"name": "tides"}}],
        },
        {"role": "tool", "content": "2.3 m"},
    ]
    ledger(tmp_path, VerdictLine(wall=1001.0, id="talk", value=1.0, response="all", more={"response": talk})).close()
    with LiveServer(live_files(Watch(tmp_path))) as server:
        page, wrong, _ = open_page(server.url)
        drawn(page, 2)
        assert "2.3 m" in page.locator("#newest .sample").first.inner_text()
        page.locator("#newest .sample").first.click()
        page.wait_for_selector("#detail[open]:not([data-busy]) .conversation")
        assert page.locator("#detail .turn.assistant summary").all_inner_texts() == ["Reasoning", "Calls tides"]
        assert page.locator("#detail .turn.tool pre").inner_text() == "2.3 m"
        assert wrong == []


def test_what_is_left_is_said_where_the_run_says_how_long_it_is(tmp_path: Path, open_page: Any) -> None:
    """Unknown at first: only what there is. Once it is announced, the share of it."""
    book = ledger(tmp_path, *lines(0, 1000.0))
    with LiveServer(live_files(Watch(tmp_path))) as server:
        page, wrong, _ = open_page(server.url)
        drawn(page, 11)
        samples = page.locator("#tiles .tile").first
        assert "%" not in samples.inner_text()
        book.append(TotalLine(wall=1004.0, samples=16))
        book.flush()
        drawn(page, 12)
        assert "of 16 (25 %), step 0" in samples.inner_text()
        assert wrong == []
    book.close()


def test_hostile_text_is_inert(tmp_path: Path, open_page: Any) -> None:
    """Script, markup and turned text in every field of a sample are shown as text."""
    book = ledger(tmp_path, *lines(0, 1000.0, HOSTILE))
    book.append(
        VerdictLine(wall=1001.0, id=HOSTILE, group=HOSTILE, unscored=HOSTILE, endpoint=HOSTILE, model=HOSTILE, step=0)
    )
    book.close()
    with LiveServer(live_files(Watch(tmp_path))) as server:
        page, wrong, asked = open_page(server.url)
        drawn(page, 12)
        for number in range(5):
            page.locator("#newest .sample").nth(number).click()
            page.wait_for_selector("#detail[open]:not([data-busy]) h2")
            page.keyboard.press("Escape")
        assert page.evaluate("typeof window.owned") == "undefined"
        assert page.locator("main img, main script, #detail img, #detail script").count() == 0
        assert "<img src=x" in page.locator("#newest").inner_text()
        assert wrong == []
        assert all(url.startswith((server.url, "data:")) for url in asked)


def test_a_phone_shows_it_without_scrolling_sideways(tmp_path: Path, open_page: Any) -> None:
    """Narrow screens get narrow panels."""
    ledger(tmp_path, *lines(0, 1000.0, "long " * 60)).close()
    with LiveServer(live_files(Watch(tmp_path))) as server:
        page, wrong, _ = open_page(server.url, viewport={"width": 390, "height": 800})
        drawn(page, 11)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert wrong == []


def test_a_server_that_is_gone_is_said_and_comes_back(tmp_path: Path, open_page: Any) -> None:
    """The page says that there is no news instead of showing old numbers as new ones."""
    ledger(tmp_path, *lines(0, 1000.0)).close()
    with LiveServer(live_files(Watch(tmp_path))) as server:
        page, _, _ = open_page(server.url)
        drawn(page, 11)
        page.route("**/data.json", lambda route: route.fulfill(status=503, body="gone"))
        page.wait_for_selector("#trouble:not([hidden])")
        assert "503" in page.locator("#trouble").inner_text()
        page.unroute("**/data.json")
        page.wait_for_selector("#trouble", state="hidden")


def test_several_judges_have_a_panel_each(tmp_path: Path, open_page: Any) -> None:
    """As on the page of the report."""
    book = Ledger(tmp_path / "run")
    told = several()
    for line in told:
        book.append(line)
    book.close()
    with LiveServer(live_files(Watch(tmp_path / "run"))) as server:
        page, wrong, _ = open_page(server.url)
        drawn(page, len(told))
        for name in ("judge-0", "judge-1"):
            assert page.locator(f"#panel-{name} .main-svg").count() > 0
        assert "quality, safe: " in page.locator("#panel-agreement").inner_text()
        assert "25 % not scored" in page.locator("#panel-judge-1").inner_text()
    assert wrong == []


def test_criteria_have_a_panel(tmp_path: Path, open_page: Any) -> None:
    """As on the page of the report, and its table grows with the run."""
    told = rubric()
    book = Ledger(tmp_path / "run")
    for line in told[:33]:
        book.append(line)
    book.flush()
    with LiveServer(live_files(Watch(tmp_path / "run"))) as server:
        page, wrong, _ = open_page(server.url)
        drawn(page, 33)
        assert page.locator("#panel-criteria td >> nth=1").inner_text() == "16"
        for line in told[33:]:
            book.append(line)
        book.close()
        drawn(page, len(told))
        assert page.locator("#panel-criteria td >> nth=1").inner_text() == "32"
        assert page.locator("#panel-criteria tr").count() == 5
    assert wrong == []
