"""A simulated judge of groups answers what the real prompts ask, and sees responses as it is told to."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from referee.config import EndpointConfig, JudgeConfig
from referee.engine.port import TransportFault
from referee.errors import ConfigError
from referee.judging import Form, make_judge
from referee.records import Ask, Reason, Reply, Sample, Unscored, Verdict
from referee.sim import FAULTS, Perception, Provider, ProviderSpec, SimTransport, run_virtual
from referee.sim.spec import Fault
from referee.testing import deliberate
from referee.wire import CHAT

SECRET = b"0123456789abcdef"
FORMS: tuple[Form, ...] = ("schema", "text")
QUALITIES = (3, 9, 5, 1, 7)


def group(qualities: Sequence[object]) -> list[Sample]:
    """Different responses to one prompt, of these qualities."""
    return [Sample(prompt="How many?", response=f"{n}: [[quality={q}]]", group="g") for n, q in enumerate(qualities)]


def answers_of(spec: ProviderSpec) -> Callable[[Ask], Verdict | Unscored]:
    """Answers questions as such a provider does, over the real encoding and the questions' own readers."""

    def answer(ask: Ask) -> Verdict | Unscored:
        async def main() -> Verdict | Unscored:
            body = CHAT.encoder(EndpointConfig()).encode(ask)
            try:
                answer = await SimTransport(Provider(spec)).post("http://judge.test/v1", {}, body, 30.0)
            except TransportFault as trouble:
                return Unscored(reason=Reason.CONNECTION, detail=str(trouble))
            found = CHAT.read(answer.status, answer.headers, answer.body, 0.0)
            return ask.read(ask, found) if isinstance(found, Reply) else Unscored(reason=Reason.CONNECTION)

        return run_virtual(main())

    return answer


def judged(form: Form, spec: ProviderSpec, qualities: Sequence[object] = QUALITIES, **settings: Any) -> list[Any]:
    """The verdicts on a group."""
    judge = make_judge(JudgeConfig(**settings), SECRET)
    return list(deliberate(judge, group(qualities), answers_of(spec), form).verdicts)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("low", "high"), [(1, 10), (-5, 9), (0, 250)])
def test_a_list_gets_the_scores_that_its_responses_have_alone(form: Form, low: int, high: int) -> None:
    """As for `score`: the marked quality, on any scale, in both forms."""
    found = judged(form, ProviderSpec(), kind="listwise", low=low, high=high)
    assert [verdict.score for verdict in found] == list(QUALITIES)


@pytest.mark.parametrize("form", FORMS)
def test_of_two_the_stronger_wins(form: Form) -> None:
    """All pairs, in both orders: the share that each has beaten is its rank."""
    found = judged(form, ProviderSpec(), kind="pairwise", schedule="all", strength="win_rate")
    assert [verdict.value for verdict in found] == [0.25, 1.0, 0.5, 0.0, 0.75]
    assert {part.label for verdict in found for part in verdict.parts} == {"won", "lost"}


@pytest.mark.parametrize("form", FORMS)
def test_unmarked_responses_are_compared_by_their_scores(form: Form) -> None:
    """The text decides as it does for `score`, whatever labels the run gives it."""
    samples = [Sample(prompt="How many?", response=f"Answer {n}.", group="g") for n in range(6)]
    alone = [
        deliberate(make_judge(JudgeConfig(), SECRET), [sample], answers_of(ProviderSpec()), form).verdicts[0]
        for sample in samples
    ]
    listed = deliberate(
        make_judge(JudgeConfig(kind="listwise"), b"another secret!!"), samples, answers_of(ProviderSpec()), form
    )
    assert [verdict.score for verdict in listed.verdicts] == [verdict.score for verdict in alone]  # type: ignore[union-attr]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("settings", [{"kind": "listwise"}, {"kind": "pairwise", "schedule": "all"}], ids=str)
def test_no_fault_invents_a_verdict(form: Form, settings: dict[str, Any]) -> None:
    """Under every fault a group is unscored, or has the very verdicts it has without one."""
    clean = judged(form, ProviderSpec(), **settings)
    for fault in FAULTS:
        found = judged(form, ProviderSpec(faults={fault: 1.0}, huge_bytes=100_000), **settings)
        if any(isinstance(verdict, Verdict) for verdict in found):
            assert fault == "nan_json", fault
            assert found == clean


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("fault", "words"),
    [("label_missing", "1 missing, 0 unknown"), ("label_twice", "twice"), ("label_unknown", "1 missing, 1 unknown")],
)
def test_confused_labels_are_said_to_be(form: Form, fault: Fault, words: str) -> None:
    """Nothing of a list counts whose labels are not each there once."""
    found = judged(form, ProviderSpec(faults={fault: 1.0}), kind="listwise")
    assert all(isinstance(verdict, Unscored) and words in verdict.detail for verdict in found)


def test_whoever_is_shown_first_is_liked_better() -> None:
    """With a bias that exceeds the difference, each wins when it stands first, and both orders together are a tie."""
    spec = ProviderSpec(compares=Perception(position_bias=0.2))
    found = judged("schema", spec, (5, 6), kind="pairwise")
    assert [verdict.value for verdict in found] == [0.5, 0.5]
    assert {(part.text, part.label) for part in found[0].parts} == {("shown first", "won"), ("shown second", "lost")}
    assert [verdict.value > 0.5 for verdict in judged("schema", spec, (5, 9), kind="pairwise")] == [False, True]


def test_what_it_sees_close_together_is_a_tie() -> None:
    """One point of ten apart is within 0.2 of the scale, three are not."""
    spec = ProviderSpec(compares=Perception(tie_within=0.2))
    (first, second), (weak, strong) = (judged("text", spec, pair, kind="pairwise") for pair in ((5, 6), (5, 8)))
    assert (first.value, second.value) == (0.5, 0.5)
    assert weak.value < 0.5 < strong.value


def test_noise_is_the_same_for_the_same_request_only() -> None:
    """So a run can be repeated, and each order has noise of its own; scores stay on the scale."""
    spec = ProviderSpec(compares=Perception(noise=0.5))
    one, other = (judged("schema", spec, range(1, 11), kind="listwise", permutations=2) for _ in range(2))
    assert one == other
    assert any(verdict.uncertainty > 0.1 for verdict in one)
    assert all(1 <= part.verdict.score <= 10 for verdict in one for part in verdict.parts)


def test_a_perception_is_what_it_says() -> None:
    """The bias falls evenly to nothing, and noise has the deviation it was given."""
    biased = Perception(position_bias=0.2).seen([0.5] * 5, random.Random(0))
    assert biased == pytest.approx([0.7, 0.65, 0.6, 0.55, 0.5])
    seen = Perception(noise=0.3).seen([0.0] * 4000, random.Random(0))
    assert statistics.stdev(seen) == pytest.approx(0.3, rel=0.05)


def test_negative_noise_is_refused() -> None:
    """Before anything is simulated with it."""
    with pytest.raises(ConfigError, match="noise"):
        Perception(noise=-0.1)
