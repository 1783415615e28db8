"""What an answer that is no reply means, in any dialect. The rules in `_decide` are tried in order.

Words are only trusted to close an endpoint when they stand at the start of the message: an error may quote the
request, and the request holds text written by the policy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from referee.records import Action, Failure, Reason
from referee.wire import error_body
from referee.wire.error_body import ErrorBody
from referee.wire.json_body import ONCE, GivenTwiceError, load_json
from referee.wire.scrub import label, scrub
from referee.wire.times import MAX_DELAY, retry_after, spoken_delay
from referee.wire.unsupported import unsupported
from referee.wire.vocabulary import (
    AUTH,
    BAD_IMAGE,
    BAD_OUTPUT,
    NO_CAPACITY,
    NO_MODEL,
    POLICY,
    QUOTA,
    THROTTLED,
    TOO_LONG,
)

# For an error inside a 200 without a status: the status its label stands for.
_STATUS_OF = (
    (QUOTA, 429),
    (AUTH, 401),
    (frozenset(("permission_error", "permission_denied")), 403),
    (NO_MODEL, 404),
    (THROTTLED, 429),
    (POLICY | BAD_IMAGE, 400),
    (frozenset(("invalid_request_error", "badrequesterror", "invalid_argument", "bad_request")), 400),
)

_BROKE = re.compile(
    r"your credit balance is too low|insufficient (?:account )?(?:balance|credits?|funds)|"
    r"your prepayment credits are depleted|"
    r"you have reached your specified (?:api )?usage limits|your account .{0,60}insufficient balance|"
    r"access denied, please make sure your account is in good standing",
    re.I,
)
_BAD_KEY = re.compile(
    r"api key not valid|incorrect api key|invalid api key|no api key|you didn't provide an api key|"
    r"this organization has been disabled",
    re.I,
)
_NOT_FROM_HERE = re.compile(r"user location is not supported", re.I)
_NO_MODEL = re.compile(
    r"(?:the )?model .{1,120}(?:does not exist|not found)|model not exist|\S{1,120} is not a valid model id", re.I
)
_LONG = re.compile(
    r"maximum context length|context (?:size|window|length)|(?:prompt|input|request) is too long|"
    r"too many (?:input )?tokens|range of input length|exceeds? the maximum (?:number of )?tokens|"
    r"exceeds? (?:the )?context limit",
    re.I,
)
# A 429 about one request that exceeds the limit by itself: waiting will not help it.
_NEVER_FITS = re.compile(r"request too large", re.I)
# A tier without capacity at the moment (flex): our rate is not the cause.
_NO_CAPACITY = re.compile(r"resource.?unavailable|capacity.?exceeded", re.I)
_POLICY = re.compile(r"content (?:management )?policy|content filter|safety system|usage policy", re.I)
_HTML = re.compile(rb"\s*<(?:!doctype|html|head|body|\?xml)", re.I)

_BUSY_4XX = (408, 409, 421, 423, 424, 425, 499)
_ONE_REQUEST_4XX = (400, 422)
_ABOUT_LENGTH = (400, 422, 500)  # llama.cpp says it with a 500
_NOT_HERE_5XX = (501, 505, 511)
_WAITING = (Action.PARK, Action.BACK_OFF, Action.WAIT)


def request_id(headers: Mapping[str, str]) -> str:
    """The server's name for a request, if it gives one."""
    return label(headers.get("x-request-id") or headers.get("request-id") or "", 128)


def open_answer(
    status: int, headers: Mapping[str, str], body: bytes, wall: float, once: tuple[str, ...] | None = ONCE
) -> Any:
    """The JSON of an answer; or a Failure, where its status, its body or an error inside says so. `once`: as in
    `load_json`."""
    if not 200 <= status < 300:
        return failure(status, headers, body, wall)
    try:
        data = load_json(body, once)
    except ValueError as error:
        return unreadable(status, headers, body, error)
    return inner_failure(headers, data, wall) if error_body.holds_error(data) else data


def odd_answer(
    status: int,
    headers: Mapping[str, str],
    what: str,
    reason: Reason = Reason.CONNECTION,
    action: Action = Action.RETRY,
    request: str = "",
) -> Failure:
    """JSON that is no answer to what was asked, and no error either. `request`: its id, where a header of the
    provider's own says it."""
    request = request or request_id(headers)
    return Failure(reason=reason, action=action, detail=f"{status}, {what}", status=status, request_id=request)


def failure(status: int, headers: Mapping[str, str], body: bytes, wall: float) -> Failure:
    """An answer with an error status, by its status, its labels and its words: those of all providers we know. Header
    names are lower case; `wall` is the time it came, for dates in headers."""
    page = _HTML.match(body) is not None
    try:
        said = error_body.read(load_json(body))
    except ValueError:
        said = ErrorBody(message="" if page else body[:1000].decode("utf-8", "replace"))
    return _failure(status, headers, said, wall, page)


def inner_failure(headers: Mapping[str, str], error: Any, wall: float) -> Failure:
    """An error object inside a 2xx answer, as if it had come with its own status."""
    said = error_body.read(error)
    status = said.status or next((code for labels, code in _STATUS_OF if said.labels & labels), 500)
    return _failure(status, headers, said, wall)


def unreadable(status: int, headers: Mapping[str, str], body: bytes, error: ValueError) -> Failure:
    """A 2xx answer whose body `load_json` refused with `error`."""
    if body.lstrip()[:6] in (b"data: ", b"event:"):
        return Failure(
            reason=Reason.CONFIG,
            action=Action.CLOSE,
            detail="the answer is an event stream: take `stream` out of endpoint.extra",
            status=status,
            request_id=request_id(headers),
        )
    if not body.strip():
        what = "an empty body"
    elif _HTML.match(body):
        what = "an HTML page instead of JSON"
    elif isinstance(error, GivenTwiceError):
        what = f"JSON in which {error}, so it says two things"
    else:
        what = f"a body that is not whole JSON: {scrub(body[:1200].decode('utf-8', 'replace'))}"
    return Failure(
        reason=Reason.CONNECTION,
        action=Action.RETRY,
        detail=f"{status} with {what}",
        status=status,
        request_id=request_id(headers),
    )


def _failure(status: int, headers: Mapping[str, str], said: ErrorBody, wall: float, page: bool = False) -> Failure:
    parameter = unsupported(said) if status in (*_ONE_REQUEST_4XX, 501) else ""
    reason, action, advice = _decide(status, said, parameter, page)
    advised = headers.get("x-should-retry", "").strip().lower()
    if advised == "false" and action in (Action.PARK, Action.BACK_OFF):
        action = Action.GIVE_UP
    elif advised == "true" and reason is Reason.CONFIG and action is Action.GIVE_UP and not parameter:
        reason, action = Reason.OVERLOADED, Action.BACK_OFF
    message = scrub(said.message) or ("an HTML page" if page else "")
    if 300 <= status < 400:
        message = scrub(headers.get("location", "")[:300].partition("?")[0])
    detail = f"{status} {said.code}".rstrip()
    return Failure(
        reason=reason,
        action=action,
        detail=": ".join(part for part in (detail, message, advice) if part),
        status=status,
        code=said.code,
        request_id=request_id(headers),
        retry_after=_delay(headers, said, wall) if action in _WAITING else None,
        unsupported=parameter,
    )


def _delay(headers: Mapping[str, str], said: ErrorBody, wall: float) -> float | None:
    """From the header, else from a field of the body, else from the message."""
    found = retry_after(headers, wall)
    if found is None and said.retry_delay is not None:
        found = min(said.retry_delay, MAX_DELAY)
    return spoken_delay(said.message) if found is None else found


def _decide(status: int, said: ErrorBody, parameter: str, page: bool) -> tuple[Reason, Action, str]:
    """Reason, action, and which setting to look at."""
    labels, words = said.labels, said.message[:300]
    client_error = 400 <= status < 500
    if not 300 <= status < 600:
        return Reason.CONNECTION, Action.RETRY, "not an HTTP answer to a POST"
    if status < 400:
        return Reason.CONFIG, Action.CLOSE, "redirects are not followed; put the final address in endpoint.url"
    if status == 498 or (status == 429 and (labels & NO_CAPACITY or _NO_CAPACITY.match(words))):
        return Reason.OVERLOADED, Action.WAIT, "no capacity at this tier at the moment (see endpoint.tier)"
    if status == 402 or (client_error and (labels & QUOTA or _BROKE.match(words)) and not _refills(status, said)):
        return Reason.QUOTA, Action.CLOSE, "the account behind endpoint.key_env has no credit left"
    if status == 401 or (client_error and (labels & AUTH or _BAD_KEY.match(words))):
        return Reason.AUTH, Action.CLOSE, "check endpoint.key_env or endpoint.key_file"
    if status == 413 or labels & TOO_LONG or (status in _ABOUT_LENGTH and _LONG.search(words)):
        return Reason.TOO_LONG, Action.GIVE_UP, ""
    if status == 429 and _NEVER_FITS.match(words):
        return Reason.TOO_LONG, Action.GIVE_UP, ""
    if client_error and (labels & POLICY or said.flagged or (status == 400 and _POLICY.search(words))):
        return Reason.REFUSED, Action.GIVE_UP, ""
    if status == 429 or labels & THROTTLED or _throttling(labels):
        return Reason.THROTTLED, Action.PARK, ""
    if status == 403 and page:
        # A firewall may object to this one text. Closing here would let one rollout stop a run.
        return Reason.REFUSED, Action.GIVE_UP, "a firewall before endpoint.url turned this request away"
    if status == 403:
        return Reason.AUTH, Action.CLOSE, "the key in endpoint.key_env may not use endpoint.model, or not from here"
    if client_error and _NOT_FROM_HERE.match(words):
        return Reason.CONFIG, Action.CLOSE, "endpoint.url does not serve the place this machine is in"
    if parameter:
        return Reason.CONFIG, Action.GIVE_UP, f"endpoint.model does not take {parameter}"
    if status in (404, 410) or (client_error and (labels & NO_MODEL or _NO_MODEL.match(words))):
        return Reason.CONFIG, Action.CLOSE, "check endpoint.model and endpoint.url"
    if labels & BAD_OUTPUT:
        return Reason.SCHEMA, Action.ASK_AGAIN, ""
    if status in _ONE_REQUEST_4XX:
        return Reason.CONFIG, Action.GIVE_UP, "the endpoint refuses this request; see endpoint.extra and judge"
    if status == 407:
        return Reason.CONFIG, Action.CLOSE, "the proxy wants a login; check endpoint.proxy"
    if status in _BUSY_4XX:
        return Reason.OVERLOADED, Action.BACK_OFF, ""
    if client_error or status in _NOT_HERE_5XX:
        return Reason.CONFIG, Action.CLOSE, "check endpoint.url and endpoint.api: this API is not there"
    return Reason.OVERLOADED, Action.BACK_OFF, ""


def _refills(status: int, said: ErrorBody) -> bool:
    """True for a quota that comes back by itself, although the error uses the words for an empty account.

    Gemini names a delay; Alibaba sends its tokens-per-minute limit as `insufficient_quota` with OpenAI's own text,
    told apart by a second label or the link into its documentation.
    """
    if said.retry_delay is not None or _throttling(said.labels):
        return True
    return status == 429 and "error-code#token-limit" in said.message


def _throttling(labels: frozenset[str]) -> bool:
    return any(name.startswith("throttling") for name in labels)
