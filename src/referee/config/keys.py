"""What looks like a key, so that one in the wrong place is refused and never shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A run of letters and digits that is no word of a name: AKIA… and the part of sk_live_… or hf_… that matters.
_RUN = re.compile(r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,}|[A-Za-z0-9]{32,}")
_START = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|gsk|hf|xai|nvapi)[-_]|bce-v3/|AIza|ya29\.|eyJ)(?=[^0-9\s]*[0-9])[-_/.A-Za-z0-9]{8,}"
)

_NAMES = frozenset({"apikey", "authorization", "accesstoken", "authtoken", "bearertoken", "clientsecret", "password"})
_ENDS = ("apikey", "secretkey", "secretaccesskey", "accesstoken", "authtoken", "password")
_VAGUE = frozenset({"key", "token", "secret", "bearer", "auth", "credentials", "cookie"})


def is_variable(name: str) -> bool:
    """Whether this can be the name of an environment variable, and not what should stand in one."""
    return _VARIABLE.fullmatch(name) is not None and not looks_like_key(name)


def looks_like_key(text: str) -> bool:
    """Whether this is a key rather than a name: keys have long runs without meaning, or a provider's beginning."""
    return _RUN.search(text) is not None or _START.search(text) is not None


def names_a_key(name: str) -> bool:
    """Whether a field of this name holds a key, whatever its value looks like."""
    plain = _plain(name)
    return plain in _NAMES or plain.endswith(_ENDS)


def find_key_field(fields: Mapping[str, Any], path: str = "") -> str | None:
    """Where in these fields a key stands by its name, as `a.b`; None if nowhere."""
    for name, value in fields.items():
        here = f"{path}{name}"
        if names_a_key(str(name)):
            return here
        inner = find_key_field(value, f"{here}.") if isinstance(value, Mapping) else None
        if inner is not None:
            return inner
    return None


def holds_key(value: Any) -> bool:
    """Whether a key stands somewhere in this plain data, by its field's name or by its looks."""
    if isinstance(value, Mapping):
        return any(names_a_key(str(name)) or holds_key(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return any(holds_key(inner) for inner in value)
    return isinstance(value, str) and _START.search(value) is not None


def without_keys(value: Any) -> Any:
    """The same plain data with *** where a key stands, by its field's name or by its looks."""
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if names_a_key(str(name)) or _plain(str(name)) in _VAGUE else without_keys(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_keys(inner) for inner in value]
    return HIDDEN if isinstance(value, str) and _START.search(value) else value


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())
