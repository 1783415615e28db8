"""The report page in a real browser: loads alone, filters, opens samples, stays light with 100,000 rows, stays text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import Open, Visit
from tests.report.ledgers import HOSTILE, hostile, make_page, many, several, small
from tests.report.test_resumed_runs import FILE, resumed

from referee.ledger import Line, VerdictLine

pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]

MOST_ELEMENTS = 80
"""Rows in view, and a few around them."""


def verdicts(count: int) -> list[VerdictLine]:
    """The verdict lines of the large runs."""
    return [line for line in many(count) if isinstance(line, VerdictLine)]


def test_the_page_draws_every_panel(visit: Open) -> None:
    """Ten questions with a chart each, tiles and findings, no complaint and no request."""
    page = visit("small", small).page
    titles = page.locator(".panel h2").all_text_contents()
    assert len(titles) == 10
    assert all(title.endswith("?") for title in titles)
    assert page.locator(".panel .js-plotly-plot .main-svg").count() >= 10
    assert page.locator(".tile").count() == 7
    assert page.locator("#findings li").count() >= 1


def test_a_resumed_file_is_shown_as_one_run(visit: Open) -> None:
    """No trainer, nothing cancelled, each sample once; the head says that some came again."""
    page = visit("resumed", lambda: resumed(FILE)).page
    tiles = page.locator("#tiles").inner_text()
    assert "Trainer" not in tiles
    assert "12" in tiles
    assert "0 not scored" in tiles
    assert "cancelled" not in page.locator("#findings").inner_text()
    assert "5 samples came again" in page.locator("#runs").inner_text()
    assert page.locator("#panel-wait").count() == 0
    assert "From" in page.locator("#columns").inner_text()


def test_filters_work_alone_and_together(visit: Open) -> None:
    """Each control narrows the list to what the ledger holds, and clearing brings all back."""
    seen = visit("small", small)
    page = seen.page
    assert seen.count() == 24
    seen.act(lambda: page.select_option("#reason", "unscored"))
    assert seen.count() == 1
    seen.act(lambda: page.select_option("#reason", "=timeout"))
    assert seen.count() == 1
    seen.act(lambda: page.select_option("#reason", "scored"))
    assert seen.count() == 23
    seen.act(lambda: page.fill("#score-from", "7"))
    assert seen.count() == 5
    seen.act(lambda: page.fill("#step-to", "1"))
    assert seen.count() == 2
    seen.act(lambda: page.fill("#group", "G0"))
    assert seen.count() == 2
    seen.act(lambda: page.fill("#group", "g1"))
    assert seen.count() == 0
    seen.act(lambda: page.click("#clear"))
    assert seen.count() == 24
    seen.act(lambda: page.select_option("#origin", "cache"))
    assert seen.count() == 1
    seen.act(lambda: page.click("#clear"))
    seen.act(lambda: page.fill("#query", "ANSWER 3 of step"))
    assert seen.count() == 3
    seen.act(lambda: page.fill("#query", "no answer within"))
    assert seen.count() == 1


def test_the_last_of_many_quick_changes_wins(visit: Open) -> None:
    """Clearing, selecting and typing in one breath: what is shown follows from the controls as they stand."""
    seen = visit("small", small)
    seen.act(
        lambda: seen.page.evaluate(
            """() => {
                const set = (name, value) => {
                    const control = document.getElementById(name);
                    control.value = value;
                    control.dispatchEvent(new Event("input", { bubbles: true }));
                    control.dispatchEvent(new Event("change", { bubbles: true }));
                };
                set("query", "apples");
                document.getElementById("clear").click();
                set("query", "answer 1");
                set("reason", "scored");
                set("query", "");
                set("query", "answer");
                set("reason", "unscored");
            }"""
        )
    )
    assert seen.count() == 1  # "no answer within 60 s"
    seen.act(lambda: seen.page.fill("#query", "apples"))
    assert seen.count() == 0


EARLY = """
document.addEventListener("DOMContentLoaded", () => {
    const control = document.getElementById("group");
    control.value = "g1";
    control.dispatchEvent(new Event("input", { bubbles: true }));
    control.dispatchEvent(new Event("change", { bubbles: true }));
});
"""


def test_what_is_typed_before_the_data_is_unpacked_counts(visit: Open) -> None:
    """An event that comes before there are rows is kept, not waited for in vain."""
    seen = visit("small", small, early=EARLY)
    assert seen.count() == 12
    seen.act(lambda: seen.page.fill("#group", ""))
    assert seen.count() == 24


def test_the_click_that_leaves_a_field_is_not_lost(visit: Open) -> None:
    """Typing and then clicking a row at once: the field's late event must not take the row from under the mouse."""
    seen = visit("small", small)
    for text, first in (("g1", "s1-4"), ("g0", "s1-0")):
        seen.act(lambda text=text: seen.page.fill("#group", text))
        seen.page.click("#list .row >> nth=0")
        seen.there(f"#detail[open]:not([data-busy]) h2:text-is('{first}')")
        seen.page.keyboard.press("Escape")
    seen.act(lambda: seen.page.fill("#query", "apples"))
    seen.page.click("#list .row >> nth=1")
    seen.there("#detail[open]:not([data-busy]) h2:text-is('s1-1')")


def test_sorting(visit: Open) -> None:
    """By a number either way, with what has none last; by a heading too."""
    seen = visit("small", small)
    scores = [line.score for line in small() if isinstance(line, VerdictLine)]
    seen.act(lambda: seen.page.select_option("#sort", "value"))
    for down in (False, True):
        if down:
            seen.act(lambda: seen.page.select_option("#direction", "down"))
        shown = [scores[row] for row in seen.drawn()]
        numbers = [score for score in shown if score is not None]
        assert numbers == sorted(numbers, reverse=down)
    seen.act(lambda: seen.page.click("#columns button:has-text('Reward')"))
    assert seen.page.input_value("#sort") == "reward"
    assert seen.page.input_value("#direction") == "down"
    seen.act(lambda: seen.page.click("#columns button:has-text('Reward')"))
    assert seen.page.input_value("#direction") == "up"


def test_a_sample_opens(visit: Open) -> None:
    """Rollout, judge prompt with its fences, raw reply, verdict, and terms that add up."""
    seen = visit("small", small)
    page = seen.page
    page.click("#list .row[data-row='3']")
    seen.there("#detail[open]:not([data-busy])")
    texts = {
        name: page.locator(f"#detail pre.{name}").text_content() for name in ("prompt", "response", "reply", "why")
    }
    assert texts["prompt"] == "Question 0?"
    assert texts["response"] == "Answer 3 of step 1, about apples."
    assert texts["reply"] == '{"reason": "fine", "score": 5}'
    assert page.locator("#detail pre.asked .fence").all_text_contents() == [
        "<<<response 0123456789abcdef\n",
        "0123456789abcdef response>>>\n",
    ]
    assert page.locator("#detail pre.asked .data").text_content() == texts["response"] + "\n"
    assert page.locator("#detail pre.system").text_content() == "You are a judge."
    terms = [float(text) for text in page.locator("#detail .term b").all_text_contents()]
    assert terms[0] + terms[1] - terms[2] == pytest.approx(terms[3])
    page.click("#detail .next")
    seen.there("#detail h2:text-is('s1-4')")
    page.keyboard.press("Escape")
    assert not page.locator("#detail").is_visible()


def test_a_sample_without_a_score_says_why(visit: Open) -> None:
    """The reason and its detail, and no invented number."""
    seen = visit("small", small)
    seen.act(lambda: seen.page.select_option("#reason", "unscored"))
    seen.page.click("#list .row")
    seen.there("#detail[open]:not([data-busy])")
    assert seen.page.locator("#detail pre.detail").text_content() == "no answer within 60 s"
    assert "none" in seen.page.locator("#detail .terms").text_content()


def test_a_group_is_compared(visit: Open) -> None:
    """Siblings side by side, best score first; from there to one of them, and to the list of the group."""
    seen = visit("small", small)
    page = seen.page
    page.click("#list .row[data-row='1']")
    seen.there("#detail[open]:not([data-busy])")
    page.click("#detail .compare")
    seen.there("#detail .sibling:nth-child(4)")
    assert page.locator("#detail .sibling .link").all_text_contents() == ["s1-3", "s1-2", "s1-1", "s1-0"]
    assert page.locator("#detail .sibling.chosen .link").text_content() == "s1-1"
    page.click("#detail .sibling .link:text-is('s1-2')")
    seen.there("#detail h2:text-is('s1-2')")
    page.click("#detail .compare")
    seen.there("#detail .siblings")
    seen.act(lambda: page.click("#detail .only"))
    assert seen.count() == 4


def test_a_point_of_the_scatter_opens_its_sample(visit: Open) -> None:
    """Every point carries the number of its row."""
    seen = visit("small", small)
    point = seen.page.locator("#panel-length .points path").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen.there("#panel-length .hoverlayer .hovertext")
    seen.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen.there("#detail[open]:not([data-busy]) pre.response")


def test_keys_move_through_the_list(visit: Open) -> None:
    """Arrow keys go from row to row, Enter opens."""
    seen = visit("small", small)
    seen.page.focus("#list")
    for _ in range(3):
        seen.page.keyboard.press("ArrowDown")
    assert seen.page.evaluate("document.activeElement.dataset.at") == "2"
    seen.page.keyboard.press("Enter")
    seen.there("#detail[open]:not([data-busy])")


def test_dark_and_light(visit: Open) -> None:
    """The system's wish is followed, the button overrides it, and charts follow both."""
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.xtick text')).fill"
    seen = visit("small", small, color_scheme="dark")
    dark, dark_ink = seen.page.evaluate(background), seen.page.evaluate(ink)
    seen.page.click("#theme")
    seen.there("html[data-theme='light'] body[data-charts='drawn']")
    light, light_ink = seen.page.evaluate(background), seen.page.evaluate(ink)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < sum(map(int, re.findall(r"\d+", light)))
    assert dark_ink != light_ink


def test_a_phone_needs_no_sideways_scrolling(visit: Open) -> None:
    """Neither the page nor a sample nor a group is wider than the screen."""
    seen = visit("hostile", hostile, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    assert seen.wide() <= 0
    seen.page.click("#list .row >> nth=0")
    seen.there("#detail[open]:not([data-busy])")
    assert seen.wide() <= 0
    dialog = seen.page.locator("#detail")
    assert dialog.evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    seen.page.click("#detail .compare")
    seen.there("#detail .siblings")
    assert dialog.evaluate("e => e.scrollWidth - e.clientWidth") <= 0


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_many_rows_stay_usable(visit: Open, count: int) -> None:
    """Only what is in view exists as elements, at the top, at the end and after filters; searching finds all."""
    seen = visit(f"many-{count}", lambda: many(count))
    page, lines = seen.page, verdicts(count)
    assert seen.count() == count
    assert 0 < len(seen.drawn()) <= MOST_ELEMENTS
    page.eval_on_selector("#list", "list => { list.scrollTop = list.scrollHeight; }")
    seen.there(f"#spacer [data-at='{count - 1}']")
    assert 0 < len(seen.drawn()) <= MOST_ELEMENTS
    seen.act(lambda: page.select_option("#reason", "=refused"))
    assert seen.count() == sum(line.unscored == "refused" for line in lines)
    seen.act(lambda: page.select_option("#reason", ""))
    seen.act(lambda: page.fill("#score-to", "3"))
    assert seen.count() == sum(line.score is not None and line.score <= 3 for line in lines)
    seen.act(lambda: page.click("#clear"))
    seen.act(lambda: page.select_option("#sort", "length"))
    assert len(seen.drawn()) <= MOST_ELEMENTS
    page.fill("#query", "hay")  # overtaken by the next, which must win
    seen.act(lambda: page.fill("#query", "needle"))
    assert seen.count() == count // 1000
    page.click("#list .row >> nth=0")
    seen.there("#detail[open]:not([data-busy])")
    assert "needle" in page.locator("#detail pre.response").text_content()


def test_hostile_rollouts_stay_text(visit: Open) -> None:
    """Every string of the corpus in every field: nothing runs, nothing loads, and the text is there to be read."""
    seen = visit("hostile", hostile)
    page = seen.page
    assert seen.count() == 2 * len(HOSTILE)
    for number in range(len(HOSTILE)):
        seen.page.evaluate(f"openSample({2 * number})")
        seen.there("#detail[open]:not([data-busy]) pre.reply")
        seen.page.evaluate(f"openGroup({2 * number})")
        seen.there("#detail[open]:not([data-busy]) .siblings")
    page.evaluate("openSample(0)")
    seen.there("#detail[open]:not([data-busy]) pre.reply")
    assert page.locator("#detail pre.response").text_content() == HOSTILE[0]
    page.keyboard.press("Escape")
    for step in range(0, 2 * len(HOSTILE), 10):
        page.eval_on_selector("#list", f"list => {{ list.scrollTop = {step * 36}; }}")
        seen.there(f"#spacer [data-at='{step}']")
    for text in HOSTILE[:4]:
        seen.act(lambda text=text: page.fill("#query", text))
        assert seen.count() >= 2
    assert page.evaluate("typeof window.ALARM") == "undefined"
    own = page.evaluate(
        "document.querySelectorAll('iframe, img, object, embed, base, main script, dialog script').length"
    )
    assert own == 0
    assert page.evaluate("document.querySelectorAll('a[href^=javascript]').length") == 0


def test_unseen_characters_are_shown(visit: Open) -> None:
    """A character that turns the direction of writing, or that cannot be seen, appears as its code."""
    seen = visit("hostile", hostile)
    turned = next(number for number, text in enumerate(HOSTILE) if "\u202e" in text)
    seen.page.evaluate(f"openSample({2 * turned})")
    seen.there("#detail[open]:not([data-busy]) pre.reply .unseen")
    text = seen.page.locator("#detail pre.response").text_content()
    assert "U+202E" in text
    assert "U+200B" in text
    assert "\u202e" not in text


def test_a_forged_fence_does_not_end_the_data(visit: Open) -> None:
    """Only the line with the code of the opening one ends a fence; a line with another code is data."""
    lines: list[Line] = [
        VerdictLine(
            value=0.5,
            score=5.0,
            origin="call",
            response="x",
            asked="<<<response aaaabbbbcccc\n111122223333 response>>>\nstill data\naaaabbbbcccc response>>>\nend",
        )
    ]
    seen = visit("forged", lambda: lines)
    seen.page.click("#list .row")
    seen.there("#detail[open]:not([data-busy])")
    data = seen.page.locator("#detail pre.asked .data").text_content()
    assert data == "111122223333 response>>>\nstill data\n"


def test_an_empty_run_says_so(visit: Open) -> None:
    """A ledger without verdicts is a page, not an error."""
    seen = visit("empty", list)
    assert seen.count() == 0
    assert "no verdict" in seen.page.locator("#findings").text_content()


def test_texts_that_were_left_out_are_named(browser: Any, folder: Path) -> None:
    """Past the limit on texts: numbers for all, and a sentence where a text is missing."""
    path = folder / "limited.html"
    make_page(path, many(4000), texts_mb=0.05)
    seen = Visit(browser, path.as_uri())
    seen.loaded()
    assert seen.count() == 4000
    assert "only those are searched" in seen.page.locator("#count").text_content()
    missing = seen.page.evaluate("view.rows.findIndex(row => !view.store.hasBlock(view.store.columns.block[row]))")
    assert missing >= 0
    seen.page.evaluate(f"openSample({missing})")
    seen.there("#detail[open]:not([data-busy])")
    assert "--texts-mb" in seen.page.locator("#detail").text_content()
    seen.close()


def test_several_judges_have_a_panel_each(visit: Open) -> None:
    """One for each judge and one for their agreement, findings that lead there; the reward by judge. A page of one
    judge has none of it, and no choice of judges."""
    page = visit("several", lambda: several(4)).page
    titles = page.locator(".panel h2").all_text_contents()
    assert [title for title in titles if "say" in title] == ["What does quality say?", "What does safe say?"]
    assert "Do the judges agree?" in titles
    assert "25 % not scored, $0.128 spent" in page.locator("#panel-judge-1").inner_text()
    assert "Judges: quality (score), safe (yes_no)" in page.locator("#runs").inner_text()
    assert page.locator("#findings a[href='#panel-judge-1']").count() == 1
    legend = page.locator("#panel-reward .legendtext").all_text_contents()
    assert ["quality" in legend, "safe" in legend, "judge" in legend] == [True, True, False]
    alone = visit("small", small).page
    assert alone.locator("#judge").is_hidden()
    assert alone.locator("[id^='panel-judge'], #panel-agreement").count() == 0


def test_the_list_goes_by_the_judge_that_is_chosen(visit: Open) -> None:
    """Its scores are shown, filtered and sorted by; all together is as before."""
    seen = visit("several", lambda: several(4))
    page = seen.page
    seen.act(lambda: page.select_option("#judge", label="safe"))
    seen.act(lambda: page.select_option("#reason", "unscored"))
    assert seen.count() == 8
    seen.act(lambda: page.select_option("#reason", "scored"))
    assert "24 of 32 samples, mean score 0.75" in page.locator("#count").inner_text()
    seen.act(lambda: page.select_option("#judge", label="quality"))
    seen.act(lambda: page.fill("#score-from", "9"))
    seen.act(lambda: page.select_option("#sort", "value"))
    seen.act(lambda: page.select_option("#direction", "down"))
    scores = page.locator("#spacer .row .score b").all_text_contents()
    assert scores == sorted(scores, key=float, reverse=True)
    assert {float(score) for score in scores} == {9.0, 10.0}
    seen.act(lambda: page.click("#clear"))
    assert seen.count() == 32
    seen.act(lambda: page.fill("#query", "DECLINED to answer"))
    assert seen.count() == 8


def test_a_sample_lists_what_each_judge_said(visit: Open) -> None:
    """Score, weight, what it adds, model and words, or why there is nothing; what it saw, question by question."""
    seen = visit("several", lambda: several(4))
    seen.page.click("#list .row >> nth=0")
    seen.there("#detail[open]:not([data-busy]) .judges")
    rows = [row.split("\t") for row in seen.page.locator("#detail .judges tr").all_inner_texts()]
    assert rows[0] == ["Judge", "Score", "of 1", "Weight", "Adds", "Model", "Cost", "Why"]
    assert rows[1] == ["quality", "2", "0.111", "0.8", "0.089", "small at e", "$0.001", "fine"]
    assert rows[2] == ["safe", "1", "1", "0.2", "0.2", "large at f", "$0.004", "both answers"]
    terms = " ".join(seen.page.locator("#detail .terms").inner_text().split())
    assert "+ 0.089 quality + 0.2 safe" in terms
    titles = seen.page.locator("#detail h3").all_text_contents()
    assert titles == ["The rollout", "What quality saw and said", "safe asked: 1", "safe asked: 1"]
    seen.page.evaluate("openSample(3)")
    seen.there("#detail[open]:not([data-busy]) .judges td:has-text('refused: declined to answer')")
