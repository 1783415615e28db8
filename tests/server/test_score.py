"""POST /v1/score: batches judged while the caller waits, at once or as a stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.server.harness import Served, sample, samples, serving, until

from referee.records import Reply, Reward, Settled, Verdict
from referee.server.schemas import encode, result_of
from referee.sim import ProviderSpec


def test_a_result_says_which_provider_and_server_answered() -> None:
    """OpenAI, llama.cpp and routers name them in every reply; where none does, the keys are there and empty."""
    for provider, fingerprint in (("deepinfra", "fp_1"), ("", "")):
        reply = Reply(text="", model="m", provider=provider, fingerprint=fingerprint)
        settled = Settled(verdict=Verdict(score=1.0, value=1.0), reply=reply)
        result = json.loads(encode(result_of(Reward(index=0, id="a", group="", value=1.0, settled=settled))))
        assert (result["provider"], result["fingerprint"]) == (provider, fingerprint)


def test_results_come_in_the_order_of_the_request() -> None:
    """Every result is at its sample's place, with the score the judge gave it."""

    async def main() -> None:
        async with serving() as served:
            answer = await served.post("/v1/score", {"samples": samples(20)})
            assert answer.status_code == 200
            results = answer.json()["results"]
            assert [result["id"] for result in results] == [f"r{n}" for n in range(20)]
            assert [result["score"] for result in results] == [n % 10 + 1 for n in range(20)]
            assert [result["index"] for result in results] == list(range(20))

    asyncio.run(main())


def test_a_stream_gives_each_result_as_it_lands_and_an_end() -> None:
    """One line per sample, then one that says all are there."""

    async def main() -> None:
        async with serving() as served:
            answer = await served.post("/v1/score", {"samples": samples(9), "stream": True})
            lines = [json.loads(line) for line in answer.text.splitlines()]
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert sorted(line["index"] for line in lines[:-1]) == list(range(9))
            assert lines[-1] == {"done": True, "results": 9, "error": "", "message": ""}

    asyncio.run(main())


def test_chat_messages_and_numbers_are_read_as_in_files() -> None:
    """A prompt may be a list of messages, a reference a number."""

    async def main() -> None:
        async with serving() as served:
            turns = [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]
            answer = await served.post("/v1/score", {"samples": [sample(prompt=turns, reference=4)]})
            assert answer.json()["results"][0]["score"] == 7

    asyncio.run(main())


def test_not_scored_is_null_with_a_reason() -> None:
    """A sample the judge refuses has no reward, and says why."""

    async def main() -> None:
        spec = ProviderSpec(faults={"refusal": 1.0})
        async with serving(spec, missing={"abort_above": 1.0}) as served:
            answer = await served.post("/v1/score", {"samples": [sample()]})
            result = answer.json()["results"][0]
            assert answer.status_code == 200
            assert result["reward"] is None
            assert result["score"] is None
            assert result["unscored"] == "refused"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (b'{"samples": [{"prompt": "p", "response": "r", "rule_score": NaN}]}', 400, "JSON"),
        (b'{"samples": [{"prompt": "p", "response": "r", "rule_score": 1e999}]}', 422, "rule_score"),
        (b'{"samples": [{"prompt": "p", "response": "r", "rule_score": -1e10}]}', 422, "rule_score"),
        (b'{"samples": [{"prompt": "p", "response": "r", "length": 123456789012345678901234567890}]}', 422, "length"),
        (b'{"samples": [{"prompt": "p", "response": "r", "step": ' + b"9" * 5000 + b"}]}", 422, ""),
        (b'{"samples": [{"prompt": "p", "response": "\\ud800"}]}', 400, "surrogate"),
        (b'{"samples": [{"prompt": "p", "response": "\xff"}]}', 400, ""),
        (b"[" * 100_000, 422, "array"),
        (b'{"samples": [{"prompt": [{"role": "u", "x": ' + b"[" * 100_000, 400, "deep"),
        (b"[]", 422, "array"),
        (b'{"samples": []}', 422, "samples"),
        (b'{"samples": [{"prompt": "p"}]}', 422, "response"),
        (b'{"samples": [{"prompt": [], "response": "r"}]}', 422, "prompt"),
        (b'{"samples": [{"prompt": "p", "response": "r", "rubric": 5}]}', 422, "rubric"),
        (
            b'{"samples": [{"prompt": "p", "response": "r", "rubric": ["Is kind."]}]}',
            422,
            "samples[0].rubric: no judge is of kind",
        ),
        (b'{"samples": [{"prompt": "p", "response": "r"}], "model": "mine"}', 422, "`model`"),
        (b'{"samples": [{"prompt": "p", "response": "r", "endpoint": "mine"}]}', 422, "`endpoint`"),
        (b'{"samples": [{"prompt": "p", "response": "r"}], "deadline": 0}', 422, "deadline"),
        (b'{"samples": [{"prompt": "p", "response": "r"}], "stream": 1}', 422, "stream"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_judged(body: bytes, status: int, word: str) -> None:
    """Not JSON is 400, another shape is 422; the message names the place, and no judge is asked."""

    async def main() -> None:
        async with serving() as served:
            headers = {"content-type": "application/json"}
            answer = await served.client.post("/v1/score", content=body, headers=headers)
            assert answer.status_code == status, answer.text
            assert word in answer.json()["message"]
            assert served.held.asked == 0

    asyncio.run(main())


def test_a_callers_deadline_is_kept() -> None:
    """What is not judged by then is unscored, not awaited."""

    async def main() -> None:
        async with serving(held=True) as served:
            answer = await served.post("/v1/score", {"samples": [sample()], "deadline": 0.2})
            assert answer.json()["results"][0]["unscored"] == "deadline"

    asyncio.run(main())


def test_the_policy_raise_is_an_error_not_a_result() -> None:
    """With [missing] policy = "raise" a batch with a hole is 503, with Retry-After."""

    async def main() -> None:
        spec = ProviderSpec(faults={"refusal": 1.0})
        async with serving(spec, missing={"policy": "raise"}) as served:
            answer = await served.post("/v1/score", {"samples": [sample()]})
            assert answer.status_code == 503
            assert answer.json()["error"] == "unscored"
            assert int(answer.headers["retry-after"]) > 0
            stream = await served.post("/v1/score", {"samples": [sample()], "stream": True})
            end = json.loads(stream.text.splitlines()[-1])
            assert end["done"] is False
            assert end["error"] == "unscored"

    asyncio.run(main())


def test_a_closed_judge_is_said_here_and_at_readyz() -> None:
    """A wrong key closes the endpoint: 503 and why, and health is 503 from then on."""

    async def main() -> None:
        async with serving(ProviderSpec(key="right")) as served:
            assert (await served.get("/healthz")).json()["status"] == "ok"
            answer = await served.post("/v1/score", {"samples": [sample()]})
            assert answer.status_code == 503
            assert answer.json()["error"] == "judge_closed"
            health = await served.get("/readyz")
            assert health.status_code == 503
            assert health.json()["status"] == "closed"
            assert "a.test" in health.json()["why"]

    asyncio.run(main())


@pytest.mark.parametrize("way", ["score", "stream", "raise"])
def test_a_spent_budget_is_said_once_in_the_log_and_at_readyz(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing but the cache can answer then: /readyz is 503 with the setting, and the log has one line."""

    async def main() -> None:
        prices = {"price_in": 1000.0, "price_out": 1000.0}
        policy = {"policy": "raise"} if way == "raise" else {"abort_above": 1.0}
        limits = {"budget_usd": 0.001}
        async with serving(endpoint=prices, limits=limits, missing=policy) as served:
            for name in ("a", "b"):
                await served.post("/v1/score", {"samples": [sample(name=name)], "stream": way == "stream"})
            health = await served.get("/readyz")
            assert (health.status_code, health.json()["status"]) == (503, "budget")
            assert "budget_usd" in health.json()["why"]

    asyncio.run(main())
    assert len([record for record in caplog.records if record.name == "referee.server"]) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_that_leaves_cancels_its_work(stream: bool) -> None:
    """Once the connection is gone the judge's call is given up, and its place is free again."""

    async def main() -> None:
        async with serving(held=True) as served:
            leave = asyncio.Event()
            task = asyncio.create_task(ask(served, {"samples": [sample()], "stream": stream}, leave))
            await until(lambda: served.held.asked == 1)
            assert served.service.pending == 1
            leave.set()
            await task
            await until(lambda: served.held.left == 1)
            assert served.service.pending == 0

    asyncio.run(main())


async def ask(served: Served, body: Any, leave: asyncio.Event) -> None:
    """A POST by a caller that goes away when `leave` is set: the application called as a server would."""
    sent = False
    text = json.dumps(body).encode()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": text, "more_body": False}
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        return None

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/score",
        "raw_path": b"/v1/score",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8900),
    }
    await served.app(scope, receive, send)


def test_too_much_at_once_is_429_and_then_there_is_room_again() -> None:
    """Beyond max_queue a caller is asked to come back; when the work is done it is let in."""

    async def main() -> None:
        async with serving(held=True, serve={"max_queue": 2}) as served:
            first = asyncio.create_task(served.post("/v1/score", {"samples": samples(2)}))
            await until(lambda: served.service.pending == 2)
            busy = await served.post("/v1/score", {"samples": [sample()]})
            assert busy.status_code == 429
            assert int(busy.headers["retry-after"]) > 0
            assert "max_queue" in busy.json()["message"]
            streamed = await served.post("/v1/score", {"samples": [sample()], "stream": True})
            assert streamed.status_code == 429
            never = await served.post("/v1/score", {"samples": samples(3)})
            assert never.status_code == 413
            served.held.release()
            assert (await first).status_code == 200
            assert (await served.post("/v1/score", {"samples": [sample()]})).status_code == 200

    asyncio.run(main())


def test_equal_samples_of_many_callers_are_asked_once() -> None:
    """Callers share one cache and one flight."""

    async def main() -> None:
        async with serving(held=True) as served:
            asked = [asyncio.create_task(served.post("/v1/score", {"samples": [sample()]})) for _ in range(8)]
            await until(lambda: served.service.pending == 8)
            served.held.release()
            assert {(await answer).json()["results"][0]["score"] for answer in asked} == {7.0}
            await served.post("/v1/score", {"samples": [sample()]})
            assert served.held.asked == 1

    asyncio.run(main())


def test_draining_finishes_what_was_accepted_and_takes_no_more() -> None:
    """While draining new work is 503, health is 503, and the old work gets its results."""

    async def main() -> None:
        async with serving(held=True) as served:
            first = asyncio.create_task(served.post("/v1/score", {"samples": [sample()]}))
            await until(lambda: served.held.asked == 1)
            drained = asyncio.create_task(served.service.drain(40))
            await until(lambda: served.service.draining)
            refused = await served.post("/v1/score", {"samples": [sample()]})
            assert refused.status_code == 503
            assert refused.json()["error"] == "draining"
            assert (await served.get("/healthz")).json()["status"] == "draining"
            served.held.release()
            assert (await first).json()["results"][0]["score"] == 7
            await drained

    asyncio.run(main())


def test_draining_ends_at_its_bound() -> None:
    """What is not judged by then is unscored (cancelled), and its caller is told so."""

    async def main() -> None:
        async with serving(held=True) as served:
            first = asyncio.create_task(served.post("/v1/score", {"samples": [sample()]}))
            await until(lambda: served.held.asked == 1)
            await served.service.drain(0.05)
            assert (await first).json()["results"][0]["unscored"] == "cancelled"

    asyncio.run(main())


@pytest.mark.parametrize("judges", [1, 2])
def test_results_say_which_model_and_endpoint_answered(judges: int) -> None:
    """Together, and for each of several judges."""
    given = [{"name": f"j{n}", "criteria": f"criterion {n}"} for n in range(judges)]

    async def main() -> None:
        async with serving(judge=given, endpoint={"name": "here"}) as served:
            answer = await served.post("/v1/score", {"samples": samples(2)})
            for result in answer.json()["results"]:
                assert (result["model"], result["endpoint"]) == ("m", "here")
                assert list(result["judges"]) == ([] if judges == 1 else ["j0", "j1"])
                assert all((said["model"], said["endpoint"]) == ("m", "here") for said in result["judges"].values())

    asyncio.run(main())


def test_rubrics_come_with_their_samples() -> None:
    """Judged by a rubric judge, criterion by criterion; a wrong one is named by its place."""

    async def main() -> None:
        async with serving(judge={"kind": "rubric"}) as served:
            given = {"prompt": "p", "response": "#kind", "rubric": [{"criterion": "Is #kind.", "points": 3}]}
            [result] = (await served.post("/v1/score", {"samples": [given]})).json()["results"]
            assert result["score"] == 1.0
            assert [(part["text"], part["verdict"], part["weight"]) for part in result["parts"]] == [
                ("Is #kind.", "yes", 3.0)
            ]
            wrong = {**given, "rubric": [{"criterion": "c", "points": "x"}]}
            refused = await served.post("/v1/score", {"samples": [wrong]})
            assert refused.status_code == 422
            assert "samples[0].rubric[0].points" in refused.text

    asyncio.run(main())
