"""The key that was sent is in nothing that comes back, however the server writes it."""

from __future__ import annotations

import base64
import html
import json
import string
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.wire import Redactor

KEY = "sk-proj/Ab9+cd_EF.gh=IJ~kl:MN&op<qr>4"


def in_base64(before: str, after: str = "") -> Callable[[str], str]:
    return lambda key: base64.b64encode(f"{before}{key}{after}".encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "in a url": lambda key: quote(key, safe=""),
    "in a path": quote,
    "in a form": quote_plus,
    "in a url in a url": lambda key: quote(quote(key, safe=""), safe=""),
    "in json": lambda key: json.dumps(key)[1:-1],
    "in json with escaped slashes": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "in json in json": lambda key: json.dumps(json.dumps(key).replace("/", "\\/"))[3:-3],
    "in json that is safe in html": lambda key: "".join(f"\\u{ord(c):04x}" if c in "<>&'=+\"" else c for c in key),
    "in html": html.escape,
    "in html, by numbers": lambda key: "".join(c if c.isalnum() else f"&#{ord(c)};" for c in key),
    "in html, by hex numbers": lambda key: "".join(c if c.isalnum() else f"&#x{ord(c):X};" for c in key),
    "base64": in_base64(""),
    "Basic, one byte before": in_base64(":"),
    "Basic, two bytes before": in_base64("u:"),
    "Basic, user": in_base64("user:"),
    "base64 of the header": in_base64("Bearer ", "\r\n"),
    "base64 of json": in_base64('{"key": "', '"}'),
    "base64 for urls": lambda key: base64.urlsafe_b64encode(b"api:" + key.encode()).decode(),
    "base64 in a url": lambda key: quote(in_base64("api:")(key), safe=""),
}


def leaks(key: str, shown: str) -> list[str]:
    """Eight characters of the key in a row, or of its base64, as found in `shown`."""
    texts = [key.lower(), *(in_base64("\0" * n)(key)[4:-4].lower() for n in range(3))]
    pieces = (text[at : at + 8] for text in texts for at in range(len(text) - 7))
    return [piece for piece in pieces if piece in shown.lower()]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_replaced(form: str) -> None:
    """In a body, a header and a text; what stands around it stays."""
    echoed = f"before {FORMS[form](KEY)} after"
    redactor = Redactor(KEY)
    headers, body = redactor.answer({"x-echo": echoed, "server": "nginx"}, f'{{"error": "{echoed}"}}'.encode())
    for shown in (headers["x-echo"], body.decode(), redactor.text(echoed)):
        assert not leaks(KEY, shown)
        assert "before " in shown
        assert " after" in shown
        assert "***" in shown
    assert headers["server"] == "nginx"


PRINTABLE = "".join(chr(code) for code in range(33, 127))


@given(
    st.one_of(st.text(string.ascii_letters + string.digits + "-_", min_size=8), st.text(PRINTABLE, min_size=8)).filter(
        lambda key: sum(c.isalnum() for c in key) > 3 and not key.isdigit()
    ),
    st.sampled_from([form for form in FORMS if form not in ("in json in json",)]),
)
@settings(max_examples=400, deadline=None)
def test_every_key_is_replaced(key: str, form: str) -> None:
    """Whatever it is made of."""
    echoed = FORMS[form](key)
    _, body = Redactor(key).answer({}, f"<{echoed}>".encode())
    assert body.startswith(b"<")
    assert echoed.encode() not in body
    assert b"***" in body


def test_an_answer_without_it_is_handed_on_as_it_is() -> None:
    """The same objects: looking costs little, and nothing is rebuilt."""
    headers, body = {"server": "nginx"}, b'{"choices": []}'
    for redactor in (Redactor(KEY), Redactor(""), Redactor()):
        found = redactor.answer(headers, body)
        assert found[0] is headers
        assert found[1] is body
        assert redactor.text("plain") == "plain"


@pytest.mark.parametrize("word", ["EMPTY", "none", "score", "choices", "12345678", "sk-1", ""])
def test_a_key_that_is_an_ordinary_word_is_not_looked_for(word: str) -> None:
    """Replacing it could take an answer apart; it is no secret either."""
    reply = f'{{"score": 1234, "reason": "{word}"}}'
    body = json.dumps({"created": 1712345678, "choices": [{"message": {"content": reply}}]}).encode()
    assert Redactor(word).answer({}, body)[1] == body


def test_a_short_key_with_a_digit_is_looked_for() -> None:
    """As people choose them by hand."""
    assert Redactor("hunter2").text("the key hunter2 is wrong") == "the key *** is wrong"


def test_several_secrets_are_replaced() -> None:
    """The endpoint's key and the proxy's password."""
    assert Redactor(KEY, "proxy-password").text(f"{KEY} proxy-password") == "*** ***"


def test_json_with_a_replaced_key_is_still_json() -> None:
    """The verdict beside it can be read."""
    body = json.dumps({"content": json.dumps({"reason": f"key {KEY}", "score": 7})}).encode()
    found = json.loads(Redactor(KEY).answer({}, body)[1])
    assert json.loads(found["content"])["score"] == 7
