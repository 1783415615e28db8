"""Shipped judges of groups in a whole Referee: cache across runs, the text form, chunks after a refusal, one alone."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tests.judging.groups import quality, worth

from referee import Referee, Sample
from referee.config import load
from referee.records import Reason, Unscored, Verdict
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport
from referee.sim.chat import Question
from referee.sim.judge import Answer

SHOWN = re.compile(r"^Response ([A-Z]{6}):\n<<<response (\w+)\n(.*?)\n\2 response>>>$", re.DOTALL | re.MULTILINE)
TAG = re.compile(r"<(verdict-\w+)>")
KINDS = pytest.mark.parametrize("kind", ["listwise", "pairwise"])


class GroupJudge:
    """A model that scores lists and decides pairs by quality, in the form it is asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.forms: set[str] = set()

    def answer(self, question: Question) -> Answer:
        self.asked += 1
        self.forms.add(question.form)
        body = question.messages[-1].text
        found = [(label, quality(text)) for label, _, text in SHOWN.findall(body)]
        if not found:
            return Answer('{"reason": "", "score": 10}', 10)
        best = max(found, key=lambda one: one[1])[0]
        listed = "Its list holds" in body or "write the scores" in body
        if question.form == "schema":
            entries = [{"label": label, "reason": "", "score": int(score)} for label, score in found]
            text = json.dumps({"responses": entries} if listed else {"reason": "", "verdict": best})
        else:
            tag = TAG.findall(body)[-1]
            pairs = ";".join(f"{label}={score:g}" for label, score in found)
            text = f"<{tag}>{pairs if listed else best}</{tag}>"
        return Answer(text, 0)


def run(
    samples: list[Sample],
    kind: str,
    model: GroupJudge,
    secret: bytes = b"0123456789abcdef",
    spec: ProviderSpec | None = None,
    **sections: Any,
) -> list[Verdict | Unscored]:
    """What a Referee with this provider makes of them."""
    settings: dict[str, Any] = {
        "judge": {"kind": kind},
        "endpoint": {"model": "m", "key_env": ""},
        "cache": {"path": ""},
    }
    provider = worker_with(
        lambda: SimTransport(Provider(spec or ProviderSpec(), judge=model)), random.Random(0), secret
    )
    with Referee(load({**settings, **sections}), provider) as referee:
        return [reward.settled.verdict for reward in referee.submit(samples).result()]


@KINDS
def test_a_later_run_finds_the_verdicts_of_an_earlier_one(kind: str, tmp_path: Path) -> None:
    """Although its secret, and so every label, is another; its samples may come in another order."""
    judge, cache = GroupJudge(), {"cache": {"path": str(tmp_path / "cache.sqlite")}}
    samples = worth(3, 9, 1, 7)
    first = run(samples, kind, judge, **cache)
    assert all(isinstance(verdict, Verdict) for verdict in first)
    asked = judge.asked
    again = run(samples[::-1], kind, judge, secret=b"fedcba9876543210", **cache)
    assert judge.asked == asked > 0
    assert [v.value for v in again[::-1] if isinstance(v, Verdict)] == [
        v.value for v in first if isinstance(v, Verdict)
    ]


@KINDS
def test_an_endpoint_without_schemas_is_asked_in_text(kind: str) -> None:
    """With instructions for a tag, and the same verdicts."""
    in_schema, in_text = GroupJudge(), GroupJudge()
    spec = ProviderSpec(unsupported=("response_format",))
    first = run(worth(3, 9, 1, 7), kind, in_schema)
    second = run(worth(3, 9, 1, 7), kind, in_text, spec=spec)
    assert (in_schema.forms, in_text.forms) == ({"schema"}, {"tag"})
    assert [v.value for v in first if isinstance(v, Verdict)] == [v.value for v in second if isinstance(v, Verdict)]
    assert len(second) == sum(isinstance(verdict, Verdict) for verdict in second)


@KINDS
def test_one_alone_among_groups(kind: str) -> None:
    """It is unscored, or judged by the judge that `alone` names; groups are judged as ever."""
    samples = [
        *worth(3, 9),
        Sample(prompt="p", response="It is 4.", group="lone"),
        Sample(prompt="p", response="It is 4."),
    ]
    *group, lone, nameless = run(samples, kind, GroupJudge())
    assert all(isinstance(verdict, Verdict) for verdict in group)
    for verdict in (lone, nameless):
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.ALONE
    judges = [{"name": "g", "kind": kind, "alone": "one"}, {"name": "one", "kind": "score"}]
    *group, lone, nameless = run(samples, kind, GroupJudge(), judge=judges)
    assert all(isinstance(verdict, Verdict) for verdict in group)
    assert isinstance(lone, Verdict)
    assert lone.value == 1.0
    assert isinstance(nameless, Verdict)


def test_a_group_beyond_the_models_context_is_judged_in_chunks() -> None:
    """The provider's own refusal says so; no setting is needed, and the verdict says it too."""
    samples = [Sample(prompt="p", response=f"It is {n}." + " So it is." * 100, group="g") for n in range(1, 10)]
    model = GroupJudge()
    verdicts = run(samples, "listwise", model, spec=ProviderSpec(context_tokens=2500))
    assert [verdict.score for verdict in verdicts if isinstance(verdict, Verdict)] == list(range(1, 10))
    assert all("chunks" in verdict.reason for verdict in verdicts if isinstance(verdict, Verdict))
    assert model.asked > 1
