"""The length penalty is the documented formula, and lengths are counted in one way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import LengthConfig
from referee.errors import InputError
from referee.records import Sample
from referee.shaping import check_lengths, count_tokens, length_penalty, median

DEFAULT = LengthConfig(enable=True)


@st.composite
def configs(draw: st.DrawFn, largest: float = 1e6) -> LengthConfig:
    peak = draw(st.floats(0, largest))
    outer = draw(st.floats(peak, largest * 2, exclude_min=True))
    return LengthConfig(enable=True, peak_ratio=peak, outer_ratio=outer, max_penalty=draw(st.floats(0, 1e9)))


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 1.0),
        (49, 1.0),
        (50, 1.0),
        (55, 0.75),
        (60, 0.5),
        (65, 0.25),
        (70, 0.0),
        (71, 0.0),
        (100, 0.0),
        (130, 0.0),
        (135, 0.25),
        (140, 0.5),
        (145, 0.75),
        (150, 1.0),
        (151, 1.0),
        (10_000, 1.0),
    ],
)
def test_the_table_for_a_median_of_100(length: int, expected: float) -> None:
    """With the defaults: free from 70 to 130, half at 60 and 140, full from 50 down and from 150 up."""
    assert length_penalty(length, 100, DEFAULT) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("length", "middle", "config", "expected"),
    [
        (6, 8, DEFAULT, 0.0),
        (5, 8, DEFAULT, 0.375),  # (5.6 - 5) / 1.6
        (11, 8, DEFAULT, 0.375),  # (11 - 10.4) / 1.6
        (4, 8, DEFAULT, 1.0),
        (1, 1.5, DEFAULT, 1 / 6),  # (1.05 - 1) / 0.3
        (140, 100, LengthConfig(max_penalty=0.3), 0.15),
        (140, 100, LengthConfig(max_penalty=0.3, penalty_scale=7.0), 0.15),
        (0, 100, LengthConfig(peak_ratio=0.5, outer_ratio=2.0), 1 / 3),  # (50 - 0) / 150
        (300, 100, LengthConfig(peak_ratio=0.5, outer_ratio=2.0), 1.0),
        (100, 100, LengthConfig(peak_ratio=0.0, outer_ratio=0.1), 0.0),
        (105, 100, LengthConfig(peak_ratio=0.0, outer_ratio=0.1), 0.5),
        (0, 100, LengthConfig(peak_ratio=1.0, outer_ratio=2.0), 0.0),
        (2, 1, DEFAULT, 1.0),
        (3, 0.5, DEFAULT, 1.0),
        (50, 0, DEFAULT, 0.0),
        (50, -3, DEFAULT, 0.0),
    ],
)
def test_other_settings_by_hand(length: int, middle: float, config: LengthConfig, expected: float) -> None:
    """Values worked out by hand; the scale is applied elsewhere; no median, no penalty."""
    assert length_penalty(length, middle, config) == pytest.approx(expected, abs=1e-12)


def by_the_book(length: float, middle: float, config: LengthConfig) -> float:
    """The formula as the documents write it, branch by branch."""
    peak, outer, top = config.peak_ratio, config.outer_ratio, config.max_penalty
    if middle <= 0 or middle * (1 - peak) <= length <= middle * (1 + peak):
        return 0.0
    if middle * (1 - outer) <= length < middle * (1 - peak):
        return top * (middle * (1 - peak) - length) / (middle * (outer - peak))
    if middle * (1 + peak) < length <= middle * (1 + outer):
        return top * (length - middle * (1 + peak)) / (middle * (outer - peak))
    return top


@given(
    length=st.integers(0, 40_000),
    middle=st.integers(0, 40_000).map(lambda n: n / 2),
    peak=st.floats(0, 2),
    width=st.floats(0.01, 2),
    top=st.floats(0, 10),
)
@settings(deadline=None, max_examples=300)
def test_it_is_the_documents_formula(length: int, middle: float, peak: float, width: float, top: float) -> None:
    """Our shorter form and the documents' four branches give the same number."""
    config = LengthConfig(peak_ratio=peak, outer_ratio=peak + width, max_penalty=top)
    assert length_penalty(length, middle, config) == pytest.approx(by_the_book(length, middle, config), abs=1e-6)


@given(length=st.floats(0, 1e300), middle=st.floats(-1, 1.7e308), config=configs(1e300))
@settings(deadline=None, max_examples=300)
def test_it_stays_between_zero_and_its_plateau(length: float, middle: float, config: LengthConfig) -> None:
    """However large or small the numbers, the penalty is a number from 0 to max_penalty."""
    assert 0 <= length_penalty(length, middle, config) <= config.max_penalty


@given(
    middle=st.floats(0.5, 1e5),
    peak=st.floats(0, 2),
    width=st.floats(0.01, 2),
    corner=st.sampled_from([-1, 1]),
    which=st.sampled_from(["peak", "outer"]),
    step=st.floats(-1e-3, 1e-3),
)
@settings(deadline=None, max_examples=300)
def test_it_has_no_jumps(middle: float, peak: float, width: float, corner: int, which: str, step: float) -> None:
    """Around each of the four corners a small step in length is a small step in penalty: no steeper than the ramp."""
    config = LengthConfig(peak_ratio=peak, outer_ratio=peak + width)
    at = middle * (1 + corner * (peak if which == "peak" else config.outer_ratio))
    change = abs(length_penalty(at + step * middle, middle, config) - length_penalty(at, middle, config))
    assert change <= abs(step) / width + 1e-6


@given(middle=st.integers(1, 1000), first=st.integers(0, 3000), second=st.integers(0, 3000), config=configs(3))
@settings(deadline=None, max_examples=200)
def test_farther_never_costs_less(middle: int, first: int, second: int, config: LengthConfig) -> None:
    """On either side of the median, straying farther costs at least as much."""
    if (first - middle) * (second - middle) >= 0:
        near, far = sorted((first, second), key=lambda length: abs(length - middle))
        assert length_penalty(near, middle, config) <= length_penalty(far, middle, config)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([], 0.0), ([7], 7.0), ([3, 1], 2.0), ([5, 1, 9], 5.0), ([1, 2, 3, 100], 2.5), ([0, 0], 0.0)],
)
def test_the_median_of_an_even_count_is_the_mean_of_the_middle_two(lengths: list[int], expected: float) -> None:
    """Unlike torch.median, which takes the lower one."""
    assert median(lengths) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" \n\t\x1c ", 0),
        ("word", 1),
        ("two words", 2),
        ("It's 42!", 5),  # It ' s 42 !
        ("a_b c-d", 4),  # a_b c - d
        ("...", 3),
        ("x\x00y", 3),
        ("naïve café", 2),
        ("“quoted”", 3),
        ("你好，世界", 5),
        ("ひらがなとカタカナ", 9),
        ("GPT4是模型", 4),  # GPT4 是 模 型
        ("안녕 세계", 2),
        ("🙂 ok", 2),
    ],
)
def test_words_and_punctuation_marks_are_counted(text: str, count: int) -> None:
    """A word is one, a mark is one, and where a script has no spaces each character is one."""
    assert count_tokens(text) == count


@given(text=st.text(st.characters(max_codepoint=127), max_size=60))
@settings(deadline=None, max_examples=200)
def test_plain_text_is_counted_by_the_same_rule(text: str) -> None:
    """The fast way for ASCII agrees with the rule it stands for."""
    assert count_tokens(text) == len(re.findall(r"\w+|[^\w\s]", text))


@given(text=st.text(max_size=60))
@settings(deadline=None, max_examples=100)
def test_adding_a_plain_word_adds_one(text: str) -> None:
    """Any text can be counted, and the two ways of counting join without a seam."""
    assert count_tokens(f"{text} word") == count_tokens(text) + 1


def sample(id: str, group: str = "", length: int | None = None) -> Sample:
    return Sample(prompt="p", response="r", id=id, group=group, length=length)


def test_a_group_states_all_lengths_or_none() -> None:
    """A mixed group is refused, with the group and one sample of each kind."""
    fine = [
        sample("a", "g", 5),
        sample("b", "g", 0),
        sample("c", "h"),
        sample("d", "h"),
        sample("e"),
        sample("f", "", 3),
    ]
    check_lengths(fine)
    with pytest.raises(InputError, match=r"group 'g'.*'a'.*'x'") as caught:
        check_lengths([*fine, sample("x", "g")])
    assert caught.value.field == "length"
    with pytest.raises(InputError, match=r"group 'h'.*'y'.*'c'"):
        check_lengths([*fine, sample("y", "h", 9)])


@pytest.mark.parametrize("length", [-1, 2**53 + 1, 10**400])
def test_impossible_lengths_are_refused(length: int) -> None:
    """A length below zero or beyond what floats count exactly names its sample."""
    with pytest.raises(InputError, match="'a'"):
        check_lengths([sample("a", "", length)])
