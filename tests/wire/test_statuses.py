"""Statuses at the edges of their ranges, errors inside a 200, and what a failure says in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from referee.records import Action, Failure, Reason, Reply
from referee.wire import CHAT

BUSY = (Reason.OVERLOADED, Action.BACK_OFF)
WRONG = (Reason.CONFIG, Action.CLOSE)
UNFIT = (Reason.CONFIG, Action.GIVE_UP)
GLITCH = (Reason.CONNECTION, Action.RETRY)
AUTH = (Reason.AUTH, Action.CLOSE)
PARK = (Reason.THROTTLED, Action.PARK)
HTML = b"<html><body>secret words of a proxy</body></html>"
COMPLETION = {"choices": [{"message": {"content": "8"}, "finish_reason": "stop"}]}


def failure(status: int, body: object = b"", headers: dict[str, str] | None = None) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = CHAT.read(status, headers or {}, raw, 1_700_000_000.0)
    assert isinstance(found, Failure)
    return found


@pytest.mark.parametrize(
    ("statuses", "end"),
    [
        ((408, 409, 421, 423, 424, 425, 499, 500, 502, 503, 504, 506, 512, 599), BUSY),
        ((498,), (Reason.OVERLOADED, Action.WAIT)),
        ((400, 422), UNFIT),
        ((300, 301, 302, 307, 308, 399, 404, 405, 407, 410, 411, 418, 426, 501, 505, 511), WRONG),
        ((0, 100, 101, 199, 600, 999), GLITCH),
        ((401, 403), AUTH),
        ((429,), PARK),
    ],
)
def test_a_bare_status_has_one_meaning(statuses: tuple[int, ...], end: tuple[Reason, Action]) -> None:
    """With an empty body the number decides, the first and last of every range included."""
    for status in statuses:
        found = failure(status)
        assert (found.reason, found.action) == end, status
        assert found.status == status


@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_context_that_is_too_short_is_said_with_several_statuses(status: int) -> None:
    """Such a request is given up; no wait makes it fit."""
    found = failure(status, {"error": {"message": "This model's maximum context length is 4096 tokens"}})
    assert (found.reason, found.action) == (Reason.TOO_LONG, Action.GIVE_UP)


@pytest.mark.parametrize("status", [200, 201, 299])
def test_every_2xx_with_a_completion_is_a_reply(status: int) -> None:
    """In the documented shape, and in an odd one."""
    odd = {"choices": [{"message": {"content": [{"type": "text", "text": "8"}]}, "finish_reason": 1}]}
    for data in (COMPLETION, odd):
        found = CHAT.read(status, {}, json.dumps(data).encode(), 0.0)
        assert isinstance(found, Reply)
        assert found.text == "8"


def test_a_completion_under_300_is_no_reply() -> None:
    """A redirect is a redirect, whatever its body."""
    assert failure(300, COMPLETION).reason is Reason.CONFIG


@pytest.mark.parametrize(
    ("error", "status", "end"),
    [
        ({"type": "authentication_error"}, 401, AUTH),
        ({"type": "permission_error"}, 403, AUTH),
        ({"status": "PERMISSION_DENIED"}, 403, AUTH),
        ({"code": "model_not_found"}, 404, WRONG),
        ({"code": "rate_limit_exceeded"}, 429, PARK),
        ({"type": "invalid_request_error"}, 400, UNFIT),
        ({"type": "something new"}, 500, BUSY),
        ({"code": 403}, 403, AUTH),
        ({"code": "503"}, 503, BUSY),
        ({"code": 400}, 400, UNFIT),
        ({"code": 399}, 500, BUSY),
        ({"code": 599}, 599, BUSY),
        ({"code": 600}, 500, BUSY),
        ({"code": "1403"}, 500, BUSY),
    ],
)
@pytest.mark.parametrize("wrap", ["error", "list", "choice"])
def test_an_error_inside_a_200_counts_as_its_own_status(
    wrap: str, error: dict[str, Any], status: int, end: tuple[Reason, Action]
) -> None:
    """By its number, else by the number its label stands for; wherever a gateway puts it."""
    inside = {"error": {"message": "no", **error}}
    found = failure(200, {"error": inside, "list": [inside], "choice": {"choices": [inside]}}[wrap])
    assert (found.reason, found.action) == end
    assert found.status == status


def test_a_parameter_refused_with_501_is_left_out() -> None:
    """Some servers say "not implemented" about one field; the endpoint is not closed for that."""
    found = failure(501, {"error": {"message": "logprobs is not implemented"}})
    assert (found.reason, found.action, found.unsupported) == (*UNFIT, "logprobs")


def test_a_502_never_means_a_parameter() -> None:
    """A gateway's error that mentions one is a gateway's error."""
    assert failure(502, {"error": {"message": "logprobs is not supported"}}).unsupported == ""


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"", "200 with an empty body"),
        (200, b" \n", "200 with an empty body"),
        (200, HTML, "200 with an HTML page instead of JSON"),
        (200, b'{"choices": [', '200 with a body that is not whole JSON: {"choices": ['),
        (502, HTML, "502: an HTML page"),
        (502, b"", "502"),
        (502, b"upstream connect error", "502: upstream connect error"),
        (200, {"error": {"code": "server_error"}}, "500 server_error"),
        (410, b"", "410: check endpoint.model and endpoint.url"),
        (405, b"", "405: check endpoint.url and endpoint.api: this API is not there"),
    ],
)
def test_a_failure_says_what_came(status: int, body: object, said: str) -> None:
    """Nothing of a page is shown; plain words and half a reply are."""
    assert failure(status, body).detail == said


@pytest.mark.parametrize("status", [300, 302, 399])
def test_a_redirect_says_where_to_without_its_query(status: int) -> None:
    """The address helps to mend endpoint.url; a query may hold a key."""
    detail = failure(status, b"moved", {"location": "https://other.example/v1?key=abc"}).detail
    assert detail.startswith(f"{status}: https://other.example/v1: ")
    assert "key=" not in detail


def test_a_location_is_only_a_redirects() -> None:
    """An error keeps its own words."""
    detail = failure(400, {"error": {"message": "bad thing"}}, {"location": "https://other.example/"}).detail
    assert "bad thing" in detail
    assert "other.example" not in detail


@pytest.mark.parametrize("body", [{}, {"error": {"message": "x"}}, b"", {"choices": []}])
@pytest.mark.parametrize("status", [200, 503])
def test_a_request_id_is_kept_if_it_is_one(status: int, body: object) -> None:
    """Up to 128 characters; anything longer is not quoted."""
    assert failure(status, body, {"x-request-id": "r" * 128}).request_id == "r" * 128
    assert failure(status, body, {"x-request-id": "r" * 129}).request_id == ""
