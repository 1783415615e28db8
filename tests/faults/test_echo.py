"""A key that the server echoes is in no record of a run: rewards, ledger, cache, logs, errors."""

from __future__ import annotations

import base64
import json
import logging
import re
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.engine.harness import samples
from tests.faults.echo import CLOSING, FORMS, SCORED, UNSCORED, Echo

from referee import Referee
from referee.errors import RefereeError

pytestmark = pytest.mark.slow

KEYS = {
    "dashes": "sk-canary-5f2a9c71d0e84b36",
    "project": "sk-proj-Zk4_pQ8vXw2LmN0aBcD-eFgHiJkLmNoPqRsTuVwXyZ0123456789",
    "hex": "9c71d05f2ae84b369c71d05f2ae84b36",
    "uuid": "3f2a9c71-d0e8-4b36-a1b2-c3d4e5f60718",
    "letters": "correcthorsebatterystaple",
    "words": "correct-horse-battery-staple",
    "short": "hunter2",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dGhpc2lzbm90YXNpZ25hdHVyZQ",
    "signs": "bce-v3/ALTAK-a+b/c=d:e~f.g/0123456789abcdef",
}


def found_in(text: str, key: str) -> bool:
    """The key, plain, escaped for a URL or JSON, or inside base64."""
    low = text.replace("\\", "").lower()
    if key.lower() in low or quote(key, safe="").lower() in low:
        return True
    for run in re.findall(r"[A-Za-z0-9+/]{8,}", text):
        for start in range(4):
            part = run[start:] if (len(run) - start) % 4 != 1 else run[start:-1]
            if key.encode() in base64.b64decode(part + "=" * (-len(part) % 4)):
                return True
    return False


def config(server: Echo, folder: Path, key: str, route: str) -> dict[str, Any]:
    endpoint = {"url": f"{server.url}/v1", "model": "m", "api_key": key}
    if route == "proxied":  # the server is the proxy, which reads requests to an http endpoint
        endpoint |= {"url": "http://judge.test/v1", "proxy": server.url, "key_over_http": True}
    return {
        "endpoint": endpoint,
        "cache": {"path": str(folder / "cache.sqlite")},
        "ledger": {"dir": str(folder / "run")},
        "limits": {"concurrency": 1, "deadline": 20.0},
        "missing": {"abort_above": 1.0},
        "judge": {"reply": "schema", "ask_again": 0},
    }


def records(settings: dict[str, Any], count: int, folder: Path, caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """Everything a run leaves, by name."""
    said = []
    with Referee.from_config(settings) as referee:
        try:
            rewards = referee.score(samples(count), timeout=60.0)
            said += [f"{reward!r} {reward.settled!r}" for reward in rewards]
        except RefereeError as error:
            said += ["".join(traceback.format_exception(error)), repr(error), str(error)]
        said += [json.dumps(referee.metrics()), repr(referee)]
    kept = {str(path): path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()}
    log = "\n".join(f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records)
    return {"rewards and errors": "\n".join(said), "log": log, **kept}


@pytest.mark.parametrize("route", ["direct", "proxied"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", KEYS)
def test_an_echoed_key_is_in_no_record(
    shape: str, form: str, route: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nine shapes of key, in every place of an answer, with and without a verdict."""
    caplog.set_level(logging.DEBUG)
    places = SCORED | UNSCORED
    with Echo(places, form) as server:
        left = records(config(server, tmp_path, KEYS[shape], route), 2 * len(places), tmp_path, caplog)
    assert set(server.echoed) == set(places)
    assert "***" in left["rewards and errors"]
    assert [name for name, text in left.items() if found_in(text, KEYS[shape])] == []


@pytest.mark.parametrize("route", ["direct", "proxied"])
@pytest.mark.parametrize("place", CLOSING)
@pytest.mark.parametrize("shape", KEYS)
def test_the_error_that_ends_a_run_does_not_show_the_key(
    shape: str, place: str, route: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal or a redirect that quotes it."""
    caplog.set_level(logging.DEBUG)
    with Echo({place: CLOSING[place]}) as server:
        left = records(config(server, tmp_path, KEYS[shape], route), 2, tmp_path, caplog)
    assert "no judge can answer" in left["rewards and errors"]
    assert [name for name, text in left.items() if found_in(text, KEYS[shape])] == []


def test_a_proxys_password_is_a_secret_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The proxy echoes the credentials it was given."""
    caplog.set_level(logging.DEBUG)
    password = "correct-horse-battery"
    places = SCORED | UNSCORED
    with Echo(places, header="proxy-authorization") as server:
        settings = config(server, tmp_path, KEYS["dashes"], "proxied")
        settings["endpoint"]["proxy"] = server.url.replace("//", f"//user:{password}@")
        left = records(settings, 2 * len(places), tmp_path, caplog)
    assert set(server.echoed) == set(places)
    assert [name for name, text in left.items() if found_in(text, password)] == []
