"""A simulated LLM provider with seeded faults: in process and virtual time for tests, over HTTP for benchmarks."""

from referee.sim.comparisons import Perception
from referee.sim.http import SimServer, serve_http
from referee.sim.judge import HonestJudge, Judge
from referee.sim.process import ServerProcess, run_server, start_server_process
from referee.sim.provider import Provider
from referee.sim.replies import SimResponse
from referee.sim.spec import FAULTS, BatchSpec, Fault, ProviderSpec, read_spec
from referee.sim.stats import Stats, key_label
from referee.sim.transport import SimTransport
from referee.sim.virtual import Deadlock, VirtualLoop, run_virtual

__all__ = [
    "FAULTS",
    "BatchSpec",
    "Deadlock",
    "Fault",
    "HonestJudge",
    "Judge",
    "Perception",
    "Provider",
    "ProviderSpec",
    "ServerProcess",
    "SimResponse",
    "SimServer",
    "SimTransport",
    "Stats",
    "VirtualLoop",
    "key_label",
    "read_spec",
    "run_server",
    "run_virtual",
    "serve_http",
    "start_server_process",
]
