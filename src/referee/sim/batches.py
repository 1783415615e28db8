"""The batch APIs of a simulated provider: OpenAI's files and batches, Anthropic's message batches. Items are served by
the provider like single requests, each once, so its counts are the bill.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import re
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Raw, Struct, field

from referee import clock
from referee.sim.provider import Provider
from referee.sim.replies import JSON, SimResponse
from referee.sim.spec import BatchSpec

STEPS = 8
"""Parts in which a batch is worked on: counts grow, and a cancellation comes in between."""
WINDOW_S = 24 * 3600
MAX_ITEMS = {"openai": 50_000, "anthropic": 100_000}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROUTE = re.compile(r"/v1/(files|batches|messages/batches)(?:/([A-Za-z0-9_-]+))?(?:/(content|cancel|results))?")


class Request(Struct, frozen=True):
    """One complete HTTP request. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    body: bytes = b""


class _Line(Struct):
    custom_id: str
    body: Raw = field(default_factory=lambda: Raw(b""))
    params: Raw = field(default_factory=lambda: Raw(b""))
    method: str = "POST"
    url: str = ""


class _Requests(Struct):
    requests: list[_Line]


class _Create(Struct):
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] = {}


class _Batch:
    """One batch of either provider. `answers` are lines in the provider's own form."""

    def __init__(
        self, id: str, api: Literal["openai", "anthropic"], lines: list[_Line], wanted: _Create | None
    ) -> None:
        self.id, self.api, self.lines, self.wanted = id, api, lines, wanted
        self.created = clock.wall()
        self.status = "validating" if api == "openai" else "in_progress"
        self.good: list[bytes] = []
        self.bad: list[bytes] = []
        self.counts = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
        self.errors: list[dict[str, Any]] = []
        self.cancelled = False

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "expired", "cancelled", "ended")


class SimBatches:
    """All batches and files of one provider."""

    def __init__(self, provider: Provider, spec: BatchSpec) -> None:
        self._provider = provider
        self._spec = spec
        self._random = random.Random(0)
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def serves(self, path: str) -> bool:
        """Whether a path, without its query, is one of these APIs'."""
        return _ROUTE.fullmatch(path) is not None

    async def close(self) -> None:
        """Stop work."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def answer(self, request: Request) -> SimResponse:
        """Answer a request."""
        parts = urlsplit(request.path)
        found = _ROUTE.fullmatch(parts.path)
        assert found is not None
        kind, id, action = found.groups()
        given = {self._provider.api.key(request.headers), request.headers.get("x-api-key", "")}
        if self._provider.spec.key and self._provider.spec.key not in given:
            return _error(401, "invalid_api_key", "Incorrect API key provided.")
        if kind == "files":
            return self._file(request, id, action)
        api: Literal["openai", "anthropic"] = "openai" if kind == "batches" else "anthropic"
        if id is None:
            if request.method == "GET":
                return self._list(api, parts.query)
            return self._create(api, request)
        batch = self._batches.get(id)
        if batch is None or batch.api != api:
            return _error(404, "not_found", "No such batch.")
        if action == "cancel" and request.method == "POST":
            if not batch.ended:
                batch.cancelled, batch.status = True, "cancelling" if api == "openai" else "canceling"
        elif action == "results":
            if not batch.ended:
                return _error(404, "not_found_error", "The batch has not ended.")
            return SimResponse(200, {"content-type": "application/x-jsonl"}, b"".join(batch.good + batch.bad))
        return _ok(_shown(batch))

    def _file(self, request: Request, id: str | None, action: str | None) -> SimResponse:
        if request.method == "POST" and id is None:
            content = _part(request)
            if content is None:
                return _error(400, "bad_request", "No file, or not for the purpose batch.")
            name = f"file-sim{len(self._files) + 1}"
            self._files[name] = content
            return _ok({"id": name, "object": "file", "purpose": "batch", "bytes": len(content)})
        if id not in self._files or action != "content":
            return _error(404, "not_found", "No such file.")
        return SimResponse(200, {"content-type": "application/octet-stream"}, self._files[id])

    def _list(self, api: str, query: str) -> SimResponse:
        asked = parse_qs(query)
        batches = [batch for batch in reversed(self._batches.values()) if batch.api == api]
        after = asked.get("after" if api == "openai" else "after_id", [""])[0]
        names = [batch.id for batch in batches]
        if after in names:
            batches = batches[names.index(after) + 1 :]
        limit = int(asked.get("limit", ["20"])[0])
        page = [_shown(batch) for batch in batches[:limit]]
        return _ok({"object": "list", "data": page, "has_more": len(batches) > limit})

    def _create(self, api: Literal["openai", "anthropic"], request: Request) -> SimResponse:
        wanted: _Create | None = None
        try:
            if api == "openai":
                wanted = msgspec.json.decode(request.body, type=_Create)
                if wanted.completion_window != "24h" or wanted.input_file_id not in self._files:
                    return _error(400, "bad_request", "No such file, or no such window.")
                content = self._files[wanted.input_file_id]
                lines = [msgspec.json.decode(row, type=_Line) for row in content.splitlines()]
                bodies = all(bytes(line.body)[:1] == b"{" and line.url == wanted.endpoint for line in lines)
            else:
                lines = msgspec.json.decode(request.body, type=_Requests).requests
                bodies = all(bytes(line.params)[:1] == b"{" for line in lines)
        except msgspec.MsgspecError as problem:
            return _error(400, "invalid_request_error", str(problem))
        names = {line.custom_id for line in lines}
        if len(names) != len(lines) or not bodies or not all(map(_NAME.fullmatch, names)):
            return _error(400, "invalid_request_error", "A custom_id is odd or there twice, or a body is none.")
        if not 0 < len(lines) <= MAX_ITEMS[api]:
            return _error(400, "invalid_request_error", "No requests, or too many.")
        id = f"{'batch' if api == 'openai' else 'msgbatch'}_sim{len(self._batches) + 1}"
        batch = self._batches[id] = _Batch(id, api, lines, wanted)
        self._provider.batches += 1
        task = asyncio.get_running_loop().create_task(self._work(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._random.random() < self._spec.lost_answers:
            return _error(500, "server_error", "The server had an error.")
        return _ok(_shown(batch))

    # Work.

    async def _sleep(self, seconds: float) -> None:
        await self._provider.sleep(seconds / self._provider.spec.time_scale)

    async def _work(self, batch: _Batch) -> None:
        spec = self._spec
        if batch.api == "openai":
            await self._sleep(spec.validate_s)
            batch.errors = self._complaints(batch)
            if batch.errors:
                batch.status = "failed"
                return
            if not batch.cancelled:
                batch.status = "in_progress"
        order = list(batch.lines)
        self._random.shuffle(order)
        expired = 0
        for step in range(STEPS):
            await self._sleep(spec.process_s / STEPS)
            for line in order[step * len(order) // STEPS : (step + 1) * len(order) // STEPS]:
                if batch.cancelled:
                    self._add(batch, line, "canceled")
                elif self._random.random() < spec.expire_share:
                    expired += 1
                    self._add(batch, line, "expired")
                else:
                    await self._serve(batch, line)
        if batch.api == "openai":
            batch.status = "cancelled" if batch.cancelled else "expired" if expired else "completed"
            for name, rows in (("output", batch.good), ("error", batch.bad)):
                if rows:
                    self._files[f"{batch.id}-{name}"] = b"".join(rows)
        else:
            batch.status = "ended"

    def _complaints(self, batch: _Batch) -> list[dict[str, Any]]:
        spec = self._spec
        running = sum(len(other.lines) for other in self._batches.values() if other.api == "openai" and not other.ended)
        if spec.max_running is not None and running > spec.max_running:
            return [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached.", "line": None}]
        if spec.fail_code:
            return [{"code": spec.fail_code, "message": "This file cannot be used.", "line": None}]
        return [
            {"code": "invalid_body", "message": "The body is not usable.", "line": number}
            for number, line in enumerate(batch.lines, 1)
            if spec.refuse_text and spec.refuse_text.encode() in bytes(line.body)
        ]

    async def _serve(self, batch: _Batch, line: _Line) -> None:
        body = bytes(line.body if batch.api == "openai" else line.params)
        refused = batch.api == "anthropic" and self._spec.refuse_text and self._spec.refuse_text.encode() in body
        if refused:
            self._add(batch, line, "errored", 400, b'{"type":"error","error":{"type":"invalid_request_error"}}')
        elif self._random.random() < self._spec.error_share:
            self._add(batch, line, "errored", 500, b'{"type":"error","error":{"type":"api_error","message":"Oops"}}')
        else:
            answer = await self._provider.serve(body, {}, batch.wanted.endpoint if batch.wanted else "/v1/messages")
            done = answer.status == 200 and not answer.wire
            content = answer.body if done or answer.status >= 400 else b'{"error":{"type":"api_error"}}'
            self._add(batch, line, "succeeded" if done else "errored", answer.status or 500, content)

    def _add(self, batch: _Batch, line: _Line, end: str, status: int = 0, body: bytes = b"") -> None:
        batch.counts[end] += 1
        name = msgspec.json.encode(line.custom_id)
        if batch.api == "anthropic":
            key = {"succeeded": b',"message":%b' % body, "errored": b',"error":%b' % body}.get(end, b"")
            row = b'{"custom_id":%b,"result":{"type":"%b"%b}}\n' % (name, end.encode(), key)
        elif status:
            response = b'{"status_code":%d,"request_id":"req","body":%b}' % (status, body)
            row = b'{"id":"r","custom_id":%b,"response":%b,"error":null}\n' % (name, response)
        else:
            code = b"batch_expired" if end == "expired" else b"batch_cancelled"
            error = b'{"code":"%b","message":"This request was not executed."}' % code
            row = b'{"id":"r","custom_id":%b,"response":null,"error":%b}\n' % (name, error)
        (batch.good if end == "succeeded" else batch.bad).append(row)


def _shown(batch: _Batch) -> dict[str, Any]:
    counts, total = batch.counts, len(batch.lines)
    if batch.api == "anthropic":
        created = datetime.datetime.fromtimestamp(batch.created, datetime.UTC).isoformat()
        left = total - sum(counts.values())
        status = batch.status
        url = f"https://elsewhere.invalid/{batch.id}/results" if batch.ended else None
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": status,
            "created_at": created,
            "request_counts": {"processing": left, **counts},
            "results_url": url,
        }
    failed = counts["errored"] + counts["expired"]
    return {
        "id": batch.id,
        "object": "batch",
        "status": batch.status,
        "created_at": int(batch.created),
        "expires_at": int(batch.created) + WINDOW_S,
        "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
        "output_file_id": f"{batch.id}-output" if batch.ended and batch.good else None,
        "error_file_id": f"{batch.id}-error" if batch.ended and batch.bad else None,
        "request_counts": {"total": total, "completed": counts["succeeded"], "failed": failed},
        "metadata": batch.wanted.metadata if batch.wanted else None,
    }


def _part(request: Request) -> bytes | None:
    """The file of a form whose purpose is batch."""
    boundary = request.headers.get("content-type", "").partition("boundary=")[2].encode()
    parts = request.body.split(b"--" + boundary) if boundary else []
    fields: dict[bytes, bytes] = {}
    for part in parts[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        found = re.search(rb'name="(\w+)"', head)
        if found is not None:
            fields[found[1]] = content.removesuffix(b"\r\n")
    return fields.get(b"file") if fields.get(b"purpose") == b"batch" else None


def _ok(data: dict[str, Any]) -> SimResponse:
    return SimResponse(200, {**JSON}, msgspec.json.encode(data))


def _error(status: int, code: str, message: str) -> SimResponse:
    body = {"type": "error", "error": {"type": code, "code": code, "message": message}}
    return SimResponse(status, {**JSON}, msgspec.json.encode(body))
