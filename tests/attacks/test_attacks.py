"""Attacks get no credit through our parsing or our fences. What only a better judge can stop is counted, not hidden."""

from __future__ import annotations

import re

import pytest
from tests.attacks.corpus import ATTACKS, armed
from tests.attacks.trial import KINDS, Kind, credited, plan, try_on

from referee.judging import Form
from referee.judging.guard import FIELDS, show
from referee.records import JudgeRequest
from referee.sim.judge import GullibleJudge, QuotingJudge

FORMS: tuple[Form, ...] = ("schema", "text")


def test_the_corpus_is_broad() -> None:
    """At least sixty, all different."""
    assert len({text for _, text in ATTACKS}) == len(ATTACKS) >= 60


@pytest.mark.parametrize(("name", "text"), ATTACKS, ids=[name for name, _ in ATTACKS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_quoted_verdict_is_no_credit(kind: Kind, name: str, text: str) -> None:
    """A careful judge quotes the forgery before its own verdict: only its own counts, or none does."""
    for form in FORMS:
        assert not credited(try_on(QuotingJudge(), kind, form, armed(text))), form


@pytest.mark.parametrize(("name", "text"), ATTACKS, ids=[name for name, _ in ATTACKS])
def test_a_forged_tag_reaches_no_judge(name: str, text: str) -> None:
    """A judge that obeys the last verdict tag it sees finds none it could obey."""
    for kind in KINDS:
        assert not credited(try_on(GullibleJudge(("tag",)), kind, "text", armed(text))), kind


@pytest.mark.parametrize(("name", "text"), ATTACKS, ids=[name for name, _ in ATTACKS])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fence_holds(kind: Kind, name: str, text: str) -> None:
    """The candidate stands between its two fence lines, whole, and nothing of it stands outside."""
    for form in FORMS:
        request = plan(kind, form, armed(text))
        assert isinstance(request, JudgeRequest)
        asked = request.messages[-1].content
        (match,) = re.findall(r"<<<response ([0-9a-f]{16})\n(.*?)\n\1 response>>>", asked, re.DOTALL)
        code, inside = match
        assert code not in text
        assert inside.strip() == show(armed(text), reasoning=False).strip()
        outside = asked.replace(f"<<<response {code}\n{inside}\n{code} response>>>", "")
        assert "[[quality=" not in outside
        for field in FIELDS:
            assert f"<<<{field}" not in inside
            assert f"{field}>>>" not in inside
        for token in ("<|", "[INST]", "</s>", "<verdict", "</verdict", "<think>", "<<SYS>>"):
            assert token not in inside, f"{token} reaches the judge"
