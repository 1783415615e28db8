"""Ray Data with real Ray: the example runs, every row comes back, and what is unscored is None."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.trainers.ray_tools import local_ray

from referee.config import load
from referee.runtime.ray import shutdown
from referee.sim import ProviderSpec, start_server_process

pytest.importorskip("ray.data")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_data.py"


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One cluster for the module."""
    yield from local_ray()


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("ray_data", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_runs(ray: Any, example: Any, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """On the cluster that is there."""
    monkeypatch.setattr(example, "ROWS", 400)
    example.main()
    said = capfd.readouterr().out
    assert "400 rows, " in said
    assert "reward is None, never 0" in said


def test_actors_share_one_limit_and_unscored_rows_are_none(ray: Any, example: Any) -> None:
    """Two actors, one engine: the provider sees no more calls at once than one limit allows."""
    with start_server_process(ProviderSpec(latency_median=0.02)) as server:
        config = {
            "endpoint": {"url": server.url, "model": "m", "key_env": ""},
            "cache": {"path": ""},
            "limits": {"concurrency": 5},
            "judge": {"gates": {"empty": "unscored"}},
            "runtime": "ray",
        }
        rows = [
            {"row": n, "question": "q", "response": f"[[quality={n % 10 + 1}]] {n}" if n % 50 else ""}
            for n in range(300)
        ]
        found = example.judged(ray.data.from_items(rows, override_num_blocks=6), config).take_all()
        peak = server.stats().max_open
        shutdown(load(config))
    by_row = {row["row"]: row for row in found}
    assert sorted(by_row) == list(range(300))
    for n, row in by_row.items():
        expected = (n % 10 + 1) if n % 50 else None
        assert row["score"] == expected
        assert (row["reward"] is None, bool(row["unscored"])) == (expected is None, expected is None)
    assert peak <= 5
