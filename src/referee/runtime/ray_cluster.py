"""The Ray cluster: join it, find or make a named actor on it, end one. The only place that calls `ray.init`.

Ray is imported inside functions, so that importing referee does not import it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from referee import clock
from referee.errors import ConfigError, WrongContext, install

T = TypeVar("T")

log = logging.getLogger("referee.runtime")

NAMESPACE = "referee"
"""Ray names are kept apart by namespace; ours is one for all jobs of a cluster, so that they find each other."""
ATTACH_TRIES = 5
"""A name can belong to an actor that is ending; then the lookup is repeated."""
ATTACH_PAUSE = 0.5
SLOW_JOIN = 10.0
"""Seconds after which a slow join is logged: Ray retries an address silently."""


def join(address: str = "") -> Any:
    """Ray, joined to a cluster: the one this process is on, the one named or found here, else a local one for a try."""
    try:
        import ray
    except ImportError:
        raise ConfigError(
            f'runtime = "ray" needs Ray, which is not installed here: {install("ray")}, or set '
            'runtime = "thread". Nothing was sent.',
            setting="runtime",
        ) from None
    if _forked:
        raise WrongContext(
            "this process was forked from one that was on a Ray cluster, and Ray does not survive that. Start it with "
            'spawn instead of fork, make the Referee in a Ray task, or use runtime = "thread" here. Nothing was sent.'
        )
    with _joining:
        if not ray.is_initialized():
            failure = _init_in_lasting_thread(ray, address)
            if failure is not None:
                raise ConfigError(
                    f"no Ray cluster at ray_address = {address!r} ({type(failure).__name__}). Start one (`ray start "
                    "--head`), correct the address, or leave it empty for this machine's own. Nothing was sent.",
                    setting="ray_address",
                ) from None
    return ray


def _init_in_lasting_thread(ray: Any, address: str) -> Exception | None:
    """Join. A cluster that is started here dies with the thread that started it, so that thread stays for good."""
    tried = threading.Event()
    failure: list[Exception] = []

    def init() -> None:
        try:
            ray.init(
                address=address or None,
                namespace=NAMESPACE,
                ignore_reinit_error=True,
                include_dashboard=False if address == "local" else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            failure.append(error)
            return
        finally:
            tried.set()
        threading.Event().wait()

    threading.Thread(target=init, name="ray-init", daemon=True).start()
    if not tried.wait(SLOW_JOIN):
        where = f"ray_address = {address!r}" if address else "this machine"
        log.warning(
            "no answer from a Ray cluster at %s for %g s; still trying. Nothing is judged yet", where, SLOW_JOIN
        )
        tried.wait()
    return failure[0] if failure else None


def joined() -> bool:
    """True if this process is on a cluster already, as inside a Ray worker."""
    try:
        import ray
    except ImportError:
        return False
    return bool(ray.is_initialized())


def came_back() -> bool:
    """True inside an actor that Ray has made again after a loss."""
    try:
        import ray

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(ray.get_runtime_context().was_current_actor_reconstructed)
    except Exception:  # not inside an actor
        return False


async def aside(work: Callable[[], T]) -> T:
    """Run something that may block for long in a daemon thread, which is not joined at exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as found:
            error = found
        with contextlib.suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="ray-attach", daemon=True).start()
    return await future


def find(name: str) -> Any | None:
    """The living actor of this name, or None."""
    import ray

    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=NAMESPACE)
    return None


def find_or_make(
    kind: type, name: str, arguments: Callable[[], tuple[Any, ...]], *, detached: bool = True, **options: Any
) -> Any:
    """The actor of this name. Several may ask at once: one is made, all get it.

    It takes no processor from the trainer's bookkeeping, outlives the job that made it (or, not `detached`, dies with
    the process that did) and comes back when its own process or node dies, without what it knew. Calls are not repeated
    by Ray: only their senders know whether that is safe.
    """
    import ray

    made = ray.remote(kind).options(
        name=name,
        namespace=NAMESPACE,
        lifetime="detached" if detached else "non_detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,
        **options,
    )
    for left in reversed(range(ATTACH_TRIES)):
        try:
            return made.remote(*arguments())
        except ValueError as error:  # the name belongs to an actor that is ending
            if not left:
                raise ConnectionError(
                    f"the Ray actor {name!r} could be neither found nor made ({type(error).__name__})"
                ) from None
            clock.pause(ATTACH_PAUSE)
    raise AssertionError("unreachable")


class _Calls:
    """An actor's methods as coroutines."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._handle, name)

        async def call(*arguments: Any) -> Any:
            return await method.remote(*arguments)

        return call


def calls_of(handle: Any) -> Any:
    """The actor in its own shape: its methods are awaited. What they return has lost its class: tuples are tuples."""
    return _Calls(handle)


def end(name: str) -> bool:
    """End the actor of this name for good. False if there is none."""
    import ray

    actor = find(name)
    if actor is None:
        return False
    ray.kill(actor, no_restart=True)
    return True


_forked = False
_joining = threading.Lock()


def _after_fork() -> None:
    """Ray's threads and connections stay with the parent."""
    global _forked
    ray = sys.modules.get("ray")
    _forked = _forked or (ray is not None and bool(ray.is_initialized()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
