"""POST /v1/score with judges of groups: the samples of a request that share `group` are compared with each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.harness import sample, serving

PAIRWISE = {"kind": "pairwise", "schedule": "all", "strength": "win_rate"}


def groups(names: str) -> list[dict[str, Any]]:
    """Samples of growing quality, a letter each for its group; a dot has none."""
    return [
        sample(n + 1, name, id=f"r{n}", **({} if name == "." else {"group": name, "prompt": name}))
        for n, name in enumerate(names)
    ]


@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_groups_of_a_request_are_judged_whole(kind: str) -> None:
    """Whatever lies between their samples, with the fields of any judge; a sample alone says that it is."""

    async def main() -> None:
        async with serving(judge=PAIRWISE if kind == "pairwise" else {"kind": kind}) as served:
            results = (await served.post("/v1/score", {"samples": groups("abab.ba")})).json()["results"]
            assert [result["id"] for result in results] == [f"r{n}" for n in range(7)]
            alone = results.pop(4)
            assert (alone["reward"], alone["unscored"]) == (None, "alone")
            values = [result["value"] for result in results]
            assert values == pytest.approx(
                [0, 0, 0.5, 0.5, 1, 1] if kind == "pairwise" else [0, 1 / 9, 2 / 9, 3 / 9, 5 / 9, 6 / 9]
            )
            for result in results:
                assert {"reward", "score", "value"} <= result.keys()
                assert result["reward"] == result["value"]
                assert result["how"] == kind
                assert bool(result.get("parts")) == (kind == "pairwise")
            assert served.held.asked == (2 if kind == "listwise" else 2 * 6)

    asyncio.run(main())
