"""A large dataset judged with Ray Data. Batches stream through actors; with `runtime = "ray"` all of them, on all
nodes, share one limit, one budget and one cache. Runs by itself: the judge is the simulated provider.

With your own judge, replace the mapping by what your referee.toml holds (`tomllib.load`); keys stay in the environment
of the nodes. Needs: pip install "llm-referee[ray,tables]" "ray[data]" (in a clone: pip install ".[ray,tables]" …)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow
import ray

from referee import Referee, score_table
from referee.config import load
from referee.runtime.ray import shutdown
from referee.sim import ProviderSpec, start_server_process

ROWS = 2000
REFUSED = 0.01
"""Share of the answers that the provider's filter does not let the judge see."""


class JudgeBatch:
    """Holds a Referee for as long as the actor lives; it does not pickle, so it is made where it is used."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.referee = Referee.from_config(config)

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """The same rows with columns of rewards. What is unscored stays None, with the reason beside it."""
        return score_table(batch, self.referee, map={"prompt": "question"}, keep=["row"], progress=False)


def judged(dataset: ray.data.Dataset, config: Mapping[str, Any], actors: int = 2) -> ray.data.Dataset:
    """Rewards that depend on a group (length penalty, judges of groups) need whole groups in a batch: there, use
    dataset.groupby("group").map_groups instead of map_batches."""
    return dataset.map_batches(
        JudgeBatch,
        fn_constructor_args=(config,),
        batch_format="pyarrow",  # keeps None apart from NaN
        batch_size=256,  # in flight at once: this, for each actor
        concurrency=actors,
        num_cpus=0.1,  # it waits, mostly
    )


def main() -> None:
    """Judge a dataset, and count what came of it."""
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    with start_server_process(ProviderSpec(latency_median=0.05, faults={"policy": REFUSED})) as server:
        config = {
            "endpoint": {"url": server.url, "model": "simulated", "key_env": ""},
            "cache": {"path": ""},
            "runtime": "ray",
        }
        rows = [{"row": n, "question": "2 + 2?", "answer": "4", "response": f"It is {n}."} for n in range(ROWS)]
        dataset = ray.data.from_items(rows, override_num_blocks=8)  # or ray.data.read_parquet("s3://…")
        scored = judged(dataset, config).materialize()  # or .write_parquet("…"), which streams
        rewards = [row["reward"] for row in scored.take_all()]
        found = [reward for reward in rewards if reward is not None]
        print(f"{len(rewards)} rows, {len(found)} scored, mean {sum(found) / len(found):.2f}")
        print(f"{len(rewards) - len(found)} unscored: reward is None, never 0")
        shutdown(load(config))


if __name__ == "__main__":
    main()
