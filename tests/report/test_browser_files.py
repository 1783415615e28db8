"""Pages of files that were judged, in a real browser: groups in any order, no chart of one mark, rewards alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.browser import Open
from tests.report.ledgers import shuffled
from tests.report.test_files import rewards

from referee.report.files import Rewards

pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]


def test_siblings_are_found_in_a_shuffled_file(visit: Open) -> None:
    """All eight, though they were judged in five batches; also of a name that is part of another's, and no other's."""
    seen = visit("shuffled", shuffled)
    page = seen.page
    seen.act(lambda: page.fill("#group", '"g1"'))
    assert seen.count() == 8
    page.click("#list .row >> nth=0")
    seen.there("#detail[open]:not([data-busy])")
    page.click("#detail .compare")
    seen.there("#detail .sibling:nth-child(8)")
    assert sorted(page.locator("#detail .sibling .link").all_text_contents()) == sorted(f"s{n}" for n in range(8, 16))
    assert "8 samples" in page.locator("#detail > p").inner_text()
    page.keyboard.press("Escape")
    seen.act(lambda: page.fill("#group", "g1"))
    assert seen.count() == 88
    page.click("#list .row >> nth=0")
    seen.there("#detail[open]:not([data-busy])")
    page.click("#detail .compare")
    seen.there("#detail .siblings")
    seen.act(lambda: page.click("#detail .only"))
    assert seen.count() == 8


def test_a_file_without_steps_has_no_chart_of_one_mark(visit: Open) -> None:
    """What has one value is said in words; money is written in full."""
    page = visit("shuffled", shuffled).page
    drawn = page.eval_on_selector_all(".panel:has(.js-plotly-plot)", "found => found.map(e => e.id)")
    assert drawn == ["panel-scores", "panel-length"]
    words = page.locator("#panels").inner_text()
    assert "In 0 of 20 groups all verdicts are equal" in words
    assert "160 samples in" in words
    assert page.locator(".panel .chart[hidden]").count() == 0
    assert page.locator("#samples .step:visible").count() == 0
    assert page.locator("#columns .group:visible").count() == 1
    assert page.locator(".brief #panel-cost").count() == 1
    panels = page.eval_on_selector_all(".panel", "found => found.map(e => e.clientHeight)")
    assert max(panels) < 600


def test_rewards_have_a_page(visit: Open, tmp_path: Path) -> None:
    """Scores, rewards and why; no tile and no panel about what their rows do not say."""
    path = rewards(tmp_path / "rewards.jsonl", [3, 4, 7, 10, None] * 8, cost=0.0)
    seen = visit("rewards", lambda: Rewards(path))
    page = seen.page
    assert page.locator("#tiles .tile > span").all_text_contents() == ["Samples", "Scored", "Mean score", "Mean reward"]
    names = page.eval_on_selector_all(
        "#panels [id]", "found => found.map(e => e.id).filter(e => e.startsWith('panel-'))"
    )
    assert names == ["panel-scores", "panel-length", "panel-extremes", "panel-reward", "panel-unscored"]
    assert "timeout 8" in page.locator("#panel-unscored").inner_text()
    page.click("#list .row[data-row='2']")
    seen.there("#detail[open]:not([data-busy])")
    assert page.locator("#detail pre.why").text_content() == "fine"
    assert "1970" not in page.locator("#detail").inner_text()
