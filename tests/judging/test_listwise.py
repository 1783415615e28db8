"""kind = "listwise": a score for each response of a group, from one request or from several orders and chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.judging.groups import DEADLINE, TOO_LONG, group, judge_of, scoring, shown, texts, values, worth

from referee.judging.digest import tokens_in
from referee.judging.listwise import chunked, ordered, orders_of
from referee.records import Ask, Reason, Reply, Unscored, Verdict
from referee.scoring.case import Case
from referee.testing import deliberate

STEEP = scoring(lambda place, count: place)
"""Likes what stands later."""


def words(count: int, tokens: int = 40) -> list[str]:
    """Different texts of about so many tokens, the first number of each from 1 to 9."""
    return [f"{1 + number % 9} {chr(97 + number)}" + " x" * (2 * tokens - 3) for number in range(count)]


def test_one_request_scores_a_whole_group() -> None:
    """The value is the place on the scale."""
    found = deliberate(judge_of("listwise"), worth(1, 10, 4), scoring())
    assert len(found.asks) == 1
    assert values(found.verdicts) == pytest.approx([0, 1, 1 / 3])
    assert [verdict.score for verdict in found.verdicts if isinstance(verdict, Verdict)] == [1, 10, 4]
    for verdict in found.verdicts:
        assert isinstance(verdict, Verdict)
        assert (verdict.how, verdict.uncertainty, verdict.parts) == ("listwise", None, ())
        assert verdict.reason.endswith("so it is")


def test_a_scale_of_ones_own() -> None:
    """Also one with too many steps for a list of them: its ends are in the schema then."""
    found = deliberate(judge_of("listwise", low=0, high=1000), worth(0, 1000, 250), scoring())
    assert values(found.verdicts) == [0.0, 1.0, 0.25]
    schema = found.asks[0].sampling.schema
    assert schema is not None
    assert schema["properties"]["responses"]["items"]["properties"]["score"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 1000,
    }


def test_copies_alone_are_asked_about_once() -> None:
    """A list of one is scored on the scale."""
    found = deliberate(judge_of("listwise", permutations=4), worth(7, 7, 7), scoring())
    assert len(found.asks) == 1
    assert values(found.verdicts) == pytest.approx([6 / 9] * 3)


@given(count=st.integers(1, 20), wanted=st.integers(1, 50))
def test_orders_are_different_and_balanced(count: int, wanted: int) -> None:
    """No order is asked twice, whatever is wanted; in every pair of them each text's places add up to the same."""
    items = tuple(map(str, range(count)))
    orders = [ordered(items, order, wanted) for order in range(orders_of(count, wanted))]
    assert len(set(orders)) == len(orders)
    assert 1 <= len(orders) <= wanted
    assert all(sorted(order) == sorted(items) for order in orders)
    for one, other in zip(orders[::2], orders[1::2], strict=False):
        assert {one.index(item) + other.index(item) for item in items} == {count - 1}


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("permutations", [2, 4])
def test_a_liking_for_a_place_cancels_out(count: int, permutations: int) -> None:
    """One that grows evenly with the place moves all scores alike, and so no difference between them."""
    samples = worth(*(5 + number % 3 for number in range(count)), *([9] if count > 2 else []))
    judge = judge_of("listwise", permutations=permutations, high=100)
    fair, steep = (deliberate(judge, samples, answer) for answer in (scoring(), STEEP))
    moved = [after - before for before, after in zip(values(fair.verdicts), values(steep.verdicts), strict=True)]
    assert moved == pytest.approx([moved[0]] * len(moved))
    assert len(steep.asks) == (2 if count == 2 else permutations)


def test_the_spread_over_orders_says_how_sure_the_judge_is() -> None:
    """Parts hold what each order says."""
    found = deliberate(judge_of("listwise", permutations=2, high=11), worth(1, 5), STEEP)
    for verdict in found.verdicts:
        assert isinstance(verdict, Verdict)
        assert [part.name for part in verdict.parts] == ["order 1", "order 2"]
        assert verdict.uncertainty == pytest.approx(0.05)
    sure = deliberate(judge_of("listwise", permutations=2), worth(1, 5), scoring())
    assert [verdict.uncertainty for verdict in sure.verdicts if isinstance(verdict, Verdict)] == [0.0, 0.0]


def one_fails(ask: Ask) -> Any:
    """The order that begins with the worst has no answer."""
    return DEADLINE if texts(ask)[0].startswith("It is 1 ") else scoring()(ask)


def test_an_order_without_verdict_leaves_none_or_is_left_out() -> None:
    """As `partial` says, and the verdict says so too."""
    strict = deliberate(judge_of("listwise", permutations=2), worth(1, 5), one_fails)
    for verdict in strict.verdicts:
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.DEADLINE
        assert "1 of 2 orders" in verdict.detail
    lenient = deliberate(judge_of("listwise", permutations=2, partial="skip"), worth(1, 5), one_fails)
    assert values(lenient.verdicts) == pytest.approx([0, 4 / 9])
    for verdict in lenient.verdicts:
        assert isinstance(verdict, Verdict)
        assert "1 of 2 orders have no verdict" in verdict.reason
        assert [isinstance(part.verdict, Unscored) for part in verdict.parts].count(True) == 1


def test_without_any_order_there_is_no_verdict() -> None:
    """Whatever `partial` says."""
    for partial in ("skip", "unscored"):
        found = deliberate(judge_of("listwise", permutations=2, partial=partial), worth(1, 5), lambda ask: DEADLINE)
        assert all(isinstance(verdict, Unscored) for verdict in found.verdicts)


def test_ranks_are_shares_of_siblings() -> None:
    """Ties count half, copies too, gated ones are below all. The score is the value, also for shaping.scale = "native";
    the judge's grades are in the parts."""
    ranks = judge_of("listwise", ranks=True)
    assert values(deliberate(ranks, worth(3, 9, 5), scoring()).verdicts) == [0.0, 1.0, 0.5]
    assert values(deliberate(ranks, group("It is 5!", "It is 5.", "9", "1"), scoring()).verdicts) == pytest.approx(
        [0.5, 0.5, 1, 0]
    )
    found = deliberate(ranks, [*worth(7, 7, 3), *group("", "")], scoring())
    assert values(found.verdicts) == [3.5 / 4, 3.5 / 4, 2 / 4, 0.0, 0.0]
    there = [verdict for verdict in found.verdicts if isinstance(verdict, Verdict)]
    assert [verdict.score for verdict in there] == values(found.verdicts)
    grades = [part.verdict for verdict in there for part in verdict.parts]
    assert [grade.score for grade in grades if isinstance(grade, Verdict)] == [7, 7, 3]
    assert values(deliberate(ranks, worth(4, 4), scoring()).verdicts) == [0.5, 0.5]
    assert values(deliberate(ranks, [*worth(4), *group("")], scoring()).verdicts) == [1.0, 0.0]


@pytest.mark.parametrize("count", range(2, 9))
def test_ranks_of_a_group_without_gates_add_up_to_half_its_size(count: int) -> None:
    """So that a group's mean does not depend on ties."""
    for numbers in (range(1, count + 1), [1] * count, [1, *([5] * (count - 1))]):
        ranks = values(
            deliberate(judge_of("listwise", ranks=True, permutations=3), worth(*numbers), scoring()).verdicts
        )
        assert sum(ranks) == pytest.approx(count / 2)


@given(
    count=st.integers(1, 20),
    tokens=st.lists(st.integers(1, 60), min_size=20, max_size=20),
    size=st.integers(3, 20),
    most=st.none() | st.integers(16, 400),
)
def test_chunks_hold_every_text_and_share_anchors(count: int, tokens: list[int], size: int, most: int | None) -> None:
    """Every text is in one chunk, the anchors in all; sizes are kept to, and each chunk compares at least two."""
    items = tuple(f"{number}" + "x" * 4 * long for number, long in enumerate(tokens[:count]))
    chunks = chunked(items, size, most)
    first, *others = map(set, chunks)
    anchors = first.intersection(*others) if others else set()
    assert first.union(*others) == set(items)
    for chunk in chunks:
        assert len(chunk) <= size
        assert len(chunk) > len(anchors)
    if others:
        assert 1 <= len(anchors) <= 2
        own = [text for chunk in chunks for text in chunk if text not in anchors]
        assert len(own) == len(set(own))


def test_a_group_beyond_the_view_is_judged_in_chunks() -> None:
    """Their scores are brought to one level by the responses that all of them show, and the verdict says so."""
    judge = judge_of("listwise", max_view_tokens=170, high=20)
    samples = group(*words(9))
    levels: dict[tuple[str, ...], int] = {}

    def uneven(ask: Ask) -> str:
        """A judge that is milder in every further chunk."""
        level = levels.setdefault(tuple(sorted(texts(ask))), 3 * len(levels))
        return str(scoring(lambda *_: level)(ask))

    found = deliberate(judge, samples, uneven)
    assert len(found.rounds) == 1
    chunks = len(found.asks)
    assert chunks > 2
    assert all(len(texts(ask)) >= 3 for ask in found.asks)
    got = values(found.verdicts)
    steps = [(later - before) * 19 for before, later in itertools.pairwise(got)]
    assert steps == pytest.approx([1.0] * 8)
    for verdict in found.verdicts:
        assert isinstance(verdict, Verdict)
        assert f"judged in {chunks} chunks" in verdict.reason


def test_ranks_are_made_before_scores_are_kept_on_the_scale() -> None:
    """A shift may take two scores beyond its end; they are not a tie for that."""
    judge = judge_of("listwise", max_view_tokens=170, high=9, ranks=True)
    levels: dict[tuple[str, ...], int] = {}

    def uneven(ask: Ask) -> str:
        level = levels.setdefault(tuple(sorted(texts(ask))), 0 if levels else -4)
        return str(scoring(lambda *_: level)(ask))

    samples = group(*(text.replace(text[0], str(5 + number % 5), 1) for number, text in enumerate(words(5))))
    found = deliberate(judge, samples, uneven)
    assert len(found.asks) > 1
    assert values(found.verdicts) == [0.0, 0.25, 0.5, 0.75, 1.0]
    for verdict in found.verdicts:
        assert isinstance(verdict, Verdict)
        assert all(1 <= part.verdict.score <= 9 for part in verdict.parts if isinstance(part.verdict, Verdict))


def test_a_chunk_without_verdict_leaves_its_group_unscored() -> None:
    """As a list without one does; what there is of it is kept."""
    samples = group(*words(9))
    first = texts(next(judge_of("listwise", max_view_tokens=170).deliberate(samples, "schema"))[0])
    found = deliberate(
        judge_of("listwise", max_view_tokens=170),
        samples,
        lambda ask: DEADLINE if texts(ask) == first else scoring()(ask),
    )
    for verdict in found.verdicts:
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.DEADLINE
        assert f"1 of {len(found.asks)} chunks have no verdict" in verdict.detail
        assert len(verdict.parts) == 1


def test_with_partial_skip_a_chunk_without_verdict_costs_its_own_responses_only() -> None:
    """The anchors have their scores from the other chunks, and the others' reasons say what is missing."""
    judge = judge_of("listwise", max_view_tokens=170, partial="skip")
    samples = group(*words(9))
    whole = deliberate(judge, samples, scoring())
    anchors = set.intersection(*(set(texts(ask)) for ask in whole.asks))
    lost = set(texts(whole.asks[0])) - anchors
    first = texts(whole.asks[0])
    found = deliberate(judge, samples, lambda ask: DEADLINE if texts(ask) == first else scoring()(ask))
    for sample, verdict in zip(samples, found.verdicts, strict=True):
        assert isinstance(verdict, Unscored) == (sample.response in lost)
        assert isinstance(verdict, Unscored) or f"1 of {len(whole.asks)} chunks have no verdict" in verdict.reason
    ranked = deliberate(
        judge_of("listwise", max_view_tokens=170, ranks=True, partial="skip"),
        samples,
        lambda ask: DEADLINE if texts(ask) == first else scoring()(ask),
    )
    there = [verdict.value for verdict in ranked.verdicts if isinstance(verdict, Verdict)]
    assert sum(there) == pytest.approx(len(there) / 2)


def fits(most: int) -> Callable[[Ask], Any]:
    """A provider whose context has room for so many responses."""
    return lambda ask: TOO_LONG if len(shown(ask)) > most else scoring()(ask)


@pytest.mark.parametrize("most", [3, 4, 7, 16])
def test_what_is_too_long_for_the_provider_is_asked_in_smaller_chunks(most: int) -> None:
    """Half as large each round; the verdicts are those of a provider with room for all."""
    numbers = [1 + number / 8 for number in range(64)]
    samples = worth(*numbers)
    found = deliberate(judge_of("listwise"), samples, fits(most))
    assert max(len(shown(ask)) for ask in found.rounds[-1]) <= most
    assert len(found.rounds) <= 6
    assert values(found.verdicts) == values(deliberate(judge_of("listwise"), samples, scoring()).verdicts)


@pytest.mark.parametrize("count", [2, 3, 9])
def test_a_provider_without_room_for_three_has_no_verdict(count: int) -> None:
    """It comes to an end, with the provider's reason."""
    found = deliberate(judge_of("listwise", permutations=2), worth(*range(1, 1 + count)), lambda ask: TOO_LONG)
    for verdict in found.verdicts:
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.TOO_LONG


@pytest.mark.parametrize("permutations", [1, 2])
@pytest.mark.parametrize(("count", "long"), [(3, [0]), (8, [0]), (8, [3]), (8, [1, 2, 6]), (64, [7])])
def test_responses_that_never_fit_are_left_out(count: int, long: list[int], permutations: int) -> None:
    """No sibling is lost with them, wherever they stand; what is left is asked about in a few rounds more."""
    for salt in range(10):
        samples = group(*(f"{1 + n % 9} {salt} {n}" + " x" * 5000 * (n in long) for n in range(count)))
        found = deliberate(
            judge_of("listwise", permutations=permutations),
            samples,
            lambda ask: TOO_LONG if any(len(text) > 5000 for text in texts(ask)) else scoring()(ask),
        )
        assert [n for n, verdict in enumerate(found.verdicts) if isinstance(verdict, Unscored)] == long
        assert {verdict.reason for verdict in found.verdicts if isinstance(verdict, Unscored)} == {Reason.TOO_LONG}
        assert len(found.rounds) <= 8
        asked = [tuple(texts(ask)) for ask in found.asks]
        assert len(asked) == len(set(asked))


def test_orders_of_small_chunks_are_not_asked_twice() -> None:
    """A chunk of few has fewer orders than the group: its answers count for several."""
    judge = judge_of("listwise", permutations=8, max_view_tokens=170)
    found = deliberate(judge, group(*words(6)), scoring())
    asked = [tuple(texts(ask)) for ask in found.asks]
    assert len(asked) == len(set(asked))
    assert values(found.verdicts) == pytest.approx([number / 9 for number in range(6)])
    assert all(len(verdict.parts) == 8 for verdict in found.verdicts if isinstance(verdict, Verdict))


@pytest.mark.parametrize("count", [2, 5])
def test_long_responses_are_cut_and_still_compared(count: int) -> None:
    """Each to its share of the view, and a request of three holds three."""
    samples = group(*words(count, tokens=900))
    found = deliberate(judge_of("listwise", max_view_tokens=600), samples, scoring())
    assert all("cut here" in text for ask in found.asks for text in texts(ask))
    assert [len(texts(ask)) for ask in found.asks] == ([2] if count == 2 else [3, 3])
    assert all(sum(map(tokens_in, texts(ask))) < 700 for ask in found.asks)


def test_at_a_deadline_what_is_known_counts() -> None:
    """Of several orders those that have an answer, with partial = "skip"; otherwise none does."""
    for partial, scored in (("skip", True), ("unscored", False)):
        case = Case(0, (0, 1, 2))
        asks = case.begin(judge_of("listwise", permutations=2, partial=partial), worth(1, 5, 9), "schema")
        case.slots[0] = asks[0].read(asks[0], _said(asks[0]))
        case.end(DEADLINE)
        assert case.verdicts is not None
        assert [isinstance(verdict, Verdict) for verdict in case.verdicts] == [scored] * 3


def test_a_deadline_while_chunks_get_smaller_ends_the_case() -> None:
    """The judge does not go on halving."""
    case = Case(0, tuple(range(32)))
    case.begin(judge_of("listwise"), worth(*(1 + number / 8 for number in range(32))), "schema")
    case.slots[0] = TOO_LONG
    case.end(DEADLINE)
    assert case.verdicts is not None
    assert {verdict.reason for verdict in case.verdicts if isinstance(verdict, Unscored)} == {Reason.DEADLINE}


def _said(ask: Ask) -> Any:
    return Reply(text=str(scoring()(ask)), finish="stop")


@pytest.mark.parametrize(("count", "permutations", "calls"), [(0, 3, 0), (1, 3, 1), (2, 3, 2), (3, 3, 3), (8, 3, 3)])
def test_it_says_what_a_group_takes(count: int, permutations: int, calls: int) -> None:
    """And asks exactly that many questions."""
    judge = judge_of("listwise", permutations=permutations)
    assert judge.calls(count) == calls  # type: ignore[attr-defined]
    if count > 1:
        assert len(deliberate(judge, worth(*range(1, 1 + count)), scoring()).asks) == calls
