"""The contract of the batch transport over both providers' APIs: each post gets its own answer, paid for once, whatever
happens to the process, the network and the batches in between."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import stat
from pathlib import Path

import pytest
from tests.batch.world import HEADERS, TIMEOUT_S, URL, World, ask, question, right, score

from referee import clock
from referee.batch import Journal
from referee.batch.journal import Item
from referee.batch.outcomes import MAX_TRIES
from referee.engine.port import TransportFault
from referee.errors import ConfigError
from referee.sim import BatchSpec, run_virtual
from referee.wire.failure import failure

pytestmark = pytest.mark.parametrize("name", ["openai", "anthropic"])
BODIES = [question(n) for n in range(60)]
CREATE = {"openai": "/v1/batches", "anthropic": "/v1/messages/batches"}


async def abandon(world: World, *bodies: bytes, after: float) -> None:
    """A process that asks these and dies after so many seconds."""
    asking = asyncio.ensure_future(ask(world.start(), *bodies))
    await clock.sleep(after)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    await world.end()


def test_each_post_has_its_own_answer(tmp_path: Path, name: str) -> None:
    """Answers come in another order than the requests; each goes to the request it belongs to, in one batch."""

    async def main() -> None:
        world = World(tmp_path, name)
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.batches == 1
        assert world.provider.stats().answered == len(BODIES)
        assert 3600 <= clock.now() < 3 * 3600
        await world.end()

    run_virtual(main())


def test_a_question_that_is_cancelled_and_asked_again_is_sent_once(tmp_path: Path, name: str) -> None:
    """Twice in one file, under one name, it would make the provider refuse the whole of it."""

    async def main() -> None:
        world = World(tmp_path, name)
        transport = world.start()
        first = asyncio.ensure_future(ask(transport, BODIES[0]))
        await clock.sleep(0.01)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        assert right(await ask(transport, *BODIES[:3]))
        assert (world.provider.batches, world.provider.stats().received) == (1, 3)
        await world.end()

    run_virtual(main())


def test_files_stay_below_the_caps(tmp_path: Path, name: str) -> None:
    """More requests than a batch takes are several batches, which run side by side."""

    async def main() -> None:
        world = World(tmp_path, name)
        world.max_items = 25
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.batches == 3
        assert clock.now() < 2 * 3600
        await world.end()

    run_virtual(main())


def test_failed_items_go_into_the_next_batch(tmp_path: Path, name: str) -> None:
    """An error of the server's, or an item it did not get to, is asked again and not shown to the caller."""

    async def main() -> None:
        world = World(tmp_path, name, BatchSpec(process_s=60, error_share=0.06, expire_share=0.06))
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.batches > 1
        assert world.provider.stats().max_repeats == 1
        await world.end()

    run_virtual(main())


def test_expiry_ends(tmp_path: Path, name: str) -> None:
    """A request that expires every time is given up after MAX_TRIES batches, for a reason, and not remembered as
    answered: a resumed run asks it again."""

    async def main() -> None:
        world = World(tmp_path, name, BatchSpec(process_s=60, expire_share=1.0))
        (answer,) = await ask(world.start(), BODIES[0])
        found = failure(answer.status, answer.headers, answer.body, 0.0)
        assert (found.action.name, "expired" in found.detail) == ("GIVE_UP", True)
        assert world.provider.batches == MAX_TRIES
        await world.end()
        world.http.batches._spec = BatchSpec()
        assert right(await ask(world.start(), BODIES[0]))
        await world.end()

    run_virtual(main())


@pytest.mark.parametrize("after", [0.0, 2.5, 100.0, 3000.0, 9000.0])
def test_a_new_process_waits_for_the_same_batch(tmp_path: Path, name: str, after: float) -> None:
    """Whenever a process dies, the next one takes its batches up: each request is billed once."""

    async def main() -> None:
        world = World(tmp_path, name)
        await abandon(world, *BODIES, after=after)
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.batches == 1
        assert world.provider.stats().max_repeats == 1
        await world.end()

    run_virtual(main())


def test_answers_are_given_again_without_a_call(tmp_path: Path, name: str) -> None:
    """What was answered before a process died is answered from the journal, with no word to the provider."""

    async def main() -> None:
        world = World(tmp_path, name)
        assert right(await ask(world.start(), *BODIES))
        await world.end()
        world.http.calls.clear()
        assert right(await ask(world.start(), *BODIES))
        assert not world.http.calls
        await world.end()

    run_virtual(main())


def test_a_batch_that_was_meant_and_never_created(tmp_path: Path, name: str) -> None:
    """After a kill between the journal and the provider, the batch is searched for; if there is none, its requests are
    sent, once."""

    async def main() -> None:
        world = World(tmp_path, name)
        world.http.dead = CREATE[name]
        world.start()
        world.journal.intend("judge", [Item(digest_of(body), 0) for body in BODIES])
        await world.end()
        world.http.dead = ""
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.batches == 1
        states = [batch.state for batch in world.journal.batches()]
        assert states == ["not created", "completed"]
        await world.end()

    run_virtual(main())


def digest_of(body: bytes) -> bytes:
    from hashlib import blake2b

    return blake2b(b"judge\0" + body, digest_size=16).digest()


def test_a_lost_answer_to_its_creation(tmp_path: Path, name: str) -> None:
    """If the connection dies after the request to create a batch, it is found by its token and not made twice."""

    async def main() -> None:
        world = World(tmp_path, name)
        world.http.deaf = f"POST https://api.test{CREATE[name]}"
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.batches == 1
        await world.end()

    run_virtual(main())


def test_an_error_although_it_was_created(tmp_path: Path, name: str) -> None:
    """A 500 does not say that nothing was created."""

    async def main() -> None:
        world = World(tmp_path, name, BatchSpec(process_s=60, lost_answers=1.0))
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.batches == 1
        await world.end()

    run_virtual(main())


def test_cancelled_at_the_provider(tmp_path: Path, name: str) -> None:
    """What a cancelled batch has done counts; the rest is not bought against the user's will, but when the run is
    resumed."""

    async def main() -> None:
        world = World(tmp_path, name, BatchSpec(process_s=8000))
        asking = asyncio.ensure_future(ask(world.start(), *BODIES))
        await clock.sleep(4100)
        await world.cancel_all()
        answers = await asking
        done = [answer for answer in answers if answer.status == 200]
        left = [answer for answer in answers if answer.status != 200]
        assert 0 < len(done) < len(BODIES)
        assert all(b"cancelled" in answer.body for answer in left)
        assert world.provider.batches == 1
        await world.end()
        assert right(await ask(world.start(), *BODIES))
        assert world.provider.stats().answered == len(BODIES)
        assert world.provider.stats().max_repeats == 1
        await world.end()

    run_virtual(main())


def test_a_wrong_key_is_told_at_once(tmp_path: Path, name: str) -> None:
    """A refused upload is the answer to every request of it, and leaves no open batch."""

    async def main() -> None:
        world = World(tmp_path, name, key="another")
        answers = await ask(world.start(), *BODIES)
        assert {answer.status for answer in answers} == {401}
        assert not any(batch.open for batch in world.journal.batches())
        assert clock.now() < 60
        await world.end()

    run_virtual(main())


def test_an_address_without_a_server(tmp_path: Path, name: str) -> None:
    """A provider that was never reached is a fault of the connection, as it is of a live request."""

    async def main() -> None:
        world = World(tmp_path, name)
        world.http.dead = "api.test"
        with pytest.raises(TransportFault, match="connect"):
            await ask(world.start(), BODIES[0])
        await world.end()

    run_virtual(main())


def test_an_outage_is_waited_out(tmp_path: Path, name: str) -> None:
    """Hours without a network while a batch runs cost nothing but time."""

    async def main() -> None:
        world = World(tmp_path, name)
        asking = asyncio.ensure_future(ask(world.start(), *BODIES))
        await clock.sleep(600)
        world.http.dead = "api.test"
        await clock.sleep(6 * 3600)
        world.http.dead = ""
        assert right(await asking)
        assert world.provider.batches == 1
        await world.end()

    run_virtual(main())


def test_equal_bytes_are_numbered(tmp_path: Path, name: str) -> None:
    """The same request again is another one, and both are answered in order after a restart."""

    async def main() -> None:
        world = World(tmp_path, name)
        transport = world.start()
        first = await ask(transport, BODIES[0])
        second = await ask(transport, BODIES[0])
        assert world.provider.stats().answered == 2
        await world.end()
        transport = world.start()
        assert await ask(transport, BODIES[0]) == first
        assert await ask(transport, BODIES[0]) == second
        assert world.provider.stats().answered == 2
        await world.end()

    run_virtual(main())


def test_a_request_the_provider_refuses(tmp_path: Path, name: str) -> None:
    """One bad line is refused with its number, or by itself; the others are answered."""

    async def main() -> None:
        world = World(tmp_path, name, BatchSpec(process_s=60, refuse_text="REFUSE-ME"))
        bad, *good = await ask(world.start(), question(59, "REFUSE-ME"), *BODIES[:20])
        assert (bad.status, right(good)) == (400, True)
        if name == "openai":
            assert b"line 1" in bad.body
        await world.end()

    run_virtual(main())


def test_cancelled_questions_are_not_sent(tmp_path: Path, name: str) -> None:
    """What nobody waits for any more when a file is made is left out of it."""

    async def main() -> None:
        world = World(tmp_path, name)
        transport = world.start()
        given_up = asyncio.ensure_future(transport.post(URL, HEADERS, BODIES[0], TIMEOUT_S))
        kept = asyncio.ensure_future(transport.post(URL, HEADERS, BODIES[1], TIMEOUT_S))
        await clock.sleep(0.1)
        given_up.cancel()
        assert score(await kept) == "2"
        assert world.provider.stats().answered == 1
        await world.end()

    run_virtual(main())


def test_progress_in_words(tmp_path: Path, name: str) -> None:
    """How many batches run, how far they are and how old the oldest is."""

    async def main() -> None:
        world = World(tmp_path, name)
        asking = asyncio.ensure_future(ask(world.start(), *BODIES))
        await clock.sleep(0.1)
        assert world.board.text() == "60 to be sent"
        assert world.board.count == 0
        await clock.sleep(2000)
        assert "1 batch in progress, 30/60 items done, oldest 0:00:" in world.board.text()
        await asking
        assert world.board.text() == "no batch in progress"
        await world.end()

    run_virtual(main())


def test_the_journal_is_private(tmp_path: Path, name: str) -> None:
    """Only its owner reads the journal; it holds no prompt and no key; complete, it holds no reply either."""

    async def main() -> None:
        world = World(tmp_path / "run", name)
        await ask(world.start(), question(1, "PROMPT-TEXT"))
        await world.end()
        files = list((tmp_path / "run").iterdir())
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
        content = b"".join(file.read_bytes() for file in files)
        assert b"PROMPT-TEXT" not in content
        assert b"canary" not in content
        journal = Journal(tmp_path / "run")
        journal.finish()
        assert len(journal.batches()) == 1
        journal.close()
        assert b"chatcmpl" not in journal.path.read_bytes()

    run_virtual(main())


def test_a_journal_of_another_version_is_left_alone(tmp_path: Path, name: str) -> None:
    """Neither read nor written: what it says of paid batches could be misread. One without tables is a new one."""
    tmp_path.joinpath("batches.sqlite").touch()
    assert Journal(tmp_path, readonly=True).batches() == []
    Journal(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "batches.sqlite")) as other:
        other.execute("PRAGMA user_version = 99")
    for readonly in (True, False):
        with pytest.raises(ConfigError, match="another version of referee"):
            Journal(tmp_path, readonly)
