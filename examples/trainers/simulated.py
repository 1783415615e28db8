"""A judge for the examples of this folder: the simulated provider, and a referee.toml that REFEREE_CONFIG names.

It gives an answer that holds [[quality=7]] a 7 of 10, and one that holds [[quality=99]] no usable verdict.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from referee.sim import ProviderSpec, start_server_process
from referee.trainers.shared import close_all

PROMPT = "What is 2 + 2?"
GOOD, POOR, UNSCORED = "[[quality=10]] It is 4.", "[[quality=1]] It is 5.", "[[quality=99]] Four?"


@contextlib.contextmanager
def simulated_judge(missing: str = 'policy = "abstain"') -> Iterator[Path]:
    """`missing`: the [missing] section, for frameworks that cannot say "no reward"."""
    with tempfile.TemporaryDirectory() as folder, start_server_process(ProviderSpec(latency_median=0.1)) as server:
        path = Path(folder) / "referee.toml"
        path.write_text(
            f'[endpoint]\nurl = "{server.url}"\nmodel = "simulated"\nkey_env = ""\n'
            f'[judge]\nask_again = 0\n[cache]\npath = ""\n[missing]\n{missing}\n'
        )
        os.environ["REFEREE_CONFIG"] = str(path)
        try:
            yield path
        finally:
            close_all()
