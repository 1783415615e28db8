"""Recognizing API keys, so that one in the wrong place is refused and never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "***"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A long run of letters and digits, as no name has: AKIA…, and the random part of sk_live_… or hf_….
_RUN = re.compile(r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,}|[A-Za-z0-9]{32,}")
_START = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|gsk|hf|xai|nvapi)[-_]|bce-v3/|AIza|ya29\.|eyJ)(?=[^0-9\s]*[0-9])[-_/.A-Za-z0-9]{8,}"
)

_NAMES = frozenset({"apikey", "authorization", "accesstoken", "authtoken", "bearertoken", "clientsecret", "password"})
_ENDS = ("apikey", "secretkey", "secretaccesskey", "accesstoken", "authtoken", "password")
_VAGUE = frozenset({"key", "token", "secret", "bearer", "auth", "credentials", "cookie"})


def is_variable(name: str) -> bool:
    """Whether this can be the name of an environment variable rather than its value."""
    return _VARIABLE.fullmatch(name) is not None and not looks_like_key(name)


def looks_like_key(text: str) -> bool:
    """Whether this is a key rather than a name: it has a long random run, or a provider's prefix."""
    return _RUN.search(text) is not None or _START.search(text) is not None


def names_a_key(name: str) -> bool:
    """Whether a field of this name holds a key, whatever its value."""
    plain = _plain(name)
    return plain in _NAMES or plain.endswith(_ENDS)


def find_key(value: Any, path: str = "") -> str | None:
    """Path (`a.b`) of the first field of plain data that holds a key, by its name or its looks; None: there is none."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            here = f"{path}.{name}" if path else str(name)
            if names_a_key(str(name)):
                return here
            if (found := find_key(inner, here)) is not None:
                return found
    elif isinstance(value, list | tuple):
        for inner in value:
            if (found := find_key(inner, path)) is not None:
                return found
    elif isinstance(value, str) and _START.search(value):
        return path
    return None


def without_keys(value: Any) -> Any:
    """The same plain data with keys redacted, recognized by field name or value."""
    if isinstance(value, Mapping):
        return {
            name: REDACTED if names_a_key(str(name)) or _plain(str(name)) in _VAGUE else without_keys(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_keys(inner) for inner in value]
    return REDACTED if isinstance(value, str) and _START.search(value) else value


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())
