"""SIGHUP: new work goes to a new Referee, and an older one is closed when its last work is done.

Counts of Referees that are closed are kept, so that no counter of the service goes backwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from referee.config import Config, anchored, load
from referee.errors import ConfigError, RefereeError
from referee.ledger.histograms import Buckets
from referee.referee import Referee
from referee.scoring.build import build_worker
from referee.scoring.lines import LineMaker
from referee.scoring.local import BuildWorker
from referee.scoring.worker import Emit, JudgeWorker
from referee.server.tokens import find_tokens

if TYPE_CHECKING:
    from referee.server.service import Service

log = logging.getLogger("referee.server")

FIXED = ("serve.token_env", "serve.max_body", "ledger.dir", "redis", "serve.state")
"""What is read once, when the service starts; so is whether there are teams at all."""


class Referees:
    """The Referee that takes new work, and older ones with work in flight. Lives on the server's loop."""

    def __init__(self, first: Referee) -> None:
        self.current = first
        self.older: list[Referee] = []
        """Not closed yet."""
        self.past: dict[str, float] = {}
        """Sums of all numbers of those that are closed. Only sums of counts mean anything."""
        self._past_buckets: dict[str, Buckets] = {}
        self._works: Counter[Referee] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def working(self) -> Iterator[Referee]:
        """The Referee for new work. It stays open until the block ends."""
        referee = self.current
        self._works[referee] += 1
        try:
            yield referee
        finally:
            self._works[referee] -= 1
            if not self._works[referee]:
                del self._works[referee]
                if referee in self.older:
                    self._close(referee)

    def renew(self, referee: Referee) -> None:
        """New work goes to this one from now on."""
        old, self.current = self.current, referee
        self.older.append(old)
        if not self._works[old]:
            self._close(old)

    def histograms(self) -> dict[str, Buckets]:
        """Of all of them together."""
        found = dict(self._past_buckets)
        for referee in (*self.older, self.current):
            _add(found, referee.histograms())
        return found

    async def close(self) -> None:
        """Close all but the current one, which stays its maker's to close."""
        for referee in self.older:
            self._close(referee)
        await asyncio.gather(*self._closing)

    def _close(self, referee: Referee) -> None:
        task = asyncio.get_running_loop().create_task(self._end(referee))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _end(self, referee: Referee) -> None:
        await asyncio.to_thread(referee.close)
        if referee in self.older:
            self.older.remove(referee)
            for name, number in referee.metrics().items():
                self.past[name] = self.past.get(name, 0.0) + number
            _add(self._past_buckets, referee.histograms())


class Reload:
    """Reads the configuration again when asked to, one time after another."""

    def __init__(self, service: Service, read: Callable[[], Config] | None) -> None:
        self._service = service
        self._read = read
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Read it soon. Asked for again meanwhile, it is read once more."""
        self._wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def end(self) -> None:
        """Wait until nothing more is to be read."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                await self._once()
            except (RefereeError, OSError) as error:
                why = " ".join(str(error).split())
                log.error("SIGHUP: the configuration is refused, and the one before stays in use. %s", why)
            except Exception:
                log.exception("SIGHUP: the configuration could not be read, and the one before stays in use")

    async def _once(self) -> None:
        service = self._service
        if self._read is None or service.draining:
            why = "the service is about to end" if service.draining else "it was started without a file"
            log.warning("SIGHUP: the configuration is not read again: %s.", why)
            return
        before = service.referee.config
        spent = service.referee.metrics().get("budget_spent_usd", 0.0)
        config, kept = with_fixed(before, anchored(await asyncio.to_thread(self._read)))
        try:
            tokens = find_tokens(load(config), os.environ)
        except ConfigError as error:
            why = str(error).removesuffix(" Not started.") + " Environment variables are those of the start."
            why += f" Only a restart changes: {', '.join(kept)}." if kept else ""
            raise ConfigError(why, setting=error.setting) from None
        referee = await asyncio.to_thread(opened, config, spent)
        try:
            if service.draining:
                raise ConfigError("The service is about to end.")
            service.renew(referee, tokens)
        except BaseException:
            await asyncio.to_thread(referee.close)
            raise
        log.info("SIGHUP: configuration read again; samples that end under the one before: %d", service.pending)
        if kept:
            log.warning("SIGHUP: changed, but used only after a restart: %s.", ", ".join(kept))


def opened(config: Config, spent: float) -> Referee:
    """A Referee that is ready to judge, and counts what was spent before against its budget."""
    build: BuildWorker = build_worker
    if spent and config.runtime in ("thread", "inline"):
        build = functools.partial(_build_charged, spent)
    referee = Referee(config, build)
    try:
        referee.start()
    except BaseException:
        referee.close()
        raise
    return referee


def _build_charged(spent: float, config: Config, lines: LineMaker, emit: Emit) -> JudgeWorker:
    worker = build_worker(config, lines, emit)
    worker.engine.admission.budget.settle(0.0, spent)
    return worker


def with_fixed(before: Config, after: Config) -> tuple[Config, list[str]]:
    """The new configuration with what cannot change while the service runs, and the names of what differed."""
    kept = []
    if bool(before.team) != bool(after.team):  # whether a token is needed, and where the state is
        kept.append("[[team]], the first or the last one")
        after = replace(after, team=before.team, serve=replace(after.serve, state=before.serve.state))
    for name in FIXED:
        section, _, field = name.partition(".")
        old, new = getattr(before, section), getattr(after, section)
        put = old if not field else replace(new, **{field: getattr(old, field)})
        if put != new:
            kept.append(name if field else f"[{name}]")
            after = replace(after, **{section: put})
    return after, kept


def _add(into: dict[str, Buckets], more: dict[str, Buckets]) -> None:
    for name, buckets in more.items():
        into[name] = into[name].plus(buckets) if name in into else buckets
