"""Rubrics on the page: the panel of criteria and the criteria of a sample. A page without them has neither."""

from __future__ import annotations

from typing import Any

import pytest
from tests.report.browser import Open
from tests.report.ledgers import CONFIG, START, by_rubric, judged, pair, part, rubric, small

from referee.ledger import JudgeLine, Line, RunLine

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]


def cells(page: Any, selector: str) -> list[list[str]]:
    """The texts of a table's rows; of a cell with two lines, the first."""
    rows = page.locator(f"{selector} tr").all()
    return [[text.split("\n")[0] for text in row.locator("th, td").all_inner_texts()] for row in rows]


def test_criteria_have_a_panel(visit: Open) -> None:
    """Pass rates over the steps and a table; findings lead there. A page without a rubric has none."""
    page = visit("rubric", rubric).page
    panel = page.locator("#panel-criteria")
    assert "116 verdicts on 4 criteria" in panel.inner_text()
    assert "1 always passed, 1 never" in panel.inner_text()
    assert panel.locator(".legendtext").all_text_contents() == ["density", "hollow", "sources", "tone"]
    head, *rows = cells(page, "#panel-criteria table")
    assert head == [
        "Criterion",
        "Verdicts",
        "Pass rate",
        "Weight",
        "True is",
        "No verdict",
        "Flat groups",
        "Correlation with length",
        "",
    ]
    assert rows[0] == ["density", "32", "63 %", "5", "good", "0 %", "6 of 8", "0.56", ""]
    assert rows[1] == ["hollow", "32", "100 %", "3", "bad", "0 %", "8 of 8", "–", "always passed, zero variance"]
    assert rows[2][-1] == "never passed, zero variance"
    assert rows[3] == ["tone", "20", "30 %", "2", "good", "17 %", "0 of 8", "-0.09", ""]
    assert page.locator("#findings a[href='#panel-criteria']").count() == 2
    assert visit("small", small).page.locator("#panel-criteria, .criteria").count() == 0


def test_a_sample_lists_its_criteria(visit: Open) -> None:
    """Verdict, weight, polarity, what it adds and why; or why there is no verdict. Their words are searched."""
    seen = visit("rubric", rubric)
    seen.page.evaluate("openSample(15)")
    seen.there("#detail[open]:not([data-busy]) .parts")
    head, *rows = cells(seen.page, "#detail .parts")
    assert head == ["Criterion", "Verdict", "Passed", "Weight", "True is", "Adds", "Why"]
    assert rows[0] == ["density", "no", "no", "5", "good", "+0", "About density."]
    assert rows[1] == ["hollow", "no", "yes", "3", "bad", "+0", "About hollow."]
    assert rows[3] == ["tone", "none: timeout", "", "2", "good", "", "too slow"]
    assert "It is true of it: tone." in seen.page.locator("#detail .parts").inner_text()
    seen.page.evaluate("openSample(8)")
    seen.there("#detail[open]:not([data-busy]) .parts td:has-text('+0.625')")
    assert "They add up to 0.875" in seen.page.locator("#detail").inner_text()
    assert "null" not in seen.page.locator("#detail").inner_text()
    seen.page.click("#detail .close")
    seen.act(lambda: seen.page.fill("#query", "too SLOW"))
    assert seen.count() == 4


def test_criteria_of_several_judges_are_told_apart(visit: Open) -> None:
    """By the name of the judge, in the panel and in the sample. One step has no lines to draw."""

    def lines() -> list[Line]:
        judges = [{"name": name, "kind": "rubric", "combine": "all"} for name in ("quality", "safe")]
        found: list[Line] = [RunLine(wall=START, config={**CONFIG, "judge": judges})]
        for index in range(8):
            for line in judged(1, index, 5, 1.0):
                if isinstance(line, JudgeLine):
                    found.append(
                        JudgeLine(
                            judge=line.judge,
                            batch=line.batch,
                            index=index,
                            score=1.0,
                            value=1.0,
                            how="rubric",
                            parts=[part("kind", 1.0, 1.0)],
                        )
                    )
                else:
                    found.append(line)
        return found

    seen = visit("rubrics", lines)
    assert [row[0] for row in cells(seen.page, "#panel-criteria table")[1:]] == ["quality: kind", "safe: kind"]
    assert seen.page.locator("#panel-criteria .chart").is_hidden()
    seen.page.evaluate("openSample(0)")
    seen.there("#detail[open]:not([data-busy]) .parts")
    titles = seen.page.locator("#detail h3").all_text_contents()
    assert titles[:3] == ["The criteria, judge by judge", "The criteria of quality", "The criteria of safe"]
    assert "none adds a part of its own" in seen.page.locator("#detail").inner_text()


def test_many_criteria_fit_a_phone(visit: Open) -> None:
    """Long names and sentences, more than are listed: the table scrolls, the page does not."""

    def lines() -> list[Line]:
        found: list[Line] = list(pair(1, 100, 5))
        for number in range(60):
            long = f"{number} " + "W" * 300
            found += by_rubric(number % 3, number, [part(long, 1.0, 1.0), part("<b>shared</b>", 1.0, 1.0)])
        return found

    seen = visit("many criteria", lines, viewport={"width": 390, "height": 800}, is_mobile=True, has_touch=True)
    assert seen.wide() == 0
    assert len(cells(seen.page, "#panel-criteria table")) == 51
    assert "The 50 most frequent are listed, of 61 or more." in seen.page.locator("#panel-criteria").inner_text()
    assert cells(seen.page, "#panel-criteria table")[1][0] == "<b>shared</b>"
    seen.page.evaluate("openSample(1)")
    seen.there("#detail[open]:not([data-busy]) .parts")
    assert seen.wide() == 0
