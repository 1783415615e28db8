"""How well each way of judging a group finds the true order, and what it costs in calls and tokens.

Judges are driven by hand, without HTTP. The simulated answers are those of `referee.sim`: the true strength of a
response, plus noise drawn anew for each look at it, plus something for its place, rounded to the scale where a score is
asked for. Noise is the same for every kind, so what is not in the figures is what side by side is done for: that a real
judge tells apart what it gives the same grade one by one.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.common import table
from referee.config import load
from referee.judging import Judge, make_judge
from referee.records import Ask, Reply, Sample, Verdict
from referee.sim.chat import ChatMessage, ChatRequest
from referee.sim.chat import ask as read
from referee.sim.comparisons import Perception, write_list
from referee.sim.judge import write
from referee.stats import kendall, spearman
from referee.testing import deliberate

SIZES = (8, 16)
NOISES = (0.05, 0.15, 0.3)
BIASES = (0.0, 0.2)
MIDDLE = "a baseline in the middle of the scale"
PAIRWISE = ("circular", "circular, rounds = 2", "all", "knockout", "swiss", "anchor")
WORDS = 235
"""Words of a response of 300 tokens, by our estimate."""
WHAT = (
    "Groups of 8 and of 16 responses whose true strengths are drawn evenly from the scale of 1 to 10. Noise: "
    "standard deviation of what the judge sees of a response each time, as a share of the scale, the same for "
    "every kind. Bias: what it adds to the first place, falling evenly to nothing at the last. In each cell: "
    "Kendall's tau-b / Spearman's rho of the values with the truth, mean of {groups} groups; standard errors of "
    "tau up to {error:.3f}. Tokens: of all requests for a group whose responses have 300 tokens each, by our "
    "estimate. Not in the figures: that a judge may tell apart side by side what it gives the same grade one by "
    "one; the third row shows what such grades cost."
)
MOVED = (
    "What a bias of 20 % does to single values: {responses} responses in groups of 8, their strengths away from "
    "the ends of the scale. Noise of a value: its standard deviation over {draws} draws, in the mean of all "
    "responses. Shift: what the bias adds to a value beyond what it adds to its siblings on average, in units of "
    "that noise. By place: the mean shift of the responses that were first shown at one place, where it is "
    "largest (standard error {error:.2f} at most). Largest: of any value, with what becomes a tie. Last column: "
    "the whole bias for the first place and none for the others, which an order and its reverse do not cancel."
)
INSIDE = (0.15, 0.7)
"""Strengths that a bias does not lift over the end of the scale."""


class Way(NamedTuple):
    """A way to judge a group."""

    settings: dict[str, Any]
    times: int = 1
    """How often each question is asked."""
    grades: int = 10
    """How many of the scale's grades the judge uses, the upper ones."""


class FirstOnly(Perception, frozen=True):
    """A judge that likes the first place and minds no other."""

    def seen(self, strengths: Sequence[float], chance: random.Random) -> list[float]:
        first, *others = Perception(noise=self.noise).seen(strengths, chance)
        return [first + self.position_bias, *others]


LOOKS: dict[str, tuple[type[Perception], float]] = {
    "noise 5%": (Perception, 0.05),
    "noise 15%": (Perception, 0.15),
    "noise 15%, first only": (FirstOnly, 0.15),
}


def ways() -> dict[str, Way]:
    """Every way by its name."""
    found = {
        "score": Way({}),
        "score, 3 times": Way({}, 3),
        "score, of a judge that gives 8, 9 or 10": Way({}, grades=3),
    }
    for orders in (1, 2, 4):
        found[f"listwise, {orders} order{'s' * (orders > 1)}"] = Way({"kind": "listwise", "permutations": orders})
    for orders in (2, 4):
        settings = {"kind": "listwise", "permutations": orders, "ranks": True}
        found[f"listwise, {orders} orders, ranks"] = Way(settings)
    for name in PAIRWISE:
        schedule, _, rounds = name.partition(", rounds = ")
        settings = {"kind": "pairwise", "schedule": schedule, "rounds": int(rounds or 0)}
        if schedule == "anchor":
            settings["anchor"] = "baseline"
        found[f"pairwise {name}, one order"] = Way({**settings, "both_orders": False})
        found[f"pairwise {name}, both orders"] = Way(settings)
    return found


def judge_of(settings: Mapping[str, Any]) -> Judge:
    """The judge of these settings."""
    return make_judge(load({"judge": {**settings}}, {}).judge[0], b"secret")


def group_of(size: int, name: object, words: int = 0) -> list[Sample]:
    """Responses to one prompt, of so many words more than their names."""
    body = " ".join(["word"] * words)
    prompt = f"Question {name}: what is said here, and what follows from it? " * (1 + words // 20)
    columns = {"baseline": f"{MIDDLE} {body}".strip()}
    return [
        Sample(prompt=prompt, response=f"answer {n} to {name} {body}".strip(), id=str(n), columns=columns)
        for n in range(size)
    ]


def answering(
    strengths: Mapping[str, float], sees: Perception, chance: random.Random, grades: int = 10
) -> Callable[[Ask], Verdict]:
    """Answers to questions, in text, from such a judge."""

    def answer(ask: Ask) -> Verdict:
        question = read(ChatRequest(messages=[ChatMessage(message.role, message.content) for message in ask.messages]))
        texts = [each.text for each in question.shown] or [question.candidate]
        # What is judged alone has no place.
        looking = sees if question.shown else Perception(noise=sees.noise)
        seen = looking.seen([strengths[text] for text in texts], chance)
        scores = [11 - grades + round((grades - 1) * min(max(value, 0.0), 1.0)) for value in seen]
        if not question.shown:
            said = write(question, scores[0])
        elif question.listed:
            labels = [each.label for each in question.shown]
            said = write_list(list(zip(labels, scores, strict=True)), "", question.tag)
        else:
            better = looking.better(*seen)
            said = write(question, "tie" if better is None else question.shown[better].label)
        found = ask.read(ask, Reply(text=said, finish="stop"))
        assert isinstance(found, Verdict), found
        return found

    return answer


def values_of(
    judge: Judge, samples: Sequence[Sample], answer: Callable[[Ask], Verdict], times: int = 1
) -> tuple[list[float], list[Ask]]:
    """The value of each response, and what was asked."""
    asks: list[Ask] = []
    each: list[list[float]] = [[] for _ in samples]
    cases = [[n] for n in range(len(samples))] if judge.unit == "sample" else [list(range(len(samples)))]
    for case, _ in itertools.product(cases, range(times)):
        done = deliberate(judge, [samples[n] for n in case], answer, "text")
        asks += done.asks
        for n, verdict in zip(case, done.verdicts, strict=True):
            assert isinstance(verdict, Verdict), verdict
            each[n].append(verdict.value)
    return [statistics.fmean(given) for given in each], asks


def drawn(
    size: int, number: int, low: float = 0.0, high: float = 1.0
) -> tuple[list[Sample], list[float], dict[str, float]]:
    """A group, the true strengths of its responses, and those of all texts."""
    samples, chance = group_of(size, number), random.Random(number)
    truth = [chance.uniform(low, high) for _ in samples]
    return samples, truth, {MIDDLE: 0.5, **{str(s.response): t for s, t in zip(samples, truth, strict=True)}}


def correlations(way: Way, size: int, groups: int) -> dict[str, list[float]]:
    """Of each bias and noise: the mean tau, its standard error, the mean rho."""
    judge = judge_of(way.settings)
    found: dict[str, list[float]] = {}
    for bias, noise in itertools.product(BIASES, NOISES):
        sees = Perception(noise=noise, position_bias=bias)
        taus, rhos = [], []
        for number in range(groups):
            samples, truth, strengths = drawn(size, number)
            answer = answering(strengths, sees, random.Random(-1 - number), way.grades)
            values, _ = values_of(judge, samples, answer, way.times)
            # Strengths that are equal but for the fit's tolerance are a tie. All equal: nothing was told apart.
            rounded = [round(value, 9) for value in values]
            taus.append(kendall(rounded, truth) or 0.0)
            rhos.append(spearman(rounded, truth) or 0.0)
        error = statistics.stdev(taus) / math.sqrt(groups)
        found[f"{bias} {noise}"] = [statistics.fmean(taus), error, statistics.fmean(rhos)]
    return found


def cost(way: Way, size: int) -> dict[str, int]:
    """Calls and tokens of requests for a group of responses of 300 tokens."""
    samples = group_of(size, "0", WORDS)
    strengths = {str(s.response): n / size for n, s in enumerate(samples)} | {samples[0].columns["baseline"]: 0.5}
    answer = answering(strengths, Perception(), random.Random(0))
    _, asks = values_of(judge_of(way.settings), samples, answer, way.times)
    return {"calls": len(asks), "tokens": sum(ask.prompt_tokens for ask in asks)}


class Shift(NamedTuple):
    """What a bias does to the value of one response, beside its siblings."""

    place: int
    """Where it stood in the first request that shows it."""
    by: float
    noise: float
    """Standard deviation of the value without the bias."""


def shifts(settings: Mapping[str, Any], groups: int, draws: int, shape: type[Perception], noise: float) -> list[Shift]:
    """How far a bias of 20 % moves each value."""
    judge = judge_of(settings)
    found: list[Shift] = []
    for number in range(groups):
        samples, _, strengths = drawn(SIZES[0], number, *INSIDE)
        values: list[list[tuple[float, ...]]] = []
        for bias in BIASES:
            sees = shape(noise=noise, position_bias=bias)
            runs = [values_of(judge, samples, answering(strengths, sees, random.Random(draw))) for draw in range(draws)]
            values.append(list(zip(*(each for each, _ in runs), strict=True)))
        moved = [statistics.fmean(after) - statistics.fmean(before) for before, after in zip(*values, strict=True)]
        common = statistics.fmean(moved)
        places = places_in(runs[0][1], samples)
        for place, by, before in zip(places, moved, values[0], strict=True):
            found.append(Shift(place, by - common, statistics.stdev(before)))
    return found


def places_in(asks: Sequence[Ask], samples: Sequence[Sample]) -> list[int]:
    """The place of each response in the first request that shows it."""
    found: dict[str, int] = {}
    for ask in asks:
        shown = read(ChatRequest(messages=[ChatMessage("user", ask.messages[-1].content)])).shown
        for place, each in enumerate(shown):
            found.setdefault(each.text, place)
    return [found[str(sample.response)] for sample in samples]


def summed(found: Sequence[Shift]) -> dict[str, float]:
    """The largest mean of a place with its standard error, and the largest shift, in units of the noise."""
    noise = math.sqrt(statistics.fmean([each.noise**2 for each in found]))
    by_place = [[each.by for each in found if each.place == place] for place in {each.place for each in found}]
    most = max(by_place, key=lambda given: abs(statistics.fmean(given)))
    return {
        "place": abs(statistics.fmean(most)) / noise,
        "error": statistics.stdev(most) / math.sqrt(len(most)) / noise,
        "largest": max(abs(each.by) for each in found) / noise,
    }


def run(quick: bool) -> dict[str, Any]:
    """Every way at every size, and the ways with an order under both shapes of bias."""
    groups, several, draws = (10, 3, 10) if quick else (100, 12, 30)
    every = ways()
    rows = {
        str(size): {name: {**cost(way, size), "found": correlations(way, size, groups)} for name, way in every.items()}
        for size in SIZES
    }
    moved: dict[str, dict[str, Any]] = {}
    for name, way in every.items():
        if not way.settings or "anchor" in name or "rounds" in name:
            continue
        # Of two places one is the first and the other the last, whatever the shape.
        looks = {key: look for key, look in LOOKS.items() if "listwise" in name or "only" not in key}
        moved[name] = {key: summed(shifts(way.settings, several, draws, *look)) for key, look in looks.items()}
    return {"groups": groups, "draws": draws, "responses": several * SIZES[0], "rows": rows, "shifts": moved}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    every = [row["found"] for rows in results["rows"].values() for row in rows.values()]
    error = max(cell[1] for found in every for cell in found.values())
    lines = [WHAT.format(groups=results["groups"], error=error)]
    for size, rows in results["rows"].items():
        conditions = list(next(iter(rows.values()))["found"])
        body = [
            [name, str(row["calls"]), f"{row['tokens']:,}", *(_cell(row["found"][each]) for each in conditions)]
            for name, row in rows.items()
        ]
        lines += ["", *table([f"{size} responses", "calls", "tokens", *map(_condition, conditions)], body)]
    moved = results["shifts"]
    error = max(cell["error"] for row in moved.values() for cell in row.values())
    lines += ["", MOVED.format(responses=results["responses"], draws=results["draws"], error=error), ""]
    one, two, only = LOOKS
    head = ["", f"{one}: by place", "largest", f"{two}: by place", "largest", f"{only}: by place"]
    body = [
        [name, *(_noises(row, key, what) for key in (one, two) for what in ("place", "largest")), _noises(row, only)]
        for name, row in moved.items()
    ]
    return lines + table(head, body)


def _cell(found: Sequence[float]) -> str:
    return f"{found[0]:.2f} / {found[2]:.2f}"


def _noises(row: Mapping[str, Mapping[str, float]], key: str, what: str = "place") -> str:
    return f"{row[key][what]:.2f}" if key in row else ""


def _condition(key: str) -> str:
    bias, noise = (float(part) for part in key.split())
    return f"noise {noise:.0%}" + (f", bias {bias:.0%}" if bias else "")
