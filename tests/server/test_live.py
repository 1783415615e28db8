"""The live page of the service: there when it keeps a ledger, its texts only behind the token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from referee.cli.live import add_live_page
from referee.config import Secret, load
from referee.records import Sample
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.server import make_app
from referee.sim import Provider, ProviderSpec, SimTransport

TOKEN = "token-of-the-tests-0123456789"


def asked(tmp_path: Path, path: str, token: str = "", ledger: bool = True, **headers: str) -> httpx.Response:
    """What a service that has judged one sample answers at `path`."""
    sections: dict[str, Any] = {"ledger": {"dir": str(tmp_path / "run")}} if ledger else {}
    if token:
        sections["serve"] = {"token_env": "JUDGE_TOKEN"}
    config = load({"endpoint": {"url": "http://sim.test/v1", "key_env": ""}, "cache": {"path": ""}, **sections})

    async def ask() -> httpx.Response:
        app = make_app(referee, Secret(token) if token else None)
        add_live_page(app, config)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", follow_redirects=True) as client:
            return await client.get(path, headers=headers)

    with Referee(config, worker_with(lambda: SimTransport(Provider(ProviderSpec(), 1)))) as referee:
        referee.score([Sample(prompt="a secret question", response="[[quality=5]] a secret answer", id="one")])
        return asyncio.run(ask())


def test_the_page_is_there_and_strict(tmp_path: Path) -> None:
    """HTML at /live/, also without the slash, under its policy."""
    for path in ("/live/", "/live"):
        answer = asked(tmp_path, path)
        assert answer.status_code == 200
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["content-type"].startswith("text/html")


def test_the_data_is_the_service_s_own_ledger(tmp_path: Path) -> None:
    """The sample is counted; without a token its texts are not shown to whoever asks."""
    answer = asked(tmp_path, "/live/data.json")
    data = answer.json()
    assert data["report"]["metrics"]["samples"] == 1
    assert data["newest"][0]["id"] == "one"
    assert "secret" not in answer.text


def test_behind_a_token_the_texts_are_shown(tmp_path: Path) -> None:
    """Nothing without it; with it, the texts too."""
    assert asked(tmp_path, "/live/data.json", TOKEN).status_code == 401
    answer = asked(tmp_path, "/live/data.json", TOKEN, authorization=f"Bearer {TOKEN}")
    assert "a secret answer" in answer.text


def test_without_a_ledger_there_is_no_page(tmp_path: Path) -> None:
    """Nothing to show, nothing there."""
    assert asked(tmp_path, "/live/", ledger=False).status_code == 404
