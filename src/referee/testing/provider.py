"""A whole Referee against the simulated provider of `referee.sim`, in this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from referee.config import Config, load
from referee.engine import Transport
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport
from referee.sim.chat import Question
from referee.sim.judge import Answer

SECRET = b"the same nonces in every test"


def fake_referee(
    config: str | Path | Mapping[str, Any] | Config,
    answer: Callable[[Question], str] | None = None,
    *,
    spec: ProviderSpec | None = None,
    transport: Callable[[], Transport] | None = None,
) -> Referee:
    """A Referee whose judge model is `answer`: given what is asked, it returns the text of the reply (`write` gives a
    verdict in the form that is asked for). Without it, candidates get a verdict drawn from their text, or the one they
    name as [[quality=7]].

    No key, no cache file, no socket. `spec` adds latency, rate limits and faults. `transport` takes the provider's
    place, for a dialect that the simulated one does not speak.
    """
    given = load(config)
    endpoints = [replace(endpoint, key_env="", key_file="", api_key=None, proxy="") for endpoint in given.endpoint]
    config = replace(
        given,
        endpoint=tuple(endpoints),
        cache=replace(given.cache, path=""),
        redis=replace(given.redis, url=""),
        runtime="inline" if given.runtime == "inline" else "thread",
    )

    def simulated() -> Transport:
        judge = None if answer is None else _Scripted(answer)
        return SimTransport(Provider(spec or ProviderSpec(), judge=judge))

    return Referee(config, worker_with(transport or simulated, random.Random(0), SECRET))


class _Scripted:
    def __init__(self, answer: Callable[[Question], str]) -> None:
        self._answer = answer

    def answer(self, question: Question) -> Answer:
        text = self._answer(question)
        return Answer(text, text.strip())
