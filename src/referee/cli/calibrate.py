"""`referee calibrate`: how far judges agree with labels that people gave."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from referee.calibration import (
    CHECKS,
    HIGHER_IS_BETTER,
    Calibrated,
    Calibration,
    Check,
    Format,
    Row,
    as_data,
    calibrate,
    calibration_config,
    check_labels,
    common_of,
    compare,
    read_labels,
    yes_rule,
)
from referee.calibration.labels import NO_VALUE, unjudged_columns
from referee.calibration.page import write_page
from referee.calibration.ratings import Rater
from referee.calibration.stored import stored
from referee.calibration.stress import STRESS, questions
from referee.cli.calibrate_cascade import replayed, tell
from referee.cli.calibration_text import show
from referee.cli.compare_input import AnswerFile
from referee.cli.problems import Problems, column_names, refuse_text, warn_unread
from referee.cli.settings import settings, with_ledger
from referee.cli.source import Map, as_file
from referee.cli.terminal import terminal
from referee.cli.words import counted
from referee.config import Config
from referee.errors import ConfigError, InputError
from referee.progress import Meter
from referee.referee import Referee
from referee.report.page import check_page
from referee.report.plain import plain
from referee.rollouts import BadLine, doubtful_columns, first_rows
from referee.scoring.build import columns_shown, rubric_polarity, text_only

UNSCORED = 3
"""Exit status when a judge has a verdict on none of the labelled rows."""
BELOW = 4
"""Exit status when agreement is below what --fail-below asks for."""


def command(
    labels: Annotated[Path, typer.Argument(help="Rollouts with a label, or preferences, as JSONL, CSV or Parquet.")],
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config", "-c", metavar="<path>", help="Again for another one, to compare. Default as for `score`."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a page (HTML) too.")] = None,
    unlabelled: Annotated[
        Path | None, typer.Option(help="More rollouts, without labels, for the corrected mean.")
    ] = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(help="A ledger, or rewards of `score`: its verdicts are measured, and nothing is asked."),
    ] = None,
    label: Annotated[str, typer.Option(help="The column that holds the label.")] = "label",
    yes: Annotated[str, typer.Option(help="Labels that mean yes: words with commas, or a bound like >=4.")] = "",
    by: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Also for each value of this column. May be repeated.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many of the worst disagreements to show.")] = 5,
    check: Annotated[
        list[str] | None,
        typer.Option(metavar="WHAT", help=f"Ask more to check it: {', '.join(STRESS)}, or all. May be repeated."),
    ] = None,
    check_rows: Annotated[int, typer.Option(min=1, help="How many answers are rewritten, or asked about again.")] = 40,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Replay a cascade's threshold instead: agreement against cost.")
    ] = False,
    fail_below: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE=LIMIT",
            help="kappa=0.6: exit status 4 if a judge's is below; kappa.low=0.5 is the interval's lower end.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap: the same seed gives the same intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Plain data instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    mapped: Map = None,
) -> None:
    """Say how far judges agree with people.

    The rows are judged as `score` does (cache, limits, budget), by every judge of each configuration. A label is yes
    or no, a number on the judge's scale or between 0 and 1, or a word (--yes); `labels` holds those of single criteria.
    A preference has `chosen` and `rejected`. Rows without a label serve the corrected mean.
    """
    if output is not None:
        check_page(output)
    if verdicts is not None and (not config or len(config) > 1 or check or cascade):
        raise InputError("--verdicts needs one -c, that of the run, and goes with neither --check nor --cascade.")
    if cascade and (check or by or fail_below or output or unlabelled or len(config or ()) > 1):
        raise InputError(
            "--cascade replays the thresholds of one configuration and nothing else: it goes with neither -o, --check, "
            "--by, --fail-below nor --unlabelled."
        )
    wanted = [_threshold(text) for text in fail_below or ()]
    checks = [*CHECKS, *_stress(check or (), check_rows)]
    rule, columns = yes_rule(yes), tuple(by or ())
    judges: list[Calibrated] = []
    raters: list[Rater] = []
    rows: list[Row] = []
    configs: Sequence[Path | None] = config or [None]
    with as_file(str(labels), mapped) as path_of_labels, contextlib.ExitStack() as stack:
        source, more = AnswerFile(str(labels), path_of_labels), None
        if unlabelled is not None:
            more = AnswerFile(str(unlabelled), stack.enter_context(as_file(str(unlabelled), mapped)))
        # Once before anything is started, so that a bad file is said at once.
        first = _read(source, Format(label=label, by=columns))
        _check_columns(first, columns)
        references = all((row.sample.reference or "").strip() for row in first)
        for path in configs:
            with settings(path, references) as chosen:
                form = Format(
                    columns=columns_shown(chosen),
                    text_only=text_only(chosen),
                    rubric=rubric_polarity(chosen),
                    label=label,
                    by=columns,
                    criteria=tuple(one for judge in chosen.judge if judge.kind == "rubric" for one in judge.criterion),
                )
                rows = [*_read(source, form), *([] if more is None else _read(more, form, labelled=False))]
                if not cascade:  # that compares with the scale of its last member alone
                    check_labels(chosen, rows, rule)
                _check_references(labels, chosen, rows)
                _warn_unread(source, chosen, form)
                rename = _names(path, configs, chosen)
                chosen = with_ledger(calibration_config(chosen), _ledger(output, path, configs))
                if not (quiet or as_json or cascade or verdicts is not None):
                    typer.echo(_plan(rename, chosen, rows, check or (), check_rows), err=True)
                if cascade:
                    tell(replayed(chosen, rows, rule, seed, quiet or as_json), as_json)
                    continue
                priced = any(endpoint.price_in is not None for endpoint in chosen.endpoint)
                measured = functools.partial(
                    calibrate, rows=rows, yes=rule, rename=rename, seed=seed, examples=examples, checks=checks
                )
                if verdicts is not None:
                    found_here = list(measured(chosen, rewards=stored(verdicts, chosen, rows)))
                else:
                    with Referee(chosen) as referee, Meter(len(rows), referee.metrics, quiet or as_json, priced):
                        found_here = list(measured(referee))
                judges += [judge for judge, _ in found_here]
                raters += [rater for _, rater in found_here]
    if cascade:
        return
    found = Calibration(
        rows=len(rows),
        labelled=sum(row.labelled for row in rows),
        unlabelled=sum(not row.labelled for row in rows),
        prompts=len({row.prompt for row in rows if row.labelled}),
        preferences=any(row.preferred is not None for row in rows),
        seed=seed,
        judges=tuple(judges),
        comparison=compare(judges, raters, common_of(rows), seed),
    )
    if output is not None:
        size = write_page(output, found, f"referee calibrate: {labels.name}")
        typer.echo(f"page: {plain(str(output))}, {size / 1e3:.0f} kB", err=True)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(as_data(found)), indent=2).decode())
    else:
        show(found, terminal(), str(labels))
    _end(judges, wanted)


def _end(judges: Sequence[Calibrated], wanted: Sequence[tuple[str, bool, float]]) -> None:
    """Leave with the status that the result deserves."""
    for judge in judges:
        if not judge.measures.n:
            typer.echo(f"{judge.name} has a verdict on no labelled row: exit status {UNSCORED}.", err=True)
            raise typer.Exit(UNSCORED)
    failed = False
    for name, lower, bound in wanted:
        for judge in judges:
            estimate = getattr(judge.measures, name)
            number = estimate.low if lower else estimate.value
            if number is None or number < bound:
                shown = f"not known ({estimate.reason})" if number is None else f"{number:.3f}"
                what = f"{name}.low" if lower else name
                typer.echo(f"{judge.name}: {what} is {shown}, below {bound:g}: exit status {BELOW}.", err=True)
                failed = True
    if failed:
        raise typer.Exit(BELOW)


def _threshold(text: str) -> tuple[str, bool, float]:
    name, _, number = text.partition("=")
    name, _, end = name.strip().partition(".")
    try:
        if name not in HIGHER_IS_BETTER or end not in ("", "low"):
            raise ValueError
        bound = float(number)
        if not math.isfinite(bound):
            raise ValueError
        return name, end == "low", bound
    except ValueError:
        raise InputError(
            f"--fail-below {text}: write a measure and a number, such as kappa=0.6 or accuracy.low=0.8. Measures: "
            f"{', '.join(HIGHER_IS_BETTER)}."
        ) from None


def _stress(names: Sequence[str], rows: int) -> Iterator[Check]:
    """The checks of these names, each once."""
    for name in dict.fromkeys(STRESS if "all" in names else names):
        if name not in STRESS:
            raise InputError(f"--check {name}: there is no such check. There are: {', '.join(STRESS)}, all.")
        yield STRESS[name](rows)


def _plan(
    rename: Callable[[str], str], config: Config, rows: Sequence[Row], checks: Sequence[str], check_rows: int
) -> str:
    """How much is asked, before it is."""
    names = ", ".join(rename(judge.name) for judge in config.judge)
    found = f"{counted(len(rows), 'row')}, {counted(len(config.judge), 'judge')} ({names})"
    if checks:
        chosen = STRESS if "all" in checks else dict.fromkeys(checks)
        more = sum(questions(name, min(check_rows, len(rows))) for name in chosen) * len(config.judge)
        found += f"; --check asks about {more} questions more"
    return plain(f"{found}. What the cache holds is not asked again.", 1000)


def _check_columns(rows: Sequence[Row], names: Sequence[str]) -> None:
    for name in names:
        if all(row.by[name] == NO_VALUE for row in rows):
            raise InputError(f"--by {name}: no row has this column. Nothing was spent.")


def _read(file: AnswerFile, form: Format, labelled: bool = True) -> list[Row]:
    """All rows of a file; an error, before anything is spent, if one cannot be used."""
    rows, problems = [], Problems()
    for item in read_labels(file.path, form):
        if isinstance(item, BadLine):
            problems.add(item)
        else:
            rows.append(item)
    if problems.count:
        if not rows:
            refuse_text(*file)
        advice = f"A row looks like this: {_EXAMPLE}"
        raise InputError(problems.complaint(file.name, advice if rows else problems.instead(first_rows(file.path))))
    if not rows:
        raise InputError(f"{file.name}: there are no rows in this file. Nothing was spent.")
    if labelled and not any(row.labelled for row in rows):
        raise InputError(
            f"{file.name}: no row has a label in column `{form.label}`. Nothing was spent. "
            f"{column_names(first_rows(file.path))} Name one of them with --label."
        )
    if labelled:
        _refuse_mixture(file.name, rows)
        return rows
    return [msgspec.structs.replace(row, label=None, labels={}, preferred=None) for row in rows]


_EXAMPLE = '{"prompt": "What is 2 + 2?", "response": "It is 4.", "label": "yes"}'


def _refuse_mixture(path: str, rows: Sequence[Row]) -> None:
    preference = next((row for row in rows if row.preferred is not None), None)
    single = next((row for row in rows if row.label is not None or row.labels), None)
    if preference is not None and single is not None:
        raise InputError(
            f"{path}: line {preference.line} is a preference and line {single.line} a label. Nothing was spent. Give "
            "them in two files."
        )


def _check_references(path: Path, config: Config, rows: Sequence[Row]) -> None:
    if any(judge.kind == "reference" for judge in config.judge) and not any(row.sample.reference for row in rows):
        raise InputError(
            f'{path}: judge.kind = "reference" compares with a known answer, and no row has a `reference` (or '
            "`ground_truth`). Nothing was spent."
        )


def _warn_unread(file: AnswerFile, config: Config, form: Format) -> None:
    """Name the columns that no judge sees, once a file, or as misspelt."""
    rows = unjudged_columns(file.path, form)
    for doubt in doubtful_columns(rows):
        typer.echo(plain(f"warning: {file.name}: {doubt.message}", 1000), err=True)
    warn_unread(plain(file.name), rows, columns_shown(config), form.rubric)


def _names(path: Path | None, configs: Sequence[Path | None], config: Config) -> Callable[[str], str]:
    """How judges are called: by their own name, and with several configurations by the file's too."""
    if len(configs) == 1 or path is None:
        return str
    stems = [other.stem for other in configs if other is not None]
    mine = path.stem if stems.count(path.stem) == 1 else str(path)
    if [str(other) for other in configs].count(str(path)) > 1:
        raise ConfigError(f"-c {path} is given twice.")
    return lambda name: mine if len(config.judge) == 1 else f"{mine}/{name}"


def _ledger(output: Path | None, path: Path | None, configs: Sequence[Path | None]) -> Path | None:
    """The record beside the page; without a page there is one only if the configuration names it."""
    if output is None:
        return None
    folder = output.with_suffix(".run")
    if path is None or len(configs) == 1:
        return folder
    # Two files of one name in two folders must not share a record.
    twins = [other for other in configs if other is not None and other.stem == path.stem]
    return folder / (path.stem if len(twins) == 1 else f"{path.stem}-{twins.index(path) + 1}")
