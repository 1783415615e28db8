"""/v1/tickets: submit, keep computing, collect later; bounded in number and lifetime."""

from __future__ import annotations

import asyncio

from tests.server.harness import Served, sample, samples, serving, until

from referee.config import RedisConfig
from referee.server.ticket_scripts import BEAT, STORE
from referee.server.ticket_store import End, TicketStore, Work
from referee.server.tickets import HeldTicket
from referee.sim import ProviderSpec
from referee.ticket import Ticket


async def submit(served: Served, count: int = 1, **more: object) -> str:
    """Submit a batch and return its ticket's id."""
    answer = await served.post("/v1/tickets", {"samples": samples(count), **more})
    assert answer.status_code == 202, answer.text
    found: str = answer.json()["id"]
    return found


async def finish(served: Served, name: str) -> None:
    """Wait until a ticket is done, without collecting it."""
    await until(lambda: served.service.pending == 0)


def test_a_ticket_is_given_at_once_and_collected_later() -> None:
    """The first answer comes before any verdict; the results come in order, and again when asked again."""

    async def main() -> None:
        async with serving(held=True) as served:
            name = await submit(served, 3)
            state = (await served.get(f"/v1/tickets/{name}")).json()
            assert state == {"id": name, "samples": 3, "landed": 0, "done": False, "results": None}
            waiting = asyncio.create_task(served.get(f"/v1/tickets/{name}", params={"wait": 50}))
            served.held.release()
            state = (await waiting).json()
            assert state["done"] is True
            assert [result["score"] for result in state["results"]] == [1, 2, 3]
            assert (await served.get(f"/v1/tickets/{name}")).json() == state

    asyncio.run(main())


def test_waiting_for_a_ticket_ends() -> None:
    """A wait that runs out gives the state, not an error."""

    async def main() -> None:
        async with serving(held=True) as served:
            name = await submit(served)
            answer = await served.get(f"/v1/tickets/{name}", params={"wait": 0.05})
            assert answer.status_code == 200
            assert answer.json()["done"] is False
            for wait in ("61", "-1", "nan", "inf", "soon"):
                refused = await served.get(f"/v1/tickets/{name}", params={"wait": wait})
                assert refused.status_code == 422, wait

    asyncio.run(main())


def test_deleting_a_ticket_stops_its_work() -> None:
    """The judge's call is given up, the place is free, the ticket is unknown."""

    async def main() -> None:
        async with serving(held=True) as served:
            name = await submit(served)
            await until(lambda: served.held.asked == 1)
            waiting = asyncio.create_task(served.get(f"/v1/tickets/{name}", params={"wait": 50}))
            assert (await served.client.delete(f"/v1/tickets/{name}")).status_code == 204
            await until(lambda: served.held.left == 1 and served.service.pending == 0)
            assert (await waiting).status_code == 404
            assert (await served.get(f"/v1/tickets/{name}")).status_code == 404
            assert (await served.client.delete(f"/v1/tickets/{name}")).status_code == 404
            assert len(served.service.tickets) == 0
            assert (await served.post("/v1/tickets", {"samples": samples(1)})).status_code == 202

    asyncio.run(main())


def test_a_finished_ticket_is_forgotten_after_its_time() -> None:
    """Results nobody collects do not stay for ever, and their place is free again."""

    async def main() -> None:
        async with serving(serve={"ticket_seconds": 0.01}) as served:
            name = await submit(served)
            await until(lambda: len(served.service.tickets) == 0)
            answer = await served.get(f"/v1/tickets/{name}")
            assert answer.status_code == 404
            assert "ticket_seconds" in answer.json()["message"]
            assert served.service.room.callers == 0

    asyncio.run(main())


def test_draining_waits_until_results_are_collected() -> None:
    """What only this process has would be lost with it: it stays for it as long as draining may take."""

    async def main() -> None:
        async with serving(held=True) as served:
            name = await submit(served, 2)
            draining = asyncio.create_task(served.service.drain(50))
            await until(lambda: served.service.draining)
            served.held.release()
            await until(lambda: served.service.pending == 0)
            state = (await served.get(f"/v1/tickets/{name}", params={"wait": 50})).json()
            assert [result["score"] for result in state["results"]] == [1, 2]
            await draining

    asyncio.run(main())


def test_results_that_nobody_collects_do_not_keep_the_process() -> None:
    """Draining has the same bound for them."""

    async def main() -> None:
        async with serving() as served:
            await finish(served, await submit(served))
            await served.service.drain(0.05)
            assert len(served.service.tickets) == 1

    asyncio.run(main())


def test_tickets_are_bounded_in_number() -> None:
    """Beyond max_tickets there is 429; one that was collected gives way."""

    async def main() -> None:
        async with serving(serve={"max_tickets": 2}) as served:
            first, second = await submit(served), await submit(served)
            await finish(served, first)
            await finish(served, second)
            busy = await served.post("/v1/tickets", {"samples": samples(1)})
            assert busy.status_code == 429
            assert int(busy.headers["retry-after"]) > 0
            await served.get(f"/v1/tickets/{first}")
            third = await submit(served)
            assert (await served.get(f"/v1/tickets/{first}")).status_code == 404
            assert (await served.get(f"/v1/tickets/{second}")).status_code == 200
            assert (await served.get(f"/v1/tickets/{third}", params={"wait": 50})).json()["done"]

    asyncio.run(main())


def test_tickets_that_come_at_once_are_bounded_too() -> None:
    """Each has its place from the moment it is let in, and a batch that is refused after that gives it back."""

    async def main() -> None:
        async with serving(serve={"max_tickets": 2}, shaping={"length": {"enable": True}}, held=True) as served:
            mixed = {"samples": [sample(length=3, group="g"), sample(group="g")]}
            for _ in range(3):
                assert (await served.post("/v1/tickets", mixed)).status_code == 422
            at_once = (served.post("/v1/tickets", {"samples": samples(1)}) for _ in range(6))
            found = [answer.status_code for answer in await asyncio.gather(*at_once)]
            assert sorted(found) == [202, 202, 429, 429, 429, 429]
            served.held.release()

    asyncio.run(main())


def test_results_kept_count_as_held_samples() -> None:
    """max_queue bounds what waits to be collected too."""

    async def main() -> None:
        async with serving(serve={"max_queue": 3}) as served:
            name = await submit(served, 2)
            await finish(served, name)
            assert (await served.post("/v1/tickets", {"samples": samples(2)})).status_code == 429
            assert (await served.post("/v1/score", {"samples": [sample()]})).status_code == 200
            await served.get(f"/v1/tickets/{name}")
            assert (await served.post("/v1/score", {"samples": samples(3)})).status_code == 200
            assert len(served.service.tickets) == 0

    asyncio.run(main())


def test_a_ticket_that_failed_says_so_each_time() -> None:
    """The error of the batch is what its ticket gives, not results with holes."""

    async def main() -> None:
        async with serving(ProviderSpec(faults={"refusal": 1.0}), missing={"policy": "raise"}) as served:
            name = await submit(served)
            for _ in range(2):
                answer = await served.get(f"/v1/tickets/{name}", params={"wait": 50})
                assert answer.status_code == 503
                assert answer.json()["error"] == "unscored"

    asyncio.run(main())


def test_a_batch_that_cannot_be_let_in_has_no_ticket() -> None:
    """Bad samples and a draining service are refused at once."""

    async def main() -> None:
        async with serving(shaping={"length": {"enable": True}}) as served:
            mixed = [sample(length=3, group="g"), sample(group="g")]
            answer = await served.post("/v1/tickets", {"samples": mixed})
            assert answer.status_code == 422
            assert answer.json()["error"] == "bad_sample"
            await served.service.drain(0)
            assert (await served.post("/v1/tickets", {"samples": samples(1)})).status_code == 503
            assert len(served.service.tickets) == 0

    asyncio.run(main())


def test_how_a_ticket_ended_is_told_once_redis_is_back() -> None:
    """Its work is known there, its end is not: the next sign of life stores it."""

    async def main() -> None:
        held = HeldTicket("x", Work(samples=()), Ticket(1, lambda: None, lambda: None), stored=True)
        store = TicketStore(RedisConfig(url="redis://127.0.0.1:1/0"), {"x": held}, lambda name: None, 60.0, 60.0)
        away, told = True, list[str]()

        async def run(script: str, keys: list[str], arguments: list[object]) -> object:
            if away:
                return None
            told.append(script)
            return [b"kept"] if script == BEAT else 1

        store._run = run  # type: ignore[assignment, method-assign]
        held.end = End(results=b"[]")
        await store.store(held)
        assert not held.stored
        away = False
        await store._tell(["x"])
        await store._tell(["x"])
        assert (held.stored, told) == (True, [BEAT, STORE, BEAT])
        await store.close()

    asyncio.run(main())
