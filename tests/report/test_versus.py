"""What is said of comparisons made by hand: counts, intervals over prompts, place, length, slices, losses, findings."""

from __future__ import annotations

import msgspec
import pytest
from tests.report.comparisons import ABOUT, NAMES, SCORED, asked, pair, reward, scored, unscored

from referee.records import Reason, Verdict
from referee.report.versus import Versus, counts, versus
from referee.report.versus_pair import Comparison, compared


def of(found: list[Comparison], **options: object) -> Versus:
    return versus(found, ABOUT, **options)  # type: ignore[arg-type]


def texts(found: Versus) -> str:
    return "\n".join(finding.text for finding in found.findings)


def test_wins_ties_and_losses_are_counted_for_b() -> None:
    """A win counts only if both orders agree; ties are half a win."""
    found = of([asked(0, "bb"), asked(1, "aa"), asked(2, "ab"), asked(3, "bb"), asked(4, "--")])
    assert (found.wins, found.ties, found.losses, found.unscored) == (2, 2, 1, 0)
    assert found.win_rate.value == pytest.approx(0.6)
    assert found.prompts == 5


def test_what_has_no_verdict_is_no_tie() -> None:
    """It is counted apart, with its reasons, and moves no number."""
    found = of([asked(0, "bb"), unscored(1), unscored(2), unscored(3, Reason.BUDGET)])
    assert (found.pairs, found.wins, found.ties, found.losses, found.unscored) == (4, 1, 0, 0, 3)
    assert found.win_rate.value == 1.0
    assert found.unscored_share == 0.75
    assert found.reasons == {"timeout": 2, "budget": 1}
    assert "3 of 4 comparisons (75.0 %) have no verdict and count nowhere: timeout 2, budget 1." in texts(found)


def test_nothing_compared_has_no_number() -> None:
    """No win rate of 0.5 out of nothing."""
    found = of([unscored(0), unscored(1)])
    assert found.win_rate.value is None
    assert found.interval == ""
    assert "Nothing could be compared" in texts(found)


def test_answers_to_one_prompt_are_not_independent_evidence() -> None:
    """Eight equal outcomes of each prompt say as much as one: the interval stays as wide."""
    outcomes = ["bb" if number % 5 else "aa" for number in range(40)]
    alone = counts([asked(number, outcome) for number, outcome in enumerate(outcomes)])
    eight = counts([asked(number, outcome) for number, outcome in enumerate(outcomes) for _ in range(8)])
    assert alone.interval == eight.interval == "bootstrap"
    assert (eight.win_rate.n, eight.win_rate.groups) == (320, 40)
    assert eight.win_rate.low == pytest.approx(alone.win_rate.low, abs=0.03)
    assert eight.win_rate.high == pytest.approx(alone.win_rate.high, abs=0.03)


def test_where_a_bootstrap_says_nothing_the_interval_is_wilsons() -> None:
    """Few prompts, or all with the same outcome: it neither vanishes nor is a point."""
    for found in (counts([asked(n, "ba"[n % 2] * 2) for n in range(8)]), counts([asked(n, "bb") for n in range(50)])):
        assert found.interval == "wilson"
        assert found.win_rate.low is not None
        assert found.win_rate.high is not None
        assert found.win_rate.low < found.win_rate.high


def test_the_same_comparisons_have_the_same_interval() -> None:
    """Chance is seeded: a number in a paper can be made again."""
    found = [asked(n, "bb" if n % 3 else "aa") for n in range(60)]
    assert of(found).win_rate == of(found).win_rate


def test_a_liking_for_the_first_place_is_seen_and_gains_nothing() -> None:
    """Half of the pairs go to whichever is shown first: ties that changed with the order."""
    found = of([asked(n, "ab" if n % 2 else "bb" if n % 4 else "aa") for n in range(80)])
    assert found.position is not None
    assert found.position.first_wins.value == 0.75
    assert (found.position.decided, found.position.twice, found.position.order_ties) == (160, 80, 40)
    assert found.position.agree == 0.5
    assert found.win_rate.value == 0.5
    assert "The judge favours the answer shown first: the first wins 75.0 %" in texts(found)


def test_a_fair_judge_is_not_accused() -> None:
    """Equal outcomes in both orders are no bias, and a tie in a request is not a decision."""
    found = of([asked(n, "bb" if n % 2 else "aa") for n in range(40)] + [asked(99, "--")])
    assert found.position is not None
    assert found.position.first_wins.value == 0.5
    assert found.position.decided == 80
    assert "favours" not in texts(found)


def test_one_order_is_said_to_be_no_cure() -> None:
    """Then a liking for a place may be what won."""
    about = msgspec.structs.replace(ABOUT, both_orders=False)
    found = versus([asked(n, "a") for n in range(40)], about)
    assert "both_orders = true" in texts(found)


def test_the_judges_words_name_the_answers() -> None:
    """Places mean nothing to a reader: they are other ones in the second order."""
    first, second = asked(0, "bb").orders
    assert (first.first, second.first) == ("a", "b")
    assert first.why == "base is clearer than tuned"
    assert second.why == "tuned is clearer than base"


def test_by_column_each_value_has_its_own_numbers() -> None:
    """The most frequent first; where b clearly loses is a finding."""
    rows = [asked(n, "bb", {"topic": "code"}) for n in range(30)]
    rows += [asked(30 + n, "aa", {"topic": "math"}) for n in range(20)] + [asked(50, "bb")]
    found = of(rows, by=["topic"])
    assert [(part.value, part.pairs, part.wins, part.losses) for part in found.by["topic"]] == [
        ("code", 30, 30, 0),
        ("math", 20, 0, 20),
        ("(none)", 1, 1, 0),
    ]
    assert "tuned loses where topic is math" in texts(found)


def test_wins_that_follow_length_are_said() -> None:
    """Here the longer one always wins, and b is mostly longer."""
    longer = [asked(n, "bb", a="short", b="a much longer text than that") for n in range(30)]
    shorter = [asked(30 + n, "aa", b="short", a="a much longer text than that") for n in range(10)]
    lengths = of([*longer, *shorter]).lengths
    assert lengths.longer_wins.value == 1.0
    assert lengths.unit == "words"
    assert [(part.value, part.pairs, part.win_rate.value) for part in lengths.by] == [
        ("tuned shorter", 10, 0.0),
        ("tuned longer", 30, 1.0),
    ]
    assert "Wins follow length: the longer answer wins 100.0 %" in texts(of([*longer, *shorter]))


def test_stated_lengths_are_tokens() -> None:
    """If every row states one; otherwise words are counted for all."""
    given = reward(Verdict(score=1.0, value=1.0))
    both = pair(0, length=7)
    assert compared(both, (given, given), NAMES, {}, True).a.length == 7
    assert compared(both, (given, given), NAMES, {}, False).a.length == 2


def test_scores_of_their_own_are_compared() -> None:
    """The higher wins, equal ones are a tie; the mean difference has an interval."""
    found = versus([scored(n, 0.5, 0.5 + 0.1 * (n % 3)) for n in range(30)], SCORED)
    assert (found.wins, found.ties, found.losses) == (20, 10, 0)
    assert found.position is None
    assert found.scores is not None
    assert found.scores.difference.value == pytest.approx(0.1)
    assert found.scores.difference.low is not None


def test_worst_losses_are_the_widest_first() -> None:
    """Of the same margin, what the judge was asked about before what a gate settled; wins and ties never."""
    rows = [scored(0, 0.6, 0.5), scored(1, 0.9, 0.2), scored(2, 0.1, 0.9), scored(3, 0.5, 0.5), scored(4, 0.7, 0.3)]
    assert [each.prompt_number for each in versus(rows, SCORED, worst=9).worst] == [1, 4, 0]
    assert [each.prompt_number for each in versus(rows, SCORED, worst=1).worst] == [1]
    gated = scored(0, 1.0, 0.0, how="gate")
    assert [each.prompt_number for each in of([gated, asked(1, "aa")]).worst] == [1, 0]
    assert of([gated]).gated_b == 1


def test_prompts_on_which_b_always_loses_are_before_others() -> None:
    """Of losses that are equal otherwise."""
    rows = [asked(0, "aa"), asked(0, "bb"), asked(1, "aa"), asked(1, "aa")]
    assert [each.prompt_number for each in of(rows).worst] == [1, 1, 0]


def test_equal_answers_are_ties_and_counted() -> None:
    """They were not asked about."""
    same = asked(0, "--", a="the same", b="the same")
    assert (of([same]).ties, of([same]).equal) == (1, 1)


def test_the_result_is_data() -> None:
    """It goes to JSON and back into plain values, numbers without NaN."""
    data = msgspec.json.decode(msgspec.json.encode(of([asked(0, "bb"), unscored(1)], by=["topic"])))
    assert data["about"]["names"] == ["base", "tuned"]
    assert data["win_rate"]["value"] == 1.0
    assert data["win_rate"]["low"] is None
    assert data["worst"] == []
