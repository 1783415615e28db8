"""An endpoint that was good and says no, one that waits for another, and a provider that comes back."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from tests.engine.harness import HOST, config_for, run, samples

from referee import clock
from referee.engine import Endpoint
from referee.engine.port import TransportFault
from referee.engine.transport import HttpTransport
from referee.errors import RefereeError
from referee.records import Action, Failure, Reason, Reward, Sampling, Unscored
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

STEADY: dict[str, Any] = {"limits": {"concurrency": 8}}


@pytest.mark.parametrize("fault", ["unknown_model", "auth", "forbidden", "redirect"])
def test_a_final_answer_from_a_server_that_has_served_is_an_outage_first(fault: Any) -> None:
    """An ingress without its backend says 404, a gateway without its login service 401: the run outlives both."""
    done = run(samples(200), ProviderSpec(latency_median=1.0, outages=((5.0, 25.0),), outage=fault), **STEADY)
    assert done.reasons() == {"scored": 200}
    assert done.error is None


def test_a_key_that_is_taken_away_closes_the_endpoint_after_a_while() -> None:
    """Not at the first word, but well before the batch's deadline, and with the reason."""
    done = run(samples(200), ProviderSpec(latency_median=1.0, outages=((5.0, 1e9),), outage="auth"), **STEADY)
    assert done.error is not None
    assert "endpoint.key_env" in str(done.error)
    assert done.reasons()["scored"] > 20
    assert 60.0 < done.seconds < 120.0


def test_an_account_without_credit_is_believed_at_once() -> None:
    """Money does not come back by itself."""
    done = run(samples(200), ProviderSpec(latency_median=1.0, outages=((5.0, 1e9),), outage="quota"), **STEADY)
    assert done.error is not None
    assert done.seconds < 10.0


def test_a_wrong_key_at_the_start_is_believed_at_once() -> None:
    """Nothing was ever served, so there is nothing to doubt."""
    done = run(samples(20), ProviderSpec(latency_median=1.0, key="another"), **STEADY)
    assert done.error is not None
    assert done.seconds < 5.0


def test_a_sample_that_waits_for_another_endpoint_holds_up_nobody() -> None:
    """What the first judge declined waits for the second, which is away; the first goes on with the rest."""
    left: list[int] = []

    async def look(scorer: Scorer, batch: Batch) -> None:
        await clock.sleep(90.0)
        left.append(len(batch.pending()))
        left.append(scorer.engine.admission.queued)

    specs = {
        "a.test": ProviderSpec(latency_median=0.5, faults={"refusal": 0.05}),
        "b.test": ProviderSpec(latency_median=0.5, outages=((0.0, 120.0),), outage="throttle_far"),
    }
    done = run(samples(200), specs, seconds=900.0, during=look, limits={"concurrency": 4})
    assert done.reasons() == {"scored": 200}
    refused = done.stats["a.test"].received - (200 - left[0])
    assert 0 < left[0] == refused < 30, "all but the declined ones were judged while the second was away"
    assert left[1] > 0


def test_open_ended_work_after_an_outage_is_judged() -> None:
    """What was given up then does not give up what comes later: time without work is no outage."""
    spec = ProviderSpec(latency_median=0.5, outages=((0.0, 200.0),))
    config = config_for([HOST], limits={"deadline": 50.0}, missing={"abort_above": 1.0})

    async def main() -> list[int]:
        scorer = build_scorer(config, SimTransport({HOST: Provider(spec, 1)}), random.Random(1), b"secret")
        found = []
        for name in ("during", "after"):
            landed: list[Reward] = []
            batch = Batch(name, samples(20, name), config, float("inf"), lambda r, e, d, at=landed: at.extend(r))  # type: ignore[misc]
            await scorer.run(batch)
            found.append(sum(reward.scored for reward in landed))
            await clock.sleep(max(0.0, 300.0 - clock.now()))
        await scorer.aclose()
        return found

    assert run_virtual(main()) == [0, 20]


def test_what_a_server_has_given_is_not_unlearned() -> None:
    """A replica that says it has no log-probabilities is out of order if the server gave them before: asked again."""
    config = config_for([HOST], judge={"kind": "yes_no"})
    endpoint = Endpoint(config.endpoint[0], config.limits, None)
    asked = Sampling(max_tokens=8, top_logprobs=5)
    complaint = Failure(reason=Reason.CONFIG, action=Action.GIVE_UP, status=400, unsupported="logprobs")
    assert endpoint.believed(complaint, asked, 1.0) is complaint, "at the start it is learned"
    endpoint.proved(asked, endpoint.adaptation)
    glitch = endpoint.believed(complaint, asked, 2.0)
    assert (glitch.action, glitch.unsupported) == (Action.BACK_OFF, "")
    assert endpoint.believed(complaint, Sampling(max_tokens=8), 3.0) is complaint, "another request was never served"


def test_a_bug_of_ours_is_an_error_and_no_cancelling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller must not take a batch that failed inside for one that he cancelled himself."""

    class Broken:
        lost = 0

        def expect(self, keys: Sequence[str]) -> None:
            raise KeyError("planning")

        def hurry(self) -> None:
            return None

        def close(self) -> None:
            return None

    monkeypatch.setattr("referee.scoring.build.open_cache", lambda *_: Broken())

    async def main() -> tuple[list[Reward], list[object]]:
        config = config_for([HOST])
        scorer = build_scorer(config, SimTransport({HOST: Provider(ProviderSpec(), 1)}), random.Random(1), b"secret")
        landed: list[Reward] = []
        errors: list[object] = []

        def deliver(rewards: list[Reward], error: object, done: bool) -> None:
            landed.extend(rewards)
            errors.append(error)

        batch = Batch("b", samples(5), config, 60.0, deliver)
        await scorer.run(batch)
        await scorer.aclose()
        return landed, errors

    landed, errors = run_virtual(main())
    assert {str(reward.verdict.reason) for reward in landed if isinstance(reward.verdict, Unscored)} == {"config"}
    assert [type(error) for error in errors] == [RefereeError]


def test_a_judge_that_moves_is_looked_up_again() -> None:
    """When no address answers, the name is resolved anew for the next attempt, however fresh the old answer is."""

    async def main() -> list[str]:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        asked: list[str] = []

        async def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
            asked.append(host)
            where = "127.0.0.9" if len(asked) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (where, port))]

        loop: Any = asyncio.get_running_loop()
        real, loop.getaddrinfo = loop.getaddrinfo, resolve
        transport = HttpTransport()
        try:
            with pytest.raises(TransportFault):
                await transport.post(f"http://judge.test:{port}/v1", {}, b"", 20.0)
            answer = await transport.post(f"http://judge.test:{port}/v1", {}, b"", 20.0)
            assert answer.status == 200
        finally:
            loop.getaddrinfo = real
            await transport.close()
            server.close()
        return asked

    assert asyncio.run(main()).count("judge.test") == 2
