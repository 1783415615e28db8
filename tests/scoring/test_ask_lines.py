"""Cases of several questions: each has its line in the ledger, and what they cost is counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from msgspec.structs import replace

from referee.config import Config, load
from referee.judging import Deliberation, Form, make_judge
from referee.ledger import AskLine, JudgeLine, Line, RunLine, Tally, TextLine, VerdictLine, read
from referee.ledger.metrics import metrics
from referee.records import Ask, Message, Sample, Sampling, Settled, Unscored, Verdict
from referee.referee import Referee
from referee.scoring import build
from referee.scoring.batch import Batch
from referee.scoring.build import worker_with
from referee.scoring.case import Case
from referee.scoring.lines import LineMaker, Wanted
from referee.scoring.messages import Result, Work
from referee.scoring.recorder import Recorder
from referee.shaping import whole
from referee.sim import Provider, ProviderSpec, SimTransport

ENDPOINT = {
    "url": "http://sim.test/v1",
    "name": "sim",
    "model": "m",
    "key_env": "",
    "price_in": 1.0,
    "price_out": 1.0,
}
SAMPLES = [Sample(prompt="p", response=f"[[quality={n + 1}]] {n}", group="g", step=1) for n in range(4)]


class Repeated:
    """Asks a judge's question several times over, and takes the mean."""

    unit: Literal["sample"] = "sample"

    def __init__(self, judge: Any, times: int) -> None:
        self._judge = judge
        self._times = times

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        planned = self._judge.plan(samples[0], form)
        asks = [replace(planned, facets=(*planned.facets, ("time", str(time)))) for time in range(self._times)]
        answers = yield asks
        if any(isinstance(answer, Unscored) for answer in answers):
            return (answers[0],)
        found = [answer for answer in answers if isinstance(answer, Verdict)]
        mean = sum(answer.value for answer in found) / len(found)
        return (Verdict(score=mean, value=mean, reason="the mean"),)


def config_of(folder: Path | None = None, **sections: Any) -> Config:
    ledger = {"dir": str(folder)} if folder else {}
    return load({"endpoint": ENDPOINT, "cache": {"path": ""}, "ledger": ledger, "runtime": "inline", **sections})


def judge_all(monkeypatch: pytest.MonkeyPatch, config: Config, times: int = 3) -> tuple[list[Any], dict[str, float]]:
    """All samples, each asked about several times; rewards and metrics."""

    def repeated(config: Config, secret: bytes) -> list[Any]:
        return [Repeated(make_judge(judge, secret), times) for judge in config.judge]

    monkeypatch.setattr(build, "build_judges", repeated)
    with Referee(config, worker_with(lambda: SimTransport(Provider(ProviderSpec(), 1)))) as referee:
        return referee.score(SAMPLES), referee.metrics()


def test_each_question_of_a_case_has_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before the verdict line of their sample, with the judge's name and all that is known of the answer; texts are in
    the question's line and not in the verdict's."""
    judge_all(monkeypatch, config_of(tmp_path))
    lines = list(read(tmp_path))
    texts = {line.digest for line in lines if isinstance(line, TextLine)}
    waiting: list[AskLine] = []
    for line in lines:
        if isinstance(line, AskLine):
            assert (line.judge, line.endpoint, line.model, line.origin, line.attempts) == (
                "judge",
                "sim",
                "m",
                "call",
                1,
            )
            assert line.value is not None
            assert line.asked
            assert line.reply
            assert line.system in texts
            assert line.key
            assert line.indexes == ()
            waiting.append(line)
        elif isinstance(line, VerdictLine):
            assert [(ask.batch, ask.index) for ask in waiting] == [(line.batch, line.index)] * 3
            assert line.tokens_in == sum(ask.tokens_in for ask in waiting) > 0
            assert line.tokens_out == sum(ask.tokens_out for ask in waiting) > 0
            assert line.cost == pytest.approx(sum(ask.cost for ask in waiting))
            assert (line.asked, line.reply, line.why, line.model) == ("", "", "the mean", "m")
            waiting = []
    assert not waiting


def test_lines_of_questions_are_counted_in_no_total(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Live and from the file: the verdict lines hold the sums, and the provider's count agrees."""
    rewards, live = judge_all(monkeypatch, config_of(tmp_path))
    found = metrics(read(tmp_path))
    assert found["tokens_in"] == live["tokens_in"] == sum(reward.settled.tokens_in for reward in rewards)
    assert found["samples"] == len(SAMPLES)
    assert found["attempts"] == live["requests"] == 3 * len(SAMPLES)
    assert live["cost_usd"] == pytest.approx((live["tokens_in"] + live["tokens_out"]) / 1e6)


@pytest.mark.parametrize("kept", [True, False])
def test_several_judges_of_several_questions_add_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: bool
) -> None:
    """Question by question, judge by judge and sample by sample the same sums, with a ledger and without."""
    judges = [{"name": "quality", "weight": 0.5}, {"name": "safe", "kind": "yes_no", "weight": 0.5}]
    rewards, live = judge_all(monkeypatch, config_of(tmp_path if kept else None, judge=judges))
    for name in ("quality", "safe"):
        of_judge = [term.settled for reward in rewards for term in reward.terms if term.judge == name]
        assert live[f"judge/{name}/cost_usd"] == pytest.approx(sum(settled.cost for settled in of_judge))
        values = [settled.verdict.value for settled in of_judge]
        assert live[f"judge/{name}/score_mean"] == pytest.approx(sum(values) / len(values))
        assert (live[f"judge/{name}/scored"], live[f"judge/{name}/unscored_share"]) == (len(SAMPLES), 0.0)
    assert live["tokens_out"] == sum(reward.settled.tokens_out for reward in rewards)
    if not kept:
        return
    lines = list(read(tmp_path))
    for field in ("cost", "tokens_in", "tokens_out", "attempts"):
        asked, judged, whole_ = (
            sum(getattr(line, field) for line in lines if isinstance(line, kind))
            for kind in (AskLine, JudgeLine, VerdictLine)
        )
        assert asked == pytest.approx(judged) == pytest.approx(whole_)
    found = metrics(lines)
    assert {name: found[name] for name in found if name.startswith("judge/")} == pytest.approx(
        {name: live[name] for name in live if name.startswith("judge/")}
    )


def test_one_question_per_sample_needs_no_line_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The common case: the verdict line says it all."""
    judge_all(monkeypatch, config_of(tmp_path), times=1)
    lines = list(read(tmp_path))
    assert not [line for line in lines if isinstance(line, AskLine | JudgeLine)]
    assert all(line.asked and line.reply for line in lines if isinstance(line, VerdictLine))


def test_without_content_questions_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Numbers and keys only."""
    judge_all(monkeypatch, config_of(ledger={"dir": str(tmp_path), "content": False}))
    asks = [line for line in read(tmp_path) if isinstance(line, AskLine)]
    assert len(asks) == 3 * len(SAMPLES)
    assert not any(ask.asked or ask.reply or ask.system for ask in asks)


def ask(name: str) -> Ask:
    return Ask((Message("system", "s"), Message("user", name)), Sampling(), (("name", name),), name, 1)


def group_case(samples: int, asks: int) -> Case:
    """A judge's case about a group, which asked so many questions."""

    class Judge:
        unit: Literal["group"] = "group"

        def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
            yield [ask(str(number)) for number in range(asks)]
            return [Verdict(score=1.0, value=1.0)] * len(samples)

    case = Case(0, tuple(range(samples)))
    for slot, request in enumerate(case.begin(Judge(), SAMPLES[:samples], "text")):
        end = Settled(
            verdict=Verdict(score=1.0, value=1.0),
            origin="call",
            endpoint="e",
            model=f"m{slot % 2}",
            attempts=1,
            tokens_in=101,
            tokens_out=7,
            tokens_cached=3,
            tokens_cache_write=5,
            cost=0.1,
            saved=0.2,
        )
        case.answered(slot, request, end)
    case.next_round()
    return case


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(("samples", "asks"), [(3, 5), (4, 1), (1, 2)])
def test_a_group_shares_what_its_questions_cost(tmp_path: Path, encoded: bool, samples: int, asks: int) -> None:
    """Each question stands in the ledger once, with all its samples; over the samples its tokens and its money come out
    exactly. The same where lines come from another process."""
    found = asyncio.run(record(config_of(tmp_path), encoded, group_case(samples, asks)))

    lines = list(read(tmp_path))
    asked = [line for line in lines if isinstance(line, AskLine)]
    verdicts = [line for line in lines if isinstance(line, VerdictLine)]
    assert [line.asked for line in asked] == [str(number) for number in range(asks)]
    indexes = tuple(range(10, 10 + samples))
    assert {(line.index, line.indexes) for line in asked} == {(10, indexes if samples > 1 else ())}
    assert [line.seq for line in verdicts] == list(range(1, samples + 1))
    assert {line.model for line in verdicts} == {"m0, m1" if asks > 1 else "m0"}
    for field, total in (
        ("tokens_in", 101),
        ("tokens_out", 7),
        ("tokens_cached", 3),
        ("tokens_cache_write", 5),
        ("attempts", 1),
    ):
        assert sum(getattr(line, field) for line in verdicts) == found[field] == total * asks
    assert sum(line.cost for line in verdicts) == pytest.approx(0.1 * asks)
    assert sum(line.saved for line in verdicts) == pytest.approx(found["saved_usd"]) == pytest.approx(0.2 * asks)
    assert [line for line in lines if isinstance(line, TextLine)]


async def record(config: Config, encoded: bool, case: Case) -> dict[str, float]:
    """Keep the record of a case about samples 10 and following of a batch."""
    recorder = Recorder(config, encoded)
    wanted = Wanted(True, None if encoded else recorder.next_seq)
    maker = LineMaker(config.judge, lambda client: wanted)
    samples = SAMPLES[: len(case.places)]
    work = Work(1, "1-1", 10.0, 10.0, tuple(range(10, 10 + len(samples))), tuple(samples))
    batch = Batch("1-1", [SAMPLES[0]] * 10 + samples, config, 10.0, lambda rewards, error, done: None)
    for place in case.places:
        settled = case.settled(place)
        result = Result(10 + place, (settled,), maker.of("", work, place, 0, settled, case))
        recorder.settled(batch, result, whole(result.settled, config.judge))
    recorder.texts(wanted.take_texts())
    found = recorder.tally.metrics()
    recorder.close()
    return found


def test_a_ledger_without_lines_of_questions_is_read_as_before() -> None:
    """What 0.1 wrote: one table of a judge, no lines of judges or questions."""
    old: list[Line] = [
        RunLine(wall=1.0, config={"judge": {"kind": "score", "low": 1, "high": 5}}),
        VerdictLine(wall=2.0, value=0.5, origin="call", attempts=1, tokens_in=10, cost=0.1),
    ]
    tally = Tally()
    for line in msgspec.json.decode(msgspec.json.encode(old), type=list[Line]):
        tally.add(line)
    found = tally.metrics()
    assert (found["samples"], found["tokens_in"], found["cost_usd"]) == (1, 10, 0.1)
    assert not [name for name in found if name.startswith("judge/")]
