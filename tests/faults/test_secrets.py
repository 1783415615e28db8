"""A canary key is looked for wherever a run leaves something: it must be nowhere but in the requests' own header."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from tests.engine.harness import samples
from tests.faults.served import Served

from referee import Referee
from referee.config import load
from referee.engine import Endpoint, find_key
from referee.errors import RefereeError
from referee.sim import ProviderSpec
from referee.sim.spec import FAULTS
from referee.wire import CHAT

CANARY = "sk-canary-5f2a9c71d0e84b36"
TROUBLE = tuple(fault for fault in FAULTS if fault not in ("huge", "bomb", "drip", "hang"))


def settings(url: str, folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "endpoint": {"url": url, "model": "m", "api_key": CANARY, "price_in": 1.0, "price_out": 1.0},
        "cache": {"path": str(folder / "cache.sqlite")},
        "ledger": {"dir": str(folder / "run")},
        "limits": {"deadline": 0.8, "attempt_timeout": 0.5},
        "missing": {"abort_above": 1.0},
        **more,
    }


def pickled(thing: object) -> bytes:
    """Its pickle, or the words in which it refuses."""
    try:
        return pickle.dumps(thing)
    except Exception as error:
        return str(error).encode()


def left_behind(folder: Path) -> list[str]:
    """Files that hold the canary."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize("fault", [None, *TROUBLE])
def test_no_trace_in_a_run(fault: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Logs at DEBUG, errors, rewards, metrics, cache and ledger, under every fault that gives an answer."""
    caplog.set_level(logging.DEBUG)
    spec = ProviderSpec(key=CANARY, faults={fault: 1.0} if fault else {}, retry_after_s=0.1)  # type: ignore[dict-item]
    said: list[str] = []
    with Served(spec) as server, Referee.from_config(settings(server.url, tmp_path)) as referee:
        try:
            said += [repr(reward) for reward in referee.score(samples(4), timeout=30.0)]
        except RefereeError as error:
            said += ["".join(traceback.format_exception(error)), repr(error), repr(pickle.dumps(error))]
        said += [json.dumps(referee.metrics()), repr(referee), repr(referee.config), str(referee.config)]
        said += [json.dumps(referee.config.public()), referee.config.digest()]
        if fault is None:
            assert referee.metrics()["scored"] == 4, "the key does reach the provider"
    assert CANARY not in caplog.text
    assert not [text for text in said if CANARY in text]
    assert not left_behind(tmp_path)


def test_objects_do_not_show_or_pickle_it() -> None:
    """Config, endpoint, secret: not in repr, not in str, and what pickles does not hold it."""
    config = load({"endpoint": {"url": "https://judge.test/v1", "model": "m", "api_key": CANARY}}, {})
    secret = find_key(config.endpoint[0])
    assert secret is not None
    endpoint = Endpoint(config.endpoint[0], config.limits, secret)
    for thing in (config, config.endpoint[0], secret, endpoint, endpoint.limiter, copy.copy(config)):
        assert CANARY not in repr(thing) + str(thing)
        assert CANARY.encode() not in pickled(thing)
    assert CANARY in CHAT.headers(secret)["authorization"], "the one place it goes to"


def test_children_do_not_inherit_a_key_given_in_python(tmp_path: Path) -> None:
    """What a trainer starts (sandboxes run code the policy wrote) does not find the key in its environment."""
    with Served(ProviderSpec(key=CANARY)) as server, Referee.from_config(settings(server.url, tmp_path)) as referee:
        referee.score(samples(2), timeout=30.0)
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(dict(os.environ))"], capture_output=True, text=True, timeout=30
        )
    assert CANARY not in child.stdout
    assert CANARY not in str(os.environ)
    assert CANARY not in Path("/proc/self/cmdline").read_text()
