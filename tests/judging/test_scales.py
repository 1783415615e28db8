"""kind = "yes_no" in whole runs: no run mixes P(yes) with bare 1 and 0, whatever part of the replies lacks what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from tests.engine import harness

from referee.engine.port import Response
from referee.records import Sample, Verdict
from referee.sim import ProviderSpec, SimTransport

GIVEN = [Sample(prompt=f"Question {n // 8}", response=f"answer {n}", group=str(n // 8)) for n in range(160)]

SPOILED: dict[str, Callable[[dict[str, Any]], object]] = {
    "absent": lambda choice: choice.pop("logprobs"),
    "null": lambda choice: choice.update(logprobs=None),
    "empty": lambda choice: choice.update(logprobs={"content": []}),
    "no alternatives": lambda choice: [token.pop("top_logprobs") for token in choice["logprobs"]["content"]],
    "not numbers": lambda choice: [
        top.update(logprob=None) for token in choice["logprobs"]["content"] for top in token["top_logprobs"]
    ],
}


def judged(monkeypatch: pytest.MonkeyPatch, spoil: str, lacks: Callable[[int], bool]) -> tuple[list[Any], int]:
    """The verdicts and the requests of a run whose n-th reply lacks its log-probabilities where `lacks(n)`."""
    count, send = 0, SimTransport.post

    async def post(self: SimTransport, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        nonlocal count
        answer = await send(self, url, headers, body, timeout)
        count += 1
        if not lacks(count):
            return answer
        data = msgspec.json.decode(answer.body)
        SPOILED[spoil](data["choices"][0])
        return Response(answer.status, answer.headers, msgspec.json.encode(data))

    monkeypatch.setattr(SimTransport, "post", post)
    done = harness.run(
        GIVEN, ProviderSpec(latency_median=0.5, latency_sigma=0.5), judge={"kind": "yes_no", "ask_again": 5}
    )
    return done.verdicts(), done.seen.received


@pytest.mark.parametrize("spoil", SPOILED)
def test_where_some_replies_lack_them_every_score_is_a_probability(monkeypatch: pytest.MonkeyPatch, spoil: str) -> None:
    """Every fourth reply lacks them: those are asked again, and nothing is 1 or 0 beside a P(yes)."""
    verdicts, requests = judged(monkeypatch, spoil, lambda n: n % 4 == 0)
    assert {verdict.how for verdict in verdicts if isinstance(verdict, Verdict)} == {"logprob"}
    assert len([verdict for verdict in verdicts if isinstance(verdict, Verdict)]) == len(GIVEN)
    assert requests < 1.5 * len(GIVEN)


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_late_start_does_not_mix_them_either(monkeypatch: pytest.MonkeyPatch, spoil: str) -> None:
    """The first replies decide: lacking ones put the whole run on words, also when later ones have what is needed."""
    verdicts, _ = judged(monkeypatch, spoil, lambda n: n <= 20)
    assert {verdict.how for verdict in verdicts if isinstance(verdict, Verdict)} == {"tag"}
    assert {verdict.value for verdict in verdicts} == {0.0, 1.0}


@pytest.mark.parametrize("spoil", SPOILED)
def test_an_endpoint_that_ignores_the_wish_is_scored_by_words(monkeypatch: pytest.MonkeyPatch, spoil: str) -> None:
    """No sample is lost, and it costs two requests in all to find out."""
    verdicts, requests = judged(monkeypatch, spoil, lambda _: True)
    assert {verdict.how for verdict in verdicts if isinstance(verdict, Verdict)} == {"tag"}
    assert len([verdict for verdict in verdicts if isinstance(verdict, Verdict)]) == len(GIVEN)
    assert requests == len(GIVEN) + 5


@pytest.mark.parametrize("alone", [True, False])
def test_a_server_that_refuses_log_probabilities_is_scored_by_words(alone: bool) -> None:
    """Whether a run has many samples or one, each has its 1 or 0."""
    given = GIVEN[:1] if alone else GIVEN
    done = harness.run(given, ProviderSpec(unsupported=("logprobs",)), judge={"kind": "yes_no", "ask_again": 5})
    assert done.reasons() == {"scored": len(given)}
    assert {verdict.how for verdict in done.verdicts() if isinstance(verdict, Verdict)} == {"tag"}
