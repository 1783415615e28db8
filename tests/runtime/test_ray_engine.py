"""What an engine of the Ray runtime is told and named after: keys stay secret, limits belong to an account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.simulated_ray import BASE, CANARY

from referee.config import Config, Secret, load
from referee.errors import MissingKeyError
from referee.runtime import ray_engine
from referee.runtime.ray_settings import Sealed, engine_names, far_config, key_tag, seal, unseal


def keyed(**endpoint: Any) -> Config:
    return load({**BASE, "endpoint": {**BASE["endpoint"], "url": "https://sim.test/v1", **endpoint}})


def test_a_key_is_not_where_it_can_be_seen() -> None:
    """Not in names, not in settings sent at first, not in what is sent on request unless opened."""
    config = keyed(api_key=Secret(CANARY))
    bare, full = seal(config, False), seal(config, True)
    assert CANARY not in "".join(engine_names(config))
    assert CANARY.encode() not in bare.open()
    assert CANARY.encode() in full.open()
    assert CANARY not in repr(full)
    kind, fields = full.__reduce__()[:2]
    assert all(CANARY.encode() not in field for field in fields)
    assert kind(*fields).open() == full.open()


def test_an_engine_finds_its_key_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key of the node's own environment or file is used if it is the one the engine is named after."""
    monkeypatch.setenv("JUDGE_KEY", CANARY)
    config = keyed(key_env="JUDGE_KEY")
    tag = key_tag([Secret(CANARY)])
    found = unseal(seal(config, False), tag)
    assert found is not None
    assert found.endpoint[0].api_key is not None
    assert found.endpoint[0].api_key.reveal() == CANARY
    monkeypatch.setenv("JUDGE_KEY", "another")
    assert unseal(seal(config, False), tag) is None
    monkeypatch.delenv("JUDGE_KEY")
    assert unseal(Sealed(seal(config, False).open()), tag) is None
    with pytest.raises(MissingKeyError):
        seal(config, True)


def test_different_keys_are_different_engines() -> None:
    """Limits belong to an account: another key is another engine, the same key the same one."""
    one, same, other = (keyed(api_key=Secret(key)) for key in (CANARY, CANARY, "other-key"))
    assert engine_names(one) == engine_names(same)
    assert engine_names(one) != engine_names(other)


def test_an_engine_is_named_after_what_matters_to_it(tmp_path: Path) -> None:
    """Shaping, ledger and policy are the client's own; endpoint, limits, judge and template are the engine's."""
    base = engine_names(load(BASE))
    assert engine_names(load({**BASE, "ledger": {"dir": "x"}, "shaping": {"coefficient": 0.1}})) == base
    assert engine_names(load({**BASE, "limits": {"rpm": 5}})) != base
    assert len(engine_names(load({**BASE, "shards": 3}))) == 3
    path = tmp_path / "template.txt"
    shipped = (Path(ray_engine.__file__).parent.parent / "judging" / "prompts" / "score.txt").read_text()
    path.write_text(shipped)
    config = load({**BASE, "judge": {"prompt_file": str(path)}})
    first = engine_names(config)
    path.write_text(shipped + "\nBe strict.")
    assert engine_names(config) != first


def test_paths_are_the_clients_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative cache path means the client's folder, wherever the engine's process happens to stand."""
    monkeypatch.chdir(tmp_path)
    config = far_config(load({**BASE, "cache": {"path": "cache.sqlite"}}))
    assert config.cache.path == str(tmp_path / "cache.sqlite")


def test_one_of_several_engines_shares_limits_as_a_worker_does() -> None:
    """Through the broker of its job, which a Redis then paces; a single engine asks Redis itself, as a thread does."""
    assert far_config(load(BASE)).runtime == "thread"
    assert far_config(load({**BASE, "shards": 2})).runtime == "ray"
