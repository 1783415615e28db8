"""What the end of a batch means for each of its requests. Plain decisions: nothing is sent, stored or awaited here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from referee.batch.calls import TEMPORARY
from referee.batch.journal import Item, Stored
from referee.batch.port import CANCELLED, EXPIRED, Seen
from referee.engine.port import Response
from referee.wire.failure import failure

MAX_TRIES = 3
"""Batches that one request may be part of before it is given up."""
KEPT_STATUSES = (400, 422)
"""Errors that are kept like answers: they are about the request's own bytes, and the engine learns from them what to
leave out. Others may be cured by the time a run is resumed."""


class Sorted(NamedTuple):
    """Requests by what is done with them."""

    stored: list[Stored]
    """Answers to keep."""
    answers: list[tuple[Item, Response]]
    """Answers to hand out."""
    again: list[Item]
    """Into the next batch."""
    afresh: list[Item]
    """Ended without an answer: asked as if for the first time when the run is resumed."""


def sort_results(
    items: Sequence[tuple[Item, int]],
    seen: Seen,
    results: Mapping[Item, tuple[int, bytes]],
    run: str,
    waiting: Collection[Item],
) -> Sorted:
    """What becomes of the requests of a batch that has ended; each comes with the number of batches it has been in."""
    found = Sorted([], [], [], [])
    absent = CANCELLED if seen.ended == "cancelled" else EXPIRED
    for item, tries in items:
        status, body = results.get(item) or (absent, b"")
        if 200 <= status < 300 or status in KEPT_STATUSES:
            found.stored.append(Stored(item, status, body, item in waiting))
            found.answers.append((item, response(run, item, status, body)))
            continue
        if status == CANCELLED:  # not bought against the user's will
            answer = error(
                status, "batch_cancelled", f"batch {seen.id} was cancelled at the provider; --resume asks again"
            )
        elif failure(status, {}, body, 0.0).action in TEMPORARY and tries < MAX_TRIES:
            found.again.append(item)
            continue
        elif body and status != EXPIRED:
            answer = response(run, item, status, body)
        else:
            answer = error(status, "batch_expired", f"not answered in {tries} batches before they expired")
        found.afresh.append(item)
        found.answers.append((item, answer))
    return found


def sort_refused(items: Sequence[Item], seen: Seen) -> Sorted:
    """What becomes of the requests of a file that was refused: lines that are to blame get the reason, and the others
    go into the next batch, unless no line is to blame."""
    found = Sorted([], [], [], [])
    blamed = {items[p.line - 1]: p for p in seen.problems if 0 < p.line <= len(items)}
    for item, problem in blamed.items():
        message = f"batch {seen.id} was refused for its line {problem.line}: {problem.message}"
        found.answers.append((item, error(400, problem.code, message)))
    if blamed:
        found.again.extend(item for item in items if item not in blamed)
        return found
    first = seen.problems[0] if seen.problems else None
    code, message = (first.code, first.message) if first else ("batch_failed", "no reason was given")
    status = 404 if code == "model_not_found" else 400
    if "billing" in code:
        status, code = 429, "insufficient_quota"
    answer = error(status, code, f"batch {seen.id} was refused: {message}")
    found.answers.extend((item, answer) for item in items)
    return found


def response(run: str, item: Item, status: int, body: bytes) -> Response:
    """The answer of the live endpoint. Its request id says that this run has paid for it, also when it is met again in
    the cache."""
    headers = {"x-request-id": item.name(run), "request-id": item.name(run)}
    if not 200 <= status < 300:
        headers["x-should-retry"] = "false"
    return Response(status, headers, body)


def error(status: int, code: str, message: str) -> Response:
    """An answer of our own about a request that a provider did not get to, or would not take."""
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return Response(status, {"x-should-retry": "false"}, body)
