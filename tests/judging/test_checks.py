"""Checks: rules decide criteria without a question; what cannot be decided is unscored, never a zero."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.errors import ConfigError
from referee.judging.checks import CheckFailed, CheckFunction, run_check, unknown_checks
from referee.records import Criterion, Reason, Sample, Unscored, Verdict
from referee.rollouts import read_rubric
from referee.scoring.check_process import CheckProcess, open_checks

SAMPLE = Sample(prompt="p", response="r", reference="12")
OWN = """
import os, signal, time

def short(response, parameters, sample):
    print("this is no answer")
    return len(response) <= parameters["most"]

def half(response, parameters, sample):
    return 0.5

def prompt_of(response, parameters, sample):
    return sample.prompt == response

def wrong(response, parameters, sample):
    return "yes"

def raises(response, parameters, sample):
    raise KeyError("lost")

def pid(response, parameters, sample):
    return os.getpid() / 2**32

def hangs(response, parameters, sample):
    while True:
        pass

def dies(response, parameters, sample):
    os._exit(3)

def forks(response, parameters, sample):
    if not os.fork():
        signal.pause()
    hangs(response, parameters, sample)

def interrupts(response, parameters, sample):
    os.kill(os.getppid(), signal.SIGUSR1)
    return True

def hangs_if_long(response, parameters, sample):
    return hangs(response, parameters, sample) if len(response) > 10 else True

def loses_halves(response, parameters, sample):
    if parameters.get("raise"):
        raise ValueError(chr(0xd800))
    return response == "a?" and sample.response == "b?"
"""


def check(name: str, parameters: Any = None) -> Criterion:
    """A criterion as a rubric gives it."""
    return read_rubric([{"text": "t", "check": name, "parameters": parameters}])[0]


def value(name: str, response: str, parameters: Any = None, sample: Sample = SAMPLE) -> float:
    verdict = run_check(check(name, parameters), response, sample, {})
    assert isinstance(verdict, Verdict)
    assert (verdict.how, verdict.score) == ("check", verdict.value)
    return verdict.value


def missing(criterion: Criterion, functions: Mapping[str, CheckFunction], response: str = "r") -> str:
    verdict = run_check(criterion, response, SAMPLE, functions)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.CONFIG
    return verdict.detail


@pytest.mark.parametrize(
    ("name", "parameters", "yes", "no"),
    [
        ("contains", "tide", "The TIDE is high.", "The sea is high."),
        ("contains", ["tide", "moon"], "Moon and tide", "Only the moon"),
        ("contains", {"text": "Tide", "case": True}, "A Tide", "a tide"),
        ("contains", {"text": "art", "words": True}, "It is art.", "It is a part."),
        ("not_contains", ["sorry", "cannot"], "Here it is.", "I am sorry."),
        ("not_contains", {"texts": ["ass"], "words": True}, "A class", "An ass."),
        ("max_words", 3, "one two three", "one two three four"),
        ("min_words", {"words": 2}, "one two", "one"),
        ("words", {"min": 1, "max": 2}, "one", "one two three"),
        ("valid_json", None, ' {"a": [1, 2]} ', "{'a': 1}"),
        ("valid_json", None, '```json\n{"a": 1}\n```', 'Here: {"a": 1}'),
        ("valid_json", None, "null", "[" * 5000),
        ("equals", "1/2", "So it is \\boxed{\\frac{1}{2}}.", "So it is \\boxed{\\frac{1}{3}}."),
        ("equals", "1234", "1,234.0", "12,34"),
        ("equals", 0.5, "$x = \\dfrac12$", "x = 2"),
        ("equals", "Paris", "The answer is **paris**.", "The answer is London."),
        ("equals", "(3, 4)", "\\boxed{\\left(3,4\\right)}", "\\boxed{(4,3)}"),
        ("equals", "11/2", "#### 5.5", "#### 1 1/2"),
        ("equals", ["7", "seven"], "Final answer: Seven", "Final answer: eight"),
        ("equals", "-3", "\\boxed{−3}", "\\boxed{3}"),
        ("equals", None, "First \\boxed{3}, then \\boxed{12}", "First \\boxed{12}, then \\boxed{3}"),
    ],
)
def test_shipped_rules(name: str, parameters: Any, yes: str, no: str) -> None:
    """Each on a response it is true of, and on one it is not."""
    assert value(name, yes, parameters) == 1.0
    assert value(name, no, parameters) == 0.0


def test_nothing_to_compare_with_is_no_zero() -> None:
    """equals without an answer needs the sample's reference."""
    verdict = run_check(check("equals"), "12", Sample(prompt="p", response="r"), {})
    assert isinstance(verdict, Unscored)
    assert "reference" in verdict.detail


@given(
    st.text(st.characters(exclude_categories=())),
    st.sampled_from(["contains", "not_contains", "max_words", "valid_json", "equals"]),
)
def test_no_response_breaks_a_rule(response: str, name: str) -> None:
    """Whatever it holds, also halves of characters: a number."""
    parameters = {"max_words": 3, "valid_json": None}.get(name, "x")
    assert value(name, response, parameters) in (0.0, 1.0)


@given(st.integers(-(10**6), 10**6), st.integers(1, 999))
def test_equal_numbers_are_equal_however_written(number: int, divisor: int) -> None:
    """With separators, as fractions, with zeros behind the point."""
    assert value("equals", f"\\boxed{{{number:,}.0}}", str(number)) == 1.0
    assert value("equals", f"\\frac{{{number}}}{{{divisor}}}", f"{2 * number}/{2 * divisor}") == 1.0


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Functions of a user's own, in a module that can be imported; a short time limit, for those that hang."""
    folder: Path = tmp_path_factory.mktemp("own")
    (folder / "own_checks_of_tests.py").write_text(OWN)
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(folder)
    names = ("short", "half", "prompt_of", "wrong", "raises", "hangs", "dies", "forks", "interrupts", "loses_halves")
    targets = [f"own_checks_of_tests:{name}" for name in names]
    yield open_checks({**{target: target for target in targets}, "alias": targets[1]}, seconds=1.0)
    patch.undo()


def called(
    own: Mapping[str, CheckFunction], name: str, response: str = "r", parameters: Any = None
) -> Verdict | Unscored:
    return run_check(check(f"own_checks_of_tests:{name}", parameters), response, SAMPLE, own)


def test_functions_of_the_users_own(own: Any) -> None:
    """They get the text, the parameters and the sample; what they print is no answer."""
    results = [
        called(own, "short", "abc", {"most": 3}),
        called(own, "short", "abcd", {"most": 3}),
        called(own, "half"),
        called(own, "prompt_of", "p"),
        run_check(Criterion("t", check="alias"), "r", SAMPLE, own),
    ]
    assert [result.value for result in results if isinstance(result, Verdict)] == [1.0, 0.0, 0.5, 1.0, 0.5]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("wrong", "'yes'"),
        ("raises", "KeyError"),
        ("dies", "ended its process"),
        ("hangs", "longer"),
        ("forks", "longer"),
    ],
)
def test_functions_that_give_no_number_are_unscored(own: Any, name: str, word: str) -> None:
    """And the next check is run as ever."""
    assert word in missing(check(f"own_checks_of_tests:{name}"), own)
    assert isinstance(called(own, "half"), Verdict)


def test_a_pattern_that_backtracks_for_ever_does_not_hang(own: Any) -> None:
    """It is unscored; after a few times it is not tried again, and other patterns still are."""
    bad = check("regex", r"^(a+)+$")
    good = check("regex", {"pattern": r"^\d{4}-\d\d$", "flags": "m"})
    details = [missing(bad, own, "a" * 60 + "b") for _ in range(4)]
    assert "longer than 1 s" in details[0]
    assert "not tried again" in details[3]
    found = [run_check(good, text, SAMPLE, own) for text in ("in\n2024-05\nor so", "none")]
    assert [result.value for result in found if isinstance(result, Verdict)] == [1.0, 0.0]


class Interrupted(BaseException):
    """What a signal's handler raises."""


def test_an_interrupted_check_leaves_no_answer_for_the_next(own: Any) -> None:
    """A signal may raise while the worker waits: the next check gets its own answer."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            called(own, "interrupts")
    finally:
        signal.signal(signal.SIGUSR1, before)
    found = called(own, "half")
    assert isinstance(found, Verdict)
    assert found.value == 0.5


def test_slow_responses_do_not_switch_a_check_off(own: Any) -> None:
    """After a few in a row it rests, which bounds the time they take; then it is tried again, and one success forgives
    those before it."""
    now = 0.0
    process = CheckProcess(0.2, now=lambda: now)

    def result(response: str) -> float | str:
        try:
            return process.call("own_checks_of_tests:hangs_if_long", response, {}, SAMPLE)
        except CheckFailed as error:
            return "rests" if "not tried again" in str(error) else "late"

    slow = "x" * 11
    assert [result(slow), result("x"), result(slow), result(slow), result("x")] == ["late", 1.0, "late", "late", 1.0]
    assert [result(slow) for _ in range(4)] == ["late", "late", "late", "rests"]
    assert result("x") == "rests"
    now = 61.0
    assert result("x") == 1.0
    process.close()


def test_halves_of_characters_reach_a_check_as_question_marks(own: Any) -> None:
    """UTF-8 cannot hold them, in a response, in a sample, or in what a check says."""
    sample = Sample(prompt="p", response="b\ud800")
    criterion = check("own_checks_of_tests:loses_halves")
    found = run_check(criterion, "a\ud800", sample, own)
    assert isinstance(found, Verdict)
    assert found.value == 1.0
    assert "ValueError" in missing(check("own_checks_of_tests:loses_halves", {"raise": True}), own)


def test_only_functions_that_are_allowed_are_called() -> None:
    """A dataset or a caller over HTTP cannot name any function of the system."""
    criterion = check("os:getenv", "HOME")
    assert "not among the functions" in missing(criterion, open_checks())
    assert unknown_checks((criterion, check("regex", "a"), check("max_words", 2)), open_checks()) == ["os:getenv"]


@pytest.mark.parametrize("target", ["no_such_module_here:f", "os:no_such_function", "os", "os:sep", "__main__:f"])
def test_a_function_that_cannot_be_imported_is_a_config_error(target: str) -> None:
    """Before anything is spent, with the setting's name."""
    with pytest.raises(ConfigError, match=r"judge\.checks") as caught:
        open_checks([target])
    assert target in str(caught.value)


def test_parameters_that_are_no_json_are_unscored() -> None:
    """A Criterion made by hand, past every reader."""
    assert "check contains" in missing(Criterion("t", check="contains", parameters="{"), {})


FORKED = """
import os
from referee.records import Sample
from referee.scoring.check_process import CheckProcess

process, sample = CheckProcess(), Sample(prompt="p", response="r")
first = process.call("own_checks_of_tests:pid", "", {}, sample)
child = os.fork()
if not child:
    os._exit(0 if process.call("own_checks_of_tests:pid", "", {}, sample) != first else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert process.call("own_checks_of_tests:pid", "", {}, sample) == first
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_worker_has_a_process_of_its_own(own: Any) -> None:
    """Two owners of one pipe would read each other's answers."""
    paths = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", FORKED], check=True, env={**os.environ, "PYTHONPATH": paths})
