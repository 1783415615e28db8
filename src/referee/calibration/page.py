"""A calibration as one self-contained page in the report's style: no script, nothing loaded, all text escaped."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from referee.calibration.charts import curve, interval, matrix
from referee.calibration.findings import corrected_words, legend, percent, value
from referee.calibration.markup import shown
from referee.calibration.measures import Measures
from referee.calibration.shape import Calibrated, Calibration, Disagreement
from referee.report.page import asset, write_pieces
from referee.version import VERSION

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
ORDER = {"bad": 0, "warn": 1, "good": 2}


def write_page(path: Path, found: Calibration, title: str) -> int:
    """Write the page and say how many bytes it has."""
    return write_pieces(path, page(found, title))


def page(found: Calibration, title: str) -> Iterator[str]:
    """The page in pieces."""
    style = asset("page.css") + resources.files("referee.calibration").joinpath("page.css").read_text(encoding="utf-8")
    yield (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{shown(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<title>{shown(title)}</title><link rel="icon" href="data:,"><style>{style}</style></head>\n'
        f'<body><header class="top"><div class="bar"><h1>{shown(title)}</h1></div></header><main>'
    )
    unit = "responses" if found.preferences else "rows"
    by = found.comparison.by if found.comparison else "kappa"
    yield (
        '<section class="tiles">'
        + _tile(f"labelled {unit}", str(found.labelled), f"{found.unlabelled} without a label")
        + _tile("prompts", str(found.prompts), "rows of one prompt count as one draw")
        + "".join(_headline(judge, len(found.judges) > 1, by) for judge in found.judges[:4])
        + "</section>"
    )
    yield _comparison(found)
    for judge in found.judges:
        yield _judge(judge)
    foot = f"Intervals of 95 %, seed {found.seed}. referee {VERSION}."
    yield f'</main><footer class="muted"><p>{foot}</p></footer></body></html>\n'


def _tile(name: str, number: str, more: str) -> str:
    below = f'<small class="muted">{shown(more)}</small>'
    return f'<div class="tile"><span>{shown(name)}</span><b>{shown(number)}</b>{below}</div>'


def _headline(judge: Calibrated, several: bool, by: str) -> str:
    found = judge.measures.kappa if by == "kappa" else judge.measures.order
    number = "-" if found.value is None else f"{found.value:.2f}"
    ends = found.reason if found.low is None or found.high is None else f"{found.low:.2f} to {found.high:.2f}"
    return _tile(f"{by} of {judge.name}" if several else by, number, ends)


def _comparison(found: Calibration) -> str:
    comparison = found.comparison
    near = {one.name: one for one in comparison.others} if comparison else {}
    by = comparison.by if comparison else "kappa"
    rows = []
    for judge in found.judges:
        measures = judge.measures
        words = []
        if comparison is not None:
            words += ["best"] if judge.name == comparison.best else []
            if judge.name in near:
                within = near[judge.name].within_noise
                words += ["within noise of the best"] if within else ["not known"] if within is None else []
            words += ["cheapest of these"] if judge.name == comparison.cheapest else []
        share = measures.unscored / measures.labelled if measures.labelled else 0.0
        price = "unknown" if judge.cost_per_1000 is None else f"${judge.cost_per_1000:,.4g}"
        took = "cached" if judge.seconds is None else f"{judge.seconds:.2g} s"
        models = f'<small class="muted">{shown(", ".join(judge.models))}</small>'
        cells = (
            f'<td class="name">{shown(judge.name)}<br>{models}</td>'
            f"{_agreement(measures, by)}<td class=n>{percent(measures.accuracy)}</td>"
            f"<td class=n>{_signed(judge)}</td><td class=n>{share:.1%}</td><td class=n>{price}</td>"
            f"<td class=n>{took}</td><td>{', '.join(words)}</td>"
        )
        best = comparison is not None and judge.name == comparison.best
        rows.append(f'<tr class="best">{cells}</tr>' if best else f"<tr>{cells}</tr>")
    head = "".join(
        f"<th>{name}</th>" for name in ("judge", "", by, "accuracy", "bias", "unscored", "cost per 1,000", "a call", "")
    )
    note = f"{legend(found)} bias: judge less people."
    return (
        f'<section class="panel wide"><h2>Which judge agrees with people?</h2><p class="muted">{shown(note)}</p>'
        f'<div class="wrap"><table class="grades"><tr>{head}</tr>{"".join(rows)}</table></div></section>'
    )


def _agreement(measures: Measures, by: str) -> str:
    found = measures.kappa if by == "kappa" else measures.order
    return f"<td>{interval(found)}</td><td class=n>{value(found) if by == 'kappa' else percent(found)}</td>"


def _signed(judge: Calibrated) -> str:
    found = judge.measures.bias.value
    return "-" if found is None else f"{found:+.2f}"


def _judge(judge: Calibrated) -> str:
    pieces = [f'<section class="judge"><h2>{shown(judge.name)} <small class="muted">{shown(judge.kind)}</small></h2>']
    items = []
    for finding in sorted(judge.findings, key=lambda one: ORDER[one.level]):
        advice = f'<span class="advice">→ {shown(finding.advice)}</span>' if finding.advice else ""
        items.append(f'<li class="finding {finding.level}">{shown(finding.text)}{advice}</li>')
    pieces.append(f'<ul class="findings">{"".join(items)}</ul>')
    if judge.corrected is not None:
        pieces.append(f'<p class="corrected">Mean of all rows: {shown(corrected_words(judge.corrected))}.</p>')
    pieces.append(f'<section class="panels">{_panels(judge)}</section>')
    if judge.disagreements:
        pieces.append("<h3>Worst disagreements</h3>")
        pieces += [_example(example) for example in judge.disagreements]
    return "".join(pieces) + "</section>\n"


def _panels(judge: Calibrated) -> str:
    measures, panels = judge.measures, []
    if measures.curve:
        note = "Rows in groups of similar value; bars are intervals. On the dashed line people agree on average."
        if measures.ece.value is not None:
            floor = "" if measures.ece_floor is None else f"; chance alone gives {measures.ece_floor:.2f}"
            note += f" Off by {value(measures.ece)} (ECE{floor})."
        panels.append(_panel("Does 0.8 mean 0.8?", note, curve(measures.curve)))
    if measures.confusion is not None:
        note = f"{measures.n} rows with a label and a verdict."
        if measures.sensitivity.value is not None:
            note += f" Of yes it finds {percent(measures.sensitivity)}, of no {percent(measures.specificity)}."
        panels.append(_panel("Where do they differ?", note, matrix(measures.confusion)))
    if judge.parts:
        head = "".join(f"<th>{name}</th>" for name in ("part", "", "kappa", "accuracy", "n", "unscored"))
        rows = []
        for part in judge.parts:
            what, one = part.column if part.what == "by" else part.what, part.measures
            rows.append(
                f'<tr><td class="name"><small class="muted">{shown(what)}</small> {shown(part.name[:200])}</td>'
                f"<td>{interval(one.kappa)}</td><td class=n>{value(one.kappa)}</td>"
                f"<td class=n>{percent(one.accuracy)}</td>"
                f"<td class=n>{one.n}</td><td class=n>{one.unscored}</td></tr>"
            )
        table = f'<div class="wrap"><table class="grades"><tr>{head}</tr>{"".join(rows)}</table></div>'
        panels.append(
            _panel("Which parts agree?", "Criteria, jurors and values of columns by themselves.", table, True)
        )
    return "".join(panels)


def _panel(title: str, note: str, body: str, wide: bool = False) -> str:
    kind = "panel wide" if wide else "panel"
    return f'<section class="{kind}"><h2>{shown(title)}</h2><p class="muted">{shown(note)}</p>{body}</section>'


def _example(example: Disagreement) -> str:
    if example.other_judge is None:
        said = f"people {example.human:.3g}, judge {example.judge:.3g}"
    else:
        said = f"the preferred response {example.judge:.2f}, the other {example.other_judge:.2f}"
    id = "" if example.id == str(example.line) else f", {shown(example.id)}"
    pairs = (
        ("prompt", example.prompt),
        ("response", example.response),
        ("people say", example.human_why),
        ("judge says", example.judge_why),
        ("the other", example.other),
        ("judge says", example.other_why),
    )
    texts = "".join(f"<dt>{name}</dt><dd><pre>{shown(text)}</pre></dd>" for name, text in pairs if text)
    return f'<article class="example"><b>line {example.line}{id}: {said}</b><dl>{texts}</dl></article>'
