"""What judges of groups did, counted by sample: live and from lines alike."""

from __future__ import annotations

from typing import Any

import pytest

from referee.ledger import JudgeLine, Tally, judge_line, verdict_line
from referee.ledger.comparisons import Compared
from referee.records import How, Part, Reason, Sample, Settled, Unscored, Verdict

SAMPLE = Sample(prompt="What is a tide?", response="The sea goes up and down.", id="a", group="g")


def side(name: str, shown: str, label: str) -> Part:
    """One comparison as its sample sees it; without a label it has no answer."""
    if not label:
        return Part(name=name, text=f"shown {shown}", verdict=Unscored(reason=Reason.TIMEOUT, detail="60 s"))
    value = {"won": 1.0, "lost": 0.0, "tied": 0.5}[label]
    verdict = Verdict(score=value, value=value, reason="a secret of the judge", how="schema")
    return Part(name=name, text=f"shown {shown}", label=label, verdict=verdict)


def pairs(*parts: Part) -> Verdict:
    """A verdict of comparisons."""
    return Verdict(score=0.5, value=0.5, how="pairwise", reason="won 1, lost 1, tied 1", parts=parts)


PAIRWISE = pairs(
    *(side("b", "first", "won"), side("b", "second", "won")),
    *(side("c", "first", "won"), side("c", "second", "lost")),
    *(side("d", "first", "tied"), side("d", "second", "")),
)


def listwise(chunks: int, *values: float) -> Verdict:
    """A verdict of several orders, or of a group in chunks."""
    text = f"in {chunks} chunks" if chunks > 1 else "shown 1 of 2"
    parts = [
        Part(name=f"order {n + 1}", text=text, verdict=Verdict(score=v, value=v, how="schema"))
        for n, v in enumerate(values)
    ]
    kept = tuple(parts) if len(values) > 1 or chunks > 1 else ()
    return Verdict(score=0.5, value=0.5, how="listwise", uncertainty=0.1 if len(values) > 1 else None, parts=kept)


def counted(verdict: Verdict, name: str = "") -> dict[str, float]:
    """The metrics of one sample, after a check that its line counts as the verdict itself does, with content or not."""
    live = Tally(("x", name) if name else ())
    settled = Settled(verdict=verdict)
    live.judged(name, settled) if name else live.made_of("", settled)
    for content in (True, False):
        line: Any = verdict_line(SAMPLE, settled, content=content)
        again = Tally(("x", name) if name else ())
        again.add(judge_line(name, line) if name else line)
        assert of(again, name) == of(live, name)
    return of(live, name)


def of(tally: Tally, name: str) -> dict[str, float]:
    """What a tally says of judges of groups."""
    prefix = f"judge/{name}/" if name else ""
    names = set(Compared(lists=1, orders=1, comparisons=1).metrics())
    found = {key.removeprefix(prefix): value for key, value in tally.metrics().items() if key.startswith(prefix)}
    return {key: value for key, value in found.items() if key in names}


@pytest.mark.parametrize("name", ["", "quality"])
def test_comparisons_are_counted(name: str) -> None:
    """Five answers: one tied, three of the other four won by the response shown first; one of two pairs changed."""
    assert counted(PAIRWISE, name) == {
        "comparisons": 5,
        "comparisons_missing": 1,
        "tie_share": pytest.approx(1 / 5),
        "first_shown_share": pytest.approx(3 / 4),
        "order_changed_share": pytest.approx(1 / 2),
    }


def test_lists_are_counted() -> None:
    """A list in one order has no spread; one of a group in chunks is said to be that."""
    assert counted(listwise(1, 0.5)) == {"chunked_share": 0.0}
    assert counted(listwise(1, 0.4, 0.6)) == {"chunked_share": 0.0, "order_spread": pytest.approx(0.1)}
    assert counted(listwise(3, 0.5)) == {"chunked_share": 1.0}


@pytest.mark.parametrize("how", ["tag", "schema", "rubric", "gate"])
def test_other_judges_have_no_such_numbers(how: How) -> None:
    """The names are there only where a judge compares."""
    assert counted(Verdict(score=1.0, value=1.0, how=how)) == {}


def test_criteria_and_comparisons_are_not_mixed() -> None:
    """The name of a sibling is no criterion."""
    tally = Tally()
    tally.add(verdict_line(SAMPLE, Settled(verdict=PAIRWISE)))
    assert not [name for name in tally.metrics() if name.startswith("criterion/")]


def test_what_was_judged_again_is_taken_back() -> None:
    """Subtracting a sample leaves the numbers of the others."""
    tally = Tally()
    for verdict in (PAIRWISE, pairs(side("b", "first", "lost"))):
        tally.add(verdict_line(SAMPLE, Settled(verdict=verdict)))
    first = Compared(comparisons=5, missing=1, tied=1, first_won=3, both=2, changed=1)
    tally.take_back(0.5, "", None, compared=[("", first)])
    assert of(tally, "")["comparisons"] == 1
    assert of(tally, "")["first_shown_share"] == 0.0


def test_a_line_without_content_says_how_responses_were_shown() -> None:
    """That is our own word; the judge's words are left out."""
    line = verdict_line(SAMPLE, Settled(verdict=PAIRWISE), content=False)
    assert line.parts[0] == {"name": "b", "text": "shown first", "verdict": "won", "value": 1.0, "unscored": ""}
    assert line.parts[-1]["unscored"] == "timeout"
    assert verdict_line(SAMPLE, Settled(verdict=PAIRWISE), content=True).parts[0]["why"] == "a secret of the judge"


def test_a_forged_line_counts_nothing() -> None:
    """Parts that are none, and words that no judge says, are survived."""
    tally = Tally(("x", "y"))
    tally.add(JudgeLine(judge="y", how="pairwise", value=0.5, parts=[{"name": 3}, {"text": "shown first"}, {}]))
    tally.add(JudgeLine(judge="y", how="listwise", value=0.5, parts=[{"name": "\ud800", "text": "x"}]))
    assert of(tally, "y") == {"chunked_share": 0.0}
