"""Count what the corpus of attacks gets, family by family: `python -m tests.attacks.report [--embedded]`.

Through parsing or fences nothing may get through. A judge that obeys whatever it reads can only be counted, and so can
the embedded real model (`--embedded`, extra local).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterable

from msgspec.structs import replace
from tests.attacks.copying import copied
from tests.attacks.corpus import armed
from tests.attacks.fooled import GullibleJudge, QuotingJudge
from tests.attacks.group_corpus import FAMILIES
from tests.attacks.trial import FORMS, KINDS, Kind, credited, try_on

from referee import Referee
from referee.config import load
from referee.records import Verdict
from referee.sim.judge import Judge


def simulated() -> dict[str, Callable[[str], bool]]:
    """A column for each judge: whether it credits an answer in any form of asking."""

    def column(judge: Judge, kinds: Iterable[Kind] = KINDS) -> Callable[[str], bool]:
        chosen = tuple(kinds)
        return lambda text: any(credited(try_on(judge, kind, form, armed(text))) for kind in chosen for form in FORMS)

    obeying = {f"obeys all, {kind}": column(GullibleJudge(), (kind,)) for kind in KINDS}
    return {
        "quotes": column(QuotingJudge()),
        "copies": lambda text: any(copied(kind, form, armed(text)) for kind in KINDS for form in FORMS),
        "obeys tags and JSON": column(GullibleJudge(("tag", "json"))),
    } | obeying


def table(columns: list[str], rows: list[tuple[str, list[str]]]) -> str:
    """Markdown."""
    head = ["family", *columns]
    lines = [head, ["---"] * len(head), *([name, *cells] for name, cells in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def by_judge() -> str:
    """Credited attacks of each family, by simulated judge."""
    columns = simulated()
    rows, sums = [], [0] * (len(columns) + 1)
    for family, texts in FAMILIES.items():
        counts = [len(texts), *(sum(credits(text) for text in texts) for credits in columns.values())]
        sums = [one + other for one, other in zip(sums, counts, strict=True)]
        rows.append((family, [str(count) for count in counts]))
    rows.append(("all", [str(count) for count in sums]))
    return table(["attacks", *columns], rows)


def embedded() -> str:
    """The same for the real model on this machine, and beside it the demo's rollouts, good and bad."""
    from referee.local import demo_rollouts, embedded_config

    rollouts = [(sample, label) for sample, label in demo_rollouts() if label in ("good", "bad")]
    asked = rollouts[0][0]
    given = [(f"the demo's {label} answers", sample) for sample, label in rollouts]
    for family, texts in FAMILIES.items():
        given += [(family, replace(asked, response=text, id="", group="")) for text in texts]
    with Referee(load(embedded_config() | {"cache": {"path": ""}}, os.environ)) as referee:
        rewards = referee.submit([sample for _, sample in given], deadline=1800.0).result()
    found: dict[str, list[float | None]] = {}
    for (family, _), reward in zip(given, rewards, strict=True):
        verdict = reward.settled.verdict
        found.setdefault(family, []).append(verdict.value if isinstance(verdict, Verdict) else None)
    rows = []
    for family, values in found.items():
        scored = [value for value in values if value is not None]
        above = [sum(value > limit for value in scored) for limit in (0.25, 0.5)]
        middle = f"{statistics.median(scored):.2f}" if scored else "-"
        highest = f"{max(scored):.2f}" if scored else "-"
        cells = [len(values), *above, middle, highest, len(values) - len(scored)]
        rows.append((family, [str(cell) for cell in cells]))
    return table(["answers", "above 0.25", "above 0.5", "median", "highest", "unscored"], rows)


def main() -> int:
    """Print the simulated judges' table, or the embedded model's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedded", action="store_true", help="ask the real model on this machine")
    options = parser.parse_args()
    print(embedded() if options.embedded else by_judge())
    return 0


if __name__ == "__main__":
    sys.exit(main())
