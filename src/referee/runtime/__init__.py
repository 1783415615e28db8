"""Where judging runs: inline, in a thread, in processes, on a Ray cluster. Same behaviour, same tests."""

from referee.config import Config
from referee.runtime.inline import InlineRuntime
from referee.runtime.port import Runtime
from referee.runtime.thread import ThreadRuntime
from referee.scoring.build import build_worker
from referee.scoring.local import BuildWorker

__all__ = ["InlineRuntime", "Runtime", "ThreadRuntime", "open_runtime"]


def open_runtime(config: Config, build: BuildWorker = build_worker) -> Runtime:
    """The runtime the configuration names."""
    if config.runtime == "processes":
        from referee.runtime.processes import ProcessesRuntime  # only where it is used: it is no small import

        return ProcessesRuntime(config, build)
    if config.runtime == "ray":
        from referee.runtime.ray import RayRuntime

        return RayRuntime(config, build)
    return InlineRuntime(config, build) if config.runtime == "inline" else ThreadRuntime(config, build)
