"""OpenAI's batch API: a file of requests is uploaded, then a batch is created of it. The answers are two files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec import Raw, Struct, field

from referee.batch.calls import Caller, read_answer, sound_id
from referee.batch.port import CANCELLED, EXPIRED, Ended, Line, Problem, Result, Seen

LABEL = "referee"
"""Key of the metadata that holds a batch's token."""
ENDED: dict[str, Ended] = {
    "completed": "completed",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}
STATUSES = {"batch_expired": EXPIRED, "batch_cancelled": CANCELLED}
BOUNDARY = b"referee-7c1f0e9b5a8d4e62"


class _Error(Struct):
    code: str | None = ""
    message: str | None = ""
    line: int | None = 0


class _Errors(Struct):
    data: list[_Error] | None = None


class _Counts(Struct):
    total: int = 0
    completed: int = 0
    failed: int = 0


class _Batch(Struct):
    id: str
    status: str = ""
    created_at: float = 0.0
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: _Errors | None = None
    request_counts: _Counts | None = None
    metadata: dict[str, str] | None = None


class _List(Struct):
    data: list[_Batch] = []
    has_more: bool = False


class _File(Struct):
    id: str


class _Response(Struct):
    status_code: int = 0
    body: Raw = field(default_factory=lambda: Raw(b"null"))


class _Output(Struct):
    custom_id: str
    response: _Response | None = None
    error: _Error | None = None


_output = msgspec.json.Decoder(_Output)


class OpenAIBatches:
    """Batches of one endpoint."""

    max_items = 50_000
    max_bytes = 100_000_000
    """OpenAI takes 200 MB. Half of that keeps an upload's memory and a failed one's repetition small."""

    def __init__(self, url: str, caller: Caller) -> None:
        """`url`: where single requests go, such as …/v1/chat/completions."""
        base, _, rest = url.rpartition("/v1/")
        self._base, self._path = f"{base}/v1", f"/v1/{rest}"
        self._caller = caller

    async def create(self, token: str, lines: Sequence[Line]) -> str:
        """See BatchApi."""
        file = await self._caller.call(
            "POST",
            f"{self._base}/files",
            _form(f"{token}.jsonl", _rows(self._path, lines)),
            content_type=f"multipart/form-data; boundary={BOUNDARY.decode()}",
            file=True,
        )
        wanted = {
            "input_file_id": sound_id(read_answer(file.body, _File).id),
            "endpoint": self._path,
            "completion_window": "24h",
            "metadata": {LABEL: token},
        }
        return await self._caller.create(f"{self._base}/batches", msgspec.json.encode(wanted))

    async def look(self, id: str) -> Seen:
        """See BatchApi."""
        answer = await self._caller.call("GET", f"{self._base}/batches/{id}")
        return _seen(read_answer(answer.body, _Batch))

    async def results(self, seen: Seen) -> list[Result]:
        """See BatchApi."""
        found: list[Result] = []
        for file in seen.files:
            answer = await self._caller.call("GET", f"{self._base}/files/{sound_id(file)}/content", file=True)
            found += _results(answer.body)
        return found

    async def find(self, token: str, count: int, since: float, known: Collection[str]) -> tuple[str, bool]:
        """See BatchApi. The token is in the batch's metadata."""
        after = ""
        while True:
            answer = await self._caller.call("GET", f"{self._base}/batches?limit=100{after}")
            page = read_answer(answer.body, _List)
            for batch in page.data:
                if (batch.metadata or {}).get(LABEL) == token:
                    return sound_id(batch.id), True
            if not page.data or not page.has_more or page.data[-1].created_at < since:
                return "", True
            after = f"&after={sound_id(page.data[-1].id)}"

    async def cancel(self, id: str) -> None:
        """See BatchApi."""
        await self._caller.call("POST", f"{self._base}/batches/{id}/cancel", b"{}")


def _rows(path: str, lines: Sequence[Line]) -> bytes:
    head = b'","method":"POST","url":%b,"body":' % msgspec.json.encode(path)
    return b"".join(b'{"custom_id":"%b%b%b}\n' % (line.name.encode(), head, line.body) for line in lines)


def _form(name: str, content: bytes) -> bytes:
    part = b'--%b\r\ncontent-disposition: form-data; name="' % BOUNDARY
    head = b'%bpurpose"\r\n\r\nbatch\r\n%bfile"; filename="%b"\r\n' % (part, part, name.encode())
    return b"%bcontent-type: application/jsonl\r\n\r\n%b\r\n--%b--\r\n" % (head, content, BOUNDARY)


def _seen(batch: _Batch) -> Seen:
    counts, errors = batch.request_counts or _Counts(), (batch.errors.data if batch.errors else None) or ()
    return Seen(
        id=batch.id,
        ended=ENDED.get(batch.status, ""),
        total=counts.total,
        done=counts.completed + counts.failed,
        problems=tuple(Problem(error.line or 0, error.code or "", error.message or "") for error in errors),
        files=tuple(file for file in (batch.output_file_id, batch.error_file_id) if file),
    )


def _results(body: bytes) -> Iterator[Result]:
    """Answers by line. One that cannot be read is left out: its request is then one without an answer."""
    for row in body.splitlines():
        try:
            found = _output.decode(row)
        except msgspec.MsgspecError:
            continue
        if found.response is not None and found.response.status_code:
            yield Result(found.custom_id, found.response.status_code, bytes(found.response.body))
        elif found.error is not None:
            error = {"code": found.error.code, "message": found.error.message}
            body = msgspec.json.encode({"error": error})
            yield Result(found.custom_id, STATUSES.get(found.error.code or "", 500), body)
