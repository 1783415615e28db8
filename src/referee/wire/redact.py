"""Replaces the secrets sent with a request in its answer, before anything else reads that.

A server may echo the key in an error, a header or the reply itself, and gateways echo whole requests. The key is known
here, so the match is exact; `scrub` recognises keys that are not ours by their shape.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Mapping

from referee.wire.scrub import HIDDEN

SHORTEST, LETTERS, DIGITS = 6, 8, 16
"""Least characters of a secret: of any, of letters only, of digits only. A shorter one, such as the `EMPTY` that local
servers are given, may occur in any answer by itself and is left to `scrub`."""

_RUN = re.compile(r"[A-Za-z0-9]+")


class Redactor:
    """Replaces these secrets in the forms a server may write them in: as they are, in upper or lower case, escaped for
    a URL, for JSON or for HTML, and in base64, also inside a longer text such as Basic credentials."""

    __slots__ = ("_pattern", "_signs")

    def __init__(self, *secrets: str) -> None:
        forms = [form for secret in secrets if _can_be_told(secret) for form in _forms(secret)]
        # Letters and digits are never escaped, so an answer without the longest run of them does not hold that form.
        runs = (max(_RUN.findall(form), key=len, default=form) for form in forms)
        self._signs = tuple(dict.fromkeys(run.lower().encode() for run in runs))
        self._pattern = re.compile("|".join(map(_escaped, forms)).encode(), re.I)

    def answer(self, headers: Mapping[str, str], body: bytes) -> tuple[Mapping[str, str], bytes]:
        """Both without secrets."""
        if self._signs:
            low = ("\n".join(headers.values()).encode("utf-8", "replace") + body).lower()
            for sign in self._signs:
                if sign in low:
                    return {name: self.text(value) for name, value in headers.items()}, self._hide(body)
        return headers, body

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._hide(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _hide(self, data: bytes) -> bytes:
        return self._pattern.sub(HIDDEN.encode(), data) if self._signs else data


def _can_be_told(secret: str) -> bool:
    return len(secret) >= (LETTERS if secret.isalpha() else DIGITS if secret.isdigit() else SHORTEST)


def _forms(secret: str) -> Iterator[str]:
    yield secret
    data = secret.encode()
    for before in range(3):  # bytes that precede it in its base64 group
        encoded = base64.b64encode(bytes(before) + data).decode()
        # Characters at both ends also hold bits of the neighbouring bytes.
        inner = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        yield inner
        yield inner.translate(str.maketrans("+/", "-_"))


def _escaped(form: str) -> str:
    return "".join(c if c.isalnum() else _sign(c) for c in form)


def _sign(c: str) -> str:
    code = f"{ord(c):02x}"
    named = re.escape(html.escape(c))
    return rf"(?:\\*{re.escape(c)}|%(?:25)*{code}|\\+u00{code}|&#0*{ord(c)};|&#x0*{code};|{named})"
