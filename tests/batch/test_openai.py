"""What is OpenAI's own: files that are refused whole, and accounts with room for so many tokens in batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.batch.world import World, ask, question, right

from referee.sim import BatchSpec, run_virtual
from referee.wire.failure import failure


@pytest.mark.parametrize(
    ("code", "action", "reason"),
    [
        ("model_not_found", "CLOSE", "config"),
        ("billing_hard_limit_reached", "CLOSE", "quota"),
        ("invalid_json", "GIVE_UP", "config"),
    ],
)
def test_a_file_refused_whole(tmp_path: Path, code: str, action: str, reason: str) -> None:
    """A file that is refused for no line of its own ends every request of it, with the provider's reason."""

    async def main() -> None:
        world = World(tmp_path, "openai", BatchSpec(fail_code=code))
        answers = await ask(world.start(), *(question(n) for n in range(5)))
        found = [failure(one.status, one.headers, one.body, 0.0) for one in answers]
        assert {(one.action.name, str(one.reason)) for one in found} == {(action, reason)}
        assert world.provider.batches == 1
        await world.end()

    run_virtual(main())


def test_room_for_few_tokens(tmp_path: Path) -> None:
    """Batches that are too much for the account wait for room, and become smaller if one alone is too much."""

    async def main() -> None:
        world = World(tmp_path, "openai", BatchSpec(process_s=600, max_running=150))
        assert right(await ask(world.start(), *(question(n) for n in range(400))))
        assert world.provider.stats().max_repeats == 1
        await world.end()

    run_virtual(main())
