"""The panel of an audit in a real browser, of a ledger that the real audit wrote and of one made by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.audit.world import merit, world
from tests.report.browser import TIMEOUT_MS, Open
from tests.report.ledgers import audited, small

from referee.ledger import Line, read
from referee.records import Sample
from referee.report.live import live_files
from referee.report.live_server import LiveServer
from referee.report.watch import Watch

pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]

LOVED = "delve"
STEPS, GROUPS, SIBLINGS = 20, 8, 8


def fond(text: str) -> int:
    """A judge that gives the highest score for a word."""
    return 10 if LOVED in text else merit(text)


@pytest.fixture(scope="module")
def gamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a run whose policy finds that out."""
    folder, rng = tmp_path_factory.mktemp("gamed"), random.Random(0)
    words = [f"{first}{vowel}{last}" for first in "bdfghklm" for vowel in "aeio" for last in "bmt"]
    with world({"every": 4, "share": 0.2}, main=fond, ledger={"dir": str(folder)}) as run:
        for step in range(STEPS):
            samples = []
            for place in range(GROUPS * SIBLINGS):
                said = rng.choices(words, k=24)
                if rng.random() < 0.02 + 0.6 * step / STEPS:
                    said[rng.randrange(24)] = LOVED
                samples.append(
                    Sample(
                        prompt=f"Question {step}.{place // SIBLINGS}?",
                        response=f"{' '.join(said)} [[quality={rng.randint(1, 6)}]]",
                        id=f"{step}-{place}",
                        group=f"{step}/{place // SIBLINGS}",
                        step=step,
                    )
                )
            run.referee.score(samples)
            run.settle()
    return folder


@pytest.fixture
def lines(gamed: Path) -> Callable[[], list[Line]]:
    """Its lines."""
    return lambda: list(read(gamed))


def test_an_alarm_names_the_word_and_opens_its_samples(visit: Open, lines: Callable[[], list[Line]]) -> None:
    """One card for an alarm from its begin on; each link opens a sample with the word; the curves are behind it."""
    seen = visit("gamed", lines)
    page, panel = seen.page, seen.page.locator("#panel-audit")
    assert any(LOVED in finding for finding in page.locator("#findings .bad").all_inner_texts())
    assert "phrase" in page.locator("#tiles .tile:has-text('Alarms')").inner_text()
    card = panel.locator("article:has-text('Critical: phrase')")
    assert card.count() == 1
    said = card.inner_text()
    assert f"'{LOVED}'" in said
    assert "critical since step" in said
    assert "share at start" in said
    links = card.locator("li a")
    assert links.count() == 3
    for number in range(3):
        name = links.nth(number).inner_text()
        links.nth(number).click()
        seen.there(f"#detail[open]:not([data-busy]) h2:text-is('{name}')")
        assert LOVED in page.locator("#detail pre.response").inner_text()
        page.click("#detail .close")
    assert "answers with a paid phrase" in page.locator("#panel-audit-record .legendtext").all_text_contents()
    asked = page.locator("#panel-audit-asked .legendtext").all_text_contents()
    assert {"credit of worthless canaries", "judge above the shadow judge"} <= set(asked)


def test_a_phone_shows_the_alarms(visit: Open, lines: Callable[[], list[Line]]) -> None:
    """Nothing is wider than the screen, in the dark too."""
    seen = visit("gamed", lines, viewport={"width": 390, "height": 844}, color_scheme="dark")
    assert seen.wide() <= 0


def test_the_live_page_shows_the_alarms(gamed: Path, browser: Any) -> None:
    """As the report does, but that samples cannot be opened there: only the newest are at hand."""
    page = browser.new_page()
    with LiveServer(live_files(Watch(gamed))) as server:
        page.goto(server.url, timeout=TIMEOUT_MS)
        page.wait_for_selector("#panel-audit-record .legendtext", timeout=TIMEOUT_MS)
        assert "phrase" in page.locator("#tiles .tile:has-text('Alarms')").inner_text()
        assert page.locator("#panel-audit li b").count() >= 3
        assert page.locator("#panel-audit li a").count() == 0
    page.close()


def test_alarms_that_are_over_come_last(visit: Open) -> None:
    """Evidence, advice and what is known of each; a run without an audit has no word of it."""
    seen = visit("audited", audited)
    panel = seen.page.locator("#panel-audit")
    assert "2 alarms, 1 not over. The audit asked 9 questions beside the rewards, $0.006 spent." in panel.inner_text()
    first, second = panel.locator("article").all()
    assert "Critical: canaries, since step 2" in first.inner_text()
    assert "Ask another judge." in first.inner_text()
    assert "Warning: phrase, since step 2, over at step 3" in second.inner_text()
    assert seen.page.locator("#panel-audit-asked .legendtext").count() == 4
    first.locator("li a").first.click()
    seen.there("#detail[open]:not([data-busy]) h2:text-is('s2-3')")
    assert visit("small", small).page.locator("[id^='panel-audit']").count() == 0
