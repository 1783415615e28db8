"""Several callers of one service: who counts as one, and that none of them keeps another out."""

from __future__ import annotations

import asyncio
import base64

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.harness import TOKEN, Served, sample, samples, serving, until

from referee.scoring.batch import Batch
from referee.server.gate import _caller
from referee.server.shares import Shares


def named(name: str, password: str = TOKEN) -> dict[str, str]:
    """The header that a URL with a user name and a password becomes."""
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_who_holds_less_than_his_share_is_let_in() -> None:
    """When all places are taken, an equal part of them is everybody's due, and no more."""
    shares = Shares(12)
    assert shares.fits("a", 12)
    shares.take("a", 12)
    assert not shares.fits("a", 1)
    assert shares.share("b") == 6
    assert shares.fits("b", 6)
    assert not shares.fits("b", 7)
    shares.take("b", 6)
    assert not shares.fits("b", 1)
    assert shares.fits("c", 4)
    shares.give_back("a", 12)
    assert shares.callers == 1
    assert shares.fits("b", 6)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9), st.booleans()), max_size=60))
def test_what_is_held_is_bounded(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever comes and goes, nobody holds more than the limit and n callers no more than 1 + 1/2 + … + 1/n of it."""
    limit, shares = 10, Shares(10)
    for caller, count, leaves in steps:
        if leaves and shares.held(caller):
            shares.give_back(caller, min(count, shares.held(caller)))
        elif shares.fits(caller, count):
            shares.take(caller, count)
        held = [shares.held(name) for name in "abcdef"]
        assert max(held) <= limit
        assert shares.callers == sum(map(bool, held))
        assert sum(held) <= limit * sum(1 / n for n in range(1, max(shares.callers, 1) + 1))


@pytest.mark.parametrize(
    ("header", "caller"),
    [
        ({}, "10.0.0.7"),
        ({"authorization": f"Bearer {TOKEN}"}, "10.0.0.7"),
        (named("referee"), "10.0.0.7"),
        (named(""), "10.0.0.7"),
        ({"authorization": "Basic not-base64"}, "10.0.0.7"),
        (named("job-a"), "job-a"),
        (named("job-a", "anything"), "job-a"),
        (named("n" * 999), "n" * 64),
    ],
)
def test_a_caller_is_a_name_or_an_address(header: dict[str, str], caller: str) -> None:
    """The user name of the URL, if it names anybody, else where the request comes from."""
    assert _caller(header.get("authorization", "").encode(), ("10.0.0.7", 1234)) == caller


def test_a_caller_without_an_address_has_no_name() -> None:
    """A socket in the file system has no peer's address; all of its callers are one."""
    assert _caller(b"", None) == ""


async def score(served: Served, name: str, count: int) -> httpx.Response:
    """A batch of one caller's, waited for. Its samples are nobody else's."""
    mine = [sample(name=f"{name} {n}") for n in range(count)]
    return await served.post("/v1/score", {"samples": mine}, headers=named(name))


def test_a_full_queue_keeps_nobody_else_out() -> None:
    """Who filled it is asked to come back; another's small batch is let in, and gets its rewards."""

    async def main() -> None:
        async with serving(held=True, token=TOKEN, serve={"max_queue": 8}) as served:
            large = asyncio.create_task(score(served, "large", 8))
            await until(lambda: served.service.pending == 8)
            busy = await score(served, "large", 1)
            assert busy.status_code == 429
            assert "of them yours: 8" in busy.json()["message"]
            small = asyncio.create_task(score(served, "small", 4))
            await until(lambda: served.service.pending == 12)
            assert (await score(served, "small", 1)).status_code == 429
            served.held.release()
            assert {(await task).status_code for task in (large, small)} == {200}
            assert served.service.pending == 0
            assert (await score(served, "large", 8)).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", {"samples": samples(1), "stream": True}),
        ("/v1/tickets", {"samples": samples(1)}),
        ("/slime", {"prompt": "p", "response": "[[quality=7]]", "label": None}),
        ("/get_reward", {"query": ["p r"], "prompts": ["p"], "labels": ["x"]}),
        ("/llamafactory", {"model": "m", "messages": ["a conversation"]}),
    ],
)
def test_every_path_knows_its_caller(path: str, body: dict[str, object]) -> None:
    """A queue that one caller has filled is open to another on every path that judges, and not to himself."""

    async def main() -> None:
        async with serving(held=True, token=TOKEN, serve={"max_queue": 4}) as served:
            large = asyncio.create_task(score(served, "large", 4))
            await until(lambda: served.service.pending == 4)
            assert (await served.post(path, body, headers=named("large"))).status_code == 429
            small = asyncio.create_task(served.post(path, body, headers=named("small")))
            await until(lambda: served.service.pending == 5)
            served.held.release()
            assert (await small).status_code in (200, 202)
            assert (await large).status_code == 200

    asyncio.run(main())


def test_batches_are_submitted_in_their_callers_name() -> None:
    """The scorer, which gives callers their turns, is told whose each batch is."""

    async def main() -> None:
        async with serving(token=TOKEN) as served:
            runtime, told = served.referee._runtime, []
            submit = runtime.submit

            def noted(batch: Batch) -> None:
                told.append(batch.caller)
                submit(batch)

            runtime.submit = noted  # type: ignore[method-assign]
            for name, count in (("a", 1), ("b", 2), ("c", 2000)):
                assert (await score(served, name, count)).status_code == 200
            assert told == ["a", "b", "c"]

    asyncio.run(main())


def test_tickets_are_shared_too() -> None:
    """One caller's uncollected tickets do not keep another from opening one, and given back they are his again."""

    async def main() -> None:
        async with serving(token=TOKEN, serve={"max_tickets": 2}) as served:
            names = []
            for _ in range(2):
                opened = await served.post("/v1/tickets", {"samples": samples(1)}, headers=named("large"))
                names.append(opened.json()["id"])
            full = await served.post("/v1/tickets", {"samples": samples(1)}, headers=named("large"))
            assert (full.status_code, full.json()["error"]) == (429, "too_many_tickets")
            other = await served.post("/v1/tickets", {"samples": samples(1)}, headers=named("small"))
            assert other.status_code == 202
            assert (
                await served.post("/v1/tickets", {"samples": samples(1)}, headers=named("small"))
            ).status_code == 429
            for name in (*names, other.json()["id"]):
                assert (await served.client.delete(f"/v1/tickets/{name}", headers=named("large"))).status_code == 204
            await until(lambda: served.service.pending == 0)
            assert len(served.service.tickets) == 0
            assert repr(served.service.room) == "Shares(0 of 20000 held by 0)"

    asyncio.run(main())


def test_without_a_token_a_name_still_counts() -> None:
    """On loopback several jobs of one machine can be told apart by the user name of their URL."""

    async def main() -> None:
        async with serving(held=True, serve={"max_queue": 2}) as served:
            large = asyncio.create_task(score(served, "large", 2))
            await until(lambda: served.service.pending == 2)
            small = asyncio.create_task(score(served, "small", 1))
            await until(lambda: served.service.pending == 3)
            served.held.release()
            assert {(await task).status_code for task in (large, small)} == {200}

    asyncio.run(main())
