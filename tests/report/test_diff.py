"""Two ledgers compared: who is matched with whom, what is counted, and that text of rollouts stays text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.report.ledgers import RUN, judged, pair, several, texts
from typer.testing import CliRunner

from referee.cli import diff as diff_command
from referee.config import load
from referee.errors import InputError
from referee.ledger import Ledger, Line, RunLine, VerdictLine
from referee.report.diff import diff, match
from referee.report.sides import Row, of_judge, side

app = typer.Typer()
app.command()(diff_command.command)


def line(name: str, score: float | None, **more: Any) -> VerdictLine:
    """A verdict on the scale of 1 to 10; None: unscored."""
    given = {"response": f"answer {name}", "prompt": "p", **more}
    if score is None:
        return VerdictLine(id=name, unscored="timeout", **given)
    return VerdictLine(id=name, score=score, value=(score - 1) / 9, **given)


def run(lines: Iterable[VerdictLine], **judge: Any) -> list[Line]:
    """A ledger with a configuration of its own."""
    config = load({"judge": judge, "endpoint": {"url": "http://a/v1", "key_env": ""}}).public()
    return [RunLine(config=config), *lines]


def test_agreement_of_two_judges() -> None:
    """Ten samples, one off by one, one off by five, one unscored on each side."""
    a = run([line(str(n), n + 1) for n in range(8)] + [line("8", None), line("9", 5)])
    other = [line(str(n), n + 1) for n in range(6)] + [line("6", 8), line("7", 3), line("8", 4), line("9", None)]
    found = diff(side(a), side(run(other, criteria="brevity")))
    assert (found.matched, found.both, found.unscored_a, found.unscored_b) == (10, 8, 1, 1)
    assert found.reasons_a == {"timeout": 1}
    assert found.scale == "score"
    assert found.exact == pytest.approx(6 / 8)
    assert found.within_one == pytest.approx(7 / 8)
    assert found.mean_difference == pytest.approx((1 - 5) / 9 / 8)
    assert found.kappa_of == "score"
    assert found.examples[0].id == "7"
    assert (found.examples[0].a, found.examples[0].b) == (8.0, 3.0)
    assert len(found.examples) == 2
    assert found.settings == {"judge.criteria": ("", "brevity")}


def test_a_ledger_agrees_with_itself() -> None:
    """Everything matched, nothing differs."""
    lines = run(line(str(n), n % 10 + 1, group=f"g{n // 4}") for n in range(40))
    found = diff(side(lines), side(lines))
    assert found.matched == found.both == 40
    assert found.exact == found.within_one == 1.0
    assert found.spearman == pytest.approx(1.0)
    assert found.kappa == pytest.approx(1.0)
    assert found.order.flipped == 0
    assert found.order.best_kept == found.order.groups == 10
    assert found.examples == ()


def test_text_matches_where_ids_do_not() -> None:
    """Without ids, or with other ids, the same prompt and response are the same sample, with or without content."""
    kept = line("x", 3)
    digests = VerdictLine(
        id="y",
        score=4.0,
        value=3 / 9,
        prompt_digest=msgspec.structs.asdict(side([kept]).rows[0])["text"][:16],
        response_digest=side([kept]).rows[0].text[16:],
    )
    found = diff(side([kept]), side([digests]))
    assert found.matched_by == {"text": 1}
    assert found.examples[0].response == "answer x"


def test_an_id_with_another_text_is_said_and_can_be_left_out() -> None:
    """Two runs of a policy share ids while the answers differ: counted apart."""
    a, b = side([line("1", 3)]), side([line("1", 5, response="something else")])
    assert diff(a, b).matched_by == {"id only": 1}
    left_out = diff(a, b, same_text=True)
    assert (left_out.matched, left_out.only_a, left_out.only_b) == (0, 1, 1)


def test_duplicates_are_paired_in_order() -> None:
    """The same sample judged three times here and twice there gives two pairs."""
    a = [line("1", score) for score in (1, 2, 3)]
    b = [line("1", score) for score in (1, 2)]
    found = diff(side(a), side(b))
    assert (found.matched, found.repeated, found.only_a, found.only_b) == (2, 1, 1, 0)
    assert found.exact == 1.0


def test_steps_keep_reused_ids_apart() -> None:
    """An id that comes again in every step is matched with its own step first."""
    a = [line("1", 1, step=1, response=""), line("1", 9, step=2, response="")]
    b = [line("1", 9, step=2, response=""), line("1", 1, step=1, response="")]
    assert diff(side(a), side(b)).exact == 1.0


rows = st.lists(
    st.builds(Row, id=st.sampled_from(["", "a", "b", "c"]), text=st.sampled_from(["", "x", "y"]), step=st.none()),
    max_size=12,
)


@settings(deadline=None)
@given(rows, rows)
def test_no_row_is_matched_twice(a: list[Row], b: list[Row]) -> None:
    """Each row at most once, as many pairs as are counted, only by something they share."""
    pairs, by, repeated = match(a, b)
    assert len(pairs) <= min(len(a), len(b))
    assert sum(by.values()) == len(pairs)
    assert 0 <= repeated <= len(pairs)
    assert len({id(x) for x, _ in pairs}) <= len(a)
    assert all((x.id and x.id == y.id) or (x.text and x.text == y.text) for x, y in pairs)


@settings(deadline=None)
@given(rows)
def test_a_row_with_a_name_is_matched_with_its_copy(a: list[Row]) -> None:
    """Against itself every row with an id or a text finds a partner that says the same."""
    pairs, _, _ = match(a, list(a))
    assert len(pairs) == sum(bool(row.id or row.text) for row in a)
    assert all((x.id, x.text) == (y.id, y.text) for x, y in pairs)


def test_other_scales_are_compared_in_tenths() -> None:
    """A judge that says yes or no and one that scores share only [0, 1]; kappa looks at the middle."""
    yes = [VerdictLine(id=str(n), score=n / 10, value=n / 10) for n in range(11)]
    ten = [line(str(n), n * 0.9 + 1, response="", prompt="") for n in range(11)]
    found = diff(side(run(yes, kind="yes_no")), side(run(ten)))
    assert found.scale == "value"
    assert found.kappa_of == "value above 0.5"
    assert found.within_one == 1.0


def test_nothing_in_common_is_an_error_not_a_number(tmp_path: Path) -> None:
    """No shared sample: the command says so and fails; no agreement is invented."""
    found = diff(side([line("1", 1)]), side([line("2", 1)]))
    assert (found.matched, found.exact, found.kappa, found.mean_difference) == (0, None, None, None)
    folders = [written(tmp_path / name, [line(name, 1)]) for name in ("a", "b")]
    done = CliRunner().invoke(app, folders)
    assert done.exit_code == 1
    assert "matched by id" in done.stderr


HOSTILE = "[/bold]\x1b]0;owned\x07 \x1b[2J \u202e [red]:smile: \x00 \ud83d </script>"


def test_text_of_rollouts_cannot_act_on_the_terminal() -> None:
    """Escape sequences, markup and turned text in ids, groups, reasons and answers are shown, not obeyed."""
    a = [
        line("1", 1, response=HOSTILE, group=HOSTILE, why=HOSTILE),
        line("2", 2, group=HOSTILE),
        VerdictLine(id=HOSTILE, unscored=HOSTILE, model=HOSTILE),
    ]
    b = [
        line("1", 9, response=HOSTILE, group=HOSTILE, why=HOSTILE),
        line("2", 1, group=HOSTILE),
        VerdictLine(id=HOSTILE, unscored=HOSTILE, model=HOSTILE),
    ]
    console = Console(markup=False, emoji=False, highlight=False, width=120, record=True, force_terminal=False)
    with console.capture() as shown:
        diff_command.show(diff(side(a), side(b)), console)
    text = shown.get()
    assert "\\x1b" in text
    assert "[red]:smile:" in text
    assert all(character.isprintable() or character == "\n" for character in text)


def written(folder: Path, lines: Iterable[Line]) -> str:
    ledger = Ledger(folder)
    for each in lines:
        ledger.append(each)
    ledger.close()
    return str(folder)


def test_the_command_prints_tables_and_json(tmp_path: Path) -> None:
    """`referee diff a/ b/`, and the same as data."""
    a = written(tmp_path / "a", run(line(str(n), n + 1, group="g") for n in range(8)))
    b = written(tmp_path / "b", run(line(str(n), 8 - n, group="g") for n in range(8)))
    shown = CliRunner().invoke(app, [a, b, "--examples", "1"], catch_exceptions=False)
    assert "order flipped" in shown.stdout
    assert "100.0%" in shown.stdout
    data = msgspec.json.decode(CliRunner().invoke(app, [a, b, "--json"]).stdout)
    assert data["order"]["flipped"] == 28
    assert data["spearman"] == pytest.approx(-1.0)


def test_runs_of_several_judges_are_compared_judge_by_judge() -> None:
    """Together by their weighted mean, and each that both have by itself, on its own scale."""
    a = side(several())
    b = side([several()[0], *(line for n in range(8) for line in judged(1, n, 10, None if n == 3 else 1.0))])
    found = diff(a, b)
    assert (found.judge_a, found.judge_b, found.scale) == ("quality + safe", "quality + safe", "value")
    assert list(found.judges) == ["quality", "safe"]
    quality, safe = found.judges["quality"], found.judges["safe"]
    assert (quality.judge_a, quality.scale, quality.both, quality.mean_b) == ("quality", "score", 8, 1.0)
    assert (safe.both, safe.unscored_a, safe.unscored_both) == (6, 1, 1)
    assert safe.mean_difference == pytest.approx(0.25)


def test_one_of_several_judges_is_compared_with_another_run() -> None:
    """The other run has one judge: each of the several is set against it."""
    lone = side([RUN, *(line for n in range(8) for line in pair(1, n, 1 + (n * 3 + 1) % 10, **texts(1, n)))])
    found = diff(side(several(1)), lone)
    assert (found.judge_a, found.judge_b, list(found.judges)) == ("quality + safe", "", ["quality", "safe"])
    assert found.judges["quality"].exact == 1.0
    chosen = diff(of_judge(side(several(1)), "quality"), of_judge(lone, "quality"))
    assert (chosen.judge_a, chosen.exact, chosen.judges) == ("quality", 1.0, {})
    with pytest.raises(InputError, match="There are: quality, safe"):
        of_judge(side(several(1)), "taste")


def test_the_command_says_which_judges_it_compared(tmp_path: Path) -> None:
    """A line for each of several judges; with --judge all of it is about that one."""
    for name in ("a", "b"):
        ledger = Ledger(tmp_path / name)
        for one in several():
            ledger.append(one)
        ledger.close()
    folders = [str(tmp_path / name) for name in ("a", "b")]
    shown = CliRunner().invoke(app, [*folders, "--examples", "0"], catch_exceptions=False).stdout
    assert "a: quality + safe  b: quality + safe" in shown
    assert "quality | " in " ".join(shown.split()).replace("\u2502", "|")
    chosen = CliRunner().invoke(app, [*folders, "--judge", "safe"], catch_exceptions=False).stdout
    assert "a: safe  b: safe" in chosen
    assert "order flipped" in chosen
