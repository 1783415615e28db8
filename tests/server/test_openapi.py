"""/openapi.json: what it says is so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.server.harness import TOKEN, serving


def schema(token: str = "") -> dict[str, Any]:
    """The document as served."""

    async def main() -> Any:
        async with serving(token=token) as served:
            return (await served.get("/openapi.json", headers={"authorization": f"Bearer {token}"})).json()

    found: dict[str, Any] = asyncio.run(main())
    return found


def refs(node: Any) -> set[str]:
    """Every reference in a document."""
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(refs(value) for value in node.values()))
    return set().union(*(refs(item) for item in node)) if isinstance(node, list) else set()


def test_every_path_is_described() -> None:
    """Bodies and answers of all paths, and no reference into the void."""
    found = schema()
    assert set(found["paths"]) == {
        "/get_reward",
        "/healthz",
        "/readyz",
        "/llamafactory",
        "/metrics",
        "/slime",
        "/v1/score",
        "/v1/tickets",
        "/v1/tickets/{id}",
    }
    parts = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert refs(found) <= parts
    for path, methods in found["paths"].items():
        for method, told in methods.items():
            assert told["summary"], (path, method)
            assert ("requestBody" in told) == (method == "post"), (path, method)


def test_a_token_is_described_where_there_is_one() -> None:
    """All paths but health ask for it."""
    assert "security" not in schema()
    found = schema(TOKEN)
    assert found["security"] == [{"token": []}]
    assert found["paths"]["/healthz"]["get"]["security"] == found["paths"]["/readyz"]["get"]["security"] == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    """The framework's own pages, which load scripts from a foreign host, are off."""

    async def main() -> None:
        async with serving() as served:
            for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
                assert (await served.get(path)).status_code == 404

    asyncio.run(main())
    assert "cdn" not in json.dumps(schema()).lower()
