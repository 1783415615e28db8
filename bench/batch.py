"""CPU and memory of `referee score --batch` per item, beside a live run: `python -m bench.batch [--rollouts 10000]`.

The provider is simulated, in another process, and answers at once: what is measured is the client alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from referee.sim import BatchSpec, ProviderSpec, start_server_process

TEXT = "word " * 400


def run(folder: Path, url: str, rollouts: int, *more: str) -> tuple[float, float]:
    """CPU microseconds per rollout, and the largest memory in MB."""
    (folder / "referee.toml").write_text(
        f'cache.path = "{folder / "cache.sqlite"}"\n[endpoint]\nprovider = "openai"\nurl = "{url}"\nmodel = "m"\n'
        'key_env = ""\nprice_in = 1.0\nprice_out = 1.0\n[batch]\npoll = 1.0\n'
    )
    with (folder / "in.jsonl").open("w") as stream:
        for n in range(rollouts):
            stream.write(json.dumps({"id": str(n), "prompt": "p", "response": f"{n} {TEXT}"}) + "\n")
    command = [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-o", "out.jsonl", "-q", *more]
    child = subprocess.Popen(command, cwd=folder)
    _, status, used = os.wait4(child.pid, 0)
    assert status == 0, status
    return (used.ru_utime + used.ru_stime) / rollouts * 1e6, used.ru_maxrss / 1024


def main() -> None:
    """Measure both ways."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=10_000)
    rollouts = parser.parse_args().rollouts
    spec = ProviderSpec(judge="constant", batch=BatchSpec(process_s=1.0))
    with start_server_process(spec) as server:
        for name, more in (("live", ()), ("batch", ("--batch",))):
            with tempfile.TemporaryDirectory() as folder:
                cpu, memory = run(Path(folder), server.url, rollouts, *more)
            print(f"{name}: {cpu:.0f} us of CPU per rollout, {memory:.0f} MB at most, {rollouts} rollouts")
        print(f"{server.stats().batches} batches")


if __name__ == "__main__":
    main()
