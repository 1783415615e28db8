"""The cache key: a digest of everything that shaped an answer. Pure: no clock, no I/O.

In it: dialect, host (or the name it is known by), path, model and extra fields of the endpoint, sampling, and the
request's facets (kind of judge, parser version, digests of template and texts; the guard's nonce is left out, or no two
requests would be equal).
Not in it: the key, the endpoint's name, prices, limits, proxy. They do not change what a model says.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import urlsplit

import msgspec

from referee.config import EndpointConfig
from referee.records import Ask, Sampling
from referee.wire import Dialect, scrub

KEY_BYTES = 16
"""128 bits. Two requests with the same key would share a reward; at this length there are no collisions."""

_SHOWN = 80
"""Characters of a facet that are kept; a longer one is kept as its beginning and a digest."""


OWN = frozenset({"images", "prompt", "reference", "response", "responses", "statements", "repeat"})
"""Facets that differ from request to request; so do the rows' columns."""

_json = msgspec.json.Encoder().encode


class KeyMaker:
    """Keys of requests to one endpoint, whose part is hashed once."""

    def __init__(self, endpoint: EndpointConfig, dialect: Dialect) -> None:
        self._extra = _canonical(endpoint.extra)
        self._endpoint = (
            ("dialect", dialect.name),
            ("known_as", endpoint.known_as) if endpoint.known_as else ("host", endpoint.host),
            ("path", urlsplit(dialect.url(endpoint)).path),
            ("model", endpoint.model),
            ("extra", self._extra),
        )
        self._base = sha256(_joined(self._endpoint))
        self._sampling: Sampling | None = None
        self._prefix = self._base
        self._common: tuple[tuple[tuple[str, str], ...], Sampling | None, dict[str, str]] = ((), None, {})

    def key(self, request: Ask) -> str:
        """The key, in hex."""
        if request.sampling is not self._sampling:
            # One judge, one Sampling object: in the steady state this is computed once.
            prefix = self._base.copy()
            prefix.update(_joined((("sampling", _canonical(request.sampling)),)))
            self._prefix, self._sampling = prefix, request.sampling
        state = self._prefix.copy()
        state.update(_joined(request.facets))
        return state.hexdigest()[: 2 * KEY_BYTES]

    def facets(self, request: Ask) -> tuple[dict[str, str], dict[str, str]]:
        """What the key is made of, by name and short enough to be stored: the part most requests share, and the rest.

        The first is the same object from one request to the next of the same judge.
        """
        own = {name: _brief(value) for name, value in request.facets if _is_own(name)}
        rest = tuple([facet for facet in request.facets if facet[0] not in own])
        if rest != self._common[0] or request.sampling is not self._common[1]:
            self._common = rest, request.sampling, self._shared(rest, request.sampling)
        return self._common[2], own

    def _shared(self, facets: tuple[tuple[str, str], ...], sampling: Sampling) -> dict[str, str]:
        found = {name: _brief(value) for name, value in self._endpoint[:-1]}
        if self._extra != "{}":
            found["extra"] = _secretless(self._extra)
        found |= {name: _brief(value) for name, value in facets}
        if "sampling" not in found:
            found["sampling"] = _brief(_canonical(sampling))
        return found


def explain(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Why two keys differ: a line for each facet that does, with both values."""
    names = [*one, *(name for name in other if name not in one)]
    absent = "(absent)"
    return [
        f"{name}: {one.get(name, absent)} | {other.get(name, absent)}"
        for name in names
        if one.get(name) != other.get(name)
    ]


def _is_own(name: str) -> bool:
    return name in OWN or "columns." in name


def _canonical(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _joined(pairs: tuple[tuple[str, str], ...]) -> bytes:
    """Names and values as JSON: quoted, so no two lists of pairs look alike."""
    try:
        return _json(pairs)
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can only carry escaped.
        return json.dumps(pairs).encode()


def _brief(value: str) -> str:
    return value if len(value) <= _SHOWN else _digested(value)


@functools.lru_cache(maxsize=64)
def _digested(value: str) -> str:
    name = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    head = value[:_SHOWN].encode("utf-8", "replace").decode()
    return f"{head}… ({len(value)} characters, sha256 {name})"


def _secretless(extra: str) -> str:
    """Extra fields with anything key-like hidden; the digest still tells two of them apart."""
    return f"{scrub(extra)} (sha256 {sha256(extra.encode()).hexdigest()[:16]})"
