"""Links to samples, own columns as filters, conversations and verdicts side by side, in a real browser."""

from __future__ import annotations

import pytest
from tests.report.browser import Open, Visit
from tests.report.ledgers import HOSTILE, RUN, pair, several

from referee.ledger import Line

pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]

CALL = {"type": "function", "function": {"name": "search <b>", "arguments": '{"q": "<img src=x onerror=alert(1)>"}'}}
MESSAGES = [
    {"role": "assistant", "content": "I look it up.", "reasoning_content": "Is it <i>known</i>?", "tool_calls": [CALL]},
    {"role": "tool", "name": "search", "content": [{"type": "text", "text": "<script>alert(2)</script>"}]},
    {"role": "<u>odd</u>", "content": None},
]


def talks() -> list[Line]:
    """Eight samples with own columns; the first has messages, some of the columns are markup."""
    lines: list[Line] = [RUN]
    for index in range(8):
        columns = {"topic": ["math", HOSTILE[0]][index % 2], "level": index % 4, "<b>note": "long " * 40}
        more = {"columns": columns} | ({"response": MESSAGES} if index == 0 else {})
        lines += pair(None, index, 1 + index, prompt="Ask", response=f"Answer {index}", more=more)
    return lines


def opened(seen: Visit) -> str:
    """The text of the dialog, once it is filled."""
    seen.there("#detail[open]:not([data-busy]) .facts")
    text: str = seen.page.locator("#detail").inner_text()
    return text


def test_the_address_names_the_open_sample_and_opens_it(visit: Open) -> None:
    """Opening changes the address, closing takes it back; the link and the sample's id both open it."""
    seen = visit("talks", talks)
    page = seen.page
    page.click("#list .row >> nth=3")
    assert "Answer 3" in opened(seen)
    link = page.evaluate("location.hash")
    assert len(link) == len("#sample=") + 13
    page.keyboard.press("Escape")
    seen.there("#detail:not([open])")
    assert page.evaluate("location.hash") == ""
    for name in (link, "#sample=sNone-3"):
        page.evaluate("hash => { location.hash = hash }", name)
        assert "Answer 3" in opened(seen)
        page.keyboard.press("Escape")
        seen.there("#detail:not([open])")
    page.evaluate("location.hash = '#sample=<b>nobody</b>'")
    page.get_by_text("No sample of this page is called <b>nobody</b>").wait_for()


def test_own_columns_filter_the_list(visit: Open) -> None:
    """A select for each column of a few short values; none for one of long texts."""
    seen = visit("talks", talks)
    page = seen.page
    names = page.eval_on_selector_all("#own select", "found => found.map(e => e.dataset.column)")
    assert names == ["topic", "level"]
    seen.act(lambda: page.select_option("[data-column=topic]", label="math"))
    assert seen.count() == 4
    seen.act(lambda: page.select_option("[data-column=level]", label="2"))
    assert seen.count() == 2
    seen.act(lambda: page.click("#clear"))
    assert seen.count() == 8


def test_a_conversation_is_shown_as_messages_and_stays_text(visit: Open) -> None:
    """Roles, reasoning, tool calls and results; nothing of them becomes markup."""
    seen = visit("talks", talks)
    page = seen.page
    page.click("#list .row >> nth=0")
    text = opened(seen)
    assert "Response: 3 messages" in text
    assert page.locator("#detail .turn > b").all_text_contents() == ["assistant", "tool: search", "<u>odd</u>"]
    assert "Calls search <b>" in text
    assert "<img src=x onerror=alert(1)>" in text
    assert "<script>alert(2)</script>" in text
    page.click("#detail .turn summary >> nth=0")
    page.get_by_text("Is it <i>known</i>?").wait_for()
    assert page.locator("#detail :is(i, u, img, script)").count() == 0


def test_verdicts_of_a_group_stand_side_by_side(visit: Open) -> None:
    """A row for each judge, a column for each sibling."""
    seen = visit("several-beside", several)
    page = seen.page
    page.click("#list .row >> nth=0")
    opened(seen)
    page.click("#detail .compare")
    seen.there("#detail .beside")
    assert page.locator("#detail .beside tbody tr").count() == 2
    assert page.locator("#detail .beside thead th").count() == 5
