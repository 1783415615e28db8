"""`python -m referee.sim SPEC SEED HOST`: the child of `start_server_process`. By hand there is `referee sim`."""

from __future__ import annotations

import sys

from referee.errors import ConfigError
from referee.sim.process import run_server
from referee.sim.spec import read_spec

if __name__ == "__main__":
    _, spec, seed, host = sys.argv
    try:
        run_server(read_spec(spec), int(seed), host, port=0, until_eof=True)
    except ConfigError as error:
        sys.exit(str(error))
