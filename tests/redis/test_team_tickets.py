"""Tickets of teams in Redis: a team's own, on every replica."""

from __future__ import annotations

import asyncio

from tests.redis.server import RedisServer
from tests.server.harness import PATIENCE, TOKEN, sample, serving

TOKENS = {name: f"token-of-{name}-0123456789" for name in ("math", "code")}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_no_replica_hands_out_or_deletes_another_teams_ticket(server: RedisServer) -> None:
    """To another team it is unknown; to its own and to the operator it is there."""
    sections = {
        "team": [{"name": name, "token_env": name.upper()} for name in TOKENS],
        "redis": {"url": server.url, "timeout": PATIENCE, "cache": False, "limits": False},
    }

    async def main() -> None:
        async with (
            serving(token=TOKEN, teams=TOKENS, **sections) as one,
            serving(token=TOKEN, teams=TOKENS, **sections) as two,
        ):
            body = {"samples": [sample(7)]}
            name = (await one.post("/v1/tickets", body, headers=bearer(TOKENS["math"]))).json()["id"]
            path = f"/v1/tickets/{name}"
            for served in (one, two):
                stranger = bearer(TOKENS["code"])
                assert (await served.get(path, headers=stranger, params={"wait": 5})).status_code == 404
                assert (await served.client.delete(path, headers=stranger)).status_code == 404
                for token in (TOKENS["math"], TOKEN):
                    state = (await served.get(path, headers=bearer(token), params={"wait": 50})).json()
                    assert state["results"][0]["score"] == 7
            assert (await two.client.delete(path, headers=bearer(TOKENS["math"]))).status_code == 204
            assert (await one.get(path, headers=bearer(TOKEN))).status_code == 404

    asyncio.run(main())
