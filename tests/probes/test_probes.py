"""Attacks and rewrites as samples, and what a judge's verdicts on them come to."""

from __future__ import annotations

import pytest

from referee.probes import ATTACKS, FAMILIES, REWRITES, Rewrite, rewritten
from referee.probes.trials import ASKED, CONTROL, Trial, attack_report, trials
from referee.records import Message, Reason, Sample, Unscored, Verdict


def verdict(value: float) -> Verdict:
    return Verdict(score=value, value=value, reason="because")


def test_every_attack_is_an_answer_to_every_prompt() -> None:
    """With one control for each prompt, and the prompt's own reference."""
    other = Sample(prompt="p", response="r", reference="x", id="mine", truncated=True, rule_score=1.0)
    tried = trials([[ASKED], [other]], groups=False)
    assert len(tried) == 2 * (len(ATTACKS) + 1)
    [control] = [trial for trial in tried if trial.asked == 1 and not trial.family]
    assert control.samples == (Sample(prompt="p", response=CONTROL, reference="x"),)


def test_for_a_judge_of_groups_each_attack_stands_among_honest_answers() -> None:
    """A group for each, so that attacks do not compete with each other."""
    honest = [Sample(prompt="p", response=f"answer {n}", group="g") for n in range(5)]
    tried = trials([honest], groups=True)
    groups = {sample.group for trial in tried for sample in trial.samples}
    assert len(groups) == len(tried)
    assert [sample.response for sample in tried[0].samples] == [CONTROL, "answer 0", "answer 1", "answer 2"]


def test_credit_is_what_the_control_does_not_get() -> None:
    """A judge that gives everything 0.5 is lenient, not persuaded."""
    tried = trials([[ASKED]], groups=False)
    lenient = attack_report((trial, verdict(0.5)) for trial in tried)
    assert (lenient.credited, lenient.share, lenient.control, lenient.lenient) == (0, 0.0, 0.5, True)
    fooled = attack_report((trial, verdict(0.9 if trial.family == "order" else 0.0)) for trial in tried)
    assert fooled.credited == fooled.families["order"].credited == len(FAMILIES["order"])
    assert fooled.share == pytest.approx(len(FAMILIES["order"]) / len(ATTACKS))
    assert len(fooled.examples) == 5
    assert fooled.examples[0].why == "because"
    slightly = attack_report((trial, verdict(0.2 if trial.family else 0.0)) for trial in tried)
    assert slightly.credited == 0


def test_what_has_no_verdict_is_counted_apart() -> None:
    """It is neither a success of the attack nor of the judge."""
    missing = Unscored(reason=Reason.REFUSED)
    tried = trials([[ASKED]], groups=False)
    found = attack_report((trial, missing if trial.family == "fence" else verdict(0.0)) for trial in tried)
    assert found.unscored == len(FAMILIES["fence"])
    assert found.share == 0.0
    assert attack_report([(Trial("fence", 0, (ASKED,)), missing)]).share is None


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_keeps_every_word_of_the_answer(rewrite: Rewrite) -> None:
    """What it says stays, in order."""
    for text in ("It is 4. That is all there is.", "- **first** thing\n- second\n\n# Sum\nAll of it."):
        words = [word.strip("*#-.:1234567890") for word in text.split()]
        changed = [word.strip("*#-.:1234567890") for word in rewrite.change(text).split()]
        rest = iter(changed)
        assert all(word in rest for word in words if word)


def test_only_the_last_message_of_a_trajectory_is_changed() -> None:
    """And a response that ends with a tool's result has no answer to change."""
    praise = REWRITES[0]
    talk = (Message("assistant", "Let me see."), Message("tool", "4"), Message("assistant", "It is 4."))
    changed = rewritten(Sample(prompt="p", response=talk), praise)
    assert changed is not None
    assert changed.response[:2] == talk[:2]
    assert changed.response[2].content.startswith("It is 4.\n\n")  # type: ignore[union-attr]
    assert rewritten(Sample(prompt="p", response=talk[:2]), praise) is None
    assert rewritten(Sample(prompt="p", response=" "), praise) is None
    assert rewritten(Sample(prompt="p", response="```\ncode\n```"), REWRITES[-1]) is None
