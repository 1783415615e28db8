"""The simulated provider over HTTP in a thread of the test, noting for which candidate each request came."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from referee.sim import Provider, ProviderSpec, SimServer, serve_http
from referee.sim.chat import Question
from referee.sim.judge import Answer, HonestJudge


class _Noting(HonestJudge):
    def __init__(self, arrivals: list[str]) -> None:
        self._arrivals = arrivals

    def answer(self, question: Question) -> Answer:
        self._arrivals.append(question.candidate)
        return super().answer(question)


class Served:
    """Context manager: `url` to send to, `arrivals` the candidates asked about so far, in order."""

    def __init__(self, spec: ProviderSpec, seed: int = 1) -> None:
        self.arrivals: list[str] = []
        self.provider = Provider(spec, seed, _Noting(self.arrivals))
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._server: SimServer | None = None
        self._thread = threading.Thread(target=self._run, name="served")

    def __enter__(self) -> Served:
        self._thread.start()
        self._ready.wait(30.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)

    def _run(self) -> None:
        self._server = self._loop.run_until_complete(serve_http(self.provider))
        self.url = self._server.url
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._server.close())
        self._loop.close()
