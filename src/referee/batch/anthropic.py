"""Anthropic's message batches: one request holds all of them; the answers are one stream of lines."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec import Raw, Struct, field

from referee.batch.calls import Caller, read_answer, sound_id
from referee.batch.port import CANCELLED, EXPIRED, Line, Result, Seen

STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Statuses that its live endpoint sends these errors with; others are 500."""


class _Counts(Struct):
    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class _Batch(Struct):
    id: str
    processing_status: str = ""
    created_at: str = ""
    request_counts: _Counts | None = None


class _List(Struct):
    data: list[_Batch] = []
    has_more: bool = False


class _Result(Struct):
    type: str
    message: Raw = field(default_factory=Raw)
    error: Raw = field(default_factory=Raw)


class _Output(Struct):
    custom_id: str
    result: _Result


class _Inner(Struct):
    type: str = ""


class _Error(Struct):
    error: _Inner | None = None


_output = msgspec.json.Decoder(_Output)


class AnthropicBatches:
    """Batches of one endpoint."""

    max_items = 100_000
    max_bytes = 100_000_000
    """Anthropic takes 256 MB; see OpenAIBatches."""

    def __init__(self, url: str, caller: Caller) -> None:
        """`url`: where single requests go, such as …/v1/messages."""
        self._url = f"{url.rpartition('/v1/')[0]}/v1/messages/batches"
        self._caller = caller

    async def create(self, token: str, lines: Sequence[Line]) -> str:
        """See BatchApi."""
        rows = [b'{"custom_id":"%b","params":%b}' % (line.name.encode(), line.body) for line in lines]
        return await self._caller.create(self._url, b'{"requests":[%b]}' % b",".join(rows))

    async def look(self, id: str) -> Seen:
        """See BatchApi."""
        batch = read_answer((await self._caller.call("GET", f"{self._url}/{id}")).body, _Batch)
        counts = batch.request_counts or _Counts()
        done = counts.succeeded + counts.errored + counts.canceled + counts.expired
        ended = batch.processing_status == "ended"
        return Seen(id=id, ended="completed" if ended else "", total=_total(batch), done=done)

    async def results(self, seen: Seen) -> list[Result]:
        """See BatchApi. Not from `results_url`: the key goes to the endpoint's own host only."""
        answer = await self._caller.call("GET", f"{self._url}/{seen.id}/results", file=True)
        return list(_results(answer.body))

    async def find(self, token: str, count: int, since: float, known: Collection[str]) -> tuple[str, bool]:
        """See BatchApi. A batch has no metadata: the token begins each custom_id, which is seen in the answers only.
        So a batch of the right size that has not ended leaves it uncertain."""
        after, certain = "", True
        while True:
            answer = await self._caller.call("GET", f"{self._url}?limit=100{after}")
            page = read_answer(answer.body, _List)
            for batch in page.data:
                if _time(batch.created_at) < since or batch.id in known or _total(batch) != count:
                    continue
                if batch.processing_status != "ended":
                    certain = False
                elif await self._begins(sound_id(batch.id), token):
                    return batch.id, True
            if not page.data or not page.has_more or _time(page.data[-1].created_at) < since:
                return "", certain
            after = f"&after_id={sound_id(page.data[-1].id)}"

    async def cancel(self, id: str) -> None:
        """See BatchApi."""
        await self._caller.call("POST", f"{self._url}/{id}/cancel", b"{}")

    async def _begins(self, id: str, token: str) -> bool:
        found = await self.results(Seen(id=id))
        return any(result.name.startswith(f"{token}-") for result in found[:1])


def _total(batch: _Batch) -> int:
    counts = batch.request_counts or _Counts()
    return counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired


def _time(text: str) -> float:
    """Wall time. One that cannot be read is late: a batch must not be passed over for it."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.inf


def _results(body: bytes) -> Iterator[Result]:
    """Answers by line. One that cannot be read is left out: its request is then one without an answer."""
    for row in body.splitlines():
        try:
            found = _output.decode(row)
            result = found.result
            if result.type == "succeeded" and bytes(result.message):
                yield Result(found.custom_id, 200, bytes(result.message))
            elif result.type == "errored" and bytes(result.error):
                inner = msgspec.json.decode(result.error, type=_Error).error
                yield Result(found.custom_id, STATUSES.get(inner.type if inner else "", 500), bytes(result.error))
            elif result.type in ("expired", "canceled"):
                status = EXPIRED if result.type == "expired" else CANCELLED
                yield Result(found.custom_id, status, b'{"error":{"type":"batch_%b"}}' % result.type.encode())
        except msgspec.MsgspecError:
            continue
