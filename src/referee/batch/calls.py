"""Calls to a provider's batch API: temporary failures are waited out, others raised."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from referee import clock
from referee.batch.port import Refused, Unsure
from referee.engine.port import Response, TransportFault
from referee.records import Action
from referee.wire.failure import failure

log = logging.getLogger("referee.batch")

CALL_S = 120.0
"""Limit for a call without a file."""
FILE_S = 1800.0
"""Limit for one that sends or fetches a file."""
PATIENCE_S = 3600.0
"""Temporary failures of an upload are waited out for so long."""
MAX_WAIT_S = 60.0
MAX_ANSWER = 4 << 20
"""Bytes of any other answer."""
MAX_FILE = 1 << 30
"""Bytes of a file of answers: 50,000 of 20 kB each."""
NOT_SENT = ("connect", "dns", "tls", "proxy")
"""Faults before any byte of a request was sent."""
TEMPORARY = (Action.PARK, Action.BACK_OFF, Action.RETRY)

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class _Made(Struct):
    id: str


class Pace(Struct, frozen=True):
    """How often a provider is asked. All of it follows from one number, so that tests can hurry."""

    poll: float = 30.0
    """Longest seconds between two looks at a batch."""

    @property
    def first(self) -> float:
        """Seconds to the first look; they grow to `poll`."""
        return self.poll / 8

    @property
    def idle(self) -> float:
        """A batch is sent when no question has come for so long."""
        return min(2.0, max(0.25, self.poll / 4))

    @property
    def settle(self) -> float:
        """Seconds after which a request to create a batch, sent by a process that is dead, has had its effect."""
        return max(1.0, min(60.0, 2 * self.poll))

    @property
    def retry(self) -> float:
        """Seconds before the first repetition of a call that failed; they double."""
        return min(1.0, self.poll / 4)


class Http(Protocol):
    """What is needed of an HTTP client: `HttpTransport.request`."""

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout: float, most: int = ...
    ) -> Response: ...


class Caller:
    """Calls with one endpoint's headers, which hold its key."""

    def __init__(self, http: Http, pace: Pace, headers: Mapping[str, str]) -> None:
        self._http = http
        self._pace = pace
        self._headers = headers
        self.reached = False
        """The provider has answered once."""

    async def call(
        self,
        method: Literal["GET", "POST"],
        url: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        file: bool = False,
        patience: float = PATIENCE_S,
    ) -> Response:
        """An answer with a status of 2xx. Raises Refused, or TransportFault if the provider was never reached or
        temporary failures lasted longer than `patience`."""
        return await self._patiently(lambda: self._once(method, url, body, content_type, file), patience)

    async def create(self, url: str, body: bytes) -> str:
        """POST that creates something to be paid for: sent again only if it certainly had no effect, else Unsure.
        Returns its id."""
        return await self._patiently(lambda: self._create(url, body), PATIENCE_S)

    async def _patiently(self, once: Callable[[], Awaitable[T]], patience: float) -> T:
        """The result of `once`, called again after temporary failures."""
        until, wait = clock.now() + patience, self._pace.retry
        while True:
            try:
                return await once()
            except TransportFault as fault:
                if not self.reached or clock.now() >= until:
                    raise
                after, why = None, str(fault.kind)
            except Refused as refused:
                answer = refused.response
                meaning = failure(answer.status, answer.headers, answer.body, clock.wall())
                if meaning.action not in TEMPORARY or clock.now() >= until:
                    raise
                after, why = meaning.retry_after, str(answer.status)
            seconds = max(after or 0.0, random.uniform(0.5, 1.0) * wait)
            log.info("batch API: %s; again in %.1f s", why, seconds)
            await clock.sleep(min(seconds, MAX_WAIT_S))
            wait = min(MAX_WAIT_S, 2 * wait)

    async def _create(self, url: str, body: bytes) -> str:
        try:
            made = await self._once("POST", url, body, "application/json", True)
            return sound_id(read_answer(made.body, _Made).id)
        except TransportFault as fault:
            if fault.kind in NOT_SENT:
                raise
            raise Unsure(fault.kind) from None
        except Refused as refused:
            status = refused.response.status
            if status >= 500 or status == 408:
                raise Unsure(status) from None
            raise

    async def _once(self, method: str, url: str, body: bytes, content_type: str, file: bool) -> Response:
        headers = {**self._headers, "content-type": content_type}
        seconds, most = (FILE_S, MAX_FILE) if file else (CALL_S, MAX_ANSWER)
        answer = await self._http.request(method, url, headers, body, seconds, most)
        self.reached = True
        if not 200 <= answer.status < 300:
            raise Refused(answer)
        return answer


def sound_id(text: str) -> str:
    """An id that a provider gave, which becomes part of a URL. Raises TransportFault if it is none."""
    if _ID.fullmatch(text) is None:
        raise TransportFault("protocol", "the batch API gave an id with odd characters")
    return text


def read_answer(body: bytes, kind: type[T]) -> T:
    """An answer's JSON. Raises TransportFault if it is another."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError:
        raise TransportFault("protocol", "the batch API gave an answer that is none of its own") from None
