"""`python -m referee.sim`: the simulated provider as a server. Argument parsing only."""

from __future__ import annotations

import argparse
import sys

from referee.errors import ConfigError
from referee.sim.process import run_server
from referee.sim.spec import read_spec


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m referee.sim", description="A simulated LLM provider over HTTP.")
    parser.add_argument("--spec", default="{}", help="the provider as JSON, see referee.sim.ProviderSpec; - for stdin")
    parser.add_argument("--seed", type=int, default=0, help="seed of latencies and faults")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8099, help="0 takes a free one")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input closes")
    given = parser.parse_args(arguments)
    try:
        spec = read_spec(sys.stdin.read() if given.spec == "-" else given.spec)
    except ConfigError as error:
        parser.error(str(error))
    run_server(spec, given.seed, given.host, given.port, given.until_eof)


if __name__ == "__main__":
    main()
