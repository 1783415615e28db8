"""Judges of groups on the page: their panel, a sample's comparisons and orders. Other pages have none."""

from __future__ import annotations

import pytest
from tests.report.browser import Open, Visit
from tests.report.group_ledgers import lists, pairs
from tests.report.ledgers import small
from tests.report.test_browser_criteria import cells

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]


def show(seen: Visit, response: str, how: str = "openSample") -> None:
    """Open the first group's sample with this response. Rows are in the order of settling."""
    find = f"(head, row) => head[1].includes('{response}') && view.store.word('group', row) === 'g0'"
    seen.page.evaluate(f"{how}(view.store.heads.findIndex({find}))")


def test_groups_have_a_panel(visit: Open) -> None:
    """A row for each judge of groups, with what its kind has; a page without one has no such panel."""
    page = visit("pairs", pairs).page
    head, row = cells(page, "#panel-groups table")
    found = dict(zip(head, row, strict=True))
    assert found["Judge"] == "pairwise"
    assert found["Comparisons"] == "48"
    assert found["Changed with the order"] == "17 %"
    assert found["Not scored, being alone"] == "1"
    assert "In chunks" not in found
    page = visit("lists", lists).page
    head, *rows = cells(page, "#panel-groups table")
    assert [row[0] for row in rows] == ["list", "pair"]
    assert [row[head.index("In chunks")] for row in rows] == ["100 %", "–"]
    assert visit("small", small).page.locator("#panel-groups").count() == 0


def test_a_sample_lists_its_comparisons(visit: Open) -> None:
    """Which order was won, what that counts as, and why; the other sample is a click away, as what was asked is."""
    seen = visit("pairs", pairs)
    show(seen, "answer 2")  # worth 5, and its siblings 2, 9 and 6
    seen.there("#detail[open]:not([data-busy]) .pairs")
    head, *rows = cells(seen.page, "#detail .pairs")
    assert head == ["Against", "Shown first", "Shown second", "Counts as", "Why"]
    assert sorted(row[:4] for row in rows) == [
        ["g0-0", "won", "won", "won"],
        ["g0-1", "lost", "lost", "lost"],
        ["g0-3", "won", "lost", "tied, by its order"],
    ]
    assert "shown first: [place 1] says more." in seen.page.locator("#detail .pairs").inner_text()
    seen.page.click("#detail .pairs .link:text-is('g0-1')")
    seen.there("#detail h2:text-is('g0-1')")
    seen.page.click("#detail p .link")
    seen.there("#detail h2:text-is('g0-0')")
    titles = [text for text in seen.page.locator("#detail h3").all_text_contents() if "asked" in text]
    assert len(titles) == 12
    assert {title.partition(": ")[2] for title in titles} == {"the first is better", "the second is better"}


def test_siblings_without_ids_are_found_by_their_place(visit: Open) -> None:
    """The group's second rollout is #2."""
    seen = visit("pairs without ids", lambda: pairs(ids=False))
    show(seen, "answer 0")
    seen.there("#detail[open]:not([data-busy]) .pairs")
    seen.page.click("#detail .pairs .link:text-is('#2')")
    seen.there("#detail pre.response:has-text('answer 1')")


def test_a_sample_lists_its_orders(visit: Open) -> None:
    """Of each judge by its name. On a phone tables scroll, and the page does not."""
    seen = visit("lists", lists, viewport={"width": 390, "height": 800}, is_mobile=True, has_touch=True)
    assert seen.wide() == 0
    show(seen, "answer 1")
    seen.there("#detail[open]:not([data-busy]) .pairs")
    titles = seen.page.locator("#detail h3").all_text_contents()
    assert titles[:2] == ["The orders of list", "The comparisons of pair"]
    head, *rows = cells(seen.page, "#detail .parts:not(.pairs)")
    assert head == ["Order", "Value", "Why"]
    assert [row[0] for row in rows] == ["order 1", "order 2"]
    assert "in 2 chunks" in seen.page.locator("#detail").inner_text()
    assert seen.wide() == 0


def test_a_group_is_compared_by_its_scores(visit: Open) -> None:
    """The best first."""
    seen = visit("pairs", pairs)
    show(seen, "answer 0", "openGroup")
    seen.there("#detail .sibling:nth-child(4)")
    names = seen.page.locator("#detail .sibling .link").all_text_contents()
    assert (names[0], names[-1]) == ("g0-1", "g0-0")
